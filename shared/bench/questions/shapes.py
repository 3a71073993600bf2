"""What do shapes that change with every batch cost, and what helps: padding, a few shapes, dynamic shapes?

A stream of batches goes once through each case with each strategy, in fresh processes with empty caches. BATCHES are
timed, compilation included; of the rest up to COUNTED only the shapes are drawn, to know how often a strategy has to
compile for them.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np

from shared.bench.analysis.verdict import compare
from shared.bench.cases import FRAMEWORKS, Case, Settings
from shared.bench.estimates import Block, Seconds
from shared.bench.measure.clock import timed
from shared.bench.questions.axis_question import AxisQuestion, Row
from shared.bench.questions.question import AbilitiesByFramework, Cases, unmeasured
from shared.bench.record import FirstCall, Record, Result
from shared.bench.report.plots import plots_of_cases
from shared.bench.report.tables import Answer, Plot, Statement, Table, left_then_right
from shared.bench.run.context import Run
from shared.bench.run.fresh_processes import groups_of, measure_in_processes
from shared.bench.run.plan import WorkerStart
from shared.bench.run.protocol import save_inputs
from shared.bench.run.schedule import LEAST_ROUNDS
from shared.bench.units import NOTHING, duration
from shared.bench.worker.case_runner import CaseRunner
from shared.problems import Inputs, problem_of
from shared.problems.alignment_inputs import AlignmentInputs
from shared.problems.problem import DATA

BATCHES, COUNTED = 50, 500
COUNTS = (5, BATCHES, COUNTED)  # batches after which totals are shown
_SIZE, _PAIRS = (150, 150), 16
_SHORTEST = 1 / 3  # least ratio of a batch's longest pair to --size, and of any pair to that longest pair
_AGAIN = 5  # batches at the end of a stream that are called again
_CHECKED = 10  # every tenth batch is checked, from the first on
AS_IS, DYNAMIC, EAGER = "as is", "dynamic", "eager"  # the last two are PyTorch's, for what it compiles
STRATEGIES = (AS_IS, DYNAMIC, "multiples of 16", "multiples of 64", "4 shapes", EAGER)


@dataclass
class Streams:
    """Details that a record keeps of one case."""

    compiles_at: list[int]  # batches that have a new shape, if the case is compiled
    seconds: list[list[Seconds]]  # of each process, a batch after the other
    compilations: list[int]  # of each process

    def __post_init__(self) -> None:
        if not all(self.seconds) or len(self.seconds) != len(self.compilations):
            raise ValueError("seconds and compilations must be those of the same processes")


class ChangingShapes(AxisQuestion):
    """A stream of batches of changing shapes, with every strategy."""

    name = "shapes"
    asks = "what do shapes that change with every batch cost, compilation included; what does padding gain"
    takes = ("size", "workers")
    axis, change = f"strategy over {BATCHES} batches", "gain"
    below = (
        "Compilation included, from empty caches. The faster framework, by what factor, and the 95% interval over "
        "fresh processes. ~: extrapolated from the batches that were measured. n in m: n in the m batches measured.",
        "multiples of 16, of 64, 4 shapes: rows and columns padded up to the next one, or to the next of four that are "
        "known beforehand; dynamic: torch.compile's default, which turns changing sizes into variables; eager: without "
        "torch.compile, but the scan operator traces and compiles its step for each shape.",
    )
    only_alignments, only_random, default_input = True, True, "random"
    only_passes, which_passes = ("score", "marginals"), slice(-1, None)
    details = Streams
    labels: Mapping[str, WorkerStart] = dict.fromkeys(STRATEGIES, WorkerStart())
    default_budget = 540.0  # ten minutes, with what is still running when it is spent
    times_rounds = False

    def inputs(self, settings: Settings) -> dict[str, Inputs]:
        """All pairs of the stream, batch by batch, each in a matrix of the largest size."""
        problem = problem_of(settings.problem)
        size, pairs = settings.size or _SIZE, settings.batch or _PAIRS
        shapes = padded_shapes(settings)[AS_IS][:BATCHES]
        whole = problem.inputs_of_size(replace(settings, batch=BATCHES * pairs), size)
        part = np.random.default_rng(settings.seed).uniform(_SHORTEST, 1.0, (BATCHES, pairs, 2))
        lengths = np.ceil(part * shapes[:, None]).astype(np.int32)
        lengths[:, 0, 0], lengths[:, -1, 1] = shapes.T
        text = f"{BATCHES} batches of {pairs} random pairs, seed {settings.seed}, of shapes up to {size[0]} x {size[1]}"
        return {DATA: replace(whole, text=text, lengths=lengths.reshape(-1, 2))}

    def cases(self, settings: Settings, abilities: AbilitiesByFramework, inputs: Sequence[str]) -> Cases:
        cases, absent = super().cases(settings, abilities, inputs)
        possible = [c for c in cases if c.label not in (DYNAMIC, EAGER) or (c.framework == "torch" and c.compiled)]
        return [replace(c, compiled=c.compiled and c.label != EAGER) for c in possible], absent

    def measure(self, run: Run, cases: list[Case], inputs: dict[str, Any]) -> None:
        """A stream ends with the batch at which its share of the budget is spent."""
        pairs = np.arange(inputs[DATA].pairs).reshape(BATCHES, -1)
        batches = {f"batch-{number}": pairs_of(inputs[DATA], chosen) for number, chosen in enumerate(pairs)}
        save_inputs(run, dict([*batches.items()][::_CHECKED]))
        for name, batch in batches.items():
            run.write(f"{name}.inputs", batch)
        run.stop()
        padded = {label: shapes.tolist() for label, shapes in padded_shapes(run.settings).items()}

        def measure_stream(part: Sequence[Case], number: int, seconds: float) -> None:
            (case,) = part
            shapes = padded[case.label]
            new = [at for at, shape in enumerate(shapes) if case.compiled and shapes.index(shape) == at]
            run.progress.begin(f"process {number + 1}, {case.title}", 1)
            watched = run.watch_other_programs(number)
            reply = run.ask_for_result("call", case, function=timed_stream, padded=shapes[:BATCHES], seconds=seconds)
            repeat = watched()
            run.stop(case)
            if reply.status == "ok":
                result, measured = run.record.result(case), reply.details
                result.cold.append(measured["first"])
                result.blocks += [Block.of(number, at, seconds) for at, seconds in enumerate(measured["again"])]
                result.details["compiles_at"] = new
                for name in ("seconds", "compilations"):
                    result.details.setdefault(name, []).append(measured[name])
                run.record.repeats.append(repeat)

        # what should take least comes first: the time that it does not need goes to the others
        cheapest_first = sorted(cases, key=lambda case: -STRATEGIES.index(case.label))
        groups = groups_of(cheapest_first, "variant label pass_name", "framework compiled")
        measure_in_processes(run, groups, measure_stream, "seconds")

    def answer(self, record: Record) -> Answer:
        rows = self.rows(record)
        if not rows:
            return Answer()
        totals = {count: self.rows(of_totals(record, count)) for count in COUNTS}
        names, cells = " / ".join(FRAMEWORKS.values()), []
        headers = ["variant", "pass", "strategy", f"compilations\n{names}", f"a batch,\nonce compiled\n{names}"]
        headers += [f"in total,\nafter {count}\n{names}" for count in COUNTS]
        for at, row in enumerate(rows):
            for label in dict.fromkeys(label for _, label in row.results):
                texts = [_of_both(row, label, _compilations), _of_both(row, label, lambda r: duration(r.time.value))]
                for count, of_count in totals.items():
                    comparison = of_count[at].comparison(label)
                    text = _of_both(of_count[at], label, lambda r, count=count: _total_text(r, count))
                    texts.append(text if comparison.ratio is None else f"{text}\n{comparison.text}")
                cells.append((row.variant, row.pass_name, label, *texts))
        title, below = "Shapes that change with every batch", (*self.below, *unmeasured(record.results))
        statements = list(filter(None, map(_winners, zip(*totals.values(), strict=True))))
        statements += self._changes(totals[BATCHES], rows[0].points[1:])
        return Answer([Table(title, tuple(headers), cells, left_then_right(len(headers), 0), below)], statements)

    def plots(self, record: Record) -> Iterator[Plot]:
        """The totals of all cases, for each pass."""
        for plot in plots_of_cases(of_totals(record, BATCHES)):
            yield plot._replace(title=plot.title.replace("time of a call", f"total of {BATCHES} batches"))


QUESTION = ChangingShapes()


def padded_shapes(settings: Settings) -> dict[str, np.ndarray]:
    """Draw the shape of each batch; return rows and columns (COUNTED, 2) by strategy."""
    size = np.array(settings.size or _SIZE)
    least = np.ceil(size * _SHORTEST).astype(int)
    shapes = np.random.default_rng(settings.seed).integers(least, size + 1, (COUNTED, 2))
    of_16, of_64 = (-(-shapes // of) * of for of in (16, 64))
    middle = np.median(shapes, axis=0).astype(int)
    four = np.where(shapes <= middle, middle, shapes.max(axis=0))
    return dict(zip(STRATEGIES, (shapes, shapes, of_16, of_64, four, shapes), strict=True))


def pairs_of(stream: AlignmentInputs, pairs: Any) -> AlignmentInputs:
    """Some pairs of a stream, in matrices as large as the longest of them."""
    lengths = stream.pair_lengths[pairs]
    corner = (pairs, *map(slice, lengths.max(axis=0)))
    gaps = {name: gap[corner] for name, gap in stream.gaps.items()}
    return replace(stream, similarity=stream.similarity[corner], gaps=gaps, lengths=lengths)


def timed_stream(runner: CaseRunner, case: Case, padded: list[list[int]], seconds: float) -> dict[str, Any]:
    """Run the case on one batch after the other in a fresh worker, from empty caches. Raises Wrong.

    A batch's time is from its arrays on the host to the result: padding, transfer, compilation and call. The stream
    ends after the batch with which `seconds` are spent; its last batches are then called again, after a round that
    warms up, and some are checked.
    """
    backend, names = runner.backend, [f"batch-{number}" for number in range(len(padded))]
    batches = list(map(runner.gate.inputs, names))
    options, modes = batches[0].options, {"compiled": case.compiled, "dynamic": case.label == DYNAMIC}
    runner.build(case, options)
    function = backend.call_of(case.problem, case.variant, case.pass_name, options, **modes)

    def call(number: int) -> Any:
        arrays = (array for array in batches[number].arguments(case.pass_name) if array is not None)
        on_device = [backend.to_device(_padded(array, padded[number]), case.device) for array in arrays]
        return backend.wait(function(*on_device, **batches[number].parameters))

    steps: list[tuple[FirstCall, int, np.ndarray]] = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as empty, runner.compilers(case, Path(empty)):
        while len(steps) < len(batches) and (not steps or sum(step[0].seconds for step in steps) < seconds):
            with backend.compile_times() as times:
                took, result = timed(lambda: call(len(steps)))
            unpadded = backend.to_numpy(result)[tuple(map(slice, batches[len(steps)].shape[: result.ndim]))].copy()
            del result  # a training loop frees it too: the next batch can reuse its memory
            steps.append((FirstCall(took, times.tracing, times.compiling), times.compilations, unpadded))
            runner.send("step")
        last = range(len(steps))[-_AGAIN:]
        warm_up, _ = timed(lambda: [call(at) for at in last])
        count = LEAST_ROUNDS if warm_up < 1 else 2
        rounds = [[timed(lambda at=at: call(at))[0] for at in last] for _ in range(count)]
        calls, counts, results = zip(*steps, strict=True)
        gates = [
            runner.gate.check(replace(case, input=name), backend.to_device(result, case.device))
            for name, result in [*zip(names, results, strict=False)][::_CHECKED]
        ]
    worst = max(gates, key=lambda gate: gate.error_of_allowed or 0.0)
    gate = replace(worst, pairs=sum(gate.pairs or 0 for gate in gates))
    taken = [call.seconds for call in calls]
    return {"first": calls[0], "again": rounds, "seconds": taken, "compilations": sum(counts), "gate": gate}


def _padded(array: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """Pad matrices with zeros to a shape; leave lengths (batch, 2) as they are."""
    if array.ndim < 3 or array.shape[1:] == tuple(shape):
        return array
    larger = np.zeros((len(array), *shape), array.dtype)
    larger[:, : array.shape[1], : array.shape[2]] = array
    return larger


def of_totals(record: Record, count: int) -> Record:
    """The record with the total of so many batches, in each process, in place of the time of a call."""
    results = []
    for result in record.results:
        rounds: dict[int, list[float]] = {}
        for block in result.blocks:
            rounds.setdefault(block.repeat, []).append(block.median)
        streams = zip(rounds.items(), result.details.get("seconds", []), strict=True)
        totals = [Block.of(repeat, 0, [_total(result, took, median(last), count)]) for (repeat, last), took in streams]
        results.append(replace(result, blocks=totals))
    return replace(record, results=results)


def _total(result: Result, seconds: Sequence[float], again: float, count: int) -> float:
    """Seconds for so many batches. One that was not measured counts as the mean of those with a new shape (the first
    batch only if there is no other), or of those with a known shape (if there are none: as repeated calls)."""
    compiles = set(result.details["compiles_at"])
    new = [took for number, took in enumerate(seconds) if number and number in compiles] or seconds[:1]
    seen = [took for number, took in enumerate(seconds) if number and number not in compiles] or [again]
    means = {True: fmean(new), False: fmean(seen)}
    return sum(seconds[:count]) + sum(means[number in compiles] for number in range(len(seconds), count))


def _total_text(result: Result, count: int) -> str:
    """The total in place of a time, marked where a stream ended before so many batches."""
    return "~" * (min(map(len, result.details["seconds"])) < count) + duration(result.time.value)


def _compilations(result: Result) -> str:
    """Compilations of the longest stream, and in how many batches if it did not reach its end."""
    batches, count = max(zip(map(len, result.details["seconds"]), result.details["compilations"], strict=True))
    return f"{count}" if batches == BATCHES else f"{count} in {batches}"


def _of_both(row: Row, label: str, text: Callable[[Result], str]) -> str:
    both = [row.results.get((framework, label)) for framework in FRAMEWORKS]
    return " / ".join(text(result) if result else NOTHING for result in both)


def _winners(totals: Sequence[Row]) -> Statement | None:
    """Each framework with its fastest strategy, after each count of batches."""
    parts = []
    for count, row in zip(COUNTS, totals, strict=True):
        comparison = compare(row.results.values())
        if comparison.ratio is None:
            return None
        sides = [f"{_total_text(result, count)} ({result.case.label})" for result in comparison.results]
        parts.append(f"after {count} batches {' '.join(comparison.text.split())}, {' against '.join(sides)}")
    return Statement(f"{totals[0].variant} {totals[0].pass_name}", f"{'; '.join(parts)}.")
