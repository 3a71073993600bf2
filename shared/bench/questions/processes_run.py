"""How `processes` is measured: fresh processes of every kind side by side, again and again until it is precise."""

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from shared.bench.cases import Case
from shared.bench.estimates import LEAST_PROCESSES
from shared.bench.measure.clock import timed
from shared.bench.questions.processes import counts_of
from shared.bench.questions.processes_group import AGAIN, LAST
from shared.bench.questions.processes_inputs import COUNT, largest_share, write_inputs
from shared.bench.questions.processes_launch import Launch, launch_of
from shared.bench.questions.processes_worker import GROUP
from shared.bench.run.timed_calls import is_enough, note_precision, one_generation
from shared.problems.problem import BATCH, UnusableInput

if TYPE_CHECKING:
    from shared.bench.run.context import Run


def measure_processes(run: "Run", cases: Sequence[Case], inputs: Mapping[str, Any]) -> None:
    """Time all cases in fresh workers until the answer is precise, or the budget spent. Raises UnusableInput."""
    run.stop()
    run.environment = {}
    record, settings, launch = run.record, run.settings, launch_of(run.settings)
    if record.generations and (launch or any(result.details.get("is_launched") for result in record.results)):
        raise UnusableInput("what a launcher's processes have measured cannot be resumed")
    counts = counts_of(settings)[1:]
    seconds, _ = timed(lambda: write_inputs(run.folder, settings, inputs, counts))
    run.progress.say(f"NumPy reference and shards: {seconds:.1f} s")
    for case in cases:
        record.result(case)  # in the order of the tables
    for count in counts:
        first = next(result for result in record.results if result.case.label.startswith(f"{count} "))
        shares = {name: largest_share(inputs[BATCH], count, name) for name in (BATCH, COUNT) if COUNT in inputs}
        own = {"count": count, "largest_share": shares, "hosts": 1, "is_launched": launch is not None}
        first.details = own | first.details
    if settings.workers is None:
        run.progress.ends_within(run.seconds_left)
    number = 1 + max((block.worker for result in record.results for block in result.blocks), default=-1)
    longest = 0.0
    while well := [case for case in cases if record.result(case).status == "ok"]:
        if _is_enough(run, longest):
            break
        began = time.monotonic()
        missing = max(1, (settings.workers or LEAST_PROCESSES) - len(record.generations))
        if launch is not None:
            run.environment = {GROUP: f"group {number}"}
        with contextlib.suppress(_Lost), _until_one_is_lost(run, launch):
            one_generation(run, well, number, began + run.seconds_left / missing)
        longest = max(longest, time.monotonic() - began)
        number += 1
        is_last = launch is not None and _end_group(run, launch, well, _is_enough(run, longest))
        run.stop()
        run.progress.results(record)
        if is_last:
            break
    note_precision(run)


class _Lost(Exception):
    """A launcher's process does not answer any more."""


@contextlib.contextmanager
def _until_one_is_lost(run: "Run", launch: Launch | None) -> Iterator[None]:
    """Raise _Lost after a round in which cases of a launcher's processes failed: those cannot be started again."""
    keep = run.keep

    def keep_or_end() -> None:
        keep()
        together = [r for r in run.record.results if launch and r.case.label.startswith(f"{launch.count} ")]
        if any(result.status == "failed" for result in together):
            raise _Lost

    run.keep = keep_or_end
    try:
        yield
    finally:
        run.keep = keep


def _is_enough(run: "Run", longest: float) -> bool:
    """Whether there were enough fresh workers, at least one. longest: seconds that a set of them takes."""
    return bool(run.record.generations) and is_enough(run, longest, LEAST_PROCESSES)


def _end_group(run: "Run", launch: Launch, cases: Sequence[Case], is_enough: bool) -> bool:
    """Tell the launcher's other processes whether they are needed again; returns whether this was the last time."""
    case = next(case for case in cases if case.label.startswith(f"{launch.count} "))
    if run.running(case) is None:
        return True  # one of them was lost, and the others have noticed it
    found = run.ask("hosts", case, expected=0.0).details
    for result in run.record.results:
        if result.details.get("count") == launch.count:
            result.details |= found
    run.ask("dismiss", case, expected=0.0, last=LAST if is_enough else AGAIN)
    return is_enough
