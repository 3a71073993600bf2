"""Recorded runs on the command line: go on with one, show some, compare two; and nothing of them is ever lost."""

import contextlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import hand_made
import in_process
import pytest
from command_line import run_compare
from in_process import Ended, assert_refused
from shared.bench.machine import usable_cores
from shared.bench.plan import Settings

import compare as command
from shared.bench import outputs
from shared.bench.command_line import EPILOG
from shared.bench.record import Record

end_of, settings_of = in_process.end_of, in_process.settings_of  # fixtures

# every setting of a run, and a value that is not its default: a resumed run has its own
WITH_RESUME = {
    "--device": "cuda", "--framework": "jax", "--problem": "free_gap", "--variant": "vmap", "--pass": "hvp",
    "--input": "random", "--matrix": "PAM250", "--batch": "3", "--size": "5x5", "--dtype": "float64",
    "--precision": "0.1", "--workers": "3", "--rounds": "3", "--temperature": "2", "--gap": "-2", "--gap-open": "-2",
    "--gap-extend": "-2", "--no-restrict-turns": "", "--no-penalize-turns": "", "--end": "match", "--seed": "3",
    "--threads": "1", "--unroll": "2", "--compile-limit": "60", "--sweep": "5x5", "--ladder": "",
}  # fmt: skip
if len(usable_cores()) == 1:
    del WITH_RESUME["--threads"]  # there it is the default


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """The file of a run that was not finished."""
    path = tmp_path / "recorded.json"
    asked = Settings(passes=("score",), rounds=3, seed=7, batch=5, budget=60.0)
    hand_made.record(hand_made.steady(hand_made.case("jax", "vmap"), 0.25), settings=asked, finished=None).write(path)
    return path


def test_a_resumed_run_has_the_settings_of_its_record_but_the_budget(
    settings_of: Callable[..., Settings], recorded: Path
):
    before = Record.read(recorded).settings
    assert before is not None
    assert settings_of("--resume", str(recorded), "--budget", "90") == replace(before, budget=90.0)
    assert settings_of("--resume", str(recorded)).budget == Settings.budget


def test_a_resumed_run_is_kept_in_its_file_with_the_command(settings_of: Callable[..., Settings], recorded: Path):
    settings_of("--resume", str(recorded))
    again = Record.read(recorded)
    assert again.command == "python compare.py"
    assert again.resumed_by == [f"python compare.py --resume {recorded}"]


def test_a_resumed_run_may_be_kept_elsewhere(settings_of: Callable[..., Settings], recorded: Path, tmp_path: Path):
    before = recorded.read_bytes()
    settings_of("--resume", str(recorded), "--json", "other.json", "--report", "page.html", "--markdown", "page.md")
    assert recorded.read_bytes() == before
    assert Record.read(tmp_path / "other.json").resumed_by
    assert (tmp_path / "page.html").exists() and (tmp_path / "page.md").exists()


@pytest.mark.parametrize("option", WITH_RESUME)
def test_a_resumed_run_takes_no_other_setting(end_of: Callable[..., Ended], recorded: Path, option: str):
    ended = end_of("--resume", str(recorded), *f"{option} {WITH_RESUME[option]}".split())
    assert_refused(ended, f"{option} does not go with --resume: the record has the settings")


def test_a_run_that_ended_before_it_began_cannot_be_resumed(end_of: Callable[..., Ended], tmp_path: Path):
    path = tmp_path / "run.json"
    Record("python compare.py").write(path)
    assert_refused(end_of("--resume", str(path)), f"{path} has nothing to go on with: its run ended before it began")


def test_whether_a_resumed_run_can_be_kept_in_its_file_is_looked_at_before_measuring(
    settings_of: Callable[..., Settings], recorded: Path, monkeypatch: pytest.MonkeyPatch
):
    looked_at: list[Path] = []
    monkeypatch.setattr(command, "check_writable", lambda option, path: looked_at.append(path))
    settings_of("--resume", str(recorded))
    assert looked_at == [recorded]


def test_a_run_of_another_machine_is_not_gone_on_with(end_of: Callable[..., Ended], recorded: Path):
    before = recorded.read_bytes()
    ended = end_of("--resume", str(recorded))
    assert ended.code == 2
    assert ended.err[-1].startswith(f"compare.py: error: cannot go on with {recorded}: cpu was Abacus 9, is ")
    assert recorded.read_bytes() == before


READERS = ("--resume {0}", "--from {0}", "--from {1} {0}", "--against {0} {1}", "--against {1} {0}")


@pytest.mark.parametrize("arguments", READERS)
@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, "No such file or directory"),
        (b"{", "expected JSON, got something else"),
        (b'{"schema_version": 2}', "expected a record with schema_version 3, got 2"),
        (b'{"schema_version": 3}', "expected a whole record, got one with a fault"),
    ],
)
def test_a_file_that_is_no_record_is_told(
    end_of: Callable[..., Ended], recorded: Path, tmp_path: Path, arguments: str, content: bytes | None, text: str
):
    path = tmp_path / "bad.json"
    if content is not None:
        path.write_bytes(content)
    assert_refused(end_of(*arguments.format(path, recorded).split()), f"cannot read {path}: {text}")


def test_recorded_runs_are_printed_one_below_the_other(end_of: Callable[..., Ended], recorded: Path):
    ended = end_of("--from", str(recorded), str(recorded))
    assert (ended.code, ended.err) == (0, [])
    assert ended.out.count("smith_waterman: smooth local alignment") == 2
    assert ended.out.count("this run was not finished") == 2


def test_recorded_runs_are_compared(end_of: Callable[..., Ended], recorded: Path):
    ended = end_of("--against", str(recorded), str(recorded))
    assert (ended.code, ended.err) == (0, [])
    assert "1 cases measured in both: 0 slower, 0 faster, 1 with no difference" in ended.out


@pytest.mark.parametrize(
    "arguments", ["--resume {0} --report {0}", "--from {0} --report {0}", "--from {0} --markdown {0}"]
)
def test_a_report_never_takes_the_place_of_the_record_that_it_is_made_from(
    settings_of: Callable[..., Settings], recorded: Path, arguments: str
):
    with contextlib.suppress(SystemExit):  # refused, or written elsewhere
        command.main(arguments.format(recorded).split())
    assert Record.read(recorded).results


@pytest.mark.usefixtures("settings_of")
def test_reports_of_recorded_runs_are_of_all_of_them(recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(outputs, "_page", lambda records: f"{len(records)} records")
    assert command.main(["--from", str(recorded), str(recorded), "--report", "page.html"]) == 0
    assert (tmp_path / "page.html").read_text() == "2 records"


@pytest.mark.parametrize("arguments", ["--against {0} {0} --report page.html", "--list --json run.json"])
def test_an_output_that_will_not_be_written_is_refused(
    end_of: Callable[..., Ended], recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: str
):
    monkeypatch.chdir(tmp_path)
    assert end_of(*arguments.format(recorded).split()).code == 2


def test_help_has_worked_examples_of_every_kind_of_use():
    done = run_compare("--help")
    assert (done.returncode, done.stderr) == (0, "")
    examples = done.stdout[done.stdout.index("examples:") :]
    shown = [line for line in examples.splitlines() if line.startswith("  python compare.py")]
    assert len(shown) == 8
    for option in ("--sweep", "--resume", "--from", "--against", "--report", "--json"):
        assert any(option in line for line in shown)
    for option in (*WITH_RESUME, "--budget", "--json", "--report", "--markdown", "--resume", "--from", "--against",
                   "--list"):  # fmt: skip
        assert f"{option} " in done.stdout or f"{option}\n" in done.stdout


def test_help_s_examples_are_accepted(settings_of: Callable[..., Settings], recorded: Path, tmp_path: Path):
    for name in ("cpu.json", "gpu.json", "old.json", "new.json"):
        (tmp_path / name).write_bytes(recorded.read_bytes())
    lines = [line.split()[2:] for line in EPILOG.splitlines() if line.startswith("  python compare.py")]
    measuring = [line for line in lines if not {"--resume", "--from", "--against"} & set(line)]
    asked = [settings_of(*line) for line in measuring]
    assert [settings.input for settings in asked] == ["globins", "random", "random", "my.fasta", "random"]
    assert (tmp_path / "result.json").exists() and (tmp_path / "sweep.html").exists()
    (tmp_path / "result.json").write_bytes(recorded.read_bytes())
    others = [line for line in lines if line not in measuring]
    assert [command.main(line) for line in others] == [0, 0, 0]
    assert (tmp_path / "both.html").exists()
