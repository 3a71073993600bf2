"""Warnings above the answer, and diagnostics below the cases: errors, gates, how steady the machine was, what is
missing. A line each."""

from collections.abc import Iterator

import numpy as np

from shared.bench.cases import FRAMEWORKS
from shared.bench.estimates import drift
from shared.bench.measure import measured_code, variables
from shared.bench.record import Record
from shared.bench.units import duration, range_text

# relative change between a case's first and last rounds that counts as drift
_DRIFT = 0.05
# cores busy with other programs that make times doubtful
_MUCH = 0.1


def warnings(record: Record) -> Iterator[str]:
    """Lines that a reader must see before the answer."""
    if not record.finished:
        yield "This run was not finished. It shows what was measured until it ended."
    if any("--quick" in absence.reason for absence in record.absent):
        yield "--quick: nothing that torch.compile compiles: JAX is compiled, PyTorch is not"
    for status, text in (("wrong", "gave a wrong result"), ("failed", "failed")):
        count = sum(result.status == status for result in record.results)
        if count:
            yield f"{count} case{'s' if count > 1 else ''} {text}. The diagnostics have the reason."
    yield from measured_code.warnings(record)
    yield from variables.warnings(*(record.environment.get(name, {}) for name in ("variables", "settings")))
    if (busy := record.cores_busy_with_others or 0.0) > _MUCH:
        yield (
            f"Other programs, or virtual machines, kept {busy:.2f} of {record.settings.threads} cores busy while calls "
            "were timed. This slows a framework that waits for several threads much more than one that does not, in "
            "every process, so that no interval shows it. Measure again on a quiet machine."
        )


def diagnostics(record: Record) -> Iterator[str]:
    """Lines for a reader who wants more detail than the numbers."""
    for result in record.results:
        if result.status in ("wrong", "failed") or ":" in (result.reason or ""):
            also = f" (the blocks of {result.calls} calls timed before are kept in the record)" if result.blocks else ""
            yield f"{result.status.upper()}: {result.case.title}: {result.reason}{also}"
    yield from _gates(record)
    yield from _steadiness(record)
    for reason in dict.fromkeys(result.new_shapes_note for result in record.results if result.new_shapes_note):
        titles = "; ".join(result.case.title for result in record.results if result.new_shapes_note == reason)
        yield f"new shape not measured: {titles}: {reason}"
    yield from record.notes
    if record.settings.device != "cpu" and not record.gpu_state:
        yield "clocks, power and temperature of the GPU are not known: nvidia-smi gave no samples"
    for absence in record.absent:
        yield f"absent: {absence.title}: {absence.reason}"
    for framework, reason in record.missing.items():
        yield f"{FRAMEWORKS[framework]} was not measured: {reason}"


def _gates(record: Record) -> Iterator[str]:
    gates = [(result.case, result.gate) for result in record.results if result.gate is not None]
    for source in dict.fromkeys(gate.source for _, gate in gates if gate.source.startswith("float64")):
        yield f"pairs too large for the NumPy reference were gated by {source}"
    for case, gate in gates:
        if gate.summary:
            yield f"{case.title}: {gate.summary}"
    passed = [result for result in record.results if result.measured and result.gate is not None]
    if passed:
        pairs = {r.case.input: r.gate.pairs for r in passed if r.gate and r.gate.pairs is not None}
        covered = dict.fromkeys(f"{count} of {record.inputs[name].pairs}" for name, count in pairs.items())
        on = f" on {' and '.join(covered)} pairs" if covered else ""
        worst = max(result.gate.error_of_allowed or 0.0 for result in passed if result.gate)
        yield f"all timed results passed the parity gate{on}; worst error {worst:.0%} of what is allowed"


def drifts(record: Record) -> list[str]:
    """The cases whose last rounds were slower or faster than their first, with the change."""
    changes = [(result, drift(result.blocks) or 0.0) for result in record.results if result.measured]
    return [f"{result.case.title} {change:+.0%}" for result, change in changes if abs(change) > _DRIFT]


def _steadiness(record: Record) -> Iterator[str]:
    """Samples, drift, warm-ups that did not settle, and the machine itself; only of cases with several blocks."""
    timed = [result for result in record.results if result.measured and len(result.blocks) > 1]
    on_gpu = record.environment.get("gpu_kernels_seconds", 0.0)
    built = max((result.build_seconds for result in record.results if result.measured), default=0.0) + on_gpu
    if built > 1:
        yield f"fused: its kernels were compiled first: {duration(built)}, not counted above"
    if timed:
        yield f"{sum(result.calls for result in timed):,} samples, of which none is dropped"
    if drifted := drifts(record):
        yield f"drift, the last third of the rounds against the first: {'; '.join(drifted)}"
    restless = [r.case.title for r in timed if False in r.settled]
    if restless:
        yield f"times had not settled when the warm-up ended, in at least one worker: {'; '.join(restless)}"
    if speeds := record.calibration_seconds:
        low, median, high, slowest = (float(np.percentile(speeds, part)) for part in (25, 50, 75, 100))
        quartiles = range_text(low, high)
        yield f"calibration loop: median {duration(median)}, quartiles {quartiles}, slowest {duration(slowest)}"
