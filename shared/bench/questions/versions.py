"""Did a new release of a framework get slower, in its calls or in what it compiles?

`--python` names interpreters that have other versions. Workers of all versions of a framework run at the same time and
take turns in the same rounds, as the two frameworks do in `speed`: a ratio is of times that were taken side by side.
Each version is compared with the one before it.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

from shared.bench.analysis.verdict import cell, compared
from shared.bench.cases import FRAMEWORKS, Case, Settings
from shared.bench.estimates import SAME, Estimate, of_processes, time_ratio
from shared.bench.questions.question import Question
from shared.bench.record import NO_ROOM, Record, Result
from shared.bench.report.plots import COLOURS, drawn
from shared.bench.report.tables import Answer, Plot, Statement, Table, left_then_right
from shared.bench.run.interpreters import every_version
from shared.bench.run.plan import WorkerStart
from shared.bench.units import NOTHING, duration, ratio_text

_OUTCOMES = ("slower", "faster", "same", "not decided")
_FIRST_CALLS = ("first call,\ncaches empty", "first call,\ncaches warm", "first\nnew shape")


class Change(NamedTuple):
    """A time in the new version over that in the old one."""

    outcome: str  # one of _OUTCOMES
    text: str  # lines: the outcome with the factor, and the interval


class Pair(NamedTuple):
    """A case that both versions have measured."""

    old: Result
    new: Result

    @property
    def ratio(self) -> Estimate:
        """Time of a call, new over old."""
        return time_ratio(self.new.blocks, self.old.blocks)

    @property
    def call(self) -> Change:
        """Of a call."""
        found = compared(self.old, self.new)
        is_faster = self.ratio.value < 1 and found.outcome == "different"
        doubts = compared(self.new, self.old).doubts if is_faster else found.doubts
        return _change(self.ratio, found.outcome, doubts)

    @property
    def first_calls(self) -> list[Change | None]:
        """Of _FIRST_CALLS, where both have them."""
        sides = (self.new, self.old)
        cold = [[call.seconds for call in side.cold] for side in sides]
        warm = [side.warm for side in sides]
        shapes = [[seconds[0] for seconds in side.new_shapes if seconds] for side in sides]  # [] where time ran out
        return [_change_of_processes(*both) for both in (cold, warm, shapes)]


class Versions(Question):
    """This interpreter and others."""

    name = "versions"
    asks = "did a new release of JAX or PyTorch get slower"
    default_budget = 600.0
    drops_dominated = False
    tries_new_shape = True

    def starts(self, settings: Settings) -> dict[tuple[str, str], WorkerStart]:
        return {
            (each.framework, each.label): WorkerStart(command=each.command, about=each.about)
            for each in every_version(settings)
        }

    def deciding(self, record: Record) -> list[Estimate]:
        return [pair.ratio for pair in pairs(record)]

    def contenders(self, record: Record) -> set[Case]:
        """Those whose change is not known precisely yet."""
        wanted = record.settings.precision
        vague = [pair for pair in pairs(record) if not pair.ratio.relative_half_width <= wanted]  # NaN is vague
        return {result.case for pair in vague for result in pair}

    def answer(self, record: Record) -> Answer:
        every = pairs(record)
        table = _table(record, every)
        return Answer([table] if every else [], list(_statements(record, every)))

    def plots(self, record: Record) -> Iterator[Plot]:
        every = [pair for pair in pairs(record) if not math.isnan(pair.ratio.low)]
        if every:
            reading = "Right of 1 the new version is slower; in the grey band it counts as the same. 95% intervals."
            yield Plot("time of a call, new version over old", _drawing(record, every), reading)


QUESTION = Versions()


def pairs(record: Record) -> list[Pair]:
    """Every measured case of each version but the oldest, with its twin of the version before."""
    measured = {result.case: result for result in record.results if result.measured}
    return [Pair(measured[old], measured[new]) for old, new in _twins(record) if old in measured and new in measured]


def _twins(record: Record) -> Iterator[tuple[Case, Case]]:
    """The cases of adjacent versions, by framework and version, measured or not."""
    cases = [result.case for result in record.results]
    for framework in dict.fromkeys(case.framework for case in cases):
        own = [case for case in cases if case.framework == framework]
        for old, new in pairwise(dict.fromkeys(case.label for case in own)):
            yield from ((replace(case, label=old), case) for case in own if case.label == new)


def _change(ratio: Estimate, outcome: str, doubts: Sequence[str] = ()) -> Change:
    """A factor is never below 1: what takes half of the time is faster by 2. Other intervals are of new over old."""
    name = "faster" if ratio.value < 1 else "slower"
    if name == "faster" and (outcome == "different" or math.isnan(ratio.low)):
        ratio = Estimate(1 / ratio.value, 1 / ratio.high, 1 / ratio.low)
    said = name if outcome == "different" or math.isnan(ratio.low) else ""
    return Change(name if outcome == "different" else outcome, cell(said, ratio, outcome, doubts))


def _change_of_processes(new: Sequence[float], old: Sequence[float]) -> Change | None:
    """Of what each process has once, the first of one version against the first of the other, and so on."""
    ratios = [after / before for after, before in zip(new, old, strict=False)]
    ratio = of_processes(ratios)
    return _change(ratio, ratio.outcome) if ratios else None


def _table(record: Record, every: Sequence[Pair]) -> Table:
    rows = [
        (
            _versions(pair.old.case, pair.new.case).replace(" over ", "\nover "),
            _name(record, pair.new.case, "\n"),
            *(change.text if change else NOTHING for change in (pair.call, *pair.first_calls)),
        )
        for pair in every
    ]
    headers = ("new version\nover old", "case", "time of a call", *_FIRST_CALLS)
    reasons = [(result.case.title, result.reason) for result in record.results if result.status != "ok"]
    below = [
        "By what factor the new version is slower or faster, with its 95% interval; same (within ±3%) and not "
        "decided: the interval of new / old.",
    ]
    for reason in dict.fromkeys(reason for _, reason in reasons):
        below.append(f"No {'; '.join(title for title, own in reasons if own == reason)}: {reason}.")
    interpreters = record.environment.get("interpreters", [])
    if len({line.partition(": ")[2] for line in interpreters}) > 1:
        below.append(f"Not only the frameworks differ. {'; '.join(interpreters)}.")
    return Table("Did it get slower", headers, rows, left_then_right(len(headers), 0), tuple(below))


def _versions(old: Case, new: Case) -> str:
    return f"{FRAMEWORKS[new.framework]} {new.label} over {old.label}"


def _name(record: Record, case: Case, gap: str = " ") -> str:
    where = f",{gap}{case.input}" if len(record.inputs) > 1 else ""
    return f"{case.how.replace(', ', f',{gap}')}{gap}{case.pass_name}{where}"


def _statements(record: Record, every: Sequence[Pair]) -> Iterator[Statement]:
    """For each pair of versions: whether the upgrade costs time in calls, and in first calls."""
    twins = list(_twins(record))
    for about in dict.fromkeys(_versions(old, new) for old, new in twins):
        own = [pair for pair in every if _versions(pair.old.case, pair.new.case) == about]
        lost = [new for old, new in twins if _versions(old, new) == about and _is_lost(record, old, new)]
        if own or lost:
            gone = [f"{_name(record, case)} ({record.result(case).reason})" for case in lost]
            yield Statement(about, _calls_in_words(record, own, gone))
        found = [
            f"{_name(record, pair.new.case)}, {' '.join(kind.split())}, {' '.join(change.text.split())}"
            for pair in own
            for kind, change in zip(_FIRST_CALLS, pair.first_calls, strict=True)
            if change and change.outcome in ("slower", "faster")
        ]
        if found:
            yield Statement(f"{about}, first calls", f"{'; '.join(found)}.")


def _is_lost(record: Record, old: Case, new: Case) -> bool:
    """Whether only the old version has a right result; what the budget had no room for is not lost."""
    result = record.result(new)
    return record.result(old).measured and result.status != "ok" and not (result.reason or "").endswith(NO_ROOM)


def _calls_in_words(record: Record, own: Sequence[Pair], gone: Sequence[str]) -> str:
    told: dict[str, list[str]] = {outcome: [] for outcome in _OUTCOMES}
    for pair in own:
        outcome, text = pair.call
        details = " ".join(text.removeprefix(outcome).split())
        times = f"{duration(pair.new.time.value)} against {duration(pair.old.time.value)}"
        told[outcome].append(f"{_name(record, pair.new.case)} {details}, {times}")
    slower, vague = len(told["slower"]), len(told["not decided"])
    answer = f"the upgrade makes {slower or 'none'} of {len(own)} calls slower"
    if not own:
        answer = "no call was measured with both"
    elif vague and not slower:
        answer = f"none of {len(own)} calls is decided to be slower, {vague} not decided"
    answer += f": {', '.join(told.pop('slower'))}" if slower else ""
    parts = [answer, *(f"{outcome}: {', '.join(names)}" for outcome, names in told.items() if names)]
    parts += [f"without a result now: {', '.join(gone)}"] if gone else []
    return f"{'; '.join(parts)}."


def _drawing(record: Record, every: Sequence[Pair]) -> str:
    from matplotlib.ticker import FuncFormatter, MaxNLocator  # here: matplotlib takes a second to import

    def draw(axes: Any) -> None:
        for row, pair in enumerate(every):
            value, low, high = pair.ratio
            colour = COLOURS[pair.new.case.framework]
            axes.plot([low, high], [row, row], color=colour)
            axes.plot([value], [row], "o", color=colour)
        axes.axvspan(1 / SAME, SAME, color="#dce1e7")
        names = [f"{_versions(*(result.case for result in pair))}\n{_name(record, pair.new.case)}" for pair in every]
        axes.set_yticks(range(len(every)), names)
        axes.invert_yaxis()
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(MaxNLocator(6))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: ratio_text(value)))
        axes.minorticks_off()

    return drawn(draw, 7.2, 0.9 + 0.42 * len(every))
