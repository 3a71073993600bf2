"""The adapter's part that only accelerators need: their memory, caches and clock, large batches, the machine's limits.

`torch_impl.accelerator` has the same names with the same meaning.
"""

import functools
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jax.profiler
import numpy as np

from jax_impl.kernels import triton_binding
from shared.backends import FLUSH_BYTES, DeviceWork
from shared.kernels.triton.ahead import compile_ahead
from shared.kernels.triton.programs import Kernel


def peak_bytes(
    function: Callable[..., Any], arguments: Sequence[Any], parameters: dict[str, Any], device: str
) -> int | None:
    """Bytes of an accelerator's memory that a call needs beside its arguments; None if it is not compiled as a whole.

    As XLA has planned it: the device's own peak counter cannot be reset, so it would serve one call per process.
    """
    if not hasattr(function, "lower"):
        return None
    plan = function.lower(*arguments, **parameters).compile().memory_analysis()
    return plan.temp_size_in_bytes + plan.output_size_in_bytes


def device_name(device: str) -> str:
    """Return the name of an accelerator."""
    return _own(device).device_kind


def device_memory(device: str) -> int | None:
    """Bytes of memory that an accelerator has; None if JAX's allocator does not tell. Call limit_memory first."""
    limit = (_own(device).memory_stats() or {}).get("bytes_limit")
    return limit and round(limit / float(os.environ["XLA_CLIENT_MEM_FRACTION"]))


def compile_kernels(kernels: Sequence[Kernel], device: str) -> list[str]:
    """Compile these kernels for the device, on all cores, into Triton's cache; returns the errors, a line each."""
    return compile_ahead(kernels, int(_own(device).compute_capability.replace(".", "")))


def limit_memory(device: str, share: float) -> None:
    """Limit the use of an accelerator's memory to this fraction, without preallocation. Call before JAX initializes."""
    if device != "cpu":
        os.environ.pop("XLA_PYTHON_CLIENT_MEM_FRACTION", None)  # the same by its old name
        os.environ |= {"XLA_CLIENT_MEM_FRACTION": f"{share:.6f}", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}


def flush(device: str) -> None:
    """Overwrite an accelerator's caches; does nothing on a CPU."""
    if device != "cpu":
        jax.block_until_ready(jnp.zeros(FLUSH_BYTES, jnp.uint8, device=_own(device)))


def device_work(launch: Callable[[], Any], device: str) -> DeviceWork | None:
    """Profile one call: the time in which an accelerator works for it, and its kernels; None on a CPU.

    launch: the call, which need not wait for its result.
    """
    return None if device == "cpu" else DeviceWork.of(_profiled(launch))


def _profiled(launch: Callable[[], Any]) -> list[tuple[float, float]]:
    """Start and end, in ns, of every kernel and copy of a call."""
    with tempfile.TemporaryDirectory(prefix="compare-") as name:
        options = jax.profiler.ProfileOptions()
        options.python_tracer_level = 0  # trace the device alone: tracing Python would slow it down
        with jax.profiler.trace(name, profiler_options=options):
            jax.block_until_ready(launch())
        return [
            (event.start_ns, event.start_ns + event.duration_ns)
            for path in Path(name).rglob("*.xplane.pb")
            for plane in jax.profiler.ProfileData.from_file(str(path)).planes
            if plane.name.startswith("/device:GPU")
            for line in plane.lines
            if line.name.startswith("Stream")
            for event in line.events
        ]


def smallest_call(device: str) -> Callable[[], Any]:
    """A compiled call that launches one kernel on three numbers."""
    value = jax.device_put(np.zeros(3, np.float32), _own(device))
    return functools.partial(jax.jit(lambda x: x + 1), value)


def repeated(value: jax.Array, times: int) -> jax.Array:
    """The value, repeated along the first axis."""
    return jnp.tile(value, (times, *(1 for _ in value.shape[1:])))


def extremes(value: jax.Array, times: int) -> tuple[jax.Array, jax.Array]:
    """Minimum and maximum over the copies that `repeated` made, element by element; NaN if one is."""
    parts = value.reshape(times, -1, *value.shape[1:])
    return parts.min(0), parts.max(0)


_exponentials = jax.jit(triton_binding.exponentials, static_argnums=1)


def exponentials(value: jax.Array, rounds: int) -> jax.Array:
    """16 exponentials of each number in each round, by one kernel of a GPU; returns before they are computed.

    The size of value must be a multiple of 1024. Raises JaxRuntimeError without Triton.
    """
    return _exponentials(value, rounds)


def copy(value: jax.Array) -> jax.Array:
    """A copy of the value; returns before it is made."""
    return value.copy()


def _own(device: str) -> Any:
    """The first device of this process: other processes have some too where several have joined."""
    return jax.local_devices(backend=device)[0]
