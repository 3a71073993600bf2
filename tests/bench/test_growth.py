"""The exponents of growth: found again in times that are powers of the size, and absent where too little is known."""

from dataclasses import replace

import pytest
from hand_made import case, facts, right

from shared.bench.cases import Settings
from shared.bench.questions.growth import fitted, growth_table, scalings
from shared.bench.record import Compilation, Record


def record_of(call: float, compiling: float, sides: tuple[int, ...] = (10, 20, 40), compiled: bool = True) -> Record:
    """One case whose times are powers of the cells."""
    results, inputs = [], {}
    for side in sides:
        work, name = side * side, f"{side}x{side}"
        inputs[name] = replace(facts(name), shape=(1, side, side), work=work)
        of = case("jax", "vmap", input=name, compiled=compiled)
        cold = Compilation(1e4 + work**compiling, work**compiling * 0.25, work**compiling * 0.75)
        results.append(replace(right(of, *[1e-6 * work**call] * 3, workers=2), cold=[cold]))
    return Record("", Settings(question="growth"), inputs=inputs, results=results)


@pytest.mark.parametrize("exponent", [-0.5, 0.0, 2.0])
def test_an_exponent_is_found_again(exponent: float):
    found = fitted([(n, 3 * n**exponent) for n in (4.0, 8.0, 16.0, 32.0)])
    assert found is not None and found.sizes == 4
    assert found.exponent == pytest.approx(exponent, abs=1e-9) and found.largest_factor == pytest.approx(1.0)


def test_two_sizes_have_a_fit_only_where_the_run_has_no_more():
    assert fitted([(1.0, 1.0), (2.0, 4.0), (2.0, 5.0)]) is None
    (found,) = scalings(record_of(2.0, 1.0, sides=(3, 4)))
    assert found.call is not None and found.call.exponent == pytest.approx(2.0, abs=1e-3)
    assert scalings(record_of(1.0, 1.0, sides=(3,))) == []


def test_calls_and_compiling_have_exponents_of_their_own():
    (found,) = scalings(record_of(1.0, 2.0))
    assert found.call is not None and found.compiling is not None and found.first_call is not None
    assert found.call.exponent == pytest.approx(1.0, abs=1e-3)
    assert found.compiling.exponent == pytest.approx(2.0, abs=1e-3)
    assert found.first_call.exponent < 2.0
    (found,) = scalings(record_of(1.0, 2.0, compiled=False))
    assert found.compiling is None and found.call is not None


def test_a_case_that_failed_at_one_size_is_fitted_through_the_others():
    record = record_of(1.0, 1.5, sides=(10, 20, 40, 80))
    failed = record.results[-1]
    failed.status, failed.reason, failed.blocks = "limit", "> 120 s", []
    (found,) = scalings(record)
    assert found.call is not None and found.call.sizes == 3


def test_times_that_follow_no_power_are_marked_in_the_table():
    record = record_of(1.0, 1.0, sides=(10, 20, 40, 80))
    assert growth_table(record).rows[0][-2:] == ("1.00", "0.00")  # of time and memory
    bent = record.results[1]
    record.results[1] = replace(bent, blocks=right(bent.case, *[1.0] * 3, workers=2).blocks)
    table = growth_table(record)
    assert "×)" in table.rows[0][-2] and table.title.endswith("fitted from 100 to 6,400")
