"""In which order cases are timed, how many calls make a block, and how many rounds the time allows. Nothing here runs.

Cases that differ in the framework alone stand next to each other; their order turns from round to round (A B, B A), so
that neither side has the better place. The order of such groups is shuffled by the seed.
"""

import random
from collections.abc import Sequence

from shared.bench.plan import Case, Settings
from shared.bench.statistics import Estimate

# A block of a fast case lasts about so long, and has so many calls at most; a slower call makes a block by itself.
# Short blocks and many rounds: a busy neighbour comes and goes within a second, and is then in few of the pairs.
BLOCK_SECONDS, MOST_CALLS, MOST_LEAD_CALLS = 0.025, 50, 4
# calls that take less than this are rehearsed; page faults do not matter so much to others
REHEARSED_SECONDS = 0.1
# fresh workers that time all cases; and without a number from the user as many as this in all, at least and at most
ALL_CASES_WORKERS = 3
# a call that takes so long, and so many times as long as another variant, is timed by the first of them alone
DEAR_SECONDS, HOPELESS = 2.0, 10.0
LEAST_WORKERS, MOST_WORKERS = 5, 40


def order(cases: Sequence[Case], settings: Settings, worker: int, round_number: int) -> list[list[Case]]:
    """The groups of a round in their order, the cases of a group in theirs."""
    groups: dict[tuple[str, ...], list[Case]] = {}
    for case in cases:
        groups.setdefault(case.match, []).append(case)
    shuffled = list(groups.values())
    generator = random.Random(f"{settings.seed} {worker} {round_number // 2}")
    for group in shuffled:
        generator.shuffle(group)
    generator.shuffle(shuffled)
    # the second of two rounds is the first one backwards
    return [group[::-1] for group in shuffled[::-1]] if round_number % 2 else shuffled


def calls_in_block(call_seconds: float) -> int:
    """How many calls of a case are timed one after the other."""
    return max(1, min(MOST_CALLS, int(BLOCK_SECONDS / max(call_seconds, 1e-9))))


def lead_calls(call_seconds: float) -> int:
    """With how many calls, at most, a block begins whose results are kept: those of timed calls then lie elsewhere."""
    if call_seconds >= BLOCK_SECONDS:
        return 0
    return max(1, min(MOST_LEAD_CALLS, calls_in_block(call_seconds) // 4))


def is_rehearsed(call_seconds: float) -> bool:
    """Whether the timed calls follow one whose result is dropped: the first of them finds memory, as the others do."""
    return call_seconds < REHEARSED_SECONDS


def block_seconds(call_seconds: float) -> float:
    """About how long a block takes."""
    calls = calls_in_block(call_seconds) + lead_calls(call_seconds) + is_rehearsed(call_seconds)
    return calls * call_seconds


def rounds_that_fit(costs: Sequence[float], rounds: int, seconds: float, least: int) -> list[int]:
    """How many of the rounds each group takes part in, so that all of them end in time: dear groups in fewer.

    costs: seconds of one round of each group. No group gets fewer than `least`, even if that takes longer.
    """
    low, high = 0.0, rounds * max(costs, default=0.0)

    def taken(share: float) -> list[int]:
        return [max(least, min(rounds, int(share / cost))) if cost else rounds for cost in costs]

    if sum(cost * rounds for cost in costs) <= seconds:
        return [rounds] * len(costs)
    for _ in range(40):  # the largest share of time for a group that still fits
        middle = (low + high) / 2
        if sum(cost * count for cost, count in zip(costs, taken(middle), strict=True)) <= seconds:
            low = middle
        else:
            high = middle
    return taken(low)


def is_precise(estimates: Sequence[Estimate], settings: Settings) -> bool:
    """Whether all of these intervals are narrow enough."""
    return all(estimate.relative_half_width <= settings.precision for estimate in estimates)  # NaN: not either
