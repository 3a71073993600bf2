"""Time the same kernels in JAX and in PyTorch, each proved correct first. Parse, run, print: see shared/bench."""

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

from shared.bench.cases import FRAMEWORKS, Settings
from shared.bench.command_line import Request, flag, parse
from shared.bench.questions import QUESTIONS
from shared.bench.record import Record, UnreadableRecord
from shared.bench.report.console import console_report, console_text, first_table
from shared.bench.report.output_files import CannotWrite, Keeper, check_writable, write_reports
from shared.bench.run.context import CannotMeasure, Run
from shared.bench.run.progress import progress_for_here
from shared.bench.run.protocol import DoesNotFit, NothingToMeasure, measure
from shared.problems import PROBLEMS
from shared.problems.problem import UnusableInput
from shared.sequences import SequenceError
from shared.variants import VARIANTS, Abilities

# the temporary folder cannot be written
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    request, settings = parse(given)
    try:
        for option, path in request.written.items():
            check_writable(option, path)
        if request.list:
            return _list(settings[0])
        if request.against:
            return _against(*map(Record.read, request.against))
        if request.recorded:
            return _show([Record.read(path) for path in request.recorded], request)
        command = shlex.join(["python", "compare.py", *given])
        if request.resume is None:
            runs = [(asked, Record(command)) for asked in settings]
        else:
            record = Record.read(request.resume)
            if record.settings is None:
                return _fail(f"{request.resume} has nothing to resume: its run ended before it began")
            record.resumed_by.append(command)
            runs = [(dataclasses.replace(record.settings, budget=settings[0].budget), record)]
        return _measure(runs, request)
    except (CannotWrite, UnreadableRecord) as error:
        return _fail(str(error))
    except DoesNotFit as error:
        return _fail(f"cannot resume {request.resume}: {error}")
    except KeyboardInterrupt:
        return 130


def _measure(runs: Sequence[tuple[Settings, Record]], request: Request) -> int:
    """Runs, new or resumed; then everything that they found, however they ended."""
    code = 0
    records: list[Record] = []
    problems: list[str] = []
    for settings, record in runs:
        keep = Keeper(record, request.json or request.resume)
        try:
            ended = _run(settings, record, keep)
        except CannotMeasure as error:  # what was measured before is not lost, and a resumed record stays as it is
            print(error, file=sys.stderr)
            code = 3
            break
        if ended in (0, 130) or record.results:
            records.append(record)
            problems += filter(None, [keep.write()])
            ended = ended or (1 if record.went_wrong else 0)
        code = max(code, ended)
        if ended not in (0, 1):
            break
    if not records:
        return code
    problems += _reports(records, request)  # before printing, which may fail
    told = max(map(_fail, problems), default=0)
    _print(records)
    return code or told


def _run(settings: Settings, record: Record, keep: Keeper) -> int:
    """One run into its record; the exit code says how it ended. Raises CannotMeasure or DoesNotFit."""
    try:
        with progress_for_here(first_table) as progress:
            measure(QUESTIONS[settings.question], settings, record, progress, keep)
    except (CannotMeasure, DoesNotFit):  # nothing was measured, and a record that is resumed stays as it is
        raise
    except (SequenceError, UnusableInput, NothingToMeasure, MemoryError) as error:
        return _fail(str(error) or "the input does not fit into memory")
    except KeyboardInterrupt:
        print("interrupted; this is what was finished:", file=sys.stderr)
        return 130
    except OSError as error:
        if error.errno in _NO_ROOM:
            return _fail(f"cannot write to {tempfile.gettempdir()}: {error.strerror}")
        traceback.print_exc()
        return 1
    except Exception:  # whatever it is, what was measured is not lost
        traceback.print_exc()
        return 1
    return 0


def _show(records: list[Record], request: Request) -> int:
    """Recorded runs again, as text and as files."""
    _print(records)
    return max(map(_fail, _reports(records, request)), default=0)


def _print(records: Sequence[Record]) -> None:
    print("\n\n\n".join(map(console_report, records)))


def _reports(records: list[Record], request: Request) -> list[str]:
    return write_reports(records, request.report, request.markdown, request.picture)


def _against(old: Record, new: Record) -> int:
    """What changed between two recorded runs."""
    from shared.bench.analysis.compare_runs import compare_runs  # here: only this needs it

    print(console_text(compare_runs(old, new)))
    return 0


def _fail(text: str) -> int:
    print(f"compare.py: error: {text}", file=sys.stderr, flush=True)
    return 2


def _list(settings: Settings) -> int:
    """Questions, problems, variants, and what each framework has of them."""
    for question in QUESTIONS.values():
        print(f"{question.name}: {question.asks}")
    with (
        tempfile.TemporaryDirectory(prefix="compare-") as folder,
        progress_for_here(lambda _: None) as progress,
    ):
        run = Run(QUESTIONS[settings.question], settings, Record(""), progress, lambda: None, Path(folder))
        try:
            workers, missing = run.start_frameworks()
        except CannotMeasure as error:
            print(error, file=sys.stderr)
            return 3
        finally:
            run.stop()
    for line in _listed({name: {of: worker.abilities[name] for of, worker in workers.items()} for name in PROBLEMS}):
        print(line)
    for name, worker in workers.items():
        auto = next(able.auto for able in worker.abilities.values() if able.auto is not None)
        print(f"{FRAMEWORKS[name]} {worker.environment[name]}: auto picks {auto}")
    for reason in missing.values():
        print(reason)
    return 0


def _listed(abilities: dict[str, dict[str, Abilities]]) -> Iterator[str]:
    """A line for each problem; then each ladder once, under the problems that it belongs to.

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


if __name__ == "__main__":
    # kill and a closed terminal end like Ctrl-C: workers stopped, what is finished written and printed
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # as nohup sets it
            signal.signal(number, signal.default_int_handler)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # "…" is shown as "?" where the terminal cannot show it
    try:
        exit_code = main()
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has gone (| head)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        exit_code = 141
    sys.exit(exit_code)
