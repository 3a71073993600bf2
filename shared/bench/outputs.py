"""The files that a run leaves: looked at before anything is measured, and kept whole whatever happens."""

import contextlib
import os
import stat
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path

from shared.bench.record import Record, write_whole

# more than a record, a page and their temporary twins take
_ROOM_BYTES = 2**23


class CannotWrite(Exception):
    """A file cannot be written; the text says which and why."""


def check_writable(option: str, path: Path) -> None:
    """Raise CannotWrite if a file cannot be written, or if its disk is full: before an hour of measuring, not after."""
    try:
        with contextlib.suppress(FileNotFoundError):
            mode = path.stat().st_mode
            if not stat.S_ISREG(mode):
                what = "a directory" if stat.S_ISDIR(mode) else "not a regular file"
                raise CannotWrite(f"cannot write {path} ({option}): it is {what}")
        with tempfile.NamedTemporaryFile(dir=path.parent) as room:
            room.write(bytes(_ROOM_BYTES))
            room.flush()
            os.fsync(room.fileno())
    except OSError as error:
        raise CannotWrite(f"cannot write {path} ({option}): {error.strerror}") from None


class NothingToShow(Exception):
    """A file that was asked for would be empty; the text says why."""


class Keeper:
    """Writes a record to its file after every step. A disk that fills up while measuring stops nothing."""

    def __init__(self, record: Record, path: Path | None) -> None:
        self._record, self._path = record, path
        self._has_warned = False
        # what an earlier run left there stays until this one has something to put in its place
        self._waits = path is not None and path.exists() and not record.results

    def __call__(self) -> None:
        problem = self._write()
        if problem and not self._has_warned:
            self._has_warned = True
            print(f"{problem}; the run goes on, and prints what it finds at its end", file=sys.stderr, flush=True)

    def finish(self) -> list[str]:
        """Write it for the last time; what is wrong, if anything is."""
        problem = self._write()
        return [problem] if problem else []

    def _write(self) -> str | None:
        if self._path is None:
            return None
        self._waits = self._waits and not any(result.cold or result.reason for result in self._record.results)
        if self._waits:
            return None
        try:
            self._record.write(self._path)
        except OSError as error:
            return f"cannot write {self._path}: {error.strerror}"
        return None


def write_reports(
    records: Sequence[Record], page: Path | None, markdown: Path | None, picture: Path | None = None
) -> list[str]:
    """Write what was asked for; what is wrong, if anything is."""
    problems = []
    for path, make in ((page, _page), (markdown, _markdown), (picture, _picture)):
        if path is not None:
            try:
                write_whole(path, make(records))
            except OSError as error:
                problems.append(f"cannot write {path}: {error.strerror}")
            except NothingToShow as error:
                problems.append(f"cannot make {path}: {error}")
            except Exception as error:  # one output that cannot be made must not cost the others
                traceback.print_exc()
                problems.append(f"cannot make {path}: {error!r}")
    return problems


def _page(records: Sequence[Record]) -> str:
    from shared.bench.report.html import html_report  # here: plots take a second to import

    return html_report(records)


def _picture(records: Sequence[Record]) -> str:
    from shared.bench.report.picture import picture_file

    if not any(record.pictures for record in records):
        raise NothingToShow("no case was right whose problem has a picture")
    return picture_file(records)


def _markdown(records: Sequence[Record]) -> str:
    from shared.bench.report.markdown import markdown_report

    return markdown_report(records)
