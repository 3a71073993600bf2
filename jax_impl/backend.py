"""The adapter: how JAX moves data, compiles, waits and reports. Tests and the benchmark speak to this, not to JAX.

`torch_impl.backend` has the same names with the same meaning.
"""

import collections
import contextlib
import functools
import importlib
import importlib.metadata
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.monitoring
import jax.numpy as jnp
import jax.profiler
import numpy as np
from jax._src import distributed  # nothing public has its store
from jax.experimental.compilation_cache import compilation_cache

import jax_impl
from jax_impl import sweeps
from jax_impl.alignment import ABSENT
from jax_impl.alignment import absent_on as absent_on
from jax_impl.kernels import triton_binding
from jax_impl.kernels.cpp_binding import register
from shared.alignments import ALIGNMENTS
from shared.backends import (
    FLUSH_BYTES,
    CompileTimes,
    build_kernels,
    environment_of,
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
    return jax.device_put(array, _own(device))


def _own(device: str) -> Any:
    """The first device of this process: other processes have some too where several have joined."""
    return jax.local_devices(backend=device)[0]


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
    asked = {
        "score": score,
        "marginals": functools.partial(jax_impl.marginals, score),
        "hvp": functools.partial(_hvp, score),
        PATH: functools.partial(_matches, score),
    }[pass_name]
    asked = with_gaps(asked, gaps)
    return jax.jit(asked) if compiled else asked


def _matches(score: Any, similarity: Any, lengths: Any, temperature: Any = None, **parameters: Any) -> jax.Array:
    """score: as `function` gives it. temperature: of other passes."""
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
    own, names = split_options(problem, options)
    return pass_function(pass_name, function(problem, variant, own), compiled, dynamic, names)


def _module(problem: str) -> ModuleType:
    """The file of a problem that is no alignment, with its own `abilities` and `call_of`."""
    return importlib.import_module(f"jax_impl.{module_of(problem)}")


def wait(value: Any) -> Any:
    """Wait until the value has been computed, and return it."""
    return jax.block_until_ready(value)


def start_compiler(device: str) -> None:
    """Compile and run a trivial function, so that no case pays for the compiler's own start."""
    wait(jax.jit(lambda x: x + 1)(to_device(np.zeros(3, np.float32), device)))


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
        with environment_of(TRITON_CACHE_DIR=str(folder / "triton")):
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


def join(index: int, count: int, address: str, name: str, seconds: float) -> None:
    """Be process `index` of `count` that compute together; returns when all of them are there.

    address: HOST:PORT, where process 0 keeps what `put` says. name: of this meeting, one of several at an address: each
    has a store of its own anyway. seconds: how long to wait for the others. Call before anything is computed.
    """
    limit = round(seconds)
    jax.distributed.initialize(
        address, count, index, cluster_detection_method="deactivate", initialization_timeout=limit
    )
    jax.devices()  # which all processes find out together


def leave() -> None:
    """End what `join` began."""
    jax.distributed.shutdown()


def _store() -> Any:
    return distributed.global_state.client


def put(key: str, text: str) -> None:
    """Say something to the processes that have joined."""
    _store().key_value_set(key, text, allow_overwrite=True)


def get(key: str, seconds: float) -> str | None:
    """What a process has said, or will say within these seconds; None if it does not."""
    try:
        return _store().blocking_key_value_get(key, round(1000 * seconds))
    except jax.errors.JaxRuntimeError as error:
        if "DEADLINE_EXCEEDED" not in str(error):
            raise
        return None


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


def device_memory(device: str) -> int:
    """Bytes of memory that an accelerator has for all its processes."""
    return round(_own(device).memory_stats()["bytes_limit"] / float(os.environ["XLA_CLIENT_MEM_FRACTION"]))


def limit_memory(device: str, share: float) -> None:
    """Limit the use of an accelerator's memory to this fraction, without preallocation. Call before JAX initializes."""
    if device != "cpu":
        os.environ.pop("XLA_PYTHON_CLIENT_MEM_FRACTION", None)  # the same by its old name
        os.environ |= {"XLA_CLIENT_MEM_FRACTION": f"{share:.6f}", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}


def is_out_of_memory(error: BaseException) -> bool:
    """Whether this error says that an accelerator's memory, or the part that may be used, was too small."""
    text = str(error).lower()
    return isinstance(error, jax.errors.JaxRuntimeError) and ("resource_exhausted" in text or "out of memory" in text)


def release(device: str) -> None:
    """Drop what calls keep to be faster the next time: nothing here."""


def flush(device: str) -> None:
    """Overwrite an accelerator's caches; does nothing on a CPU."""
    if device != "cpu":
        wait(jnp.zeros(FLUSH_BYTES, jnp.uint8, device=_own(device)))


def device_seconds(launch: Callable[[], Any], device: str) -> float | None:
    """Seconds that one call keeps an accelerator busy, from its first to its last kernel, by its clock; None on a CPU.

    launch: the call, which need not wait for its result. The device is kept busy until its work is queued, so
    that the host's time between two launches does not count. Read from the profiler: JAX has no events.
    """
    if device == "cpu":
        return None
    before = collections.Counter(_head_start_kernels(device))
    own = []
    for name, start, end in _profiled(lambda: (_head_start(device), launch())):
        if before[name] > 0:
            before[name] -= 1
        else:
            own.append((start, end))
    return (max(end for _, end in own) - min(start for start, _ in own)) / 1e9 if own else None


def _head_start(device: str) -> Any:
    """Keep an accelerator busy for some milliseconds: what is launched meanwhile waits in its queue."""
    product, factor = _large_product(device)
    return [product(factor, factor) for _ in range(8)]


@functools.cache
def _large_product(device: str) -> tuple[Callable[..., jax.Array], jax.Array]:
    """Compiled for good: `forget_compiled` spares it, so that nothing is compiled while the profiler looks on."""
    factor = to_device(np.ones((2048, 2048), np.float32), device)
    return _product.lower(factor, factor).compile(), factor


@functools.cache
def _head_start_kernels(device: str) -> list[str]:
    wait(_head_start(device))  # loaded
    return [name for name, _, _ in _profiled(lambda: _head_start(device))]


def _profiled(launch: Callable[[], Any]) -> list[tuple[str, float, float]]:
    """What an accelerator does for a call, in the order of time: kernels and copies, each with start and end in ns."""
    with tempfile.TemporaryDirectory(prefix="compare-") as name:
        options = jax.profiler.ProfileOptions()
        options.python_tracer_level = 0  # trace the device alone: tracing Python would slow it down
        with jax.profiler.trace(name, profiler_options=options):
            wait(launch())
        events = [
            (event.name, event.start_ns, event.start_ns + event.duration_ns)
            for path in Path(name).rglob("*.xplane.pb")
            for plane in jax.profiler.ProfileData.from_file(str(path)).planes
            if plane.name.startswith("/device:GPU")
            for line in plane.lines
            if line.name.startswith("Stream")
            for event in line.events
        ]
    return sorted(events, key=lambda event: event[1])


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


def environment(device: str) -> dict[str, Any]:
    """Versions, and the accelerator's name if one is used."""
    details: dict[str, Any] = {"jax": jax.__version__, "jaxlib": importlib.metadata.version("jaxlib")}
    if device != "cpu":
        details["gpu"] = _own(device).device_kind
    flags = os.environ.get("XLA_FLAGS")
    return details | ({"XLA_FLAGS": flags} if flags else {})
