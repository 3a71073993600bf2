"""How large a batch fits into a given memory, and in which framework more?

Fresh processes call each case with two batches. The line through the two peaks of a process reaches the given memory at
the largest batch, of which 90% are then tried. On a CPU a worker that has more than the given memory is killed, so that
no prediction endangers the machine; an accelerator's framework is limited to it.
"""

import contextlib
import gc
import math
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from shared.bench.analysis.verdict import cell
from shared.bench.cases import FRAMEWORKS, MEMORY_SHARE, Case, Settings
from shared.bench.estimates import LEAST_PROCESSES, SAME, mean_over_processes
from shared.bench.measure.memory import resident_peak
from shared.bench.questions.question import Question, unmeasured
from shared.bench.record import Record, Result
from shared.bench.report.tables import Answer, Statement, Table, left_then_right
from shared.bench.run.context import Run
from shared.bench.run.fresh_processes import groups_of, measure_in_processes
from shared.bench.run.protocol import save_inputs
from shared.bench.units import NOTHING, bytes_text, figures, interval_text
from shared.bench.worker.case_runner import CaseRunner
from shared.problems import Inputs, problem_of
from shared.problems.problem import DATA, NotMeasurable, UnusableInput

# The first batch has a cell for this many bytes of the memory: a cell of any variant has needed far fewer.
_FIRST_BYTES = 1024
# The part of the memory that the larger batch shall take: so large that the C library does not reuse for it what
# smaller arrays have left, and well within the memory. _NEAR: where the search ends; _MOST_GROWTH: of a step.
_PART, _NEAR, _MOST_GROWTH = 0.6, 0.45, 8.0
_TRIED = 0.9  # of the largest batch
# over processes: bytes hardly scatter
_mean = partial(mean_over_processes, scatter=0.0)


@dataclass
class Peaks:
    """Details that a record keeps of one case."""

    pairs: list[int]  # of the two batches
    peaks: list[list[int]] = field(default_factory=list)  # of each process, bytes with each batch
    trial: dict[str, Any] = field(default_factory=dict)  # its pairs, and their peak or the reason why there is none

    def __post_init__(self) -> None:
        grows = (len(numbers) == 2 and 0 < numbers[0] < numbers[1] for numbers in (self.pairs, *self.peaks))
        numbers = (value for name, value in self.trial.items() if name != "reason")
        if not all(grows) or not all(isinstance(value, int) and value > 0 for value in numbers):
            raise ValueError("pairs and peaks must be two growing numbers each, those of a trial positive")


class Memory(Question):
    """The largest batch that fits."""

    name = "memory"
    asks = "how large a batch fits into a given memory; in which framework more"
    takes = ("size", "memory", "workers")
    only_alignments, only_random, default_input = True, True, "random"
    details = Peaks
    default_budget = 600.0
    times_rounds = False

    def inputs(self, settings: Settings) -> dict[str, Inputs]:
        """One pair, of which batches are made."""
        if settings.batch:
            raise UnusableInput("memory seeks the largest batch: leave out --batch")
        rows, cols = settings.size or (256, 256)
        one = problem_of(settings.problem).inputs_of_size(settings, (1, rows, cols))
        return {DATA: replace(one, text=f"batches of random pairs of {rows} x {cols}")}

    def measure(self, run: Run, cases: list[Case], inputs: dict[str, Any]) -> None:
        save_inputs(run, inputs)
        _limit_memory(run, cases[0].framework)
        processes = run.settings.workers or LEAST_PROCESSES
        run.progress.begin("peak memory", processes * len(cases))
        run.progress.skip(sum(len(run.record.result(case).details.get("peaks", ())) for case in cases))
        groups = groups_of(cases, "variant pass_name", "framework compiled")
        measure_in_processes(run, groups, lambda part, at, _: _measure(run, part[0], at + 1 >= processes), "peaks")

    def answer(self, record: Record) -> Answer:
        fits = _fits(record)
        if not fits:
            return Answer([], [Statement(r.case.title, f"{r.reason}.") for r in record.results if r.reason])
        statements = []
        for name in dict.fromkeys(case.pass_name for case in fits):
            cases, more = _compared(fits, name)
            both = [f"{int(_mean(fits[case].largest).value):,} pairs in {case.name}" for case in cases]
            text = ": ".join(filter(None, [", against ".join(both), " ".join(more.split())]))
            statements.append(Statement(name, f"into {bytes_text(record.settings.memory)} fit {text}."))
        return Answer([_table(record, fits)], statements)


QUESTION = Memory()


class Fit(NamedTuple):
    """The lines of a case's processes, and where they reach the given memory; in each list a number per process."""

    details: Mapping[str, Any]  # the fields of Peaks
    bases: list[float]  # bytes of the process itself: the framework, its compiler, compiled code
    slopes: list[float]  # bytes of a pair
    largest: list[float]  # pairs in the largest batch

    def peak(self, pairs: float) -> float:
        """Predicted peak bytes of a process."""
        return _mean([base + slope * pairs for base, slope in zip(self.bases, self.slopes, strict=True)]).value


def _fit(record: Record, details: Mapping[str, Any]) -> Fit:
    (fewer, more), peaks, memory = details["pairs"], details["peaks"], record.settings.memory or 0
    slopes = [(last - first) / (more - fewer) for first, last in peaks]
    bases = [max(1.0, first - slope * fewer) for (first, _), slope in zip(peaks, slopes, strict=True)]
    return Fit(details, bases, slopes, [max(1.0, (memory - b) / s) for b, s in zip(bases, slopes, strict=True)])


def _fits(record: Record) -> dict[Case, Fit]:
    """The lines of every case that is right."""
    right = [result for result in record.results if result.status == "ok" and result.details.get("peaks")]
    return {result.case: _fit(record, result.details) for result in right}


# how it is measured


def _limit_memory(run: Run, framework: str) -> None:
    """Fix the memory of the run in its settings, and on an accelerator that of the workers to come.

    By default half of a GPU's, or of a CPU's free memory and at most 2 GiB: calls stay short. Raises UnusableInput.
    """
    is_cpu, of_a_worker = run.settings.device == "cpu", run.memory[framework] or 0
    most = psutil.virtual_memory().available if is_cpu else of_a_worker * len(run.plan.starts)
    memory = run.settings.memory or min(most // 2, 2**31 if is_cpu else most)
    if memory >= most:
        raise UnusableInput(f"--memory must be below {bytes_text(most)}, got {bytes_text(memory)}")
    run.memory_share = MEMORY_SHARE * memory / most  # counts for accelerators only
    run.stop()
    run.progress.say(f"memory of a process: {bytes_text(memory)}; --memory SIZE changes that")
    run.record.settings = replace(run.settings, memory=memory)


def _measure(run: Run, case: Case, is_last: bool) -> None:
    """The peaks of a fresh process with two batches, which are found before the first one; after the last, a trial."""
    result = run.record.result(case)
    run.progress.step(case.title)
    if "pairs" not in result.details:
        _find_batches(run, result)
    run.stop(case)
    peaks: list[int] = []
    for pairs in result.details.get("pairs", ()):
        if (reply := peak_of(run, result, pairs, is_first=not peaks)) is None:
            break
        peaks.append(reply["peak"])
    run.stop(case)
    if len(peaks) == 2 and peaks[1] <= peaks[0]:
        result.status, result.reason = "limit", "its memory does not grow with the batch: take more --memory"
    if result.status != "ok":
        return
    details = result.details | {"peaks": [*result.details.get("peaks", []), peaks]}
    if is_last and "trial" not in details:
        pairs = max(1, int(_TRIED * _mean(_fit(run.record, details).largest).value))
        reply = peak_of(run, result, pairs, is_first=False)
        details["trial"] = {"pairs": pairs} | ({"peak": reply["peak"]} if reply else {"reason": result.reason})
        result.status, result.reason = "ok", None
        run.stop(case)
    result.details = details  # only now: if this is interrupted, the process is measured again


def _find_batches(run: Run, result: Result) -> None:
    """Find a batch that takes its part of the memory, step by step; the other one is half of it.

    Each step chooses the next batch by the bytes per pair between the last two. All memory of the first batch counts
    as that of its pairs, compiled code too, so that the next one is too small rather than too large. A step that takes
    too much memory or time is the last: the batches before it fit.
    """
    memory, cells = run.settings.memory or 0, math.prod(run.record.inputs[DATA].shape)
    pairs = max(1, memory // _FIRST_BYTES // cells)
    points: list[tuple[int, int]] = []  # pairs and peak; first: no pairs, and the memory before
    while (reply := peak_of(run, result, pairs, is_first=not points)) is not None:
        points = [*(points or [(0, reply["before"])]), (pairs, reply["peak"])]
        (fewer, less), (_, peak) = points[-2:]
        used, room = peak - points[0][1], memory - points[0][1]
        if len(points) > 2 and used > _NEAR * room:
            break
        slope = max(cells, (peak - less) / (pairs - fewer))
        pairs = max(pairs + 1, int(min(pairs + (_PART * room - used) / slope, _MOST_GROWTH * pairs)))
    if result.status in ("ok", "limit") and points and points[-1][0] > 1:
        result.status, result.reason = "ok", None
        result.details = {"pairs": [points[-1][0] // 2, points[-1][0]]}


def peak_of(run: Run, result: Result, pairs: int, is_first: bool) -> Mapping[str, int] | None:
    """Return resident bytes of a worker before the calls and their peak; None if they fail or exceed the memory."""
    case, memory, exceeded, ended = result.case, run.settings.memory or 0, threading.Event(), threading.Event()
    if run.running(case) is None:
        run.start_workers([case])
    if (worker := run.running(case)) is None:  # one that `ask` starts would not be watched
        result.status, result.reason = "failed", "its worker did not start"
        return None

    def look() -> None:
        with contextlib.suppress(psutil.Error):  # it has ended
            process = psutil.Process(worker.pid)
            while case.device == "cpu" and not ended.wait(0.01):  # seconds
                if process.memory_info().rss > memory:
                    exceeded.set()
                    process.kill()
                    return

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        reply = run.ask_for_result("call", case, function=peak_of_calls, pairs=pairs, is_first=is_first)
    finally:
        ended.set()
        thread.join()
    if exceeded.is_set():
        result.status, result.reason = "limit", f"the process and {pairs:,} pairs take more than {bytes_text(memory)}"
    return reply.details if reply.status == "ok" else None


def peak_of_calls(runner: CaseRunner, case: Case, pairs: int, is_first: bool) -> dict[str, Any]:
    """Bytes of the process before it gets the arguments of a batch and calls the case twice, and its peak meanwhile.

    Compilation is part of the first call; the second may find memory that the first has left, or not. The pairs are
    copies of one, made on the device. On an accelerator: the arguments, and what the framework reports for a call.
    is_first: the gate checks the result, in every process but the trial's. Raises Wrong or NotMeasurable.
    """
    backend, inputs = runner.backend, replace(runner.gate.inputs(DATA), copies=pairs)
    results: list[Any] = []

    def placed() -> list[Any]:
        arrays = inputs.arguments(case.pass_name)
        return [a if a is None else backend.repeated(backend.to_device(a, case.device), pairs) for a in arrays]

    def calls() -> None:
        arguments = placed()
        backend.wait(function(*arguments, **inputs.parameters))
        results.append(backend.wait(function(*arguments, **inputs.parameters)))

    def on_accelerator() -> tuple[int, int] | None:
        arguments = placed()
        result = backend.wait(function(*arguments, **inputs.parameters))
        results.extend([result] if is_first else [])
        del result
        backend.release(case.device)  # so that memory kept for the next call counts too
        peak = backend.peak_bytes(function, arguments, inputs.parameters, case.device)
        return None if peak is None else (0, sum(a.nbytes for a in arguments if a is not None) + peak)

    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as empty,
        runner.compilers(case, Path(empty)),  # or only the first of the processes would compile
    ):
        runner.build(case, inputs.options)
        function = runner.function(case, inputs)
        bounds = resident_peak(calls) if case.device == "cpu" else on_accelerator()
        if bounds is None:
            raise NotMeasurable("its peak memory is not known here")
        parts = backend.extremes(results[0], pairs) if is_first else ()
        gates = [runner.gate.check(case, part) for part in parts]
    results.clear()
    backend.forget_compiled()
    gc.collect()
    return {"before": bounds[0], "peak": bounds[1]} | ({"gate": gates[-1]} if gates else {})


# how it is shown


def _table(record: Record, fits: Mapping[Case, Fit]) -> Table:
    """A row for each case."""
    (_, *lengths), rows = record.inputs[DATA].shape, []
    for case, fit in fits.items():
        trial = fit.details.get("trial", {"reason": "not tried"})
        off = "" if "reason" in trial else f"\n({trial['peak'] / fit.peak(trial['pairs']) - 1:+.1%})"
        best, more = _compared(fits, case.pass_name, case.variant)
        rows.append((
            case.pass_name, case.variant, FRAMEWORKS[case.framework],
            _interval(fit.bases, lambda value: bytes_text(round(value))),
            _interval([slope / math.prod(lengths) for slope in fit.slopes], lambda value: f"{figures(value)} B"),
            _interval(fit.largest, lambda pairs: f"{int(pairs):,}"),
            more if more and case == best[0] else NOTHING,
            trial.get("reason") or f"{bytes_text(trial['peak'])}{off}",
        ))  # fmt: skip
    headers = ("pass", "variant", "framework", "process\nitself", "a cell", "largest\nbatch", "fits more",
               f"peak at {_TRIED:.0%},\nover predicted")  # fmt: skip
    below = ("With 95% intervals. The process itself: the framework, its compiler, compiled code. Fits more: how many "
             f"times as many pairs; same: within ±{SAME - 1:.0%}.", *unmeasured(record.results))  # fmt: skip
    title = f"Pairs of {lengths[0]} x {lengths[1]} that fit into {bytes_text(record.settings.memory)}"
    return Table(title, headers, rows, left_then_right(3, 5), below)


def _interval(values: Sequence[float], text: Callable[[float], str]) -> str:
    estimate = _mean(values)
    return f"{text(estimate.value)}\n({interval_text(estimate, text)})"


def _compared(fits: Mapping[Case, Fit], name: str, variant: str | None = None) -> tuple[list[Case], str]:
    """Each framework's case of a pass that fits most, the better one first, and by what factor it does."""
    best: dict[str, Case] = {}
    for case in sorted(fits, key=lambda case: -_mean(fits[case].largest).value):
        if case.pass_name == name and variant in (None, case.variant):
            best.setdefault(case.framework, case)
    if len(best) < 2:
        return [*best.values()], ""
    more, fewer = (fits[case].largest for case in best.values())
    ratio = _mean([a / b for a, b in zip(more, fewer, strict=False)])
    return [*best.values()], cell([FRAMEWORKS[name] for name in best], ratio)
