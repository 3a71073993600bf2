"""compare.py --problem FILE.py: what it refuses, a whole run of the example, and its record without the file."""

from dataclasses import replace
from pathlib import Path

import hand_made
import pytest
from command_line import LEAST, ROOT, plant, rows, run_compare
from hand_made import case, steady
from in_process import assert_refused, run_here, start_at_once
from rendered import console_report, html_report, markdown_report

import compare
from shared.bench.cases import Absence, Settings
from shared.bench.questions import QUESTIONS
from shared.bench.record import Facts, Record
from shared.problems import problem_of
from shared.variants import Abilities

# the first case that needs PyTorch's compiler starts it
AT_ONCE = """
def start(backend):
    backend.start_compiler = lambda device: None

PATCHES = {"torch_impl.backend": start}
"""
EXAMPLE = ROOT / "docs/soft_dtw.py"

REFUSED = {
    "--size 5x5": "--size goes with --problem smith_waterman or ",
    "--batch 3": "--batch goes with --problem smith_waterman or ",
    "--input random": "--input goes with --problem smith_waterman or ",
    "growth": "growth does not go with mine.py, which has one size",
    "growth --sizes 5,6": "--sizes goes with --problem smith_waterman or ",
    "--variant vmap": "unknown variant 'vmap' of mine.py; known: eager, compiled",
    "--pass score": "unknown pass 'score' of mine.py; known: value, gradient",
}


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the example, as mine.py in the working directory."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "mine.py"
    path.write_text(EXAMPLE.read_text())
    return path


@pytest.mark.parametrize("arguments", REFUSED)
def test_options_that_do_not_go_with_a_file_are_refused(mine: Path, arguments: str):
    assert_refused(run_here("--problem", "mine.py", *arguments.split()), REFUSED[arguments])


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_bad_file_is_refused_by_every_question_before_a_worker_starts(mine: Path, question: str):
    mine.write_text("\nlength = len(3)\n")
    text = "mine.py, line 2: TypeError: object of type 'int' has no len()"
    assert_refused(run_here(question, "--problem", "mine.py"), text)
    assert_refused(run_here(question, "--problem", "none.py"), "cannot read none.py: No such file or directory")


@pytest.mark.parametrize("question", ["shapes", "memory", "transforms", "bridge"])
def test_questions_about_alignments_refuse_a_file(mine: Path, question: str):
    assert_refused(run_here(question, "--problem", "mine.py"), f"{question} goes with alignments, not with mine.py")


def test_a_function_that_is_missing_is_told(mine: Path, monkeypatch: pytest.MonkeyPatch):
    mine.write_text(mine.read_text().replace("def torch_function", "def other"))
    start_at_once(monkeypatch, Abilities(None))
    ended = run_here("--problem", "mine.py", "--framework", "torch", "--variant", "compiled", "--pass", "value")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err[-1] == (
        "compare.py: error: nothing to measure: PyTorch compiled value: mine.py has no torch_function"
    )


def test_what_fails_in_a_file_is_bad_input_and_the_rest_is_printed(mine: Path, monkeypatch: pytest.MonkeyPatch):
    def measure(_: object, record: Record, *__: object) -> None:
        of = [replace(case("torch", name, "value"), problem="mine.py", input="data") for name in ("eager", "compiled")]
        results = [hand_made.ended(of[0], "failed", "ValueError: no"), steady(of[1], 0.25, work=1)]
        vars(record).update(vars(hand_made.record(*results, settings=record.settings, inputs={"data": facts})))

    facts = Facts("inputs(0)", (3,), None, 1, {}, {"file": "mine.py"}, "5f" * 32)
    monkeypatch.setattr(compare, "measure", measure)
    ended = run_here("--problem", "mine.py", "--framework", "torch", "--pass", "value")
    assert ended.code == 2 and ended.err[-1] == "compare.py: error: PyTorch eager value: ValueError: no"
    assert "FAILED: PyTorch eager value: ValueError: no" in ended.out and "250 ms" in ended.out


def test_an_edited_file_is_not_resumed(mine: Path, monkeypatch: pytest.MonkeyPatch):
    asked = Settings(problem="mine.py", passes=("value",), input="random")
    facts = {name: Facts.of(given) for name, given in problem_of("mine.py").inputs(asked).items()}
    hand_made.record(settings=asked, inputs=facts).write(Path("run.json"))
    start_at_once(monkeypatch, Abilities(None))
    refused = [run_here("--resume", "run.json").err[-1]]  # by the machine, which is another
    mine.write_text(mine.read_text() + "# changed\n")
    refused.append(run_here("--resume", "run.json").err[-1])
    assert [line.endswith("; the input data differs") for line in refused] == [False, True]


def test_the_list_and_help_name_a_file(monkeypatch: pytest.MonkeyPatch):
    start_at_once(monkeypatch)
    line = "FILE.py: functions of your own; size as inputs(seed) makes it"
    assert line in run_here("--list").out.splitlines()
    assert "see --list, or FILE.py" in run_here("--help").out


@pytest.mark.parametrize("question", ["speed", "ladder"])
def test_a_record_is_shown_without_the_file(question: str):
    problem = "no/such/mine.py"
    asked = Settings(question, problem=problem, passes=("value",), input="random")
    of = [case("jax", "compiled", "value"), case("torch", "compiled", "value"), case("torch", "eager", "value", False)]
    results = [steady(replace(each, problem=problem, input="data"), 0.25, work=1) for each in of]
    results[1].status, results[1].reason, results[1].blocks = "limit", "torch.compile failed: Unsupported (f(x))", []
    absent = [Absence("jax", "JAX eager value, not compiled", "JAX runs it under jit")]
    facts = {"data": Facts("inputs(0): float32 (3,)", (3,), None, 1, {}, {"file": problem}, "5f" * 32)}
    made = hand_made.record(*results, settings=asked, inputs=facts, absent=absent)
    printed = console_report(made)
    table = rows(printed)
    assert table["value", "JAX", "compiled"]["calls/s"] == "4" == table["value", "PyTorch", "eager"]["calls/s"]
    assert table["value", "PyTorch", "compiled"]["first call, caches empty"] == "torch.compile failed"
    assert "LIMIT: PyTorch compiled value: torch.compile failed: Unsupported (f(x))" in printed
    assert (
        f"mine.py: functions of your own; float32, file {problem}\ninput: inputs(0): float32 (3,); 1 call\n" in printed
    )
    assert "torch.compile failed" in markdown_report([made]) and "torch.compile failed" in html_report([made])


def test_the_example_is_measured(tmp_path: Path):
    """PyTorch's compiler, which takes many seconds to start, passes this limit: that is no failure."""
    which = ("--problem", "docs/soft_dtw.py", "--pass", "value", "--compile-limit", "3")
    folder = plant(tmp_path, AT_ONCE)
    done = run_compare(*LEAST, *which, "--json", str(tmp_path / "run.json"), folders=(folder,))
    assert done.returncode == 0, done.stderr
    table, record = rows(done.stdout), Record.read(tmp_path / "run.json")
    compiled = {("PyTorch", "eager"): "no", ("JAX", "compiled"): "yes", ("PyTorch", "compiled"): "yes"}
    assert {key[1:]: row["compiled"] for key, row in table.items()} == compiled
    measured = {(result.case.framework, result.case.variant) for result in record.results if result.measured}
    assert measured >= {("jax", "compiled"), ("torch", "eager")}
    assert {framework: lines["eager"] > 5 for framework, lines in record.code_lines.items()} == {
        "jax": True, "torch": True
    }  # fmt: skip
    notes = {result.new_shapes_note for result in record.results if result.measured}
    assert notes == {"inputs(seed) gives one shape only"}
    assert "absent: JAX eager value, not compiled: JAX runs it under jit\n" in done.stdout
