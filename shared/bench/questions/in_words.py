"""The comparisons of a run in sentences: one for each kind of code that a reader may write, and one for each pass."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from shared.bench.analysis.verdict import Comparison, cell, comparisons, decided_on_device, verdicts
from shared.bench.cases import FRAMEWORKS
from shared.bench.estimates import Estimate, break_even, of_processes
from shared.bench.record import Record
from shared.bench.report.tables import Statement
from shared.bench.units import NOTHING, duration

_FOR_WHOM = {
    "vmap": "If you write the loop yourself",
    "wavefront": "If you tune framework code",
    "fused": "If you bring a native kernel",
}
_LOST = {"wrong": "was wrong", "failed": "failed", "limit": "was not completed"}


def for_whom(record: Record, input_name: str) -> Iterator[Statement]:
    """A sentence for each kind of code that a reader may write, and one for shapes that change."""
    where = f"{input_name}: " if len(record.inputs) > 1 else ""
    shapes = []
    on_device = decided_on_device(record, input_name)
    deciding = comparisons(record, input_name, on_device)
    for variant, own in comparisons(record, input_name).items():
        how = f"compiled in {compiled(own.values())}"
        about = where + (f"{_FOR_WHOM[variant]} ({variant}, {how})" if variant in _FOR_WHOM else f"{variant} ({how})")
        compared = {name: found for name, found in deciding.get(variant, own).items() if found.ratio}
        if not compared:
            measured = {r.case.framework for comparison in own.values() for r in comparison.results}
            names = [name for framework, name in FRAMEWORKS.items() if framework in measured]
            yield Statement(about, f"only {', '.join(names)} was measured.")
            continue
        # the last pass first: the others are part of it
        clock = "device time: " if on_device else ""
        parts = [f"{clock}{name} {_with_times(it.text, _calls(it))}" for name, it in reversed(compared.items())]
        pass_name = [*compared][-1]
        last = own[pass_name]
        total = break_even_text(last, [result.first_call for result in last.results])
        parts[0] += f", in total{' by wall time' if on_device else ''} with the first call, caches empty: {total}"
        if last.same_code:
            parts.append(last.same_code[0].lower() + last.same_code[1:].removesuffix("."))
        yield Statement(about, f"{'; '.join(parts)}.")
        new = [*new_shapes(last).items()]
        if new:
            (_, first), *later = new
            text = f"{variant} {pass_name} {_with_times(faster_by_process(first), _means(first))}"
            then = [f"on the {_ordinal(number)} {_line(faster_by_process(seconds))}" for number, seconds in later]
            shapes.append(", ".join([text, *then]))
    if shapes:
        yield Statement(f"{where}If shapes change", f"the first call on a new shape: {'; '.join(shapes)}.")


def compiled(found: Iterable[Comparison]) -> str:
    """The frameworks whose compiler the cases went through."""
    cases = [result.case for comparison in found for result in comparison.results]
    names = [name for key, name in FRAMEWORKS.items() if any(c.compiled and c.framework == key for c in cases)]
    return f"{names[0]} only" if len(names) == 1 else "both" if names else "neither"


def _calls(comparison: Comparison) -> dict[str, float]:
    return {result.case.framework: comparison.time(result).value for result in comparison.results}


def _with_times(text: str, seconds: dict[str, float]) -> str:
    each = [f"{duration(value)} in {FRAMEWORKS[name]}" for name, value in seconds.items()]
    return f"{_line(text)}, {' against '.join(each)}"


def _line(text: str) -> str:
    return text.replace("\n", " ")


def _means(seconds: dict[str, list[float]]) -> dict[str, float]:
    return {name: of_processes(samples).value for name, samples in seconds.items()}


def faster_by_process(seconds: Mapping[str, Sequence[float]]) -> str:
    """Which of two frameworks takes less, for a table cell. seconds: by framework, of one sample in each process."""
    (fast, less), (_, more) = sorted(seconds.items(), key=lambda own: of_processes(own[1]).value)
    ratio = of_processes([over / under for over, under in zip(more, less, strict=True)])
    return cell(FRAMEWORKS[fast], ratio, ratio.outcome)


def new_shapes(comparison: Comparison) -> dict[int, dict[str, list[float]]]:
    """By number: of the first new shape, and of the last that both frameworks have, as many samples of each as both
    have: times of which one is the mean of more do not have the ratio that is told beside them."""
    counts = [max(map(len, result.new_shapes), default=0) for result in comparison.results]
    found = {}
    for number in dict.fromkeys((1, min(counts))) if len(counts) == 2 and min(counts) else ():
        samples = [[own[number - 1] for own in r.new_shapes if len(own) >= number] for r in comparison.results]
        both = min(map(len, samples))
        found[number] = {r.case.framework: own[:both] for r, own in zip(comparison.results, samples, strict=True)}
    return found


def _ordinal(number: int) -> str:
    return {1: "first", 2: "second", 3: "third"}.get(number, f"{number}th")


def statements(record: Record) -> list[Statement]:
    """A verdict for each pass and input, in words, and what a reader must know about it."""
    found = []
    for (pass_name, input_name), comparison in verdicts(record).items():
        lost = [result for result in record.results_of(pass_name, input_name) if result.status != "ok"]
        details = [f"Left out: {r.case.name} {_LOST[r.status]} ({r.reason})." for r in lost]
        if comparison.same_code:
            details.append(comparison.same_code)
        about = f"{input_name}, {pass_name}" if len(record.inputs) > 1 else pass_name
        found.append(Statement(about, "\n  ".join([comparison.sentence, *details])))
    return found


def break_even_text(comparison: Comparison, first_calls: list[Estimate | None]) -> str:
    """Which of two cases takes the least total time from which call on, given their first calls."""
    if not all(first_calls):
        return NOTHING
    if comparison.ratio is None or comparison.outcome == "not decided":
        return "not decided"
    fast, slow = (first.value for first in first_calls if first)
    faster, slower = (FRAMEWORKS[result.case.framework] for result in comparison.results)
    if comparison.outcome == "same":
        return f"{faster if fast <= slow else slower} from call 1"
    call = comparison.results[0].time.value
    calls = break_even(fast, call, slow, call * comparison.ratio.value)
    return f"{faster} from call {float(f'{calls:.2g}'):,.0f}"  # two significant figures: no more are known
