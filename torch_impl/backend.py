"""The adapter: how PyTorch moves data, compiles, waits and reports. Tests and the benchmark speak to this.

`jax_impl.backend` has the same names with the same meaning.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
import torch._dynamo

import torch_impl
from shared import native
from shared.alignments import ALIGNMENTS
from shared.variants import keyword_defaults
from torch_impl import sweeps
from torch_impl.alignment import ABSENT, align
from torch_impl.compiler import compiled as compile_function

NAME = "torch"
TITLE = "PyTorch"
absent = ABSENT
first_order = dict.fromkeys(sweeps.SCANNING, "PyTorch's scan operator has wrong second derivatives")
uncompiled = {"hvp": "torch.compile has no second derivatives"}
# these have no use for torch.compile around them: what they do is one operator
ready: tuple[str, ...] = ("wavefront", "fused")


def device_problem(device: str) -> str | None:
    """None if this framework can use the device ("cpu" or "cuda"); else why not and what to install."""
    if device == "cpu" or torch.cuda.is_available():
        return None
    built = f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "a build without CUDA"
    return (
        f"PyTorch {torch.__version__} sees no {device} device ({built}); "
        "install a CUDA build of torch on a machine with an NVIDIA driver"
    )


def to_device(array: np.ndarray, device: str) -> torch.Tensor:
    """A NumPy array as a tensor on the device."""
    return torch.from_numpy(np.require(array, requirements=["C", "W"])).to(device)


def to_numpy(value: Any) -> np.ndarray:
    """A result as a NumPy array."""
    return value.detach().cpu().numpy()


@contextlib.contextmanager
def precision(dtype: str) -> Iterator[None]:
    """What a dtype needs around every call: nothing here."""
    yield


def function(
    problem: str, variant: str, options: dict[str, Any] | None = None, unroll: int | None = None
) -> Callable[..., torch.Tensor]:
    """A problem's score by one variant: f(similarity, lengths=None, **parameters). options: such as `end`."""
    public = getattr(torch_impl, problem)
    if unroll is None:
        return functools.partial(public, variant=variant, **(options or {}))
    defaults, names = keyword_defaults(public), tuple(ALIGNMENTS[problem].options)

    def unrolled(similarity: Any, lengths: Any = None, **parameters: Any) -> torch.Tensor:
        given = {**defaults, **(options or {}), **parameters}
        chosen = {name: given.pop(name) for name in names}
        return align(problem, similarity, lengths, given, chosen, variant, unroll)

    return unrolled


def pass_function(pass_name: str, score: Callable[..., torch.Tensor], compiled: bool) -> Callable[..., torch.Tensor]:
    """What a pass asks of a score function, compiled or not; called with similarity, lengths and the parameters.

    "score" is the function itself, "marginals" is its marginals, and "hvp", which also takes weights after the
    lengths, is the gradient of sum(weights * marginals) for the similarity. The compiler does not trace through
    autograd's call: it compiles the score, and with it the backward that the marginals then run.
    """
    score = compile_function(score) if compiled else score
    return {
        "score": score,
        "marginals": functools.partial(torch_impl.marginals, score),
        "hvp": functools.partial(_hvp, score),
    }[pass_name]


def _hvp(score: Callable[..., Any], similarity: Any, lengths: Any, weights: Any, **parameters: Any) -> torch.Tensor:
    matrix = similarity.detach().requires_grad_()
    expected = torch_impl.marginals(score, matrix, lengths, **parameters)
    return torch.autograd.grad(expected, matrix, weights)[0]


def wait(value: Any) -> Any:
    """Return when the value has been computed."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
    return value


def start_compiler(device: str) -> None:
    """Compile and run a trivial function with its backward, so that no case pays for the compiler's own start."""
    x = torch.zeros(3, device=device, requires_grad=True)
    wait(torch.autograd.grad(compile_function(lambda x: (x + 1).sum())(x), x))


def build(variant: str, dtype: str) -> None:
    """Do what a variant needs once for a machine, not for each shape: the native kernels are compiled and kept."""
    if variant == "fused":
        native.kernel(dtype)


@contextlib.contextmanager
def empty_caches() -> Iterator[None]:
    """Inside, nothing is known that was compiled before, neither in this process nor on disk."""
    from torch._inductor.utils import fresh_cache  # here: it takes a second to import

    torch._dynamo.reset()
    sweeps.forget_compiled()
    with fresh_cache():
        yield


def set_threads(threads: int) -> int:
    """Use this many threads; returns the count in force."""
    torch.set_num_threads(threads)
    return torch.get_num_threads()


def peak_bytes(device: str) -> int | None:
    """Peak of device memory in use so far, by the framework's own counter; None on a CPU."""
    return torch.cuda.max_memory_allocated() if device == "cuda" else None


def environment(device: str) -> dict[str, Any]:
    """Versions, and the accelerator's name if one is used."""
    details: dict[str, Any] = {"torch": torch.__version__}
    if device != "cpu":
        details |= {"gpu": torch.cuda.get_device_name(), "cuda": torch.version.cuda}
    return details
