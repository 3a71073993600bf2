"""Time the same kernels in JAX and in PyTorch, each checked first. Parse, run, print: see shared/bench."""

import contextlib
import io
import itertools
import math
import os
import runpy
import shlex
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

try:
    import psutil  # noqa: F401
    import tabulate  # noqa: F401

    import shared.bench  # noqa: F401
except ModuleNotFoundError as error:
    namespace = runpy.run_path(str(Path(__file__).with_name("shared") / "first_import.py"))
    sys.exit(f"compare.py: error: {namespace['explained'](error, 'compare', 'compare')}")

from shared.backends import is_file
from shared.bench.command_line import QUICK_SECONDS, Request, flag, parse
from shared.bench.questions import QUESTIONS, read_record
from shared.bench.questions.growth import prediction
from shared.bench.record import Record, UnreadableRecord
from shared.bench.report.compare_runs import compare_runs
from shared.bench.report.console import console_table, console_text, wrapped
from shared.bench.report.output_files import CannotWrite, Keeper, check_outputs, locked, write_reports
from shared.bench.report.report import Report
from shared.bench.report.side_by_side import notes, side_by_side
from shared.bench.run.context import CannotMeasure
from shared.bench.run.progress import Progress, print_error
from shared.bench.run.protocol import measure
from shared.bench.units import minutes_text
from shared.problems import ANY_FILE, PROBLEMS, problem_of
from shared.problems.problem import UnusableInput
from shared.sequences import SequenceError

# raised before anything is measured, by what the user gave
_BAD_INPUT = (CannotWrite, UnreadableRecord, SequenceError, UnusableInput)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    request, settings = parse(words)
    program = ["jax-torch-compare"] if Path(sys.argv[0]).name == "jax-torch-compare" else ["python", "compare.py"]
    command = shlex.join([*program, *words])
    try:
        read = [*request.recorded, *request.against, *filter(None, [request.resume]), Path(settings[0].input)]
        read += [Path(settings[0].problem)] if is_file(settings[0].problem) else []
        if request.json and request.json not in request.record_files:
            with contextlib.suppress(OSError):  # check_outputs reports it
                request.json.mkdir(exist_ok=True)
        check_outputs(request.outputs, read, request.force)
        if request.list:
            return _list()
        if request.against:
            (old, _), (new, _) = map(read_record, request.against)
            changes = compare_runs(old, new)
            print(console_text(changes.report))
            return changes.exit_code
        if request.predict:
            print(console_text(prediction(read_record(request.recorded[0])[0], request.predict)))
            return 0
        if request.recorded:
            return _show([*map(read_record, request.recorded)], request)
        with contextlib.ExitStack() as locks:
            for path in request.record_files:
                locks.enter_context(locked(path))
            if not request.resume:
                return _measure([Record(command, one) for one in settings], request)
            record, _ = read_record(request.resume)
            budget = QUICK_SECONDS if record.settings.quick else QUESTIONS[record.settings.question].default_budget
            record.settings = replace(record.settings, budget=request.budget or budget)
            record.resumed_by.append(command)
            return _measure([record], request)
    except _BAD_INPUT as error:
        return _fail(str(error))
    except CannotMeasure as error:
        print_error(str(error))
        return 3
    except KeyboardInterrupt:
        return 130


def _measure(records: Sequence[Record], request: Request) -> int:
    """Measure the records, new or resumed, then show what they hold; returns the highest exit code."""
    begun: list[Record] = []
    codes = [0]
    budget = (request.all and request.budget) or math.inf  # of all questions together
    end = time.monotonic() + budget
    if request.all:
        minutes = minutes_text(min(budget, sum(record.settings.budget for record in records)))
        print_error(f"{', '.join(record.settings.question for record in records)}: up to {minutes} minutes in all")
    for line in request.left_out:
        print_error(f"not asked: {line}")
    try:
        for record, path in itertools.zip_longest(records, request.record_files):
            seconds_left, budget_of_one = end - time.monotonic(), record.settings.budget
            if begun and 0.95 * budget_of_one > seconds_left:  # 95 % of it will do: earlier ones overrun a little
                why = f"it takes {budget_of_one:g} s of the budget, {max(0.0, seconds_left):.0f} s are left"
                print_error(f"not asked: {record.settings.question}: {why}")
                continue
            record.settings = replace(record.settings, budget=min(budget_of_one, seconds_left if begun else budget))
            keep = Keeper(record, path)
            try:
                codes.append(_run(record, keep))
            except (UnusableInput, CannotMeasure) as error:
                # CannotMeasure before anything has begun: no question can use the device
                if not request.all or (isinstance(error, CannotMeasure) and not begun):
                    raise
                print_error(f"not asked: {record.settings.question}: {error}")
            if record.started is not None:
                begun.append(record)
                if problem := keep.write():
                    codes.append(_fail(problem))
            if codes[-1] > 1:
                break
            failed = next((result for result in record.results if result.status == "failed"), None)
            if failed and is_file(record.settings.problem):  # the user's own code
                codes.append(_fail(f"{failed.case.title}: {failed.reason}"))
    finally:  # also if a later run cannot begin
        shown = []
        for record in begun:
            try:
                shown.append((record, QUESTIONS[record.settings.question].report(record)))
            except Exception:  # one report that fails must not cost the others
                traceback.print_exc()
                codes.append(1)
        codes += [_show(shown, request)] if shown else []
    return max(codes)


def _run(record: Record, keep: Keeper) -> int:
    """One run into its record; returns the exit code. Raises CannotMeasure or one of _BAD_INPUT if it cannot begin."""
    try:
        question = QUESTIONS[record.settings.question]
        progress = Progress(lambda record: next(map(console_table, question.answer(record).tables), None))
        with contextlib.closing(progress):
            measure(question.plan(record.settings), record, progress, keep)
    except (CannotMeasure, *_BAD_INPUT):
        raise
    except KeyboardInterrupt:
        print_error("interrupted; this is what was finished:" if record.has_any else "interrupted")
        return 130
    except (MemoryError, OSError) as error:
        return _fail(str(error) or "the input does not fit into memory")
    except Exception:  # whatever it is, what was measured is not lost
        traceback.print_exc()
        return 1
    return 1 if any(result.status in ("wrong", "failed") for result in record.results) else 0


def _show(shown: Sequence[tuple[Record, Report]], request: Request) -> int:
    """Write the reports that are asked for, and print them; returns the exit code."""
    records, reports = zip(*shown, strict=True)
    warnings, machines = notes(records), side_by_side(records)
    problems = write_reports(request.report, request.markdown, reports, warnings, machines)
    code = max(map(_fail, problems), default=0)
    parts = [*map(wrapped, warnings), *map(console_table, machines), *map(console_text, reports)]
    print("\n\n\n".join(parts))  # last: it raises if the pipe has been closed
    return code


def _fail(text: str) -> int:
    print_error(f"compare.py: error: {text}")
    return 2


def _list() -> int:
    """Print the questions, problems, passes and variants."""
    for question in QUESTIONS.values():
        print(f"{question.name}: {question.asks}")
    problems = [*PROBLEMS.values(), problem_of(ANY_FILE)]
    for problem in problems:
        flags = " ".join(itertools.starmap(flag, problem.arguments.items()))
        print(f"{problem.name}: {problem.text}; size {problem.sizes.form}{f'; takes {flags}' if flags else ''}")
    for ladder in dict.fromkeys(problem.variants for problem in problems):
        alike = [problem for problem in problems if problem.variants is ladder]
        print(f"passes, then variants, of {', '.join(problem.name for problem in alike)}:")
        for name, text in (*alike[0].passes.items(), *ladder):
            print(f"  {name:<15} {text}")
    return 0


def run() -> None:
    """Run the command line as a program, and exit."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # not an error that loses the results, where the output is not UTF-8
    # kill and a closed terminal end like Ctrl-C: workers stopped, what is finished written and printed
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # as nohup sets it
            signal.signal(number, signal.default_int_handler)
    try:
        exit_code = main()
        sys.stdout.flush()
    except OSError as error:  # the disk is full, or the reader has gone (| head)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        exit_code = 141 if isinstance(error, BrokenPipeError) else _fail(f"cannot write the output: {error.strerror}")
    sys.exit(exit_code)


if __name__ == "__main__":
    run()
