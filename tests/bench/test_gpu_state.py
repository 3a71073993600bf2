"""The state of a GPU during a run, by an nvidia-smi that is a script."""

import time
from pathlib import Path

import pytest

from shared.bench.measure.gpu_state import in_words, sampled, summary

SAMPLES = """\
210, 2619, 75.1, 31, 0x0000000000000001
1980, 3201, 400.0, 50, 0x0000000000000000
1755, 3201, 690.5, 61, 0x0000000000000004
1500, 3201, [N/A], 61, 0x0000000000000004
1965, 3201, 500
"""


@pytest.fixture
def nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (text := tmp_path / "samples").write_text(SAMPLES)
    (tool := tmp_path / "nvidia-smi").write_text(
        f"#!/bin/sh\necho $* > {tmp_path}/asked\necho $$ > {tmp_path}/pid\ncat {text}\nexec sleep 60\n"
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return tmp_path


def test_clocks_and_power_are_those_of_the_gpu_at_work(nvidia_smi: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-1f2e,0")
    with sampled("cuda") as lines:
        end = time.monotonic() + 10
        while len(lines) < SAMPLES.count("\n"):
            assert time.monotonic() < end
            time.sleep(0.02)
    assert (nvidia_smi / "asked").read_text().startswith("--id GPU-1f2e --query-gpu=clocks.sm,")
    state = summary(lines)
    assert state["samples"] == 3 and state["throttled"] == {"power": 2 / 3}
    assert state["sm_mhz"] == [1500, 1755, 1980] and state["watts"] == [400, 545.25, 690.5]
    assert in_words(state) == (
        "GPU at work: 1,755 MHz (1,500 … 1,980), 3,201 MHz of memory (3,201 … 3,201), 545 W (400 … 690), "
        "61 °C (50 … 61); slowed down by power in 67% of 3 samples; compare.py locks no clocks"
    )
    assert in_words(summary(["[N/A], [N/A], [N/A], 40, 0x0"])).startswith("GPU at work: 40 °C (40 … 40); never")
    assert not Path("/proc", (nvidia_smi / "pid").read_text().strip()).exists()


def test_there_are_no_samples_on_a_cpu_or_without_the_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    for device in ("cpu", "cuda"):
        with sampled(device) as lines:
            pass
        assert summary(lines) == {}
