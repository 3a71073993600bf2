"""The clock counts the calls that it should, keeps every sample, and the memory meter sees an allocation."""

import sys
from pathlib import Path
from types import SimpleNamespace

import hand_made
import numpy as np
import pytest

from shared.bench import measure, memory
from shared.bench.measure import DEFAULT_REPEATS, DEFAULT_SECONDS, LEAST_REPEATS, steady_state, timed
from shared.bench.memory import MemoryMeter

MEBIBYTE = 2**20


class Clock:
    """Time that passes only in `call`, by the next of the given durations; the last goes on for ever."""

    def __init__(self, *durations: float) -> None:
        self.durations, self.now, self.calls = durations, 0.0, 0

    def call(self) -> int:
        self.now += self.durations[min(self.calls, len(self.durations) - 1)]
        self.calls += 1
        return self.calls


@pytest.fixture
def clock(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock(*request.param)
    monkeypatch.setattr(measure, "time", SimpleNamespace(perf_counter=lambda: made.now))
    return made


durations = pytest.mark.parametrize("clock", [(2.0, 0.5, 0.25, 0.125)], indirect=True)


@durations
def test_a_call_is_timed_and_its_result_kept(clock: Clock):
    assert timed(clock.call) == (2.0, 1)
    assert timed(clock.call) == (0.5, 2)


@durations
def test_every_sample_is_kept_in_order(clock: Clock):
    assert steady_state(clock.call, 4, False, None).seconds == [2.0, 0.5, 0.25, 0.125]


@durations
def test_the_warm_up_call_is_not_counted(clock: Clock):
    assert steady_state(clock.call, 3, True, None).seconds == [0.5, 0.25, 0.125]
    assert clock.calls == 4


@pytest.mark.parametrize("repeats", [1, 5, LEAST_REPEATS + 3])
@pytest.mark.parametrize("clock", [(100.0,)], indirect=True)
def test_repeats_that_a_user_asks_for_are_done_however_long_they_take(clock: Clock, repeats: int):
    assert steady_state(clock.call, repeats, True, None).seconds == [100.0] * repeats
    assert clock.calls == repeats + 1


# without a number of repeats: a call that is free, one that fills the time half way, and one that is far too long
@pytest.mark.parametrize(
    ("clock", "samples"),
    [
        ((0.0,), DEFAULT_REPEATS),
        ((DEFAULT_SECONDS / (LEAST_REPEATS + 2.5),), LEAST_REPEATS + 2),
        ((100 * DEFAULT_SECONDS,), LEAST_REPEATS),
    ],
    indirect=["clock"],
)
def test_a_time_budget_ends_the_calls_but_never_before_a_few(clock: Clock, samples: int):
    assert len(steady_state(clock.call, None, True, None).seconds) == samples


def test_real_time_passes():
    seconds, _ = timed(lambda: [timed(lambda: None) for _ in range(100)])
    assert 0 < seconds < 10


@pytest.fixture
def process_meter() -> MemoryMeter:
    meter = MemoryMeter(lambda: None)
    meter.start()
    if meter.stop() is None:
        pytest.skip("this system does not tell the peak of a process")
    return meter


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of a process is read from /proc")
def test_the_meter_sees_an_allocation_that_is_gone_again(process_meter: MemoryMeter):
    process_meter.start()
    np.ones(64 * MEBIBYTE, np.uint8).sum()
    peak = process_meter.stop()
    assert peak is not None and 60 * MEBIBYTE < peak < 100 * MEBIBYTE


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of a process is read from /proc")
def test_the_meter_forgets_an_earlier_peak(process_meter: MemoryMeter):
    np.ones(64 * MEBIBYTE, np.uint8).sum()
    process_meter.start()
    peak = process_meter.stop()
    assert peak is not None and peak < 8 * MEBIBYTE


def test_the_meter_says_nothing_where_the_system_does_not(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(memory, "_CLEAR", tmp_path / "missing" / "clear_refs")
    meter = MemoryMeter(lambda: None)
    meter.start()
    assert meter.stop() is None


def test_on_an_accelerator_the_framework_s_counter_is_used():
    meter = MemoryMeter(lambda: 123)
    calls: list[int] = []
    steady = steady_state(lambda: calls.append(1), 2, False, meter)
    assert steady.peak_bytes == 123
    assert (len(steady.seconds), len(calls)) == (2, 3)  # memory by a call of its own, which is not timed


def test_one_sample_is_its_own_median_and_quartiles():
    result = hand_made.right(hand_made.case("jax", "vmap"), 0.25)
    assert result.median == 0.25
    assert result.quartiles == (0.25, 0.25)


def test_median_and_quartiles_of_many_samples():
    result = hand_made.right(hand_made.case("jax", "vmap"), 5.0, 1.0, 4.0, 2.0, 3.0)
    assert (result.median, result.quartiles) == (3.0, (2.0, 4.0))


def test_a_case_without_times_has_no_samples():
    assert hand_made.ended(hand_made.case("jax", "vmap"), "wrong", "score off").steady_seconds == []
