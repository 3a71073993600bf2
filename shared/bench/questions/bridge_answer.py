"""How a record of `bridge` answers it: what the crossing adds to a call, and whose kernel to call in PyTorch."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from shared.bench.analysis.verdict import Comparison, compare
from shared.bench.estimates import LEAST_PROCESSES, Estimate, time_ratio
from shared.bench.record import Record, Result
from shared.bench.report.tables import Statement, Table, left_then_right
from shared.bench.units import NOTHING, between, duration, ratio_text
from shared.problems import problem_of

OWN, CROSSING = "", "JAX's kernel"  # labels: as in `speed`, and JAX's variant called from PyTorch
SMALL = "small"  # the input on which a call is little more than the crossing


class Crossing(NamedTuple):
    """The three cases of a variant in a pass on an input, as far as they were measured."""

    input: str
    pass_name: str
    variant: str
    jax: Result | None  # JAX's, in JAX
    torch: Result | None  # PyTorch's own
    crossing: Result | None  # JAX's, called from PyTorch

    @property
    def results(self) -> list[Result]:
        return [result for result in (self.jax, self.torch, self.crossing) if result is not None]

    @property
    def ratios(self) -> list[Estimate]:
        """Those that must be precise: of the crossing, and of the choice in PyTorch."""
        return [ratio for ratio in (self.ratio, self.choice.ratio) if ratio is not None]

    @property
    def ratio(self) -> Estimate | None:
        """Time of a call from PyTorch over that in JAX."""
        return time_ratio(self.crossing.blocks, self.jax.blocks) if self.jax and self.crossing else None

    @property
    def added(self) -> Estimate | None:
        """Seconds by which a call from PyTorch takes longer; an end of the interval may be negative."""
        if self.ratio is None or self.jax is None:
            return None
        return Estimate(*((ratio - 1) * self.jax.time.value for ratio in self.ratio))

    @property
    def choice(self) -> Comparison:
        """JAX's called from PyTorch, which counts as JAX, against PyTorch's own."""
        both = [self.torch] if self.torch else []
        if self.crossing:
            both.append(replace(self.crossing, case=replace(self.crossing.case, framework="jax")))
        return compare(both)


def crossings(record: Record) -> Iterator[Crossing]:
    """Of each input and pass, in the order of the ladder."""
    for name in record.inputs:
        for pass_name in record.settings.passes:
            for variant in problem_of(record.settings.problem).variant_names:
                own = {
                    (result.case.framework, result.case.label): result
                    for result in record.results_of(pass_name, name)
                    if result.measured and result.case.variant == variant
                }
                if own:
                    keys = ("jax", OWN), ("torch", OWN), ("torch", CROSSING)
                    yield Crossing(name, pass_name, variant, *map(own.get, keys))


def crossing_table(record: Record, input_name: str, found: Sequence[Crossing]) -> Table:
    """A row for each pass and variant."""
    rows = [
        (each.pass_name, each.variant, *map(_time, (each.torch, each.jax, each.crossing)), _added(each),
         each.choice.text)
        for each in found
        if each.input == input_name
    ]  # fmt: skip
    headers = (
        "pass", "variant", "PyTorch's own", "JAX's,\nin JAX", "JAX's,\nfrom PyTorch", "the crossing adds",
        "in PyTorch,\nthe faster kernel",
    )  # fmt: skip
    below = [
        "From PyTorch: through torch_impl.jax_bridge. Adds: time and its share of the call, with the 95% interval; "
        "<: the upper end of an interval that holds 0.",
        "A score crosses once. Marginals by autograd cross twice, and JAX compiles forward and backward apart.",
    ]
    unmeasured = [r for r in record.results if r.case.input == input_name and r.status != "ok"]
    below += [f"No {result.case.title}: {result.reason}." for result in unmeasured]
    title = f"JAX's kernels called from PyTorch, {record.inputs[input_name].text}"
    return Table(title, headers, rows, left_then_right(2, 5), tuple(below))


def _time(result: Result | None) -> str:
    return duration(result.time.value) if result else NOTHING


def _added(each: Crossing) -> str:
    """What the crossing adds, for a table cell."""
    if each.added is None or each.ratio is None:
        return NOTHING
    value, low, high = each.added
    if math.isnan(low):
        return f"not decided\n({_signed(value)}, < {LEAST_PROCESSES} processes)"
    if low <= 0:
        return f"< {duration(high)}" if high > 0 else "nothing"
    return f"{duration(value)}, {1 - 1 / each.ratio.value:.0%}\n({between(low, high)})"


def _signed(seconds: float) -> str:
    return f"{'-' if seconds < 0 else ''}{duration(abs(seconds))}"


def sentences(found: Sequence[Crossing]) -> Iterator[Statement]:
    """What a crossing costs, and what to do."""
    costs = [
        f"{each.pass_name} {_added(each).replace(chr(10), ' ')}"
        for each in found
        if each.input == SMALL and each.added is not None
    ]
    if costs:
        yield Statement("What the crossing adds to a small call", f"{'; '.join(costs)}.")
    does: dict[str, list[str]] = {}
    for each in found:
        choice = each.choice
        if each.input != SMALL and choice.ratio is not None:
            decided = choice.outcome == "different"
            key = choice.results[0].case.framework if decided else choice.outcome
            factor = f" ({ratio_text(choice.ratio.value)} times as fast)" if decided else ""
            does.setdefault(key, []).append(f"{each.variant} {_of_input(each, found)}{factor}")
    if shortest := list(_shortest(found)):
        yield Statement("The shortest time in PyTorch", f"{', '.join(shortest)}.")
    texts = {
        "jax": "call JAX's through the bridge for",
        "torch": "keep PyTorch's own for",
        "same": "the same:",
        "not decided": "not decided:",
    }
    parts = [f"{text} {', '.join(does[key])}" for key, text in texts.items() if key in does]
    if parts:
        yield Statement("If your model is in PyTorch", f"{'; '.join(parts)}.")


def _of_input(each: Crossing, found: Sequence[Crossing]) -> str:
    """The pass; and the input, if there are several beside the small one."""
    several = len({other.input for other in found} - {SMALL}) > 1
    return f"{each.pass_name}, {each.input}" if several else each.pass_name


def _shortest(found: Sequence[Crossing]) -> Iterator[str]:
    """What to call in PyTorch if any variant will do: the faster framework of a slow one says little."""
    large = [each for each in found if each.input != SMALL]
    for name in dict.fromkeys(_of_input(each, found) for each in large):
        results = [r for each in large if _of_input(each, found) == name for r in (each.torch, each.crossing) if r]
        if results:
            best = min(results, key=lambda result: result.time.value)
            whose = "JAX's" if best.case.label == CROSSING else "PyTorch's own"
            yield f"{name} {whose} {best.case.variant} ({duration(best.time.value)})"


def facts_tables(record: Record) -> list[Table]:
    """What is copied, and which transforms are lost, as tried out in the worker."""
    details = next((result.details for result in record.results if result.details), None)
    if details is None:
        return []
    tensors = [(kind, *ways) for kind, ways in details["tensors"].items()]
    ways = ("tensor", "from_jax on a CPU,\nby the time of a call", "by DLPack,\nby addresses")
    used = "from_jax uses DLPack on GPUs, for bfloat16, and for all that comes back."
    transforms = list(details["transforms"].items())
    return [
        Table("Which tensors share their memory", ways, tensors, left_then_right(3, 0), (used,)),
        Table(
            "Which transforms work in PyTorch", ("transform", "of a JAX function"), transforms, left_then_right(2, 0)
        ),
    ]
