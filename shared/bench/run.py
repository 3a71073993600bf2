"""One run: its inputs and their answers, the machine, then the two phases. What is finished is kept, whatever comes
after.

First each case is called with empty caches and gated (`first_calls`); then, several times over, fresh workers time all
cases in turn (`timed_calls`), until the verdicts are precise or the budget is spent.
"""

import dataclasses
import functools
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from shared.bench import files, fitting
from shared.bench.ceilings import BANDWIDTH, EXPONENTIALS
from shared.bench.first_calls import measure_first_calls
from shared.bench.going import PATIENCE_SECONDS, Going
from shared.bench.machine import different_environments, git_commit, machine
from shared.bench.measure import timed
from shared.bench.memory import ONE_ARENA
from shared.bench.plan import Case, Settings, absences, plan
from shared.bench.progress import Progress
from shared.bench.record import Facts, Record, now
from shared.bench.team import abilities_of, team_of
from shared.bench.timed_calls import measure_timed_calls
from shared.kernels import cpp
from shared.problems import PROBLEMS, Inputs


class NothingToMeasure(Exception):
    """What was asked for has no case that a framework can run; the text says why."""


class DoesNotFit(Exception):
    """A record cannot be gone on with here; the text says why."""


def run(settings: Settings, record: Record, progress: Progress, keep: Callable[[], None]) -> None:
    """Measure every case of the plan into the record; goes on with what a record already has.

    keep: writes the record; called after every step. Raises CannotMeasure, NothingToMeasure or DoesNotFit before
    anything is measured. A KeyboardInterrupt passes through; the record then holds what is finished.
    """
    start = time.monotonic()
    before = record.seconds

    def keep_with_time() -> None:
        record.seconds = before + time.monotonic() - start
        keep()

    inputs = PROBLEMS[settings.problem].inputs(settings)
    with (
        tempfile.TemporaryDirectory(prefix="compare-", ignore_cleanup_errors=True) as name,
        team_of(settings, Path(name), progress.tick) as team,
    ):
        going = Going(settings, record, progress, keep_with_time, team, start)
        # the ladder tells nothing of memory
        team.environment = {} if settings.ladder else ONE_ARENA
        workers, missing = team.start_all(progress.say)
        abilities = abilities_of(workers, settings.problem)
        cases, absent = plan(settings, abilities, list(inputs)), absences(settings, abilities, list(inputs))
        if not cases:
            raise NothingToMeasure("nothing to measure: " + "; ".join(f"{row.case}: {row.reason}" for row in absent))
        # a ladder of single-pair rungs alone has no use for the batch, and the other way round
        used = {case.input for case in cases}
        inputs = {key: given for key, given in inputs.items() if key in used}
        record.auto = {framework: able.auto for framework, able in abilities.items() if able.auto is not None}
        asked, inputs = inputs, fitting.fitted(going, inputs, cases, abilities, Path(name))
        environment = machine() | {
            "threads": settings.threads,
            "frameworks": {framework: worker.environment for framework, worker in workers.items()},
        }
        _begin(record, settings, {key: Facts.of(given) for key, given in inputs.items()}, environment)
        record.missing, record.absent = missing, absent
        record.notes += fitting.told(asked, inputs)
        if any(case.variant == "fused" for case in cases) and not cpp.keeps():
            record.notes.append(
                f"fused: its kernels were compiled for this run only: {cpp.cache_folder()} cannot be written"
            )
        keep_with_time()
        _hand_over(going, inputs, Path(name))
        _look_at_machine(going, cases)
        if settings.ladder:
            _time_reference(going, inputs)
        measure_first_calls(going, cases)
        team.stop()
        team.environment = {}
        if not settings.ladder:
            measure_timed_calls(going, cases)
        if git_commit() != environment["git_commit"]:
            record.notes.append("the files of this checkout changed while it ran: fresh processes took what they found")
        record.finished = now()
        keep_with_time()


def _begin(record: Record, settings: Settings, inputs: dict[str, Facts], environment: dict) -> None:
    """Note what the run is and where it runs; a record that is gone on with must be of the same."""
    if record.settings is None:
        record.started = now()
        record.settings, record.inputs, record.environment = settings, inputs, environment
        return
    differences = different_environments(record.environment, environment)
    differences += [f"the input {name} differs" for name in inputs if record.inputs.get(name) != inputs[name]]
    if differences:
        raise DoesNotFit("; ".join(differences))
    # what may be given anew: how long to go on
    record.settings = dataclasses.replace(record.settings, budget=settings.budget)
    record.finished = None
    record.notes.clear()
    for result in record.results:  # what failed may not fail again; what was wrong is wrong
        if result.status == "failed":
            result.status, result.reason = "ok", None


def _hand_over(going: Going, inputs: dict[str, Inputs], folder: Path) -> None:
    """Put the inputs and their answers where the workers find them."""
    settings, problem = going.settings, PROBLEMS[going.settings.problem]
    for name, given in inputs.items():
        files.save_inputs(settings.problem, given, folder, name)
        seconds, answer = timed(lambda given=given: problem.answer(given, settings.passes))
        covered = problem.covered(answer)
        on = "" if covered is None else f" on {covered * given.repeats} of {given.pairs} pairs"
        of = f" of {name}" if len(inputs) > 1 else ""
        going.progress.say(f"NumPy reference{on}{of}: {seconds:.1f} s")
        files.save_answer(answer, folder, name)


def _look_at_machine(going: Going, cases: list[Case]) -> None:
    """What the machine can do at most, and what the start of each compiler takes."""
    environment = going.record.environment
    # first: whatever else is asked of a worker starts its compiler, if it has one to start
    for framework, seconds in going.start_compilers([case for case in cases if case.side < 2]).items():
        environment["frameworks"][framework].setdefault("compiler_start_seconds", seconds)
    seats = {case.seat: case for case in cases if case.side < 2}.values()
    for rate, command in ((BANDWIDTH, "bandwidth"), (EXPONENTIALS, "exponentials")):
        if environment.get(rate) is None and (going.settings.device != "cpu" or rate == BANDWIDTH):
            # an accelerator's by each framework: what one reaches, it has
            asked = seats if going.settings.device != "cpu" else cases[:1]
            replies = [going.ask_worker(case, command, PATIENCE_SECONDS) for case in asked]
            environment[rate] = max((r.details["per_second"] for r in replies if r.status == "ok"), default=None)


def _time_reference(going: Going, inputs: dict[str, Inputs]) -> None:
    """The NumPy rows of the ladder: the reference itself, in this process, on one core."""
    problem = PROBLEMS[going.settings.problem]
    for name, given in inputs.items():
        for pass_name in going.settings.passes:
            if (name, pass_name) not in going.record.references:
                going.progress.say(f"NumPy {pass_name}, {given.text}")
                call = functools.partial(problem.reference, pass_name, given)
                going.record.references[name, pass_name] = [timed(call)[0] for _ in range(2)]
                going.keep()
