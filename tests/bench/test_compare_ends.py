"""However a run ends, what it found is printed and kept, and the exit code says how it was."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import hand_made
import pytest
from hand_made import case, ended, steady
from in_process import Ended, run_here

import compare
from shared.bench.record import Record, Result
from shared.bench.report import output_files
from shared.bench.run.context import CannotMeasure
from shared.problems.problem import UnusableInput
from shared.sequences import SequenceError

FINE = steady(case("jax", "vmap"), 0.25)
VERDICT = "score: only JAX (vmap, 250 ms per call) was measured, so there is nothing to compare."

EVERY_FILE = ("--json", "folder/run.json", "--report", "folder/page.html", "--markdown", "folder/page.md")

# what a run finds, in order, and what happens to it
Step = Result | BaseException | Callable[[], object]
End = Callable[..., Ended]


@pytest.fixture
def end_with(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> End:
    """Run the command with runs that take these steps, and have everything written."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    for name in ("html_report", "markdown_report"):
        monkeypatch.setattr(output_files, name, lambda reports, *_: f"{len(reports[0].brief[0].rows)} results")

    def end(*runs: Sequence[Step], arguments: Sequence[str] = EVERY_FILE) -> Ended:
        left = list(runs)

        def measure(_: object, record: Record, __: object, keep: Callable[[], None]) -> None:
            for step in left.pop(0):
                if isinstance(step, BaseException):
                    raise step
                if callable(step):
                    step()
                    continue
                whole = hand_made.record(settings=record.settings)
                record.started, record.inputs, record.environment = whole.started, whole.inputs, whole.environment
                record.results.append(step)
                keep()

        monkeypatch.setattr(compare, "measure", measure)
        return run_here("--pass=score", *arguments)

    return end


def kept(folder: Path) -> list[Result]:
    """Of the record; the reports must have as many."""
    results = Record.read(folder / "folder/run.json").results
    assert {(folder / "folder" / name).read_text() for name in ("page.html", "page.md")} == {f"{len(results)} results"}
    return results


@pytest.mark.parametrize(("status", "code"), [("ok", 0), ("wrong", 1), ("failed", 1), ("limit", 0)])
def test_a_wrong_result_or_a_failed_case_ends_with_1(end_with: End, tmp_path: Path, status: str, code: int):
    results = [FINE, *([] if status == "ok" else [ended(case("torch", "vmap"), status, "because")])]
    done = end_with(results)
    assert (done.code, done.err) == (code, [])
    assert VERDICT in done.out.splitlines() and kept(tmp_path) == results


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (CannotMeasure("JAX has no such device\nPyTorch neither"), 3, "PyTorch neither"),
        (UnusableInput("nothing to measure: vmap"), 2, "compare.py: error: nothing to measure: vmap"),
        (SequenceError("'a': no such file"), 2, "compare.py: error: 'a': no such file"),
        (MemoryError(), 2, "compare.py: error: the input does not fit into memory"),
        (KeyError("broken"), 1, "KeyError: 'broken'"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
    ids=["device", "nothing", "sequences", "memory", "program", "Ctrl-C"],
)
def test_an_error_before_a_run_has_begun_is_told_and_leaves_no_table_and_no_file(
    end_with: End, tmp_path: Path, error: BaseException, code: int, line: str
):
    done = end_with([error])
    assert (done.code, done.err[-1], done.out) == (code, line, "")
    assert not list((tmp_path / "folder").iterdir())


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (KeyboardInterrupt(), 130, "interrupted; this is what was finished:"),
        (MemoryError(), 2, "compare.py: error: the input does not fit into memory"),
        (OSError(28, "No space left on device"), 2, "compare.py: error: [Errno 28] No space left on device"),
        (KeyError("broken"), 1, "KeyError: 'broken'"),
    ],
    ids=["Ctrl-C", "memory", "a full disk", "program"],
)
def test_an_error_in_the_middle_of_a_run_is_told_and_costs_no_result(
    end_with: End, tmp_path: Path, error: BaseException, code: int, line: str
):
    done = end_with([FINE, error])
    assert done.code == code and done.err[-1].startswith(line)
    assert VERDICT in done.out.splitlines() and kept(tmp_path) == [FINE]


def test_a_report_that_cannot_be_made_costs_neither_the_others_nor_the_table(
    end_with: End, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    def without_matplotlib(*_: object) -> None:
        raise ImportError("no matplotlib")

    monkeypatch.setattr(output_files, "html_report", without_matplotlib)
    done = end_with([FINE])
    assert done.code == 2 and VERDICT in done.out.splitlines()
    assert done.err[-1] == "compare.py: error: cannot make folder/page.html: ImportError('no matplotlib')"
    assert (tmp_path / "folder/page.md").read_text() == "1 results"


def test_files_that_cannot_be_written_at_the_end_are_told_and_everything_is_printed(end_with: End, tmp_path: Path):
    done = end_with([FINE, lambda: shutil.rmtree(tmp_path / "folder")])
    assert done.code == 2 and VERDICT in done.out.splitlines()
    assert done.err == [
        f"compare.py: error: cannot write folder/{name}: No such file or directory"
        for name in ("run.json", "page.html", "page.md")
    ]


WRONG = ended(case("jax", "vmap"), "wrong", "score off by 1.0")


@pytest.mark.parametrize(
    ("first", "second", "code"),
    [(FINE, FINE, 0), (WRONG, FINE, 1), (FINE, CannotMeasure("no JAX any more"), 3)],
    ids=["both well", "the first wrong", "no second"],
)
def test_of_two_questions_both_are_answered_and_the_worst_gives_the_exit_code(
    end_with: End, first: Step, second: Step, code: int
):
    done = end_with([first], [second], arguments=("speed", "ladder"))
    assert done.code == code and (VERDICT in done.out.splitlines()) == (first is FINE)
    shown = sum(isinstance(step, Result) for step in (first, second))
    assert done.out.count("smith_waterman: smooth local alignment") == shown
