"""One run: inputs and reference results, the machine, then two phases. What is finished is kept, however the run ends.

First every case is called with empty caches and checked by the parity gate (`first_calls`). Then, several times over,
fresh workers time cases in turn (`timed_calls`), until the question is answered precisely or the budget is spent.
"""

import contextlib
import functools
import itertools
import math
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from filelock import FileLock

from shared.bench.analysis.roofline import BANDWIDTH, EXPONENTIALS
from shared.bench.cases import Case
from shared.bench.measure import gpu_state, measured_code, variables
from shared.bench.measure.clock import timed
from shared.bench.measure.code_size import code_lines, kernel_lines
from shared.bench.measure.machine import ROOT, different_environments, git_commit, machine
from shared.bench.measure.memory import ONE_ARENA
from shared.bench.record import InputFacts, Record, ReferenceTime, now
from shared.bench.run.context import BUDGET_SPENT, Run
from shared.bench.run.first_calls import measure_first_calls
from shared.bench.run.kernels import compile_kernels
from shared.bench.run.plan import Plan
from shared.bench.run.progress import Progress
from shared.bench.run.timed_calls import measure_timed_calls
from shared.bench.units import minutes_text
from shared.kernels import cpp
from shared.problems import Inputs, problem_of
from shared.problems.problem import UnusableInput

# bytes of memory needed per byte of the input: for first derivatives, while an earlier result is kept
_MEMORY_OVER_INPUT = 8


def measure(plan: Plan, record: Record, progress: Progress, keep: Callable[[], None]) -> None:
    """Measure every case of a plan into the record, which may have results already.

    keep: writes the record; called after every step. Raises CannotMeasure or UnusableInput before anything is
    measured. KeyboardInterrupt propagates; the record then holds what is finished.
    """
    start, before = time.monotonic(), record.seconds
    if reason := variables.disabling(record.settings.frameworks):
        raise UnusableInput(reason)
    for path in (str(ROOT), record.settings.problem):
        if "jax" in record.settings.frameworks and path.encode(errors="ignore").decode() != path:
            raise UnusableInput(f"JAX cannot compile code whose path is not UTF-8, got {path!r}: rename it")
    budget = minutes_text(record.settings.budget)
    progress.say(f"{record.settings.question}: up to {budget} minutes; --budget SECONDS changes that")
    with _folder() as folder, gpu_state.sampled(record.settings.device) as samples:

        def keep_with_time() -> None:
            record.seconds = before + time.monotonic() - start
            record.gpu_state = gpu_state.summary(samples) or record.gpu_state
            keep()

        run = Run(plan, record, progress, keep_with_time, folder, start, ONE_ARENA if plan.times_rounds else {})
        try:
            cases, inputs = _begin(run)
            for case in cases:
                record.result(case)  # in the order of the tables
            if run.settings.workers is None:
                progress.ends_within(lambda: run.seconds_left)
            plan.measure(run, cases, inputs)
            if git_commit() != record.environment["git_commit"]:
                record.note("the checkout's commit changed during the run: later processes may have used other code")
            record.finished = now()
            run.keep()
        finally:
            run.stop()


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """A temporary folder that is locked while the run lives. Removes those that killed runs have left."""
    prefix, lock = "compare-", "run.lock"
    for abandoned in Path(tempfile.gettempdir()).glob(f"{prefix}*/{lock}"):
        with contextlib.suppress(OSError), FileLock(abandoned, timeout=0):
            shutil.rmtree(abandoned.parent)
    with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as name, FileLock(Path(name, lock)):
        yield Path(name)


def measure_calls(run: Run, cases: list[Case], inputs: dict[str, Inputs]) -> None:
    """Run both phases: how a question is measured unless it overrides `Question.measure`."""
    save_inputs(run, inputs)
    one_of_each = list({case.framework: case for case in reversed(cases)}.values())  # the first of each framework
    if is_accelerator := run.settings.device != "cpu":
        for case in one_of_each:
            reply = run.ask("smallest_call", case, expected=0.0)
            facts = run.record.environment["frameworks"][case.framework]
            facts["smallest_call_seconds"] = reply.details.get("seconds")
    else:
        _measure_limits(run, cases[:1])
    if run.plan.times_reference:
        _time_reference(run, inputs)
    measure_first_calls(run, cases)
    if is_accelerator:  # only now: by a profiler, which may slow down the calls after it
        run.progress.say("measuring the accelerator's limits")
        _measure_limits(run, one_of_each)
    run.stop()
    run.environment = {}
    if run.plan.times_rounds:
        measure_timed_calls(run, cases)


def _begin(run: Run) -> tuple[list[Case], dict[str, Inputs]]:
    """The cases and their inputs. Records what the run is and where it runs, which a resumed record must match."""
    settings, record = run.settings, run.record
    workers, missing = run.start_frameworks()
    problem = problem_of(settings.problem)
    abilities = {framework: problem.abilities(framework, worker.abilities) for framework, worker in workers.items()}
    if run.plan.times_rounds:  # without rounds (`ladder`) cases of slow compilers are not moved to the end
        run.slow_compilers = {framework for framework, able in abilities.items() if able.slow_compiler}
    cases, absent = run.plan.cases(abilities)
    if not cases:
        raise UnusableInput("nothing to measure: " + "; ".join(f"{row.title}: {row.reason}" for row in absent))
    used = {case.input: run.plan.inputs[case.input] for case in cases}
    kernels = compile_kernels(run, cases, used)
    inputs = _that_fit(run, used)
    interpreters = list(filter(None, dict.fromkeys(start.about for start in run.plan.starts.values())))
    environment = machine() | kernels | ({"interpreters": interpreters} if interpreters else {})
    environment |= {
        "threads": settings.threads,
        "frameworks": {framework: worker.environment for framework, worker in workers.items()},
        "variables": variables.recorded(),
        # also those that were changed before the run was resumed
        "settings": record.environment.get("settings", {}) | variables.recorded(by_files=True),
    }
    facts = {name: InputFacts.of(one) for name, one in inputs.items()}
    if record.started is None:
        record.started, record.inputs, record.environment = now(), facts, environment
    else:
        _resume(record, facts, environment)
    record.missing, record.absent = missing, absent
    record.auto = {framework: able.auto for framework, able in abilities.items() if able.auto is not None}
    record.uncompiled = {framework: dict(able.uncompiled_variants) for framework, able in abilities.items()}
    record.code_lines = {framework: code_lines(framework, settings.problem) for framework in abilities}
    record.kernel_lines = kernel_lines(settings.device)
    record.code = measured_code.hashes(settings, cases)
    for name, one in inputs.items():
        for note in one.notes:
            record.note(note)
        if one.copies < used[name].copies:
            record.note(f"{name}: {one.pairs:,} pairs instead of {used[name].pairs:,}, for want of memory")
    if any(case.variant == "fused" for case in cases) and not cpp.cache_is_usable():
        record.note(f"fused: its kernels were compiled for this run only: {cpp.cache_folder()} cannot be used")
    run.keep()
    return cases, inputs


def _that_fit(run: Run, inputs: dict[str, Inputs]) -> dict[str, Inputs]:
    """The inputs; of repeated ones a half, a quarter, ... of the copies where an accelerator's memory is small.

    A case that needs still more reports that when it is measured.
    """
    memory = min(filter(None, run.memory.values()), default=math.inf)
    fitting: dict[str, Inputs] = {}
    for name, one in inputs.items():
        copies, bytes_of_copy = one.copies, sum(array.nbytes for array in one.hashed)
        while copies > 1 and _MEMORY_OVER_INPUT * bytes_of_copy * copies > memory:
            copies //= 2
        fitting[name] = replace(one, copies=copies)
    return fitting


def _resume(record: Record, inputs: dict[str, InputFacts], environment: dict[str, Any]) -> None:
    """Prepare a record for going on. Raises UnusableInput."""
    differences = different_environments(record.environment, environment)
    differences += measured_code.warnings(record)
    differences += [f"the input {name} differs" for name in inputs if record.inputs.get(name) != inputs[name]]
    if differences:
        raise UnusableInput(f"cannot resume: {'; '.join(differences)}")
    record.finished = None
    record.notes = [note for note in record.notes if not note.startswith(BUDGET_SPENT)]
    for result in record.results:  # a failure may not recur; a wrong result stays wrong
        if result.status == "failed":
            result.status, result.reason = "ok", None


def save_inputs(run: Run, inputs: dict[str, Inputs]) -> None:
    """Write inputs and reference results for the workers."""
    problem = problem_of(run.settings.problem)
    for name, one in inputs.items():
        seconds, expected = timed(lambda given=one: problem.reference_results(given, run.settings.passes))
        covered = problem.covered(expected)
        on = "" if covered is None else f" on {covered * one.copies} of {one.pairs} pairs"
        of = f" of {name}" if len(inputs) > 1 else ""
        run.progress.say(f"NumPy reference{on}{of}: {seconds:.1f} s")
        run.write(f"{name}.inputs", one)
        run.write(f"{name}.reference", expected)


def _measure_limits(run: Run, cases: Sequence[Case]) -> None:
    """Record the memory bandwidth, and on an accelerator the rate of exponentials: the best of these workers."""
    environment = run.record.environment
    for rate, command in ((BANDWIDTH, "bandwidth"), (EXPONENTIALS, "exponentials")):
        if environment.get(rate) is None and (run.settings.device != "cpu" or rate == BANDWIDTH):
            replies = [run.ask(command, case, expected=0.0) for case in cases]
            environment[rate] = max((r.details["per_second"] for r in replies if r.status == "ok"), default=None)


def _time_reference(run: Run, inputs: dict[str, Inputs]) -> None:
    """Time the NumPy reference itself, in this process, on one core."""
    problem = problem_of(run.settings.problem)
    timed_references = {(entry.input, entry.pass_name) for entry in run.record.references}
    passes = [name for name in run.settings.passes if name not in problem.without_reference]
    for name, pass_name in [key for key in itertools.product(inputs, passes) if key not in timed_references]:
        run.progress.say(f"NumPy {pass_name}, {inputs[name].text}")
        call = functools.partial(problem.reference, pass_name, inputs[name])
        run.record.references.append(ReferenceTime(name, pass_name, [timed(call)[0] for _ in range(2)]))
        run.keep()
