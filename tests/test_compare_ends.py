"""However a run ends, what it found is printed and kept, and the exit code says how it was."""

import shutil
from collections.abc import Callable
from pathlib import Path

import hand_made
import in_process
import pytest
from hand_made import case, ended, steady
from in_process import Ended
from shared.bench.plan import Settings
from shared.bench.team import CannotMeasure

import compare as command
from shared.bench import outputs
from shared.bench.record import Record, Result
from shared.bench.run import NothingToMeasure
from shared.sequences import SequenceError

end_of = in_process.end_of  # fixtures

FINE = steady(case("jax", "vmap"), 0.25)
VERDICT = "score: only JAX (vmap, 250 ms per call) was measured, so there is nothing to compare."

Run = Callable[..., None]


def a_run(*results: Result, then: Callable[[], object] = lambda: None) -> Run:
    """What stands in for a run: it finds these results, keeping each, then something happens."""

    def run(settings: Settings, record: Record, progress: object, keep: Callable[[], None]) -> None:
        whole = hand_made.record(settings=settings)
        record.settings, record.inputs, record.environment = whole.settings, whole.inputs, whole.environment
        for result in results:
            record.results.append(result)
            keep()
        then()

    return run


def raises(error: BaseException) -> Callable[[], object]:
    def now() -> object:
        raise error

    return now


@pytest.fixture
def end_with(end_of: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Ended]:
    """Run the command with such a run, and have everything written."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(outputs, "_page", lambda records: f"{len(records[0].results)} results")
    monkeypatch.setattr(outputs, "_markdown", lambda records: f"{len(records[0].results)} results")

    def end(run: Run, folder: str = ".") -> Ended:
        monkeypatch.setattr(command, "run", run)
        names = {"--json": "run.json", "--report": "page.html", "--markdown": "page.md"}
        return end_of(
            "--pass=score", *(word for option, name in names.items() for word in (option, f"{folder}/{name}"))
        )

    return end


def kept(folder: Path) -> list[Result]:
    """Of the record; the reports must have as many."""
    results = Record.read(folder / "run.json").results
    assert {(folder / name).read_text() for name in ("page.html", "page.md")} == {f"{len(results)} results"}
    return results


def test_a_run_in_which_all_went_well_ends_with_0(end_with: Callable[..., Ended], tmp_path: Path):
    done = end_with(a_run(FINE))
    assert (done.code, done.err) == (0, [])
    assert VERDICT in done.out.splitlines() and kept(tmp_path) == [FINE]


@pytest.mark.parametrize(("status", "code"), [("wrong", 1), ("failed", 1), ("limit", 0)])
def test_a_wrong_result_or_a_failed_case_ends_with_1(
    end_with: Callable[..., Ended], tmp_path: Path, status: str, code: int
):
    bad = ended(case("torch", "vmap"), status, "because")
    done = end_with(a_run(FINE, bad))
    assert done.code == code and VERDICT in done.out.splitlines() and kept(tmp_path) == [FINE, bad]


def test_an_interrupted_run_prints_and_keeps_what_was_finished(end_with: Callable[..., Ended], tmp_path: Path):
    done = end_with(a_run(FINE, then=raises(KeyboardInterrupt())))
    assert (done.code, done.err) == (130, ["interrupted; this is what was finished:"])
    assert VERDICT in done.out.splitlines() and kept(tmp_path) == [FINE]


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (CannotMeasure("JAX has no such device\nPyTorch neither"), 3, "PyTorch neither"),
        (NothingToMeasure("nothing to measure: vmap"), 2, "compare.py: error: nothing to measure: vmap"),
        (SequenceError("'a': no such file"), 2, "compare.py: error: 'a': no such file"),
        (MemoryError(), 2, "compare.py: error: the input does not fit into memory"),
    ],
    ids=["device", "nothing", "sequences", "memory"],
)
def test_what_cannot_be_measured_is_told_in_its_own_words(
    end_with: Callable[..., Ended], error: BaseException, code: int, line: str
):
    done = end_with(a_run(then=raises(error)))
    assert (done.code, done.err[-1], done.out) == (code, line, "")


@pytest.mark.parametrize("error", [OSError(5, "broken"), KeyError("broken")], ids=["system", "program"])
def test_an_error_of_the_program_itself_is_not_hidden_and_costs_no_result(
    end_with: Callable[..., Ended], tmp_path: Path, error: Exception
):
    done = end_with(a_run(FINE, then=raises(error)))
    assert done.code == 1 and "broken" in done.err[-1] and any("Traceback" in line for line in done.err)
    assert VERDICT in done.out.splitlines() and kept(tmp_path) == [FINE]


def test_an_error_before_anything_was_measured_prints_no_table(end_with: Callable[..., Ended]):
    done = end_with(a_run(then=raises(KeyError("broken"))))
    assert (done.code, done.out) == (1, "")


def test_a_full_folder_for_temporary_files_is_told(end_with: Callable[..., Ended]):
    done = end_with(a_run(then=raises(OSError(28, "No space left on device"))))
    assert done.code == 2 and done.err[-1].endswith(": No space left on device")


def test_an_error_in_the_middle_of_a_run_leaves_what_was_finished(end_with: Callable[..., Ended], tmp_path: Path):
    done = end_with(a_run(FINE, then=raises(MemoryError())))
    assert done.code == 2 and VERDICT in done.out.splitlines() and kept(tmp_path) == [FINE]


def test_the_files_are_written_even_if_nothing_can_be_printed(
    end_with: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setattr(command, "report", lambda record: raises(BrokenPipeError())())
    with pytest.raises(BrokenPipeError):
        end_with(a_run(FINE))
    assert kept(tmp_path) == [FINE]


def test_a_report_that_cannot_be_made_costs_neither_the_others_nor_the_table(
    end_with: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    end = end_with
    monkeypatch.setattr(outputs, "_page", lambda records: raises(ImportError("no matplotlib"))())
    done = end(a_run(FINE))
    assert done.code == 2 and VERDICT in done.out.splitlines()
    assert done.err[-1] == "compare.py: error: cannot make page.html: ImportError('no matplotlib')"
    assert (tmp_path / "page.md").read_text() == "1 results"


def test_files_that_cannot_be_written_at_the_end_are_told_and_everything_is_printed(
    end_with: Callable[..., Ended], tmp_path: Path
):
    folder = tmp_path / "folder"
    folder.mkdir()
    done = end_with(a_run(FINE, then=lambda: shutil.rmtree(folder)), folder="folder")
    assert done.code == 2 and VERDICT in done.out.splitlines()
    assert done.err == [
        f"compare.py: error: cannot write folder/{name}: No such file or directory"
        for name in ("run.json", "page.html", "page.md")
    ]
