"""Environment variables and settings of the frameworks that change what is measured."""

from pathlib import Path
from typing import Any

import jax
import pytest
import torch
import torch._inductor.config
from command_line import LEAST, run_compare
from hand_made import case
from in_process import assert_refused, run_here, start_at_once

import jax_impl.backend
import torch_impl.backend
from shared.bench.measure.machine import different_environments
from shared.bench.measure.variables import changed, disabling, recorded, warnings
from shared.bench.record import Record
from shared.bench.worker.commands import Commands, outcome

CHANGED = "The functions that were measured changed settings that change times:"
OWN = """
def inputs(seed):
    import numpy
    return (numpy.ones(3),)

def reference(x):
    return x + 1

def jax_function(x):
    import jax
    jax.config.update("jax_debug_nans", True)
    jax.config.update("jax_numpy_rank_promotion", "warn")
    return x + 1
"""


@pytest.mark.parametrize("name", ["JAX_DISABLE_JIT", "TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE"])
def test_what_disables_a_compiler_that_is_compared_is_refused(name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(name, "1")
    assert_refused(run_here("--size", "6x7"), f"{name}=1 in the environment disables the compiler that is compared: "
                   f"unset it, as by: env -u {name} python compare.py ...")  # fmt: skip
    assert disabling(["torch" if name.startswith("JAX") else "jax"]) is None
    monkeypatch.setenv(name, "0" if name.startswith("JAX") else "true")  # PyTorch takes "1" alone for on
    assert disabling(["jax", "torch"]) is None


def test_a_compiler_that_a_user_s_function_disables_is_a_failure(tmp_path: Path):
    commands, asked = Commands(jax_impl.backend, tmp_path, lambda *_, **__: None), case("jax", "vmap")
    assert outcome(commands, "calibration", asked, {})["status"] == "ok"
    with jax.disable_jit():
        failed = outcome(commands, "calibration", asked, {})
    assert failed["status"] == "failed"
    assert failed["reason"] == "ValueError: jax_disable_jit is set, which disables the compiler that is compared"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("jax_debug_nans", True), ("jax_debug_infs", True), ("jax_enable_x64", True), ("jax_enable_checks", True),
        ("jax_check_tracer_leaks", True), ("jax_disable_most_optimizations", True),
        ("jax_default_matmul_precision", "high"),
    ],
)  # fmt: skip
def test_settings_of_jax_that_a_function_changes_are_seen(name: str, value: Any):
    before = jax_impl.backend.settings()
    jax.config.update(name, value)
    try:
        found = changed(before, jax_impl.backend.settings())
    finally:
        jax.config.update(name, before[name])
    assert found == {name: str(value)}
    assert list(warnings({}, found)) == [f"{CHANGED} {name}={value}."]
    assert not changed(before, jax_impl.backend.settings())


@pytest.mark.parametrize(
    ("name", "change", "value"),
    [
        ("get_default_dtype", torch.set_default_dtype, torch.float64),
        ("get_default_device", torch.set_default_device, torch.device("meta")),
        ("get_float32_matmul_precision", torch.set_float32_matmul_precision, "medium"),
        ("get_num_threads", torch.set_num_threads, 3),
        ("is_grad_enabled", torch.set_grad_enabled, False),
        ("is_anomaly_enabled", torch.autograd.set_detect_anomaly, True),
        ("are_deterministic_algorithms_enabled", torch.use_deterministic_algorithms, True),
    ],
)
def test_settings_of_torch_that_a_function_changes_are_seen(name: str, change: Any, value: Any):
    key, before = f"torch.{name}()", torch_impl.backend.settings()
    change(value)
    try:
        found = changed(before, torch_impl.backend.settings())
    finally:
        change(None if name == "get_default_device" else before[key])  # None: no default any more
    assert found.pop(key) == str(value)
    assert set(found) <= {"torch._inductor.config.deterministic"}  # which PyTorch sets too
    assert list(warnings({}, {key: str(value)})) == [f"{CHANGED} {key}={value}."]
    assert not changed(before, torch_impl.backend.settings())


def test_settings_of_torch_compile_that_a_function_changes_are_seen():
    before = torch_impl.backend.settings()
    with torch._inductor.config.patch({"max_autotune": True, "cpp.threads": 3}):
        found = changed(before, torch_impl.backend.settings())
    assert found == {"torch._inductor.config.max_autotune": "True", "torch._inductor.config.cpp.threads": "3"}
    assert changed({"a": 1}, {"a": "/home/ann/x", "b": 2}) == {"a": "x"}  # b: of a module imported since


def test_a_run_records_the_settings_that_a_file_changes_and_warns(tmp_path: Path):
    own, record = tmp_path / "mine.py", tmp_path / "run.json"
    own.write_text(OWN)
    asked = ("--problem", str(own), "--framework", "jax", *LEAST, "--json", str(record))
    done = run_compare(*asked)
    assert done.returncode == 0, done.stderr
    assert f"WARNING: {CHANGED} jax_debug_nans=True." in done.stdout and "rank_promotion" not in done.stdout
    environment = Record.read(record).environment
    assert environment["settings"] == {"jax_debug_nans": "True", "jax_numpy_rank_promotion": "warn"}
    assert different_environments(environment | {"settings": {}}, environment) == [
        "jax_debug_nans was None, is True", "jax_numpy_rank_promotion was None, is warn",
    ]  # fmt: skip
    resumed = run_compare("--resume", str(record))
    assert resumed.returncode == 0, resumed.stderr
    assert Record.read(record).environment["settings"] == environment["settings"]


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
    assert list(warnings(recorded(), {})) == [
        "The environment has variables that change times: JAX_DEBUG_NANS=1, LD_PRELOAD=libjemalloc.so.2, "
        "XLA_FLAGS=--xla_dump_to=dump --x=1."
    ]
    assert not list(warnings({"TORCH_HOME": "torch"}, {"jax_log_compiles": "True"}))
    before, after = {"variables": {}}, {"variables": {"XLA_FLAGS": "--x=1"}}
    assert different_environments(before, after) == ["XLA_FLAGS was None, is --x=1"]
    assert not different_environments({}, after)  # a record of before they were recorded


def test_every_run_records_them(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("JAX_DEBUG_NANS", "1")
    start_at_once(monkeypatch)
    assert "WARNING: The environment has variables that change times: JAX_DEBUG_NANS=1" in run_here("--size", "6x7").out
