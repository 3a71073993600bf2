"""Recorded runs on the command line: resume one, show some, compare two; and nothing of them is ever lost."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import hand_made
import in_process
import pytest
from command_line import COMPARE
from in_process import assert_refused, run_here, start_at_once

from shared.bench.cases import Settings
from shared.bench.command_line import EPILOG
from shared.bench.questions import QUESTIONS
from shared.bench.record import SCHEMA_VERSION, Record

settings_of = in_process.settings_of  # a fixture


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """The file of a run that was not finished."""
    path = tmp_path / "recorded.json"
    asked = Settings(passes=("score",), rounds=3, seed=7, batch=5, budget=60.0)
    hand_made.record(hand_made.steady(hand_made.case("jax", "vmap"), 0.25), settings=asked, finished=None).write(path)
    return path


def test_a_resumed_run_has_the_settings_of_its_record_but_the_budget_and_is_kept_in_its_file(
    settings_of: Callable[..., Settings], recorded: Path
):
    before = Record.read(recorded)
    assert settings_of("--resume", str(recorded), "--budget", "90") == replace(before.settings, budget=90.0)
    again = Record.read(recorded)
    assert again.command == "python compare.py"
    assert again.resumed_by == [f"python compare.py --resume {recorded} --budget 90"]


def test_a_resumed_run_has_the_default_budget_of_its_question(settings_of: Callable[..., Settings], recorded: Path):
    made = Record.read(recorded)
    made.settings = replace(made.settings, question="ladder")
    made.write(recorded)
    assert settings_of("--resume", str(recorded)).budget == QUESTIONS["ladder"].default_budget == 900


def test_a_resumed_run_may_be_kept_elsewhere(settings_of: Callable[..., Settings], recorded: Path, tmp_path: Path):
    before = recorded.read_bytes()
    assert settings_of("--resume", str(recorded), "--json", "other.json", "--report", "page.html").budget == 300
    assert recorded.read_bytes() == before and (tmp_path / "page.html").exists()
    assert Record.read(tmp_path / "other.json").resumed_by


def test_a_run_of_another_machine_or_input_is_not_resumed(recorded: Path, monkeypatch: pytest.MonkeyPatch):
    start_at_once(monkeypatch)
    before = recorded.read_bytes()
    ended = run_here("--resume", str(recorded))
    assert ended.code == 2 and not ended.out
    assert ended.err[-1].startswith("compare.py: error: cannot resume: cpu was Abacus 9, is ")
    assert ended.err[-1].endswith("the input batch differs")
    assert recorded.read_bytes() == before


@pytest.mark.parametrize("arguments", ["--resume {0}", "--from {1} {0}", "--against {1} {0}"])
@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, "No such file or directory"),
        ("{", "not a record that this version reads: "),
        ({"question": "threads"}, "not a record that this version reads: threads cannot show it (ValueError: "),
        ({"batch": "5"}, "not a record that this version reads: batch must be a whole number, got '5'"),
        (
            '{"schema_version": 2}',
            f"not a record that this version reads: expected schema_version {SCHEMA_VERSION}, got 2",
        ),
    ],
)
def test_a_file_that_is_no_record_is_told(
    recorded: Path, tmp_path: Path, arguments: str, content: str | dict[str, str] | None, text: str
):
    path = tmp_path / "bad.json"
    if isinstance(content, dict):  # settings changed by hand
        stored = json.loads(recorded.read_text())
        content = json.dumps(stored | {"settings": stored["settings"] | content})
    if content is not None:
        path.write_text(content)
    assert_refused(run_here(*arguments.format(path, recorded).split()), f"cannot read {path}: {text}")


def test_recorded_runs_are_printed_and_reported_together(
    settings_of: Callable[..., Settings], recorded: Path, tmp_path: Path
):
    ended = run_here("--from", str(recorded), str(recorded), "--report", "page.html")
    assert (ended.code, ended.err) == (0, [])
    assert ended.out.count("smith_waterman: smooth local alignment") == 2
    assert ended.out.count("This run was not finished") == 2
    assert (tmp_path / "page.html").read_text() == "2 records"


def test_recorded_runs_are_compared(recorded: Path):
    ended = run_here("--against", str(recorded), str(recorded))
    assert (ended.code, ended.err) == (0, [])
    lines = ended.out.splitlines()
    assert "Cases, old and new" in lines
    assert lines[-1].endswith("1 in both: 0 slower, 0 faster, 1 same")


def test_the_examples_of_help_are_accepted(settings_of: Callable[..., Settings], recorded: Path, tmp_path: Path):
    lines = [line.split()[2:] for line in EPILOG.splitlines() if line.startswith("  python compare.py")]
    for name in ("cpu.json", "gpu.json", "old.json", "new.json"):
        (tmp_path / name).write_bytes(recorded.read_bytes())
    for line in lines:
        if line[-2:] == ["--resume", "result.json"]:
            (tmp_path / "result.json").write_bytes(recorded.read_bytes())
        assert run_here(*line).code == 0, line
    assert len(lines) == 7
    assert (tmp_path / "both.html").exists()
    printed = run_here("--help")
    assert printed.code == 0 and all(" ".join(line) in printed.out for line in lines)


def test_what_an_output_cannot_encode_is_replaced(recorded: Path):
    command = [sys.executable, COMPARE, "--from", str(recorded)]
    printed = subprocess.run(command, env=os.environ | {"PYTHONIOENCODING": "ascii"}, capture_output=True, check=True)
    assert b"250 ms" in printed.stdout and printed.stdout.isascii() and not printed.stderr
