"""The exponents that a sweep is fitted with."""

from dataclasses import replace

import numpy as np
import pytest
import recorded
from hand_made import case, facts, right
from shared.bench.growth import fitted, growths, hopeless, sizes
from shared.bench.plan import Settings
from shared.bench.table import report

from shared.bench.record import Compilation, Record, Result
from shared.bench.report import rows

SIDES = (10, 20, 40)


def made(call: float, compiling: float, sides: tuple[int, ...] = SIDES, **others) -> Record:
    """One case whose times are powers of the cells."""
    results, inputs = [], {}
    for side in sides:
        work, name = side * side, f"{side}x{side}"
        inputs[name] = replace(facts(name), shape=(1, side, side), work=work)
        of = case("jax", "vmap", input=name, **others)
        cold = Compilation(1.0 + work**compiling, work**compiling * 0.25, work**compiling * 0.75)
        results.append(replace(right(of, *[1e-6 * work**call] * 3, workers=2), cold=cold))
    return Record("", Settings(sweep=tuple((side, side) for side in sides)), inputs=inputs, results=results)


@pytest.mark.parametrize("exponent", [-0.5, 0.0, 1.0, 2.0])
def test_a_power_is_found_again(exponent: float):
    found = fitted([(n, 3 * n**exponent) for n in (4.0, 8.0, 16.0, 32.0)])
    assert found is not None and found.sizes == 4
    assert found.exponent == pytest.approx(exponent, abs=1e-9) and found.largest_factor == pytest.approx(1.0)


def test_two_sizes_make_no_line():
    assert fitted([(1.0, 1.0), (2.0, 4.0)]) is None
    assert fitted([(1.0, 1.0), (2.0, 4.0), (2.0, 5.0)]) is None


def test_what_is_no_power_tells_how_far_it_is_off():
    found = fitted([(n, 1.0 + (n == 4)) for n in (1.0, 2.0, 4.0, 8.0, 16.0)])
    assert found is not None and 1.5 < found.largest_factor < 2


def test_calls_and_compiling_have_exponents_of_their_own():
    (found,) = growths(made(1.0, 2.0))
    assert found.call is not None and found.compiling is not None and found.first_call is not None
    assert found.call.exponent == pytest.approx(1.0, abs=1e-3)
    assert found.compiling.exponent == pytest.approx(2.0, abs=1e-3)
    assert found.first_call.exponent < 2.0 and sizes(made(1.0, 2.0)) == (100, 1600)


def test_what_is_not_compiled_has_none_for_compiling():
    (found,) = growths(made(1.0, 2.0, compiled=False))
    assert found.compiling is None and found.call is not None


def test_a_case_that_failed_at_one_size_is_fitted_through_the_others():
    record = made(1.0, 1.5, sides=(10, 20, 40, 80))
    failed = record.results[-1]
    failed.status, failed.reason, failed.blocks = "limit", "> 120 s", []
    (found,) = growths(record)
    assert found.call is not None and found.call.sizes == 3


def test_what_was_over_the_limit_on_a_smaller_input_is_hopeless_on_a_larger_one():
    record = made(1.0, 1.5)
    smallest, middle, largest = record.results
    assert hopeless(record, middle.case) is None
    middle.status, middle.reason = "limit", "> 120 s"
    assert hopeless(record, largest.case) == "> 120 s at 20x20"
    assert hopeless(record, middle.case) is None and hopeless(record, smallest.case) is None

    assert hopeless(record, replace(largest.case, framework="torch")) is None
    # of three, the third says where it was seen and not where it was left out
    middle.reason = "> 120 s at 10x10"
    assert hopeless(record, largest.case) == "> 120 s at 10x10"


def test_a_run_of_one_size_or_two_has_no_growth():
    assert growths(recorded.plain()) == [] and growths(made(1.0, 1.0, sides=(3, 4))) == []
    assert rows.growth_table(recorded.plain()).rows == []


def test_the_table_is_in_what_is_printed():
    text = report(recorded.sweep())
    assert "Growth: p of n^p for n cells in a call, fitted from " in text
    table = rows.growth_table(recorded.sweep())
    assert len(table.rows) == 2 * 3 * 2 and all(len(row) == len(table.headers) for row in table.rows)


def test_a_line_that_is_not_straight_says_so():
    record = made(1.0, 1.0, sides=(10, 20, 40, 80))
    bent: Result = record.results[1]
    record.results[1] = replace(bent, blocks=right(bent.case, *[1.0] * 3, workers=2).blocks)
    ((*_, shown),) = rows.growth_table(record).rows
    assert " (off by up to " in shown and np.isfinite(float(shown.split()[0]))


def test_what_was_over_the_limit_by_its_score_is_hopeless_by_its_marginals():
    record = made(1.0, 1.5)
    smallest, middle, largest = record.results
    middle.status, middle.reason = "limit", "> 120 s"
    by_marginals = [replace(one.case, pass_name="marginals") for one in (smallest, middle, largest)]
    expected = [None, "> 120 s for score", "> 120 s for score at 20x20"]
    assert [hopeless(record, case) for case in by_marginals] == expected
    middle.case = by_marginals[1]
    assert hopeless(record, replace(middle.case, pass_name="score")) is None
