"""Whole runs in this process that end well."""

from pathlib import Path

from in_process import Ended, run_here

from shared.bench.record import Record


def finished(folder: Path, *arguments: str) -> tuple[Ended, Record]:
    """A run with these arguments, and its record, which it writes into the folder."""
    path = folder / "run.json"
    ended = run_here(*arguments, "--json", str(path))
    assert ended.code == 0, ended.err
    return ended, Record.read(path)


def resumed(folder: Path, changed: Record | None = None) -> tuple[Ended, Record]:
    """The run resumed, of which the record is what it has written or a changed one."""
    path = folder / "run.json"
    if changed:
        changed.write(path)
    ended = run_here("--resume", str(path))
    assert ended.code == 0, ended.err
    return ended, Record.read(path)
