"""The clock counts the calls that it should, the warm-up ends, and the memory of a process shows an allocation."""

import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shared.bench.memory import ProcessMemory

from shared.bench import measure, memory
from shared.bench.measure import MOST_WARM_UP_CALLS, MOST_WARM_UP_SECONDS, WINDOW, covered, longer, timed, warm_up

MEBIBYTE = 2**20
READING = 1e-9  # what reading the clock takes


class Clock:
    """Time that passes only in `call`, by the next of the given durations; the last goes on for ever."""

    def __init__(self, *durations: float) -> None:
        self.durations, self.now, self.calls, self.reading = durations, 0.0, 0, 0.0

    def call(self) -> int:
        self.now += self.durations[min(self.calls, len(self.durations) - 1)]
        self.calls += 1
        return self.calls

    def read(self) -> float:
        self.now += self.reading
        return self.now


@pytest.fixture
def clock(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock(*request.param)
    monkeypatch.setattr(measure, "time", SimpleNamespace(perf_counter=made.read))
    return made


def durations(*seconds: float) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("clock", [seconds], indirect=True)


@durations(2.0, 0.5, 0.25, 0.125)
def test_a_call_is_timed_and_its_result_kept(clock: Clock):
    assert timed(clock.call) == (2.0, 1)
    assert timed(clock.call) == (0.5, 2)


def test_real_time_passes():
    seconds, _ = timed(lambda: [timed(lambda: None) for _ in range(100)])
    assert 0 < seconds < 10


# the warm-up


@durations(0.125)
def test_a_warm_up_of_even_calls_ends_as_soon_as_two_windows_are_full(clock: Clock):
    assert warm_up(clock.call) == (2 * WINDOW, True, 0.125)
    assert clock.calls == 2 * WINDOW


@durations(*[2.0 ** -(2 + step) for step in range(5)], 2.0**-7)
def test_a_warm_up_goes_on_while_calls_get_faster(clock: Clock):
    settled = warm_up(clock.call)
    assert settled.stable and settled.seconds == 2.0**-7
    # five that get faster, then the first two windows of which most are even
    assert settled.calls == clock.calls == 5 + 2 * WINDOW - 1


@durations(*[0.01 * 0.98**step for step in range(MOST_WARM_UP_CALLS + 1)])
def test_a_warm_up_of_calls_that_never_settle_ends_after_so_many(clock: Clock):
    settled = warm_up(clock.call)
    assert (settled.calls, settled.stable) == (MOST_WARM_UP_CALLS, False)


@durations(*[0.25 * 0.9**step for step in range(100)])
def test_a_warm_up_of_calls_that_never_settle_ends_in_time(clock: Clock):
    settled = warm_up(clock.call)
    assert not settled.stable and 2 * WINDOW < settled.calls < MOST_WARM_UP_CALLS
    assert clock.now <= MOST_WARM_UP_SECONDS


@durations(10 * MOST_WARM_UP_SECONDS)
def test_a_very_slow_call_is_warmed_up_once(clock: Clock):
    assert warm_up(clock.call) == (1, None, 10 * MOST_WARM_UP_SECONDS)  # too few calls to tell


@durations(0.125, 0.125, 0.125, 0.125, 0.125, 0.5)
def test_one_slow_call_among_the_last_changes_nothing(clock: Clock):
    assert warm_up(clock.call) == (2 * WINDOW, True, 0.125)


# the planted difference


@pytest.mark.parametrize("fraction", [0.0, 0.05, 1.0])
@durations(1e-6)
def test_a_longer_call_takes_its_fraction_more_and_gives_the_same_result(clock: Clock, fraction: float):
    clock.reading = READING
    seconds, result = timed(longer(clock.call, fraction))
    assert result == clock.calls == 1
    assert seconds == pytest.approx((1 + fraction) * 1e-6, abs=10 * READING)


@durations(0.25, 0.5)
def test_every_longer_call_is_longer_by_its_own_time(clock: Clock):
    clock.reading = 1e-4
    slowed = longer(clock.call, 0.5)
    assert [timed(slowed)[0] for _ in range(2)] == [pytest.approx(0.375, abs=1e-3), pytest.approx(0.75, abs=1e-3)]


# the union of spans


@settings(max_examples=100, deadline=None, derandomize=True)
@given(spans=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)).map(sorted), max_size=8))
def test_what_spans_cover_is_counted_once(spans: list[list[int]]):
    inside = {second for start, end in spans for second in range(start, end)}
    assert covered([(start, end) for start, end in spans]) == len(inside)


# memory


@pytest.fixture
def process_memory() -> ProcessMemory:
    meter = ProcessMemory()
    meter.start()
    if meter.stop() is None:
        pytest.skip("this system does not tell the peak of a process")
    return meter


on_linux = pytest.mark.skipif(sys.platform != "linux", reason="the peak of a process is read from /proc")


@on_linux
def test_the_peak_shows_an_allocation_that_is_gone_again(process_memory: ProcessMemory):
    process_memory.start()
    np.ones(64 * MEBIBYTE, np.uint8).sum()
    peak = process_memory.stop()
    assert peak is not None and 60 * MEBIBYTE < peak < 100 * MEBIBYTE


@on_linux
def test_an_earlier_peak_is_forgotten(process_memory: ProcessMemory):
    np.ones(64 * MEBIBYTE, np.uint8).sum()
    process_memory.start()
    peak = process_memory.stop()
    assert peak is not None and peak < 8 * MEBIBYTE


@on_linux
def test_memory_that_was_in_use_before_is_not_of_the_call(process_memory: ProcessMemory):
    kept = np.ones(64 * MEBIBYTE, np.uint8)
    process_memory.start()
    peak = process_memory.stop()
    assert peak is not None and peak < 8 * MEBIBYTE
    assert kept.all()


@pytest.mark.parametrize("closed", ["_CLEAR", "_STATUS"])
def test_nothing_is_said_of_memory_where_the_system_says_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, closed: str
):
    monkeypatch.setattr(memory, closed, tmp_path / "missing" / "file")
    meter = ProcessMemory()
    meter.start()
    assert meter.stop() is None


def test_without_a_mark_there_is_no_peak():
    assert ProcessMemory().stop() is None
