"""The adapter's part that only accelerators need: memory, caches, kernels' times, large batches, the machine's limits.

`jax_impl.accelerator` has the same names with the same meaning.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from shared.backends import FLUSH_BYTES, DeviceWork
from shared.kernels.triton.ahead import compile_ahead
from shared.kernels.triton.programs import Kernel


def peak_bytes(
    function: Callable[..., Any], arguments: Sequence[Any], parameters: dict[str, Any], device: str
) -> int | None:
    """Bytes of an accelerator's memory that a call needs beside its arguments, by PyTorch's own counter."""
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    result = function(*arguments, **parameters)
    torch.cuda.synchronize()
    del result
    return torch.cuda.max_memory_allocated(device) - before


def device_name(device: str) -> str:
    """Return the name of an accelerator."""
    return torch.cuda.get_device_name(device)


def device_memory(device: str) -> int | None:
    """Bytes of memory that an accelerator has for all its processes."""
    return torch.cuda.get_device_properties(device).total_memory


def compile_kernels(kernels: Sequence[Kernel], device: str) -> list[str]:
    """Compile these kernels for the device, on all cores, into Triton's cache; returns the errors, a line each."""
    major, minor = torch.cuda.get_device_capability(device)
    return compile_ahead(kernels, 10 * major + minor)


def limit_memory(device: str, share: float) -> None:
    """Limit the use of an accelerator's memory to this fraction."""
    if device != "cpu" and torch.cuda.is_available():
        torch.cuda.set_per_process_memory_fraction(share)


def flush(device: str) -> None:
    """Overwrite an accelerator's caches; does nothing on a CPU."""
    if device != "cpu":
        torch.zeros(FLUSH_BYTES, dtype=torch.uint8, device=device)
        torch.cuda.synchronize()


def device_work(launch: Callable[[], Any], device: str) -> DeviceWork | None:
    """Profile one call: the time in which an accelerator works for it, and its kernels; None on a CPU.

    launch: the call, which need not wait for its result.
    """
    return None if device == "cpu" else DeviceWork.of(_profiled(launch))


def _profiled(launch: Callable[[], Any]) -> list[tuple[float, float]]:
    """Start and end, in ns, of every kernel and copy of a call."""
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        result = launch()
        torch.cuda.synchronize()
    del result
    assert profiler.profiler is not None
    assert profiler.profiler.kineto_results is not None
    # the raw events: profiler.events() takes a second for ten thousand of them
    events = profiler.profiler.kineto_results.events()
    on_device = (event for event in events if event.device_type() == DeviceType.CUDA)
    return [(event.start_ns(), event.start_ns() + event.duration_ns()) for event in on_device]


def smallest_call(device: str) -> Callable[[], Any]:
    """A call that launches one kernel on three numbers."""
    value = torch.zeros(3, device=device)
    return lambda: value + 1


def repeated(value: torch.Tensor, times: int) -> torch.Tensor:
    """The value, repeated along the first axis."""
    return value.repeat(times, *(1 for _ in value.shape[1:]))


def extremes(value: torch.Tensor, times: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Minimum and maximum over the copies that `repeated` made, element by element; NaN if one is."""
    parts = value.unflatten(0, (times, -1))
    return parts.amin(0), parts.amax(0)


def exponentials(value: torch.Tensor, rounds: int) -> torch.Tensor:
    """16 exponentials of each number in each round, by one kernel of a GPU; returns before they are computed.

    The size of value must be a multiple of 1024. Raises ImportError without Triton.
    """
    from torch_impl.kernels import triton_binding  # here: it imports Triton

    return triton_binding.exponentials(value, rounds)


def copy(value: torch.Tensor) -> torch.Tensor:
    """A copy of the value; returns before it is made."""
    return value.clone()
