"""Time the same kernels in JAX and in PyTorch, each proved right first. Parse, run, print; nothing is measured here."""

import contextlib
import dataclasses
import errno
import io
import itertools
import os
import shlex
import signal
import sys
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path

from shared.bench.command_line import Request, flag, parse
from shared.bench.outputs import CannotWrite, Keeper, check_writable, write_reports
from shared.bench.plan import FRAMEWORKS, Settings
from shared.bench.progress import progress_for_here
from shared.bench.record import Record, UnreadableRecord
from shared.bench.run import DoesNotFit, NothingToMeasure, run
from shared.bench.table import report
from shared.bench.team import CannotMeasure, abilities_of, team_of
from shared.problems import PROBLEMS
from shared.problems.problem import UnusableInput
from shared.sequences import SequenceError
from shared.variants import VARIANTS, Abilities


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    request, settings = parse(given)
    if sys.stdout is None and not request.outputs:
        return _fail("standard output is closed and no file is asked for: nothing would be seen of it")
    try:
        for option, path in request.written.items():
            check_writable(option, path)
        if request.list:
            return _list(settings)
        if request.against:
            return _against(*map(_read, request.against))
        if request.recorded:
            return _show([_read(path) for path in request.recorded], request)
        record = Record(shlex.join(["python", "compare.py", *given]))
        if request.resume is not None:
            command, record = record.command, _read(request.resume)
            if record.settings is None:
                return _fail(f"{request.resume} has nothing to go on with: its run ended before it began")
            settings = dataclasses.replace(record.settings, budget=settings.budget)
            record.resumed_by.append(command)
        return _measure(settings, record, request)
    except (CannotWrite, UnreadableRecord) as error:
        return _fail(str(error))
    except KeyboardInterrupt:
        return 130


def _measure(settings: Settings, record: Record, request: Request) -> int:
    """A run, from its start or from where it was; then everything that it found, however it ended."""
    code = 0
    keep = Keeper(record, request.json or request.resume)
    try:
        with progress_for_here() as progress:
            run(settings, record, progress, keep)
    except CannotMeasure as error:
        print(error, file=sys.stderr)
        return 3
    except DoesNotFit as error:
        return _fail(f"cannot go on with {request.resume}: {error}")
    except (SequenceError, UnusableInput, NothingToMeasure, MemoryError) as error:
        code = _fail(str(error) or "the input does not fit into memory")
    except KeyboardInterrupt:
        code = 130
        _say("interrupted; this is what was finished:")
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES):  # the folder for temporary files
            code = _fail(f"cannot write to {tempfile.gettempdir()}: {error.strerror}")
        else:
            traceback.print_exc()
            code = 1
    except Exception:  # whatever it is, what was measured is not lost
        traceback.print_exc()
        code = 1
    if code not in (0, 130) and not record.results:
        return code
    # the files first: the reader of what is printed may have gone
    problems = [*keep.finish(), *write_reports([record], request.report, request.markdown, request.picture)]
    for problem in problems:
        failed = _fail(problem)
        code = code or failed
    return _print(report(record)) or code or (1 if record.went_wrong else 0)


def _show(records: list[Record], request: Request) -> int:
    """Recorded runs again, as text and as what else was asked for."""
    code = _print("\n\n\n".join(report(record) for record in records))
    for problem in write_reports(records, request.report, request.markdown, request.picture):
        code = _fail(problem)
    return code


def _against(old: Record, new: Record) -> int:
    """What changed between two recorded runs."""
    from shared.bench.changes import changes  # here: only this asks for it

    print(changes(old, new))
    return 0


def _read(path: Path) -> Record:
    try:
        return Record.read(path)
    except OSError as error:
        raise UnreadableRecord(f"cannot read {path}: {error.strerror}") from None
    except UnreadableRecord as error:
        raise UnreadableRecord(f"cannot read {path}: {error}") from None


def _print(text: str) -> int:
    """To standard output; to standard error if that has no room, so that nothing measured is lost."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        _leave_standard_output()
        _say(text)
        return _fail(f"cannot print the table to standard output: {error.strerror}")
    return 0


def _fail(text: str) -> int:
    _say(f"compare.py: error: {text}")
    return 2


def _say(text: str) -> None:
    """To standard error, whose reader may have gone."""
    if sys.stderr is None:  # print would take standard output instead
        return
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr, flush=True)


def _list(settings: Settings) -> int:
    """Problems, variants, and what each framework has of them."""
    with (
        tempfile.TemporaryDirectory(prefix="compare-") as folder,
        progress_for_here() as progress,
        team_of(settings, Path(folder), progress.tick) as team,
    ):
        try:
            workers, missing = team.start_all(progress.say)
        except CannotMeasure as error:
            print(error, file=sys.stderr)
            return 3
        for line in _listed({name: abilities_of(workers, name) for name in PROBLEMS}):
            print(line)
        for name, worker in workers.items():
            auto = next(able.auto for able in worker.abilities.values() if able.auto is not None)
            print(f"{FRAMEWORKS[name]} {worker.environment[name]}: auto picks {auto}")
        for reason in missing.values():
            print(reason)
    return 0


def _listed(abilities: dict[str, dict[str, Abilities]]) -> Iterator[str]:
    """Each problem in a line; then each ladder once, under the problems that it belongs to.

    abilities: by problem and framework.
    """
    for problem in PROBLEMS.values():
        flags = " ".join(itertools.starmap(flag, problem.arguments.items()))
        takes = f"; takes {flags}" if flags else ""
        yield f"{problem.name}: {problem.text}; passes: {', '.join(problem.passes)}{takes}"
    for ladder in dict.fromkeys(VARIANTS.values()):
        owners = [name for name in PROBLEMS if VARIANTS[name] is ladder]
        yield f"variants of {', '.join(owners)}:"
        for variant in ladder:
            yield f"  {variant.name:<14} {variant.changes}"
            for name, able in abilities[owners[0]].items():
                if variant.name in able.absent:
                    yield f"  {'':<14} absent in {FRAMEWORKS[name]}: {able.absent[variant.name]}"
                elif variant.name in able.first_order:
                    yield f"  {'':<14} no hvp in {FRAMEWORKS[name]}: {able.first_order[variant.name]}"


def _leave_standard_output() -> None:
    """Nothing more goes there, not even on the way out: it has nobody who reads it, or no room."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


if __name__ == "__main__":
    # a polite kill and a closed terminal end like Ctrl-C: workers stopped, what is finished written and printed
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) != signal.SIG_IGN:  # as nohup has it
            signal.signal(number, signal.default_int_handler)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # "…" is shown as "?" where the terminal does not know it
    try:
        exit_code = main()
        if sys.stdout is not None:  # it may have been closed from the start
            sys.stdout.flush()
    except BrokenPipeError:
        _leave_standard_output()  # the reader of the table has gone (| head)
        exit_code = 141
    except OSError as error:  # the files are written by now
        _leave_standard_output()
        exit_code = _fail(f"cannot print the table: {error.strerror}")
    sys.exit(exit_code)
