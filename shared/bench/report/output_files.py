"""The files that a run leaves: checked before anything is measured, and kept whole whatever happens."""

import contextlib
import errno
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path

from filelock import FileLock, Timeout

from shared.bench.record import Record
from shared.bench.report.html import html_report
from shared.bench.report.markdown import markdown_report
from shared.bench.report.report import Report
from shared.bench.report.tables import Table
from shared.bench.run.progress import print_error
from shared.file_writing import write_atomically


class CannotWrite(Exception):
    """A file cannot be written; the text says which and why."""


def check_outputs(outputs: Sequence[tuple[str, Path]], inputs: Sequence[Path], force: bool) -> None:
    """Raise CannotWrite if a file cannot be written: before an hour of measuring, not after.

    outputs: each with its option. An existing file is overwritten only with `force`; one that is also read, or that two
    options name, never.
    """
    taken = {path.resolve(): "which this command reads" for path in inputs}
    for option, path in outputs:
        try:
            if path.is_dir():
                raise IsADirectoryError(errno.EISDIR, "it is a directory")
            is_file = path.is_file()
            if (is_file or not path.exists()) and path.resolve() in taken:
                raise FileExistsError(errno.EEXIST, f"it is the file {taken[path.resolve()]}")
            if is_file and not force:
                raise FileExistsError(errno.EEXIST, "it exists; --force overwrites it")
            tempfile.TemporaryFile(dir=path.parent).close()
        except OSError as error:
            raise CannotWrite(f"cannot write {path} ({option}): {error.strerror}") from None
        taken[path.resolve()] = f"of {option}"


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """A context in which no other run writes this record. Raises CannotWrite if one does."""
    real = path.resolve()
    lock = FileLock(real.with_name(f".{real.name}.lock"))
    if not path.exists() or path.is_file():
        with contextlib.suppress(OSError, NotImplementedError):  # some network folders have no locks
            try:
                lock.acquire(timeout=0)
            except Timeout:
                raise CannotWrite(f"cannot write {path}: another run is writing it") from None
    try:
        yield
    finally:
        if lock.is_locked:
            Path(lock.lock_file).unlink(missing_ok=True)
            lock.release()


class Keeper:
    """Writes a record to its file after every step. A write that fails does not stop the run."""

    def __init__(self, record: Record, path: Path | None) -> None:
        self._record, self._path = record, path
        self._has_warned = False

    def __call__(self) -> None:
        if (problem := self.write()) and not self._has_warned:
            self._has_warned = True
            print_error(f"{problem}; the run continues, and prints its results at the end")

    def write(self) -> str | None:
        """Write it; returns the error if there is one. An earlier record stays until there is something to store."""
        if self._path is not None and (self._record.has_any or not self._path.exists()):
            try:
                self._record.write(self._path)
            except OSError as error:
                return f"cannot write {self._path}: {error.strerror}"
        return None


def write_reports(
    page: Path | None, markdown: Path | None, reports: Sequence[Report], notes: Sequence[str], machines: Sequence[Table]
) -> list[str]:
    """Write the files that are asked for; returns the errors. notes, machines: see side_by_side.py."""
    problems = []
    for path, render in ((page, html_report), (markdown, markdown_report)):
        if path is None:
            continue
        try:
            write_atomically(path, render(reports, notes, machines))
        except OSError as error:
            problems.append(f"cannot write {path}: {error.strerror}")
        except Exception as error:  # one report that fails must not cost the others
            traceback.print_exc()
            problems.append(f"cannot make {path}: {error!r}")
    return problems
