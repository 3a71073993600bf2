"""The adapters' code for accelerators, as far as a CPU can run it."""

import contextlib
import importlib
import os
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from frameworks import FRAMEWORKS
from torch._C._autograd import DeviceType

from shared.bench.cases import Case
from shared.bench.worker.case_runner import CaseRunner
from shared.kernels.triton.programs import exponentials_program

BOTH = pytest.mark.parametrize("framework", FRAMEWORKS)


@BOTH
def test_a_batch_is_repeated_copied_and_compared_with_its_repeats(framework):
    backend = FRAMEWORKS[framework].backend
    array = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    value = backend.to_device(array, "cpu")
    np.testing.assert_array_equal(backend.to_numpy(backend.repeated(value, 3)), np.concatenate([array] * 3))
    copy = backend.wait(backend.copy(value))
    np.testing.assert_array_equal(backend.to_numpy(copy), array)
    pointers = [x.unsafe_buffer_pointer() if framework == "jax" else x.data_ptr() for x in (value, copy)]
    assert pointers[0] != pointers[1]
    repeats = backend.to_device(np.array([1, 5, 2, 4, 3, np.nan], np.float32), "cpu")  # three, of two numbers
    low, high = (backend.to_numpy(part) for part in backend.extremes(repeats, 3))
    np.testing.assert_array_equal((low, high), [(1, np.nan), (3, np.nan)])


@BOTH
def test_device_time_is_the_union_of_the_kernels_intervals(framework, monkeypatch):
    """The host's time between two launches does not count, and what overlaps counts once."""
    accelerator = importlib.import_module(f"{framework}_impl.accelerator")
    spans = {"call": [(1e6, 1e6 + 5), (83.0, 89.0), (80.0, 82.0), (86.0, 90.0), (84.0, 85.0)], "empty": []}
    monkeypatch.setattr(accelerator, "_profiled", lambda launch: spans[launch()])
    assert accelerator.device_work(lambda: "call", "cuda") == (pytest.approx(14e-9), 5)
    assert accelerator.device_work(lambda: "empty", "cuda") is None
    assert accelerator.device_work(lambda: "call", "cpu") is None


def test_the_profiler_of_pytorch_is_asked_for_what_ran_on_the_gpu(monkeypatch):
    """Some of the raw events are the host's."""
    accelerator = importlib.import_module("torch_impl.accelerator")

    def event(device: str, start: int, duration: int) -> Any:
        kind = getattr(DeviceType, device)
        return SimpleNamespace(device_type=lambda: kind, start_ns=lambda: start, duration_ns=lambda: duration)

    events = [event("CPU", 0, 90), event("CUDA", 10, 5), event("CUDA", 20, 7)]
    results = SimpleNamespace(events=lambda: events)
    profiler = SimpleNamespace(profiler=SimpleNamespace(kineto_results=results))
    monkeypatch.setattr(accelerator, "profile", lambda **_: contextlib.nullcontext(profiler))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    assert accelerator._profiled(lambda: None) == [(10, 15), (20, 27)]


def test_only_running_out_of_memory_is_out_of_memory():
    out_of_memory = {
        "jax": jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8 bytes."),
        "torch": torch.OutOfMemoryError("CUDA out of memory."),
    }
    other_errors = jax.errors.JaxRuntimeError("INTERNAL: no"), RuntimeError("no"), MemoryError()
    for framework, error in out_of_memory.items():
        backend = FRAMEWORKS[framework].backend
        assert [backend.is_out_of_memory(error_) for error_ in (error, *other_errors)] == [True, False, False, False]


def test_jax_takes_its_share_of_memory_and_nothing_in_advance(monkeypatch):
    backend = FRAMEWORKS["jax"].backend
    for name in ("XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_PREALLOCATE"):
        monkeypatch.setenv(name, "")  # so that it is put back
        monkeypatch.delenv(name)
    monkeypatch.setenv("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.5")  # JAX refuses it beside the new name
    backend.limit_memory("cpu", 0.45)
    assert "XLA_CLIENT_MEM_FRACTION" not in os.environ
    backend.limit_memory("cuda", 0.45)
    assert os.environ["XLA_CLIENT_MEM_FRACTION"] == "0.450000"
    assert os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] == "false"
    assert "XLA_PYTHON_CLIENT_MEM_FRACTION" not in os.environ


@BOTH
def test_kernels_of_fused_are_cached_for_all_runs_and_generated_code_for_one_case(framework, tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", "for all runs")
    runner = CaseRunner(FRAMEWORKS[framework].backend, tmp_path, lambda *_, **__: None)
    cached = {}
    for variant in ("fused", "vmap"):
        case = Case(framework, variant, "score", True, "batch", "smith_waterman", "cuda", "float32", "2 threads")
        with runner.context(case):
            cached[variant] = os.environ["TRITON_CACHE_DIR"]
    assert cached["fused"] == os.environ["TRITON_CACHE_DIR"] == "for all runs"
    # without a space, at which inductor splits the command line of the C++ compiler
    assert framework == "jax" or (cached["vmap"].startswith(str(tmp_path)) and "-2_threads-" in cached["vmap"])


@pytest.mark.usefixtures("triton_cache")
def test_kernels_are_compiled_ahead_into_the_cache_and_forgotten_in_the_process(tmp_path):
    pytest.importorskip("triton")
    import jax_impl.kernels.triton_binding as jax_calls
    import torch_impl.kernels.triton_binding as torch_calls
    from shared.kernels.triton.ahead import compile_ahead
    from shared.kernels.triton.machine_code import machine_code

    def files() -> dict[str, int]:
        return {str(path): path.stat().st_mtime_ns for path in tmp_path.rglob("*.cubin")}

    (launch,) = exponentials_program("float64", 1024, 1).launches
    unknown = launch.kernel._replace(name="sideways_kernel")
    (problem,) = compile_ahead([launch.kernel, unknown, launch.kernel], 90)
    assert problem == "sideways_kernel, float64: KeyError: 'sideways_kernel'"
    compiled = files()
    assert len(compiled) == 1
    machine_code(launch.kernel, 90)
    assert files() == compiled
    jax_calls.register()
    torch_calls.KERNELS["forward_kernel"].device_caches.setdefault("a device", "its kernels")
    for framework in FRAMEWORKS.values():
        framework.backend.forget_compiled()
    assert machine_code.cache_info().currsize == 0
    assert not any(kernel.device_caches for kernel in torch_calls.KERNELS.values())


def test_the_peak_memory_of_jax_is_that_of_the_plan_of_xla():
    backend = FRAMEWORKS["jax"].backend
    array = backend.to_device(np.ones((100, 200), np.float32), "cpu")

    def outer(x, *, scale):  # every product has to be somewhere before one is chosen
        return jnp.sort((x[:, :, None] * x[:, None, :] * scale).reshape(100, -1))[:, ::200]

    plan = backend.peak_bytes(jax.jit(outer), [array], {"scale": 2.0}, "cpu")
    assert 100 * 200 * 200 * 4 <= plan <= 4 * 100 * 200 * 200 * 4
    assert backend.peak_bytes(jax.jit(lambda x: x + 1), [array], {}, "cpu") == array.nbytes
    assert backend.peak_bytes(outer, [array], {"scale": 2.0}, "cpu") is None
