"""What a variant gains from threads in a pass and a dtype, and what that means in sentences."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from shared.bench.analysis.estimates import SAME, Estimate
from shared.bench.analysis.verdict import Comparison, compare, known_comparison
from shared.bench.cases import FRAMEWORKS, Case
from shared.bench.record import Record, Result
from shared.bench.report.tables import Statement
from shared.bench.units import ratio_text
from shared.problems import problem_of


def label_of(threads: int) -> str:
    """Of the cases that have so many threads."""
    return f"{threads} thread{'s' if threads > 1 else ''}"


def threads_of(case: Case) -> int:
    """By its label."""
    return int(case.label.partition(" ")[0])


class Row(NamedTuple):
    """A variant in a pass and a dtype, with every number of threads in both frameworks."""

    variant: str
    pass_name: str
    dtype: str
    counts: tuple[int, ...]  # of threads, from 1 on
    results: Mapping[tuple[str, int], Result]  # by framework and number of threads: those that were measured

    def gain(self, framework: str, threads: int) -> Comparison | None:
        """So many threads against one; None where one is not known."""
        return known_comparison(*(self.results.get((framework, count)) for count in (threads, 1)))

    def speed_up(self, framework: str, threads: int) -> Estimate | None:
        """The time with one thread over that with so many, from paired rounds; None where one is not known."""
        gain = self.gain(framework, threads)
        return gain.ratio if gain else None

    def best(self, framework: str) -> tuple[int, Estimate] | None:
        """The number of threads, of those above one, with the largest speed-up, and that."""
        known = [(count, ratio) for count in self.counts[1:] if (ratio := self.speed_up(framework, count))]
        return max(known, key=lambda each: each[1].value, default=None)

    def comparison(self, threads: int) -> Comparison:
        """Of the two frameworks, each with so many threads."""
        return compare(result for (_, count), result in self.results.items() if count == threads)


def rows_of(record: Record) -> list[Row]:
    """Of all that has a time, in the order of the ladder, of the passes and of the inputs."""
    counts = tuple(sorted({threads_of(result.case) for result in record.results}))
    found: dict[tuple[str, str, str], dict[tuple[str, int], Result]] = {}
    for result in record.results:
        case = result.case
        if result.measured:
            own = found.setdefault((case.variant, case.pass_name, case.dtype), {})
            own[case.framework, threads_of(case)] = result
    orders = (problem_of(record.settings.problem).variant_names, record.settings.passes, tuple(record.inputs))
    ordered = sorted(found, key=lambda names: [order.index(name) for order, name in zip(orders, names, strict=True)])
    return [Row(*names, counts, found[names]) for names in ordered]


def advice(rows: Sequence[Row]) -> Iterator[Statement]:
    """For each framework: what more threads than one are good for."""
    for framework, name in FRAMEWORKS.items():
        known = {row[:3]: best for row in rows if (best := row.best(framework))}
        kinds: dict[str, list[Row]] = {}
        for row in rows:
            if row[:3] in known:
                kinds.setdefault(_effect(row.gain(framework, known[row[:3]][0])), []).append(row)
        parts = []
        for kind, (text, has_factors) in _EFFECTS.items():
            names = [
                f"{name} {_factors([known[row[:3]] for row in own])}" if has_factors else name
                for name, own in _named(kinds.get(kind, ()), rows)
            ]
            parts += [f"{text} {', '.join(names)}"] if names else []
        if parts:
            yield Statement(name, f"{'; '.join(parts)}.")


_EFFECTS = {
    "faster": ("give more threads to", True),
    "same": (f"one thread does as well (±{SAME - 1:.0%}) for", False),
    "slower": ("give one thread to", True),
    "not decided": ("not decided for", False),
}


def _effect(gain: Comparison | None) -> str:
    """Of more threads, by the speed-up."""
    assert gain is not None and gain.ratio is not None, "it is the best of those that are known"
    if gain.outcome == "different":
        return "faster" if gain.ratio.value > 1 else "slower"
    return gain.outcome


def _factors(bests: Sequence[tuple[int, Estimate]]) -> str:
    """Such as (1.52 to 1.91× with 2)."""
    values, counts = [ratio.value for _, ratio in bests], [count for count, _ in bests]
    factors = dict.fromkeys(ratio_text(value) for value in (min(values), max(values)))
    threads = dict.fromkeys((min(counts), max(counts)))
    return f"({' to '.join(factors)}× with {' to '.join(map(str, threads))})"


def _named(chosen: Sequence[Row], every: Sequence[Row]) -> Iterator[tuple[str, list[Row]]]:
    """The chosen rows in few words: a variant that is chosen in every pass and dtype goes by its name alone."""
    variants = dict.fromkeys(row.variant for row in chosen)
    passes = dict.fromkeys(row.pass_name for row in chosen)
    for variant in variants:
        own = [row for row in chosen if row.variant == variant]
        if len(own) == sum(row.variant == variant for row in every):
            yield variant, own
            continue
        for pass_name in passes:
            of_pass = [row for row in own if row.pass_name == pass_name]
            if len(of_pass) == sum(row[:2] == (variant, pass_name) for row in every):
                yield f"{variant} {pass_name}", of_pass
            else:
                yield from ((f"{variant} {pass_name} {row.dtype}", [row]) for row in of_pass)


def winners(rows: Sequence[Row]) -> Iterator[Statement]:
    """Whether the faster framework is another one with another number of threads."""
    changing, staying, partly, undecided = [], {}, [], []
    compared = [row for row in rows if any(row.comparison(count).ratio for count in row.counts)]
    for row in compared:
        by_count = [(count, _winner(row.comparison(count))) for count in row.counts]
        decided = [each for each in by_count if each[1]]
        if len({winner for _, winner in decided}) > 1:
            changing.append((row, decided))
        elif len(decided) == len(by_count):
            staying.setdefault(decided[0][1], []).append(row)
        elif decided:
            partly.append((row, by_count))
        else:
            undecided.append(row)
    tried = " and ".join(map(str, rows[0].counts)) if rows else ""
    parts = [f"{winner} with {tried} threads in {_names(own, compared)}" for winner, own in staying.items()]
    if changing:
        parts.insert(0, f"it changes with the number of threads in {_with_counts(changing, compared)}")
    if partly:
        parts.append(f"decided for some numbers only in {_with_counts(partly, compared)}")
    if undecided:
        parts.append(f"not decided in {_names(undecided, compared)}")
    if parts:
        yield Statement("the faster framework", f"{'; '.join(parts)}.")


def _winner(comparison: Comparison) -> str | None:
    """None where it is not decided."""
    if comparison.ratio is None or comparison.outcome == "not decided":
        return None
    return "the same" if comparison.outcome == "same" else FRAMEWORKS[comparison.results[0].case.framework]


def _with_counts(found: Sequence[tuple[Row, list[tuple[int, str | None]]]], every: Sequence[Row]) -> str:
    """Such as: fused score (PyTorch with 1, JAX with 2 and 4)."""
    texts = []
    for row, by_count in found:
        groups = itertools.groupby(by_count, key=lambda each: each[1])
        each = [f"{name or 'not decided'} with {' and '.join(str(n) for n, _ in own)}" for name, own in groups]
        texts.append(f"{_names([row], every)} ({', '.join(each)})")
    return ", ".join(texts)


def _names(chosen: Sequence[Row], every: Sequence[Row]) -> str:
    return ", ".join(name for name, _ in _named(chosen, every))
