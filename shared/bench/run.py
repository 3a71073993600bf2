"""One run: inputs, answers, workers, cases in the plan's order. What is finished is kept, whatever comes after."""

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from shared import reference
from shared.bench import answers, files
from shared.bench.measure import timed
from shared.bench.plan import FRAMEWORKS, Case, Settings, absences, plan
from shared.bench.record import Record, Result
from shared.bench.workers import Outcome, Unavailable, Worker
from shared.problems import PROBLEMS, Inputs

Say = Callable[[str], None]


class NothingToMeasure(Exception):
    """What was asked for has no case that a framework can run; the text says why."""


class CannotMeasure(Exception):
    """A selected framework cannot use the device, or none starts; the text has a line for each."""


def run(settings: Settings, record: Record, say: Say) -> None:
    """Measure every case of the plan into the record.

    Raises CannotMeasure or NothingToMeasure before anything is measured. A KeyboardInterrupt passes through; the record
    then holds what is finished.
    """
    single, batch = PROBLEMS[settings.problem].inputs(settings)
    inputs = {True: single, False: batch} if settings.ladder else {False: batch}
    with tempfile.TemporaryDirectory(prefix="compare-") as name, team_of(settings, Path(name), say) as (team, missing):
        folder = Path(name)
        abilities = {framework: worker.abilities for framework, worker in team.items()}
        cases, absent = plan(settings, abilities), absences(settings, abilities)
        if not cases:
            raise NothingToMeasure("nothing to measure: " + "; ".join(f"{row.case}: {row.reason}" for row in absent))
        # a ladder of single-pair rungs alone has no use for the batch, and the other way round
        inputs = {single: given for single, given in inputs.items() if any(case.single == single for case in cases)}
        _hand_over(inputs, settings, folder, say)
        record.start(settings, inputs, team, missing, absent)
        if settings.ladder:
            _time_reference(settings, inputs, record, say)
        first_fused = next((case for case in cases if case.variant == "fused"), None)
        for number, case in enumerate(cases, 1):
            note = ", after compiling its kernels unless they are in the cache" if case is first_fused else ""
            say(f"[{number}/{len(cases)}] {case.title}{note}")
            record.add(Result(case, _run_case(team, case, settings, folder)))


@contextlib.contextmanager
def team_of(settings: Settings, folder: Path, say: Say) -> Iterator[tuple[dict[str, Worker], dict[str, str]]]:
    """A worker for each framework, and a line for each that does not start. All workers end with the context."""
    team: dict[str, Worker] = {}
    missing: dict[str, str] = {}
    unfit: list[str] = []
    try:
        for framework in settings.frameworks:
            say(f"starting {FRAMEWORKS[framework]}")
            try:
                team[framework] = Worker(framework, settings, folder)
            except Unavailable as error:
                if error.device_problem:
                    unfit.append(str(error))
                else:
                    missing[framework] = str(error)
        if unfit or not team:
            raise CannotMeasure("\n".join([*unfit, *missing.values()]))
        yield team, missing
    finally:
        for worker in team.values():
            worker.stop()


def _hand_over(inputs: dict[bool, Inputs], settings: Settings, folder: Path, say: Say) -> None:
    """Put the inputs (by whether it is the single pair) and their answers where the workers find them."""
    for is_single, given in inputs.items():
        files.save_inputs(given, folder, is_single)
        seconds, answer = timed(lambda given=given: answers.answer(settings.problem, given, settings.passes))
        say(f"NumPy reference on {len(answer.pairs)} of {len(given.pair_lengths)} pairs: {seconds:.1f} s")
        answers.save(answer, files.answer_path(folder, is_single))


def _time_reference(settings: Settings, inputs: dict[bool, Inputs], record: Record, say: Say) -> None:
    """The NumPy rows of the ladder: the reference itself, in this process, on one core."""
    for is_single, given in inputs.items():
        for pass_name in settings.passes:
            say(f"NumPy {pass_name}, {'one pair' if is_single else 'batch'}")
            seconds = [timed(lambda g=given, p=pass_name: _reference(settings.problem, p, g))[0] for _ in range(2)]
            record.add_reference(is_single, pass_name, seconds)


def _reference(problem: str, pass_name: str, inputs: Inputs) -> None:
    arguments = {**inputs.parameters, **inputs.options}
    if pass_name == "score":
        getattr(reference, problem)(inputs.similarity, inputs.lengths, **arguments)
    elif pass_name == "marginals":
        reference.gradients(problem, inputs.similarity, inputs.lengths, **arguments)
    else:
        reference.hessian_vector_product(problem, inputs.similarity, inputs.weights, inputs.lengths, **arguments)


def _run_case(team: dict[str, Worker], case: Case, settings: Settings, folder: Path) -> Outcome:
    """Run it on its framework's worker; a worker that is gone is replaced first."""
    if not team[case.framework].alive:
        try:
            team[case.framework] = Worker(case.framework, settings, folder)
        except Unavailable as error:
            return Outcome("failed", f"the worker could not be started again: {error}", {})
    return team[case.framework].run(case, settings.compile_limit)
