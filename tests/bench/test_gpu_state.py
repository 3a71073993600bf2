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
    (tool := tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\ncat {text}\necho $$ > {tmp_path}/pid\nexec sleep 60\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return tmp_path


def test_clocks_and_power_are_those_of_the_gpu_at_work(nvidia_smi: Path):
    with sampled("cuda", nvidia_smi / "gpu.csv"):
        end = time.monotonic() + 10
        while not (nvidia_smi / "pid").exists():
            assert time.monotonic() < end
            time.sleep(0.02)
    state = summary(nvidia_smi / "gpu.csv")
    assert state["samples"] == 2 and state["throttled"] == {"power": 0.5}
    assert state["sm_mhz"] == [1755, 1867.5, 1980] and state["watts"][2] == 690.5
    assert in_words(state) == (
        "GPU at work: 1,868 MHz (1,755 … 1,980), memory 3,201 MHz, 545 W (at most 690), at most 61 °C; "
        "slowed down by power in 50% of 2 samples; clocks were not locked"
    )
    assert not Path("/proc", (nvidia_smi / "pid").read_text().strip()).exists()


def test_there_are_no_samples_on_a_cpu_or_without_the_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    for device in ("cpu", "cuda"):
        with sampled(device, tmp_path / "gpu.csv"):
            pass
        assert summary(tmp_path / "gpu.csv") == {}
