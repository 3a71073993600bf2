"""Diagnostics of a run, a line each: errors, gates, how steady the machine was, what is missing."""

from collections.abc import Iterable

import numpy as np

from shared.bench.analysis import roofline
from shared.bench.analysis.estimates import FENCE, all_seconds, drift, outliers
from shared.bench.cases import FRAMEWORKS, MEMORY_SHARE
from shared.bench.questions import QUESTIONS
from shared.bench.record import Record, Result
from shared.bench.units import duration, figures

# relative change between a case's first and last rounds that counts as drift
_DRIFT = 0.05
# cores busy with other programs that make times doubtful
_MUCH = 0.1


def diagnostics(record: Record) -> Iterable[str]:
    """One line each."""
    for result in record.results:
        if result.status in ("wrong", "failed"):
            kept = f" ({len(result.seconds)} samples taken before are kept in the record)" if result.blocks else ""
            yield f"{result.status.upper()}: {result.case.title}: {result.reason}{kept}"
    yield from _gates(record)
    yield from _accelerator(record)
    passed = [result for result in record.results if result.measured]
    built = max((result.build_seconds for result in passed), default=0.0)
    if built > 1:
        yield f"fused: its kernels were compiled first: {duration(built)}, not counted above"
    if record.settings is not None and QUESTIONS[record.settings.question].times_rounds:
        yield from _steadiness(record, passed)
    unknown = [result for result in record.results if result.retrace_note]
    for reason in dict.fromkeys(result.retrace_note for result in unknown):
        titles = ", ".join(result.case.title for result in unknown if result.retrace_note == reason)
        yield f"new shape not measured: {titles}: {reason}"
    yield from record.notes
    if record.settings is not None and record.finished is None:
        yield "this run was not finished"
    for absence in record.absent:
        yield f"absent: {absence.case}: {absence.reason}"
    for framework, reason in record.missing.items():
        yield f"{FRAMEWORKS[framework]} was not measured: {reason}"


def _accelerator(record: Record) -> Iterable[str]:
    """Its measured limits, and a framework's share of its memory."""
    settings = record.settings
    if settings is not None and settings.device != "cpu":
        yield from roofline.limits(record)
        for framework, own in record.environment.get("frameworks", {}).items():
            if own.get("threads_elsewhere"):
                yield f"{FRAMEWORKS[framework]}: some of its threads do not keep to the cores of the run"
        yield f"each framework might take {MEMORY_SHARE / len(settings.frameworks):.0%} of the accelerator's memory"


def _gates(record: Record) -> Iterable[str]:
    sources = {result.gate.source for result in record.results if result.gate is not None}
    for source in sorted(sources - {"NumPy"}):
        yield f"pairs too large for the NumPy reference were gated by {source}"
    for result in record.results:
        if result.gate is not None and result.gate.told:
            yield f"{result.case.title}: {result.gate.told}"
    gates = {r.case.input: r.gate for r in record.results if r.measured and r.gate is not None}
    if gates:
        known = {name: gate.pairs for name, gate in gates.items() if gate.pairs is not None}
        covered = [f"{pairs} of {record.inputs[name].pairs}" for name, pairs in known.items()]
        on = f" on {' and '.join(dict.fromkeys(covered))} pairs" if covered else ""
        errors = [r.gate.error_of_allowed or 0.0 for r in record.results if r.measured and r.gate is not None]
        yield f"every time passed the parity gate{on}; worst error {max(errors):.0%} of what is allowed"


def warnings(record: Record) -> Iterable[str]:
    """What a reader must know before the answer."""
    if not record.finished:
        yield "This run was not finished. It shows what was measured until it ended."
    for status, text in (("wrong", "gave a wrong result"), ("failed", "failed")):
        count = sum(result.status == status for result in record.results)
        if count:
            yield f"{count} case{'s' if count > 1 else ''} {text}. The reason is in the table of all cases."
    yield from busy_machine(record)


def busy_machine(record: Record) -> Iterable[str]:
    """A load that the intervals cannot show."""
    others = record.cores_busy_with_others
    if others is not None and others > _MUCH and record.settings is not None:
        yield (
            f"Other programs kept {others:.2f} of {record.settings.threads} cores busy while calls were timed. This "
            "slows a framework that waits for several threads much more than one that does not, in every process, so "
            "that no interval shows it. Measure again on a quiet machine."
        )


def _steadiness(record: Record, passed: list[Result]) -> Iterable[str]:
    """Outliers, drift, warm-ups that did not settle, and the machine itself."""
    if passed:
        far, samples = sum(outliers(r.blocks) for r in passed), sum(len(r.seconds) for r in passed)
        yield (
            f"{samples:,} samples, {far:,} of them more than {FENCE:g} interquartile ranges outside the quartiles of "
            "their case; none is dropped"
        )
    moved = [(result, change) for result in passed if abs(change := drift(result.blocks) or 0.0) > _DRIFT]
    for result, change in moved:
        yield f"drift: {result.case.title}: {change:+.0%}, the last third of its rounds against the first"
    restless = [r.case.title for r in passed if r.warm_up and any(w.stable is False for w in r.warm_up)]
    if restless:
        yield f"times had not settled when the warm-up ended, in at least one worker: {', '.join(restless)}"
    slow = [r.case.title for r in passed if r.warm_up and any(w.stable is None for w in r.warm_up)]
    if slow:
        yield f"too slow for a warm-up of several calls: {', '.join(slow)}"
    others = record.cores_busy_with_others
    if others is None and any(entry.others is not None for entry in record.generations):
        yield "calls were timed for less than a second: the load by other programs is not known"
    if others is not None and record.settings is not None:
        yield f"other programs kept {others:.2f} of {record.settings.threads} cores busy while calls were timed"
    speeds = all_seconds(record.speed)
    if len(speeds) > 1:
        slowest = figures(max(speeds) / float(np.median(speeds)))
        low, high = (duration(float(value)) for value in np.percentile(speeds, [25, 75]))
        yield (
            f"calibration loop: {duration(float(np.median(speeds)))} in the median round, quartiles {low} … {high}, "
            f"{slowest} times the median in the slowest"
        )
