"""The files that a run leaves are whole whatever happens; a disk that fills up stops nothing."""

import errno
import os
import tempfile
from pathlib import Path

import pytest
from hand_made import case, record, steady
from rendered import report_of

from shared.bench.record import Record
from shared.bench.report import output_files
from shared.bench.report.output_files import CannotWrite, Keeper, check_outputs, locked, write_reports
from shared.file_writing import write_atomically


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """What is written does not reach the disk, until this is undone."""

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    return monkeypatch


def made() -> Record:
    return record(steady(case("jax", "vmap"), 0.25))


def test_a_reader_of_the_old_file_never_sees_the_new_one(tmp_path: Path):
    path = tmp_path / "page.html"
    path.write_text("old")
    with path.open() as reader:
        write_atomically(path, "Σ – 'µs' \udcff\n")  # the last one of a path that is not UTF-8
        assert reader.read() == "old"
    assert path.read_bytes() == "Σ – 'µs' ?\n".encode()  # whatever the system's encoding
    (other := tmp_path / "other").touch()
    assert path.stat().st_mode == other.stat().st_mode  # others may read it if they may read other files


def test_a_link_and_a_pipe_are_written_into_not_replaced(tmp_path: Path):
    link, target, pipe = (tmp_path / name for name in ("link", "target", "pipe"))
    link.symlink_to(target)
    write_atomically(link, "new")
    assert link.is_symlink() and target.read_text() == "new"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_atomically(pipe, "new")
    assert pipe.is_fifo() and os.read(reader, 9) == b"new"
    os.close(reader)


def test_looking_whether_a_file_can_be_written_changes_nothing(tmp_path: Path):
    path = tmp_path / "run.json"
    check_outputs([("--json", path)], [], force=False)
    assert not path.exists()
    path.write_text("old")
    check_outputs([("--json", path)], [], force=True)
    with pytest.raises(CannotWrite, match="--force"):
        check_outputs([("--json", path)], [], force=False)
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_devices_are_written_without_force_and_may_have_several_outputs():
    check_outputs([("--json", Path("/dev/null")), ("--report", Path("/dev/null"))], [], force=False)


def test_a_record_that_another_run_writes_is_refused(tmp_path: Path):
    path = tmp_path / "run.json"
    with locked(path):
        with pytest.raises(CannotWrite, match="another run is writing it"), locked(tmp_path / "." / "run.json"):
            pass
        with locked(tmp_path / "other.json"):
            pass
    with locked(path):
        pass
    assert not list(tmp_path.iterdir())


def test_a_folder_without_permission_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(dir: Path) -> None:  # a root user may write everywhere
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), dir)

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    with pytest.raises(CannotWrite, match="Permission denied"):
        check_outputs([("--json", tmp_path / "run.json")], [], force=False)


def test_the_record_is_kept_after_every_step(tmp_path: Path):
    path, growing = tmp_path / "run.json", made()
    keep = Keeper(growing, path)
    for variant in ("wavefront", "fused"):
        growing.results.append(steady(case("jax", variant), 0.25))
        keep()
        assert Record.read(path) == growing


def test_what_an_earlier_run_left_stays_until_something_is_measured(tmp_path: Path):
    path, growing = tmp_path / "run.json", record()
    path.write_text("an earlier run")
    keep = Keeper(growing, path)
    keep()
    assert keep.write() is None and path.read_text() == "an earlier run"
    growing.results.append(steady(case("jax", "vmap"), 0.25))
    keep()
    assert Record.read(path) == growing


def test_a_disk_that_fills_up_is_told_once_and_the_run_continues(
    tmp_path: Path, full_disk: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    path, growing = tmp_path / "run.json", made()
    path.write_bytes(b"old")
    keep = Keeper(growing, path)
    for _ in range(3):
        keep()
    problem = f"cannot write {path}: No space left on device"
    assert capsys.readouterr().err == f"{problem}; the run continues, and prints its results at the end\n"
    # what was there is whole, and nothing half written is beside it
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]
    assert keep.write() == problem
    full_disk.undo()
    assert keep.write() is None and Record.read(path) == growing


def test_a_report_that_cannot_be_written_is_told_and_costs_the_others_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(output_files, "html_report", lambda *_: "page")
    monkeypatch.setattr(output_files, "markdown_report", lambda reports, *_: f"# {len(reports)}\n")
    page, text = tmp_path / "missing" / "page.html", tmp_path / "page.md"
    assert write_reports(page, text, [report_of(made())] * 2, [], []) == [
        f"cannot write {page}: No such file or directory"
    ]
    assert text.read_text() == "# 2\n" and list(tmp_path.iterdir()) == [text]
