"""The files that a run leaves: checked before anything is measured, and kept whole whatever happens."""

import errno
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path

from shared.bench.record import Record, write_atomically
from shared.bench.report.console import print_error
from shared.bench.report.markdown import markdown_report


class CannotWrite(Exception):
    """A file cannot be written; the text says which and why."""


def check_writable(option: str, path: Path) -> None:
    """Raise CannotWrite if a file cannot be written: before an hour of measuring, not after."""
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, "it is a directory")
        tempfile.TemporaryFile(dir=path.parent).close()
    except OSError as error:
        raise CannotWrite(f"cannot write {path} ({option}): {error.strerror}") from None


class Keeper:
    """Writes a record to its file after every step. A write that fails does not stop the run."""

    def __init__(self, record: Record, path: Path | None) -> None:
        self._record, self._path = record, path
        self._has_warned = False

    def __call__(self) -> None:
        problem = self.write()
        if problem and not self._has_warned:
            self._has_warned = True
            print_error(f"{problem}; the run continues, and prints its results at the end")

    def write(self) -> str | None:
        """Write it; returns the error if there is one. An earlier record stays until there is something to store."""
        record = self._record
        if self._path is None or (self._path.exists() and not any(r.cold or r.reason for r in record.results)):
            return None
        try:
            record.write(self._path)
        except OSError as error:
            return f"cannot write {self._path}: {error.strerror}"
        return None


def write_reports(
    records: Sequence[Record], page: Path | None, markdown: Path | None, picture: Path | None
) -> list[str]:
    """Write the files that were asked for; returns the errors."""
    problems = []
    for path, render in ((page, _html), (markdown, markdown_report), (picture, _picture)):
        if path is None:
            continue
        try:
            write_atomically(path, render(records))
        except OSError as error:
            problems.append(f"cannot write {path}: {error.strerror}")
        except CannotWrite as error:
            problems.append(f"cannot write {path}: {error}")
        except Exception as error:  # one report that fails must not cost the others
            traceback.print_exc()
            problems.append(f"cannot make {path}: {error!r}")
    return problems


def _html(records: Sequence[Record]) -> str:
    from shared.bench.report.html import html_report  # here: matplotlib takes a second to import

    return html_report(records)


def _picture(records: Sequence[Record]) -> str:
    from shared.bench.report.plots import picture_svg

    shown = next((picture for record in records for picture in record.pictures.values()), None)
    if shown is None:
        raise CannotWrite("no case with a picture passed its gate")
    return picture_svg(shown)
