"""Environment variables that change what is measured."""

import jax
import pytest
from hand_made import case
from in_process import assert_refused, run_here, start_at_once

from jax_impl import backend
from shared.bench.measure.machine import different_environments
from shared.bench.measure.variables import disabling, recorded, warnings
from shared.bench.worker.case_runner import CaseRunner
from shared.problems.alignment_inputs import AlignmentInputs


@pytest.mark.parametrize("name", ["JAX_DISABLE_JIT", "TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE"])
def test_what_disables_a_compiler_that_is_compared_is_refused(name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(name, "1")
    assert_refused(run_here("--size", "6x7"), f"{name}=1 in the environment disables the compiler that is compared: "
                   f"unset it, as by: env -u {name} python compare.py ...")  # fmt: skip
    assert disabling(["torch" if name.startswith("JAX") else "jax"]) is None
    monkeypatch.setenv(name, "0" if name.startswith("JAX") else "true")  # PyTorch takes "1" alone for on
    assert disabling(["jax", "torch"]) is None


def test_a_compiler_that_a_user_s_file_disables_is_a_failure(tmp_path):
    inputs = AlignmentInputs("", jax.numpy.ones((1, 3, 4)), None)  # pyright: ignore[reportArgumentType]
    runner = CaseRunner(backend, tmp_path, lambda *_, **__: None)
    runner.function(case("jax", "vmap"), inputs)
    with jax.disable_jit(), pytest.raises(ValueError, match="jax_disable_jit is set, which disables the compiler"):
        runner.function(case("jax", "vmap"), inputs)


def test_variables_are_recorded_and_those_that_change_times_warned_of(monkeypatch: pytest.MonkeyPatch):
    given = {
        "JAX_DEBUG_NANS": "1", "XLA_FLAGS": "--xla_dump_to=/home/ann/dump --x=1", "JAX_PLATFORMS": "cpu",
        "LD_PRELOAD": "/usr/lib/libjemalloc.so.2", "NVIDIA_VISIBLE_DEVICES": "all", "EDITOR": "vi",
        "TORCH_HOME": "/opt/torch",
    }  # fmt: skip
    for name in recorded():
        monkeypatch.delenv(name)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    assert recorded() == {
        "JAX_DEBUG_NANS": "1", "LD_PRELOAD": "libjemalloc.so.2", "TORCH_HOME": "torch",
        "XLA_FLAGS": "--xla_dump_to=dump --x=1",
    }  # fmt: skip
    assert list(warnings(recorded())) == [
        "The environment has variables that change times: JAX_DEBUG_NANS=1, LD_PRELOAD=libjemalloc.so.2, "
        "XLA_FLAGS=--xla_dump_to=dump --x=1."
    ]
    assert not list(warnings({"TORCH_HOME": "torch"}))
    before, after = {"variables": {}}, {"variables": {"XLA_FLAGS": "--x=1"}}
    assert different_environments(before, after) == ["XLA_FLAGS was None, is --x=1"]
    assert not different_environments({}, after)  # a record of before they were recorded


def test_every_run_records_them(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("JAX_DEBUG_NANS", "1")
    start_at_once(monkeypatch)
    assert "WARNING: The environment has variables that change times: JAX_DEBUG_NANS=1" in run_here("--size", "6x7").out
