"""The adapter: how JAX moves data, compiles, waits and reports. Tests and the benchmark speak to this, not to JAX.

What only accelerators need is in accelerator.py, what several processes need in process_group.py.
`torch_impl.backend` has the same names with the same meaning.
"""

import contextlib
import functools
import importlib
import importlib.metadata
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.monitoring
import jax.numpy as jnp
import numpy as np
from jax.experimental.compilation_cache import compilation_cache

import jax_impl
from jax_impl import sweeps
from jax_impl.accelerator import compile_kernels as compile_kernels
from jax_impl.accelerator import copy as copy
from jax_impl.accelerator import device_memory as device_memory
from jax_impl.accelerator import device_name
from jax_impl.accelerator import device_work as device_work
from jax_impl.accelerator import exponentials as exponentials
from jax_impl.accelerator import extremes as extremes
from jax_impl.accelerator import flush as flush
from jax_impl.accelerator import limit_memory as limit_memory
from jax_impl.accelerator import peak_bytes as peak_bytes
from jax_impl.accelerator import repeated as repeated
from jax_impl.accelerator import smallest_call as smallest_call
from jax_impl.alignment import ABSENT
from jax_impl.alignment import absent_on as absent_on
from jax_impl.kernels import triton_binding
from jax_impl.kernels.cpp_binding import register
from jax_impl.process_group import join as join
from shared.alignments import ALIGNMENTS
from shared.backends import (
    CompileTimes,
    build_kernels,
    module_of,
    split_options,
    union_length,
    with_gaps,
)
from shared.variants import PATH, Abilities, fastest_variant

NAME = "jax"
absent = ABSENT
# no variant has first derivatives only
first_order: dict[str, str] = {}
uncompiled_passes: dict[str, str] = {}
uncompiled_variants: dict[str, str] = {}  # every variant gains by jax.jit
slow_compiler: str | None = None


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
    # the first of this process: others have some too where several have joined
    return jax.device_put(array, jax.local_devices(backend=device)[0])


def to_numpy(value: Any) -> np.ndarray:
    """A result as a NumPy array."""
    return np.asarray(value)


@contextlib.contextmanager
def precision(dtype: str) -> Iterator[None]:
    """A context for every call in a dtype: JAX has float64 only in its 64-bit mode."""
    with jax.enable_x64(True) if dtype == "float64" else contextlib.nullcontext():
        yield


def function(problem: str, variant: str, options: dict[str, Any] | None = None) -> Callable[..., jax.Array]:
    """A problem's score by one variant: f(similarity, lengths=None, **parameters). options: such as `end`."""
    return functools.partial(getattr(jax_impl, problem), variant=variant, **(options or {}))


def pass_function(
    pass_name: str,
    score: Callable[..., jax.Array],
    compiled: bool,
    dynamic: bool = False,
    gaps: Sequence[str] = (),
) -> Callable[..., jax.Array]:
    """The function that a pass calls, compiled or not, with similarity, lengths and the parameters.

    "score" is the function itself, "marginals" is its marginals, and "hvp", which also takes weights after the
    lengths, is the gradient of sum(weights * marginals) with respect to the similarity; "path" is the matches of the
    best alignments. dynamic: nothing here, jax.jit compiles each shape by itself. gaps: given as arrays after all
    others.
    """
    call = {
        "score": score,
        "marginals": functools.partial(jax_impl.marginals, score),
        "hvp": functools.partial(_hvp, score),
        PATH: functools.partial(_matches, score),
    }[pass_name]
    call = with_gaps(call, gaps)
    return jax.jit(call) if compiled else call


def _matches(score: Any, similarity: Any, lengths: Any, temperature: Any = None, **parameters: Any) -> jax.Array:
    """score: as `function` gives it. temperature: ignored; only other passes need it."""
    options = {name: value for name, value in score.keywords.items() if name != "variant"}
    return jax_impl.best_alignment(score.func, similarity, lengths, **options, **parameters)[1]


def _hvp(score: Callable[..., Any], similarity: Any, lengths: Any, weights: Any, **parameters: Any) -> jax.Array:
    return jax_impl.hessian_vector_product(score, similarity, weights, lengths, **parameters)


def abilities(problem: str, device: str) -> Abilities:
    """The variants and passes of a problem that this framework has."""
    if problem not in ALIGNMENTS:
        return _module(problem).abilities(device)._replace(slow_compiler=slow_compiler)
    gone = absent_on(device)
    return Abilities(fastest_variant(gone), gone, first_order, uncompiled_passes, uncompiled_variants, slow_compiler)


def call_of(
    problem: str, variant: str, pass_name: str, options: dict[str, Any], *, compiled: bool, dynamic: bool = False
) -> Callable[..., jax.Array]:
    """The function that a case times; called with the arrays of its inputs and, by name, its parameters.

    dynamic: of an alignment, see `pass_function`.
    """
    if problem not in ALIGNMENTS:
        return _module(problem).call_of(variant, pass_name, options, compiled)
    scalar_options, names = split_options(problem, options)
    return pass_function(pass_name, function(problem, variant, scalar_options), compiled, dynamic, names)


def _module(problem: str) -> ModuleType:
    """The file of a problem that is no alignment, with its own `abilities` and `call_of`."""
    return importlib.import_module(f"jax_impl.{module_of(problem)}")


def wait(value: Any) -> Any:
    """Wait until the value has been computed, and return it."""
    return jax.block_until_ready(value)


def start_compiler(device: str) -> None:
    """Compile and run a trivial function, so that no case pays for the compiler's own start."""
    wait(smallest_call(device)())


def compiler_is_off() -> str | None:
    """The switch that disables jax.jit, such as a user's file may set, if it is on."""
    is_off = jax.config.jax_disable_jit  # pyright: ignore[reportAttributeAccessIssue]
    return "jax_disable_jit" if is_off else None


def settings() -> dict[str, Any]:
    """The settings of this process that a user's function may change, by name."""
    return jax.config.values


def build(problem: str, options: dict[str, Any], variant: str, pass_name: str, dtype: str, device: str) -> None:
    """Prepare a variant once per machine, not per shape: compile and cache its native code."""
    if variant == "fused" and device == "cpu":
        register(dtype)
        build_kernels(dtype, problem, options, pass_name)
    elif variant == "fused":  # Triton compiles what a GPU runs at its first call; this is what launches it
        triton_binding.register()


def forget_compiled() -> None:
    """Forget everything that was compiled in this process."""
    jax.clear_caches()
    sweeps.forget_compiled()
    triton_binding.forget_compiled()


@contextlib.contextmanager
def compiler_cache(folder: Path) -> Iterator[None]:
    """A context in which compiled code is cached in the folder, however small it is."""
    settings = {
        "jax_compilation_cache_dir": str(folder),
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    before = {name: getattr(jax.config, name) for name in settings}
    _configure(settings)
    try:
        yield
    finally:
        _configure(before)


def _configure(settings: dict[str, Any]) -> None:
    for name, value in settings.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()  # it remembers the folder that it was opened with


@contextlib.contextmanager
def compile_times() -> Iterator[CompileTimes]:
    """Seconds that go into tracing (to StableHLO) and compiling (by XLA) inside, and how often XLA compiles; known when
    it ends."""
    spans: dict[bool, list[tuple[float, float]]] = {True: [], False: []}

    def listen(event: str, duration_secs: float, **_: Any) -> None:
        if event.startswith("/jax/core/compile/"):
            end = time.perf_counter()
            spans[event.endswith("backend_compile_duration")].append((end - duration_secs, end))

    jax.monitoring.register_event_duration_secs_listener(listen)
    times = CompileTimes()
    try:
        yield times
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
        times.compiling = union_length(spans[True])
        times.tracing = union_length(spans[True] + spans[False]) - times.compiling
        times.compilations = len(spans[True])


def multiply() -> None:
    """Other work than a case's, on the CPU: a product of two matrices of 4 MiB."""
    wait(_product(*_factors()))


_product = jax.jit(jnp.matmul)


@functools.cache
def _factors() -> tuple[jax.Array, jax.Array]:
    first, second = np.random.default_rng(0).normal(size=(2, 1024, 1024)).astype(np.float32)
    return jnp.asarray(first), jnp.asarray(second)


def set_threads(threads: int) -> None:
    """JAX takes its thread count from the cores that the process may use."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether this error says that an accelerator's memory, or the part that may be used, was too small."""
    text = str(error).lower()
    return isinstance(error, jax.errors.JaxRuntimeError) and ("resource_exhausted" in text or "out of memory" in text)


def release(device: str) -> None:
    """Drop what calls keep to be faster the next time: nothing here."""


def environment(device: str) -> dict[str, Any]:
    """Versions, and the accelerator's name if one is used."""
    details: dict[str, Any] = {"jax": jax.__version__, "jaxlib": importlib.metadata.version("jaxlib")}
    if device != "cpu":
        details["gpu"] = device_name(device)
    return details
