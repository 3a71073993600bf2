"""The fit of the cost model, on times that are made from known costs: found again, with intervals that cover them."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from shared.bench.analysis.cost_model import Fit, fitted
from shared.bench.cases import Settings
from shared.problems import PROBLEMS

CELL, STEP, CALL = COSTS = (2e-8, 3e-6, 1e-4)  # in the order of the columns
KNEE, BEYOND = 1e5, 6e-8
PROBLEM = PROBLEMS["smith_waterman"]
SIZES = PROBLEM.sizes.growth
AS_IS = (1.0,) * len(SIZES)
NEW = (32, 100, 150)

Size = tuple[int, ...]


def columns_of(size: Size) -> tuple[float, ...]:
    loop = PROBLEM.loop(Settings(), "vmap", size)
    return loop.cells, loop.steps, 1.0


def seconds_of(size: Size) -> float:
    return float(np.dot(columns_of(size), COSTS))


def fit(factors: Sequence[float] | np.ndarray = AS_IS, has_knee: bool = True) -> Fit:
    """Of the known costs, each size's time times a factor."""
    times = [seconds_of(size) * factor for size, factor in zip(SIZES, factors, strict=True)]
    found = fitted(names(SIZES), tuple(map(columns_of, SIZES)), tuple(times), has_knee)
    assert found is not None
    return found


def names(sizes: Sequence[Size]) -> tuple[str, ...]:
    return tuple("x".join(map(str, size)) for size in sizes)


def noise(generator: np.random.Generator) -> np.ndarray:
    return np.exp(0.1 * generator.standard_normal(len(SIZES)))


@pytest.mark.parametrize("has_knee", [False, True])
def test_costs_are_found_again(has_knee: bool):
    found = fit(has_knee=has_knee)
    for column, cost in enumerate(COSTS):
        estimate = found.coefficient(column)
        assert estimate.value == pytest.approx(cost, rel=1e-3)
        assert 0.99 * cost < estimate.low <= cost * 1.001 and estimate.high < 1.01 * cost
    assert found.beyond is None
    assert found.factors[1] < 1.001
    assert found.at(columns_of(NEW)).value == pytest.approx(seconds_of(NEW), rel=1e-3)


def test_intervals_cover_the_costs_and_the_times_of_sizes_that_were_not_seen():
    generator, draws = np.random.default_rng(0), 30
    covered, widths = np.zeros(4), []
    for _ in range(draws):
        found = fit(noise(generator), has_knee=False)
        new = found.at(columns_of(NEW))
        truths = (*COSTS, seconds_of(NEW) * noise(generator)[0])
        estimates = (*map(found.coefficient, range(3)), new)
        covered += [one.low <= truth <= one.high for one, truth in zip(estimates, truths, strict=True)]
        widths.append(new.high / new.value)
    assert (covered >= 0.85 * draws).all(), covered
    assert np.median(widths) < 1.5


def test_a_cell_beyond_the_caches_costs_more():
    factors = [1 + BEYOND * max(0.0, columns_of(size)[0] - KNEE) / seconds_of(size) for size in SIZES]
    found = fit(factors)
    assert found.beyond is not None and found.beyond.low < CELL + BEYOND < found.beyond.high
    assert found.beyond.low > 2 * CELL
    without = fit(factors, has_knee=False)
    assert found.factors[0] < without.factors[0] and without.beyond is None


def test_one_odd_size_moves_neither_costs_nor_intervals_much():
    factors, odd = noise(np.random.default_rng(1)), 7
    good, factors[odd] = fit(factors, has_knee=False), 6.0
    found = fit(factors, has_knee=False)
    assert found.worst == names(SIZES)[odd] and found.factors[1] > 4
    for column in range(3):
        assert found.coefficient(column).value == pytest.approx(good.coefficient(column).value, rel=0.1)
    wide, narrow = (one.at(columns_of(NEW)) for one in (found, good))
    assert wide.high / wide.value < 2 * narrow.high / narrow.value


def test_no_cost_is_negative():
    times = tuple(float(np.dot(columns_of(size), (CELL, -5e-7, 1e-3))) for size in SIZES)
    found = fitted(names(SIZES), tuple(map(columns_of, SIZES)), times)
    assert found is not None
    estimate = found.coefficient(1)
    assert 0 <= estimate.value < 1e-9 and estimate.high < 1e-6


@pytest.mark.parametrize(
    ("steps_of", "kept"), [(lambda cells: 7.0, (0, 1)), (lambda cells: 2 * cells, (0, 2))], ids=["constant", "as cells"]
)
def test_costs_that_the_sizes_cannot_tell_apart_are_one(steps_of: Callable[[float], float], kept: tuple[int, ...]):
    cells = (1.0, 3.0, 8.0, 20.0, 10.0)
    *rows, new = ((count, steps_of(count), 1.0) for count in cells)
    *times, wanted = (float(np.dot(row, (3.0, 5.0, 2.0))) for row in (*rows, new))
    found = fitted(("a", "b", "c", "d"), tuple(rows), tuple(times))
    assert found is not None
    assert tuple(column for column in range(3) if found.coefficient(column).high) == kept
    assert found.at(new).value == pytest.approx(wanted, rel=1e-3)


def test_errors_that_two_cases_share_cancel_out_of_their_ratio():
    generator = np.random.default_rng(2)
    first, second = noise(generator), noise(generator)
    base, like, unlike = (fit(factors, has_knee=False) for factors in (first, 1.3 * first, 1.3 * second))
    alike, apart = (one.over(base, columns_of(NEW), columns_of(NEW)) for one in (like, unlike))
    assert alike is not None and apart is not None
    assert alike.value == pytest.approx(1.3, rel=1e-3) and alike.low > 1.29 and alike.outcome == "different"
    assert apart.low < 1.3 < apart.high and apart.high - apart.low > 0.2


def test_a_fit_needs_more_sizes_than_costs_and_a_ratio_sizes_in_common():
    assert fitted(names(SIZES[:3]), tuple(map(columns_of, SIZES[:3])), tuple(map(seconds_of, SIZES[:3]))) is None
    part = slice(2, None)
    other = fitted(names(SIZES[part]), tuple(map(columns_of, SIZES[part])), tuple(map(seconds_of, SIZES[part])))
    apart = fitted(("p", "q", "r", "s"), tuple(map(columns_of, SIZES[:4])), tuple(map(seconds_of, SIZES[:4])))
    assert other is not None and apart is not None
    ratio = fit().over(other, columns_of(NEW), columns_of(NEW))
    assert ratio is not None and ratio.value == pytest.approx(1.0, rel=1e-3)
    assert fit().over(apart, columns_of(NEW), columns_of(NEW)) is None
