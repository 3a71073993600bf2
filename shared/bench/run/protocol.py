"""One run: inputs and reference results, the machine, then two phases. What is finished is kept, however the run ends.

First every case is called with empty caches and checked by the parity gate (`first_calls`). Then, several times over,
fresh workers time all cases in turn (`timed_calls`), until the question is answered precisely or the budget is spent.
"""

import dataclasses
import functools
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from shared.bench.analysis.roofline import BANDWIDTH, EXPONENTIALS
from shared.bench.cases import Case, Settings
from shared.bench.measure.clock import timed
from shared.bench.measure.code_size import code_lines, kernel_lines
from shared.bench.measure.machine import different_environments, git_commit, machine
from shared.bench.measure.memory import ONE_ARENA
from shared.bench.questions.question import Question
from shared.bench.record import Facts, Record, ReferenceTime, now
from shared.bench.run import exchange
from shared.bench.run.context import PATIENCE_SECONDS, Run
from shared.bench.run.first_calls import measure_first_calls
from shared.bench.run.largest_batch import largest_batches
from shared.bench.run.progress import Lines
from shared.bench.run.timed_calls import measure_timed_calls
from shared.kernels import cpp
from shared.problems import PROBLEMS, Inputs


class NothingToMeasure(Exception):
    """No framework can run any of the cases; the text says why."""


class DoesNotFit(Exception):
    """A record cannot be resumed here; the text says why."""


def measure(question: Question, settings: Settings, record: Record, progress: Lines, keep: Callable[[], None]) -> None:
    """Measure every case of a question into the record; resumes what a record already has.

    keep: writes the record; called after every step. Raises CannotMeasure, NothingToMeasure or DoesNotFit before
    anything is measured. KeyboardInterrupt propagates; the record then holds what is finished.
    """
    start, before = time.monotonic(), record.seconds

    def keep_with_time() -> None:
        record.seconds = before + time.monotonic() - start
        keep()

    inputs = question.inputs(settings)
    with tempfile.TemporaryDirectory(prefix="compare-", ignore_cleanup_errors=True) as name:
        run = Run(question, settings, record, progress, keep_with_time, Path(name), start)
        try:
            _measure(run, inputs)
        finally:
            run.stop()


def _measure(run: Run, inputs: dict[str, Inputs]) -> None:
    settings, record, question = run.settings, run.record, run.question
    run.environment = ONE_ARENA if question.times_rounds else {}
    workers, missing = run.start_frameworks()
    abilities = {framework: worker.abilities[settings.problem] for framework, worker in workers.items()}
    cases, absent = question.plan(settings, abilities, list(inputs))
    if not cases:
        raise NothingToMeasure("nothing to measure: " + "; ".join(f"{row.case}: {row.reason}" for row in absent))
    used = {case.input for case in cases}
    requested = {key: given for key, given in inputs.items() if key in used}
    inputs = largest_batches(run, requested, cases, abilities)
    environment = machine() | {
        "threads": settings.threads,
        "frameworks": {framework: worker.environment for framework, worker in workers.items()},
    }
    _begin(record, settings, {key: Facts.of(given) for key, given in inputs.items()}, environment)
    record.missing, record.absent = missing, absent
    record.auto = {framework: able.auto for framework, able in abilities.items() if able.auto is not None}
    record.uncompiled = {framework: dict(able.uncompiled_variants) for framework, able in abilities.items()}
    record.code_lines = {framework: code_lines(framework, settings.problem) for framework in abilities}
    record.kernel_lines = kernel_lines()
    for key, given in inputs.items():
        if given.repeats < requested[key].repeats:
            wanted = f"{requested[key].pairs:,} were asked for"
            record.notes.append(f"{key}: {given.pairs:,} pairs are the largest batch that fits; {wanted}")
    if any(case.variant == "fused" for case in cases) and not cpp.keeps():
        where = cpp.cache_folder()
        record.notes.append(f"fused: its kernels were compiled for this run only: {where} cannot be written")
    run.keep()
    _save_inputs(run, inputs)
    _measure_machine(run, cases)
    if question.times_reference:
        _time_reference(run, inputs)
    measure_first_calls(run, cases)
    run.stop()
    run.environment = {}
    if question.times_rounds:
        measure_timed_calls(run, cases)
    if git_commit() != environment["git_commit"]:
        record.notes.append("the files of this checkout changed during the run: later processes used the changed ones")
    record.finished = now()
    run.keep()


def _begin(record: Record, settings: Settings, inputs: dict[str, Facts], environment: dict) -> None:
    """Record what the run is and where it runs; a resumed record must be of the same."""
    if record.settings is None:
        record.started = now()
        record.settings, record.inputs, record.environment = settings, inputs, environment
        return
    differences = different_environments(record.environment, environment)
    differences += [f"the input {name} differs" for name in inputs if record.inputs.get(name) != inputs[name]]
    if differences:
        raise DoesNotFit("; ".join(differences))
    record.settings = dataclasses.replace(record.settings, budget=settings.budget)
    record.finished = None
    record.notes.clear()
    for result in record.results:  # what failed may not fail again; what was wrong stays wrong
        if result.status == "failed":
            result.status, result.reason = "ok", None


def _save_inputs(run: Run, inputs: dict[str, Inputs]) -> None:
    """Write inputs and reference results for the workers."""
    problem = PROBLEMS[run.settings.problem]
    for name, given in inputs.items():
        exchange.save_inputs(run.settings.problem, given, run.folder, name)
        seconds, answer = timed(lambda given=given: problem.answer(given, run.settings.passes))
        covered = problem.covered(answer)
        on = "" if covered is None else f" on {covered * given.repeats} of {given.pairs} pairs"
        of = f" of {name}" if len(inputs) > 1 else ""
        run.progress.say(f"NumPy reference{on}{of}: {seconds:.1f} s")
        exchange.save_reference(answer, run.folder, name)


def _measure_machine(run: Run, cases: list[Case]) -> None:
    """The start time of each compiler, and the machine's limits."""
    environment = run.record.environment
    first_label = [case for case in cases if case.label == next(iter(run.question.labels))]
    # first, because any other command would start the compiler too
    for framework, seconds in run.start_compilers(first_label).items():
        environment["frameworks"][framework].setdefault("compiler_start_seconds", seconds)
    by_worker = list({case.worker_key: case for case in first_label}.values())
    for rate, command in ((BANDWIDTH, "bandwidth"), (EXPONENTIALS, "exponentials")):
        if environment.get(rate) is None and (run.settings.device != "cpu" or rate == BANDWIDTH):
            # an accelerator's by each framework: the highest rate is the machine's
            asked = by_worker if run.settings.device != "cpu" else by_worker[:1]
            replies = [run.ask_worker(case, command, PATIENCE_SECONDS) for case in asked]
            environment[rate] = max((r.details["per_second"] for r in replies if r.status == "ok"), default=None)


def _time_reference(run: Run, inputs: dict[str, Inputs]) -> None:
    """Time the NumPy reference itself, in this process, on one core."""
    problem = PROBLEMS[run.settings.problem]
    known = {(entry.input, entry.pass_name) for entry in run.record.references}
    for name, given in inputs.items():
        for pass_name in run.settings.passes:
            if (name, pass_name) not in known:
                run.progress.say(f"NumPy {pass_name}, {given.text}")
                call = functools.partial(problem.reference, pass_name, given)
                run.record.references.append(ReferenceTime(name, pass_name, [timed(call)[0] for _ in range(2)]))
                run.keep()
