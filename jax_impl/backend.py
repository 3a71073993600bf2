"""The adapter: how JAX moves data, compiles, waits and reports. Tests and the benchmark speak to this, not to JAX.

`torch_impl.backend` has the same names with the same meaning.
"""

import contextlib
import functools
import importlib.metadata
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

import jax_impl
from jax_impl import sweeps
from jax_impl.alignment import ABSENT, align
from jax_impl.kernels.calls import register
from shared.alignments import ALIGNMENTS
from shared.variants import keyword_defaults

NAME = "jax"
TITLE = "JAX"
absent = ABSENT
# every variant is right to every order, compiled or not
first_order: dict[str, str] = {}
uncompiled: dict[str, str] = {}
# every variant gains by jax.jit
ready: tuple[str, ...] = ()


def device_problem(device: str) -> str | None:
    """None if this framework can use the device ("cpu" or "cuda"); else why not and what to install."""
    try:
        jax.devices(device)
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        return (
            f"JAX {jax.__version__} sees no {device} device ({reason}); "
            "install jax[cuda13] on a machine with an NVIDIA driver"
        )
    return None


def to_device(array: np.ndarray, device: str) -> jax.Array:
    """A NumPy array as an array on the device; float64 stays float64 only inside `precision("float64")`."""
    return jax.device_put(array, jax.devices(device)[0])


def to_numpy(value: Any) -> np.ndarray:
    """A result as a NumPy array."""
    return np.asarray(value)


@contextlib.contextmanager
def precision(dtype: str) -> Iterator[None]:
    """What a dtype needs around every call: JAX knows float64 only in its 64-bit mode."""
    with jax.enable_x64(True) if dtype == "float64" else contextlib.nullcontext():
        yield


def function(
    problem: str, variant: str, options: dict[str, Any] | None = None, unroll: int | None = None
) -> Callable[..., jax.Array]:
    """A problem's score by one variant: f(similarity, lengths=None, **parameters). options: such as `end`."""
    public = getattr(jax_impl, problem)
    if unroll is None:
        return functools.partial(public, variant=variant, **(options or {}))
    defaults, names = keyword_defaults(public), tuple(ALIGNMENTS[problem].options)

    def unrolled(similarity: Any, lengths: Any = None, **parameters: Any) -> jax.Array:
        given = {**defaults, **(options or {}), **parameters}
        chosen = {name: given.pop(name) for name in names}
        return align(problem, similarity, lengths, given, chosen, variant, unroll)

    return unrolled


def pass_function(pass_name: str, score: Callable[..., jax.Array], compiled: bool) -> Callable[..., jax.Array]:
    """What a pass asks of a score function, compiled or not; called with similarity, lengths and the parameters.

    "score" is the function itself, "marginals" is its marginals, and "hvp", which also takes weights after the
    lengths, is the gradient of sum(weights * marginals) for the similarity.
    """
    asked = {
        "score": score,
        "marginals": functools.partial(jax_impl.marginals, score),
        "hvp": functools.partial(_hvp, score),
    }[pass_name]
    return jax.jit(asked) if compiled else asked


def _hvp(score: Callable[..., Any], similarity: Any, lengths: Any, weights: Any, **parameters: Any) -> jax.Array:
    def loss(matrix: Any) -> jax.Array:
        return (weights * jax_impl.marginals(score, matrix, lengths, **parameters)).sum()

    return jax.grad(loss)(similarity)


def wait(value: Any) -> Any:
    """Return when the value has been computed."""
    return jax.block_until_ready(value)


def start_compiler(device: str) -> None:
    """Compile and run a trivial function, so that no case pays for the compiler's own start."""
    wait(jax.jit(lambda x: x + 1)(to_device(np.zeros(3, np.float32), device)))


def build(variant: str, dtype: str) -> None:
    """Do what a variant needs once for a machine, not for each shape: the native kernels are compiled and kept."""
    if variant == "fused":
        register(dtype)


@contextlib.contextmanager
def empty_caches() -> Iterator[None]:
    """Inside, nothing is known that was compiled before; on disk JAX keeps nothing unless it is asked to."""
    jax.clear_caches()
    sweeps.forget_compiled()
    yield


def set_threads(threads: int) -> int:
    """JAX takes its thread count from the cores that the process may use; returns the count it was given."""
    return threads


def peak_bytes(device: str) -> int | None:
    """Peak of device memory in use so far, by the framework's own counter; None on a CPU."""
    if device == "cpu":
        return None
    statistics = jax.devices(device)[0].memory_stats() or {}
    return statistics.get("peak_bytes_in_use")


def environment(device: str) -> dict[str, Any]:
    """Versions, and the accelerator's name if one is used."""
    details: dict[str, Any] = {"jax": jax.__version__, "jaxlib": importlib.metadata.version("jaxlib")}
    if device != "cpu":
        details["gpu"] = jax.devices(device)[0].device_kind
    return details
