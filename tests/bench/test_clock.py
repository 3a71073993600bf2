"""The clock and the warm-up on simulated time, and the peak memory of a process on real allocations."""

import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from shared.bench.measure import clock as clock_module
from shared.bench.measure import memory
from shared.bench.measure.clock import MOST_WARM_UP_CALLS, MOST_WARM_UP_SECONDS, WINDOW, timed, warm_up
from shared.bench.measure.memory import peak_bytes

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
    monkeypatch.setattr(clock_module, "time", SimpleNamespace(perf_counter=lambda: made.now))
    return made


def durations(*seconds: float) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("clock", [seconds], indirect=True)


@durations(2.0, 0.5)
def test_a_call_is_timed_and_its_result_kept(clock: Clock):
    assert timed(clock.call) == (2.0, 1)
    assert timed(clock.call) == (0.5, 2)


# one slow call among the last changes nothing
@durations(0.125, 0.125, 0.125, 0.125, 0.125, 0.5)
def test_a_warm_up_of_even_calls_ends_as_soon_as_two_windows_are_full(clock: Clock):
    assert warm_up(clock.call) == (True, 0.125)
    assert clock.calls == 2 * WINDOW


@durations(*[2.0 ** -(2 + step) for step in range(5)], 2.0**-7)
def test_a_warm_up_goes_on_while_calls_get_faster(clock: Clock):
    settled, seconds = warm_up(clock.call)
    assert settled and seconds == 2.0**-7
    # five that get faster, then the first two windows of which most are even
    assert clock.calls == 5 + 2 * WINDOW - 1


@durations(*[0.01 * 0.98**step for step in range(MOST_WARM_UP_CALLS + 1)])
def test_a_warm_up_that_never_settles_ends_after_a_number_of_calls(clock: Clock):
    settled, _ = warm_up(clock.call)
    assert (clock.calls, settled) == (MOST_WARM_UP_CALLS, False)


@durations(*[0.125 * 0.9**step for step in range(100)])
def test_a_warm_up_that_never_settles_ends_in_time(clock: Clock):
    settled, _ = warm_up(clock.call)
    assert settled is False and 2 * WINDOW < clock.calls < MOST_WARM_UP_CALLS
    assert clock.now <= MOST_WARM_UP_SECONDS


@durations(10 * MOST_WARM_UP_SECONDS)
def test_a_very_slow_call_is_warmed_up_once(clock: Clock):
    assert warm_up(clock.call) == (None, 10 * MOST_WARM_UP_SECONDS)  # too few calls to tell


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of a process is read from /proc")
def test_the_peak_memory_of_a_call_is_what_it_allocates_above_what_was_in_use():
    quiet = peak_bytes(lambda: None)
    if quiet is None:
        pytest.skip("this system does not report the peak of a process")
    np.ones(64 * MEBIBYTE, np.uint8).sum()  # an earlier peak
    kept = np.ones(64 * MEBIBYTE, np.uint8)  # and memory in use
    quiet = peak_bytes(lambda: None)
    assert quiet is not None and quiet < 8 * MEBIBYTE and kept.all()
    peak = peak_bytes(lambda: np.ones(64 * MEBIBYTE, np.uint8).sum())  # freed before the end
    assert peak is not None and 60 * MEBIBYTE < peak < 100 * MEBIBYTE


def test_without_the_kernels_peak_counter_there_is_no_peak_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(memory, "_CLEAR_REFS", tmp_path / "missing" / "file")
    assert peak_bytes(lambda: None) is None
