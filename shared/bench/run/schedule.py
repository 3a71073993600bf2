"""The schedule: the order in which cases are timed, calls per block, and how many rounds fit: pure functions.

Cases that differ only in framework, label or compilation are adjacent; their order alternates between rounds (A B,
B A), so that neither has the better position. The order of such groups is shuffled by the seed.
"""

import random
from collections.abc import Sequence
from typing import NamedTuple

from shared.bench.cases import Case, Settings
from shared.bench.estimates import Estimate

# Block of a fast case: its seconds, most calls, most untimed calls before; a slower call is a block by itself. Blocks
# are short and rounds many, so that a disturbance of a second affects few of the paired blocks.
BLOCK_SECONDS, MOST_CALLS, MOST_LEAD_CALLS = 0.025, 50, 4
# calls shorter than this get one more untimed call before each block; for longer ones page faults matter little
REHEARSED_SECONDS = 0.1
# a call that takes so many seconds, and so many times as long as another variant, is timed in the first repeat only
VERY_SLOW_SECONDS, DOMINATED_FACTOR = 2.0, 10.0
# least rounds of a case in each worker; fewer of calls longer than SLOW_CALL_SECONDS, and fewest of these in a quick
# run, whose three repeats have to fit into a minute. The median of 5 to 7 rounds scatters by 5 %.
LEAST_ROUNDS, LEAST_SLOW_ROUNDS, QUICK_SLOW_ROUNDS, SLOW_CALL_SECONDS = 7, 5, 2, 0.05
# The first 3 repeats time all cases. A run has at least 8 before a precise answer ends it; all 8 time cheap cases.
ALL_CASES_REPEATS, LEAST_REPEATS = 3, 8
# a first call of fewer seconds is cheap; so is a case for which a repeat needs fewer seconds
CHEAP_FIRST_CALL, CHEAP_CASE = 3.0, 1.5
# a ratio whose interval is beyond this factor needs no more processes
_CLEAR = 1.1


def order(cases: Sequence[Case], settings: Settings, repeat: int, round_number: int) -> list[list[Case]]:
    """The groups of a round in their order, the cases of a group in theirs."""
    groups: dict[tuple[str, ...], list[Case]] = {}
    for case in cases:
        groups.setdefault(case.group, []).append(case)
    shuffled = list(groups.values())
    generator = random.Random(f"{settings.seed} {repeat} {round_number // 2}")
    for group in shuffled:
        generator.shuffle(group)
    generator.shuffle(shuffled)
    # the second of two rounds is the first one backwards
    return [group[::-1] for group in shuffled[::-1]] if round_number % 2 else shuffled


class BlockPlan(NamedTuple):
    """The calls of one block of a case."""

    calls: int  # that are timed, one after the other
    lead: int  # most untimed calls before them; their results stay allocated, so that timed results get other memory
    rehearse: bool  # whether one more untimed call frees its result, so that the first timed call reuses that memory
    seconds: float  # expected
    rounds: int  # of such blocks, at least, in a worker


def block_of(call_seconds: float, quick: bool) -> BlockPlan:
    """The block of a case whose call takes so long."""
    calls = max(1, min(MOST_CALLS, int(BLOCK_SECONDS / max(call_seconds, 1e-9))))
    lead = max(1, min(MOST_LEAD_CALLS, calls // 4)) if call_seconds < BLOCK_SECONDS else 0
    rehearse = call_seconds < REHEARSED_SECONDS
    slow_rounds = QUICK_SLOW_ROUNDS if quick else LEAST_SLOW_ROUNDS
    rounds = slow_rounds if call_seconds > SLOW_CALL_SECONDS else LEAST_ROUNDS
    return BlockPlan(calls, lead, rehearse, (calls + lead + rehearse) * call_seconds, rounds)


def rounds_that_fit(costs: Sequence[float], least: Sequence[int], rounds: int, seconds: float) -> list[int]:
    """Rounds of each group such that all end in time: expensive groups get fewer.

    costs: seconds of one round of each group. least: rounds that each group gets, even beyond `seconds`.
    """
    counts = [min(count, rounds) for count in least]
    seconds_left = seconds - sum(cost * count for cost, count in zip(costs, counts, strict=True))
    more = rounds - min(counts, default=0)
    cheapest_first = sorted(range(len(costs)), key=costs.__getitem__)
    for done, index in enumerate(cheapest_first):
        fair_share = max(0.0, seconds_left) / (len(costs) - done)
        if costs[index]:
            more = min(more, int(fair_share / costs[index]))
        counts[index] += (added := min(more, rounds - counts[index]))
        seconds_left -= added * costs[index]
    return counts


def is_precise(estimates: Sequence[Estimate], settings: Settings) -> bool:
    """Whether all of these intervals are narrow enough."""
    return all(estimate.relative_half_width <= settings.precision for estimate in estimates)


def is_settled(ratio: Estimate) -> bool:
    """Whether more processes would hardly change what is said of a ratio: it is the same, or clearly different."""
    # not whether the interval excludes 1: stopping as soon as it does finds too many winners
    is_clear = ratio.low > _CLEAR or ratio.high < 1 / _CLEAR
    return ratio.processes > 1 and (ratio.outcome == "same" or is_clear)
