"""Files that cannot be written are told before anything is measured; a disk that fills up meanwhile stops nothing."""

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import disks
import pytest
from hand_made import case, record, steady
from shared.bench.outputs import CannotWrite, Keeper, check_writable, write_reports

from shared.bench import outputs
from shared.bench.record import SCHEMA_VERSION, Record, write_whole

FULL = "No space left on device"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own with room for 64 KiB."""
    with disks.small_disk(tmp_path, "64k") as folder:
        yield folder


def fill(folder: Path) -> Path:
    """Leave no room on the disk; returns the file that takes it."""
    path = folder / "filler"
    with path.open("wb", buffering=0) as file, pytest.raises(OSError, match=FULL):
        file.writelines(itertools.repeat(bytes(4096)))
    return path


def made() -> Record:
    return record(steady(case("jax", "vmap"), 0.25))


# one file


def test_a_name_may_be_as_long_as_the_system_allows(tmp_path: Path):
    path = tmp_path / ("a" * os.pathconf(tmp_path, "PC_NAME_MAX"))
    made().write(path)
    assert json.loads(path.read_text())["cases"]


def test_a_reader_of_the_old_file_never_sees_the_new_one(tmp_path: Path):
    path = tmp_path / "run.json"
    path.write_text("old")
    with path.open() as reader:
        made().write(path)
        assert reader.read() == "old"
    assert json.loads(path.read_text())["schema_version"] == SCHEMA_VERSION


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path):
    path = tmp_path / "run.json"
    path.write_text("old")
    unwritable = record(environment={"thing": {1, 2}})  # no set is JSON
    with pytest.raises(TypeError):
        unwritable.write(path)
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_a_write_that_is_cut_short_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def cut_short(self: Path, text: str, encoding: str) -> None:
        with self.open("w", encoding=encoding) as file:
            file.write(text[:100])
        raise OSError(28, "No space left on device")

    path = tmp_path / "run.json"
    path.write_text("old")
    monkeypatch.setattr(Path, "write_text", cut_short)
    with pytest.raises(OSError, match="No space left"):
        made().write(path)
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_a_file_is_utf_8_whatever_the_system_prefers(tmp_path: Path):
    write_whole(tmp_path / "page.html", "Σ – 'µs'\n")
    assert (tmp_path / "page.html").read_bytes() == "Σ – 'µs'\n".encode()


# before


def unwritable(kind: str, folder: Path) -> tuple[Path, str]:
    """A path of this kind, and the reason that must be told."""
    kinds = {
        "a directory": (folder, "it is a directory"),
        "a link to a directory": (folder / "link", "it is a directory"),
        "in a missing folder": (folder / "missing" / "run.json", "No such file or directory"),
        "below a file": (folder / "file" / "run.json", "Not a directory"),
        "a name too long": (folder / ("a" * 300), "File name too long"),
        "a device": (Path("/dev/full"), "it is not a regular file"),
        "a pipe": (folder / "pipe", "it is not a regular file"),
    }
    (folder / "link").symlink_to(folder)
    (folder / "file").write_text("old")
    os.mkfifo(folder / "pipe")
    return kinds[kind]


@pytest.mark.skipif(sys.platform == "win32", reason="pipes and devices are other things there")
@pytest.mark.parametrize(
    "kind",
    ["a directory", "a link to a directory", "in a missing folder", "below a file", "a name too long", "a device",
     "a pipe"],
)  # fmt: skip
def test_what_cannot_be_written_is_told_with_path_option_and_reason(tmp_path: Path, kind: str):
    path, reason = unwritable(kind, tmp_path)
    if kind == "a device" and not path.exists():
        pytest.skip("this system has no /dev/full")
    before = sorted(tmp_path.iterdir())
    with pytest.raises(CannotWrite) as error:
        check_writable("--report", path)
    assert str(error.value) == f"cannot write {path} (--report): {reason}"
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="nothing is closed to this user")
def test_a_closed_folder_is_told(tmp_path: Path):
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(CannotWrite, match="Permission denied"):
            check_writable("--json", tmp_path / "run.json")
    finally:
        tmp_path.chmod(0o700)


def test_a_disk_that_only_reads_is_told(small_disk: Path):
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(CannotWrite, match="Read-only file system"):
        check_writable("--json", small_disk / "run.json")


def test_a_disk_without_room_is_told_although_a_small_file_would_fit(small_disk: Path):
    path = small_disk / "run.json"
    path.write_text("fits")
    with pytest.raises(CannotWrite, match=FULL):
        check_writable("--json", path)
    assert path.read_text() == "fits" and list(small_disk.iterdir()) == [path]


@pytest.mark.parametrize("content", [None, "old"])
def test_looking_changes_nothing(tmp_path: Path, content: str | None):
    path = tmp_path / "run.json"
    if content is not None:
        path.write_text(content)
    check_writable("--json", path)
    assert list(tmp_path.iterdir()) == ([] if content is None else [path])
    assert content is None or path.read_text() == content


def test_a_name_without_a_folder_is_in_this_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    check_writable("--json", Path("run.json"))
    Keeper(made(), Path("run.json"))()
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


# meanwhile


def test_the_record_is_kept_after_every_step(tmp_path: Path):
    path, kept = tmp_path / "run.json", made()
    keep = Keeper(kept, path)
    for variant in ("wavefront", "fused"):
        kept.results.append(steady(case("jax", variant), 0.25))
        keep()
        assert Record.read(path) == kept
    kept.notes.append("at last")
    assert keep.finish() == [] and Record.read(path) == kept


def test_what_an_earlier_run_left_stays_until_something_is_measured(tmp_path: Path):
    path, kept = tmp_path / "run.json", made()
    path.write_text("an earlier run")
    kept.results.clear()
    keep = Keeper(kept, path)
    keep()
    assert keep.finish() == [] and path.read_text() == "an earlier run"
    kept.results.append(steady(case("jax", "vmap"), 0.25))
    keep()
    assert Record.read(path) == kept


def test_without_a_path_nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    keep = Keeper(made(), None)
    keep()
    assert keep.finish() == [] and list(tmp_path.iterdir()) == []


def test_a_disk_that_fills_up_is_told_once_and_the_run_goes_on(small_disk: Path, capsys: pytest.CaptureFixture[str]):
    path, kept = small_disk / "run.json", made()
    keep = Keeper(kept, path)
    keep()
    before = path.read_text()
    filler = fill(small_disk)
    kept.notes.append("more")
    for _ in range(3):
        keep()
    assert capsys.readouterr().err == (
        f"cannot write {path}: {FULL}; the run goes on, and prints what it finds at its end\n"
    )
    # what was there is whole, and nothing half written lies beside it
    assert path.read_text() == before and set(small_disk.iterdir()) == {path, filler}
    assert keep.finish() == [f"cannot write {path}: {FULL}"]
    filler.unlink()
    assert keep.finish() == [] and Record.read(path) == kept


def test_a_folder_that_is_gone_is_told_once_and_the_run_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "folder" / "run.json"
    keep = Keeper(made(), path)
    for _ in range(2):
        keep()
    reason = f"cannot write {path}: No such file or directory"
    printed = capsys.readouterr()
    assert (printed.out, printed.err.splitlines()) == (
        "", [f"{reason}; the run goes on, and prints what it finds at its end"]
    )  # fmt: skip
    assert keep.finish() == [reason]


# the reports


@pytest.fixture
def short_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports that only name their records."""
    monkeypatch.setattr(outputs, "_page", lambda records: f"page – {[made.command for made in records]}")
    monkeypatch.setattr(outputs, "_markdown", lambda records: f"# {len(records)}\n")


@pytest.mark.usefixtures("short_reports")
def test_reports_are_written_where_they_were_asked_for(tmp_path: Path):
    page, markdown = tmp_path / "page.html", tmp_path / "page.md"
    page.write_text("old")
    assert write_reports([made(), made()], page, markdown) == []
    assert page.read_text(encoding="utf-8") == "page – ['python compare.py', 'python compare.py']"
    assert markdown.read_text() == "# 2\n"
    assert sorted(tmp_path.iterdir()) == [page, markdown]


@pytest.mark.usefixtures("short_reports")
@pytest.mark.parametrize("asked", ["page", "markdown", None])
def test_only_what_was_asked_for_is_written(tmp_path: Path, asked: str | None):
    page, markdown = (tmp_path / name if asked == name else None for name in ("page", "markdown"))
    assert write_reports([made()], page, markdown) == []
    assert [path.name for path in tmp_path.iterdir()] == ([asked] if asked else [])


def test_a_report_that_nobody_asked_for_is_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(outputs, "_page", lambda records: pytest.fail("plots take a second to import"))
    monkeypatch.setattr(outputs, "_markdown", lambda records: "#\n")
    assert write_reports([made()], None, tmp_path / "page.md") == []


@pytest.mark.usefixtures("short_reports")
def test_a_report_that_cannot_be_written_is_told_and_costs_the_other_nothing(tmp_path: Path):
    page, markdown = tmp_path / "missing" / "page.html", tmp_path / "page.md"
    assert write_reports([made()], page, markdown) == [f"cannot write {page}: No such file or directory"]
    assert markdown.exists()


@pytest.mark.usefixtures("short_reports")
def test_a_report_on_a_full_disk_leaves_the_old_one(small_disk: Path):
    page = small_disk / "page.html"
    page.write_text("old")
    filler = fill(small_disk)
    assert write_reports([made()], page, None) == [f"cannot write {page}: {FULL}"]
    assert page.read_text() == "old" and set(small_disk.iterdir()) == {page, filler}
