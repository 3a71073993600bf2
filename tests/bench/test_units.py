"""Numbers as text."""

import pytest

from shared.bench.estimates import Estimate
from shared.bench.units import clock, duration, figures, interval_text, ratio_interval, ratio_text, rough_text, size


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (2.5e-7, "250 ns"),
        (4.23e-10, "423 ps"),
        (42.31e-6, "42.3 µs"),
        (1e-3, "1.00 ms"),
        (12.34, "12.3 s"),
        (1234.0, "1234 s"),
        (None, "–"),
        # just below a round one
        (9.996e-6, "10.0 µs"),
        (0.9996e-3, "1.00 ms"),
        (0.9996, "1.00 s"),
    ],
)
def test_a_duration_has_three_figures_and_a_fitting_unit(seconds: float | None, text: str):
    assert duration(seconds) == text


@pytest.mark.parametrize(("value", "text"), [(9.994, "9.99"), (9.996, "10.0"), (99.96, "100"), (123456.0, "1e+05")])
def test_a_factor_has_three_figures(value: float, text: str):
    assert figures(value) == text


@pytest.mark.parametrize(("value", "text"), [(1.04, "1"), (7.26, "7.3"), (9.96, "10"), (12345.0, "12,000")])
def test_a_rough_number_has_two_figures(value: float, text: str):
    assert rough_text(value) == text


@pytest.mark.parametrize(
    ("count", "text"), [(None, "–"), (480, "480 B"), (2048, "2 KiB"), (3 * 2**20, "3.0 MiB"), (5 * 2**29, "2.50 GiB")]
)
def test_a_number_of_bytes_has_a_fitting_unit(count: int | None, text: str):
    assert size(count) == text


def test_an_interval_is_two_times_and_few_processes():
    assert interval_text(Estimate(2.0, 0.5, 3.0)) == "500 ms … 3.00 s"
    assert interval_text(Estimate(2.0, 0.5, 0.7, 2)) == "500 … 700 ms; 2 processes"
    assert interval_text(Estimate(2.0, 0.5, 0.7, 1, is_measured=False)) == "1 process"


def test_a_ratio_near_1_shows_on_which_side_it_lies():
    assert [ratio_text(value) for value in (0.25, 0.996, 1.0, 1.004, 11.11)] == [
        "0.25",
        "0.996",
        "1.000",
        "1.004",
        "11.1",
    ]
    assert ratio_interval(Estimate(1.0, 0.996, 1.25)) == "0.996 … 1.25"


def test_a_clock_shows_minutes_and_seconds():
    assert [clock(seconds) for seconds in (0.9, 61.5, 3600.0)] == ["0:00", "1:01", "60:00"]
