"""The adapter: how PyTorch moves data, compiles, waits and reports. Tests and the benchmark speak to this.

What only accelerators need is in accelerator.py, what several processes need in process_group.py.
`jax_impl.backend` has the same names with the same meaning.
"""

import contextlib
import functools
import importlib
import operator
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
import torch._dynamo
import torch._dynamo.utils
import torch._inductor.config

import torch_impl
from shared.alignments import ALIGNMENTS
from shared.backends import (
    CompileTimes,
    build_kernels,
    environment_of,
    module_of,
    split_options,
    with_gaps,
)
from shared.kernels.cpp.build import Absent, check_compiler
from shared.variants import PATH, Abilities, fastest_variant
from torch_impl import cuda_graph, sweeps
from torch_impl.accelerator import compile_kernels as compile_kernels
from torch_impl.accelerator import copy as copy
from torch_impl.accelerator import device_memory as device_memory
from torch_impl.accelerator import device_name
from torch_impl.accelerator import device_work as device_work
from torch_impl.accelerator import exponentials as exponentials
from torch_impl.accelerator import extremes as extremes
from torch_impl.accelerator import flush as flush
from torch_impl.accelerator import limit_memory as limit_memory
from torch_impl.accelerator import peak_bytes as peak_bytes
from torch_impl.accelerator import repeated as repeated
from torch_impl.accelerator import smallest_call as smallest_call
from torch_impl.alignment import ABSENT
from torch_impl.alignment import absent_on as absent_on
from torch_impl.compiler import compiled as compile_function
from torch_impl.kernels.fused import TRITON_BINDING
from torch_impl.process_group import join as join

NAME = "torch"
absent = ABSENT
first_order: dict[str, str] = dict.fromkeys(sweeps.SCANNING, "PyTorch's scan operator has wrong second derivatives")
uncompiled_passes = {"hvp": "a call compiled by torch.compile is differentiable once"}
uncompiled_variants: dict[str, str] = dict.fromkeys(
    ("wavefront", "cuda_graph", "fused"), "it is one operator already, around which torch.compile has nothing to fuse"
)
_SETTINGS = (
    torch.get_default_dtype,
    torch.get_default_device,
    torch.get_float32_matmul_precision,
    torch.get_num_threads,
    torch.is_grad_enabled,
    torch.is_inference_mode_enabled,
    torch.is_anomaly_enabled,
    torch.are_deterministic_algorithms_enabled,
)
_SWITCHES = ("mkldnn.enabled", "cudnn.enabled", "cudnn.benchmark", "cudnn.deterministic")  # of torch.backends
slow_compiler = "torch.compile takes too long for --quick: its start alone may take 20 s"


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
    """The context that calls in this dtype need: none."""
    yield


def function(problem: str, variant: str, options: dict[str, Any] | None = None) -> Callable[..., torch.Tensor]:
    """A problem's score by one variant: f(similarity, lengths=None, **parameters). options: such as `end`."""
    return functools.partial(getattr(torch_impl, problem), variant=variant, **(options or {}))


def pass_function(
    pass_name: str,
    score: Callable[..., torch.Tensor],
    compiled: bool,
    dynamic: bool = False,
    gaps: Sequence[str] = (),
) -> Callable[..., torch.Tensor]:
    """The function that a pass calls, with similarity, lengths and the parameters.

    "score" is the function itself, "marginals" is its marginals, and "hvp", which also takes weights after the
    lengths, is the gradient of sum(weights * marginals) with respect to the similarity; "path", never compiled, is the
    matches of the best alignments. compiled: torch.compile does not trace torch.autograd.grad: it compiles the score,
    and with it the backward that the marginals then run. dynamic: torch.compile's own default: when a size changes, it
    compiles once more, then for any size. gaps: given as arrays after all others.
    """
    function = compile_function(score, dynamic=None if dynamic else False) if compiled else score
    call = {
        "score": function,
        "marginals": functools.partial(torch_impl.marginals, function),
        "hvp": functools.partial(_hvp, function),
        PATH: functools.partial(_matches, score),
    }[pass_name]
    return with_gaps(call, gaps)


def _matches(score: Any, similarity: Any, lengths: Any, temperature: Any = None, **parameters: Any) -> torch.Tensor:
    """score: as `function` gives it. temperature: ignored; only other passes need it."""
    options = {name: value for name, value in score.keywords.items() if name != "variant"}
    return torch_impl.best_alignment(score.func, similarity, lengths, **options, **parameters)[1]


def _hvp(score: Callable[..., Any], similarity: Any, lengths: Any, weights: Any, **parameters: Any) -> torch.Tensor:
    return torch_impl.hessian_vector_product(score, similarity, weights, lengths, **parameters)


def abilities(problem: str, device: str) -> Abilities:
    """The variants and passes of a problem that this framework has."""
    if problem not in ALIGNMENTS:
        return _module(problem).abilities(device)._replace(slow_compiler=slow_compiler)
    gone = absent_on(device)
    uncompiled = dict(uncompiled_passes)
    if device == "cpu" and (reason := _why_no_compiler()):
        uncompiled |= dict.fromkeys(("score", "marginals"), f"torch.compile needs a C++ compiler: {reason}")
    return Abilities(fastest_variant(gone), gone, first_order, uncompiled, uncompiled_variants, slow_compiler)


def _why_no_compiler() -> str | None:
    """Why no C++ compiler works here, if none does."""
    try:
        check_compiler()
    except Absent as error:
        return str(error)
    return None


def call_of(
    problem: str, variant: str, pass_name: str, options: dict[str, Any], *, compiled: bool, dynamic: bool = False
) -> Callable[..., torch.Tensor]:
    """The function that a case times; called with the arrays of its inputs and, by name, its parameters.

    dynamic: of an alignment, see `pass_function`.
    """
    if problem not in ALIGNMENTS:
        return _module(problem).call_of(variant, pass_name, options, compiled)
    scalar_options, names = split_options(problem, options)
    return pass_function(pass_name, function(problem, variant, scalar_options), compiled, dynamic, names)


def _module(problem: str) -> ModuleType:
    """The file of a problem that is no alignment, with its own `abilities` and `call_of`."""
    return importlib.import_module(f"torch_impl.{module_of(problem)}")


def wait(value: Any) -> Any:
    """Wait until the value has been computed, and return it."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
    return value


def start_compiler(device: str) -> None:
    """Compile and run a trivial function with its backward, so that no case pays for the compiler's own start."""
    x = torch.zeros(3, device=device, requires_grad=True)
    wait(torch.autograd.grad(compile_function(lambda x: (x + 1).sum())(x), x))


def compiler_is_off() -> str | None:
    """The name of the setting by which a user's file has turned torch.compile off; None if it is not off."""
    if torch._dynamo.config.disable:
        return "torch._dynamo.config.disable"
    return "torch.compiler.set_stance('force_eager')" if _stance() == "force_eager" else None


def _stance() -> str:
    return torch._dynamo.eval_frame._stance.stance  # PyTorch has no public way to ask


def settings() -> dict[str, Any]:
    """The settings of this process that a user's function may change, by name."""
    values: dict[str, Any] = {f"torch.{setting.__name__}()": setting() for setting in _SETTINGS}
    values |= {f"torch.backends.{name}": operator.attrgetter(name)(torch.backends) for name in _SWITCHES}
    values["torch.compiler.set_stance()"] = _stance()
    values["torch.set_flush_denormal()"] = sys.float_info.min / 2 == 0.0  # PyTorch does not tell
    for config in (torch._dynamo.config, torch._inductor.config):
        values |= {f"{config.__name__}.{name}": value for name, value in config.get_config_copy().items()}
    return values


def build(problem: str, options: dict[str, Any], variant: str, pass_name: str, dtype: str, device: str) -> None:
    """Prepare a variant once per machine, not per shape: compile and cache the native kernels."""
    if variant == "fused" and device == "cpu":  # Triton compiles what a GPU runs at its first call
        build_kernels(dtype, problem, options, pass_name)


def forget_compiled() -> None:
    """Forget what PyTorch and Triton have compiled in this process."""
    from torch._inductor.utils import clear_caches  # here: it takes a second to import

    torch._dynamo.reset()
    clear_caches()
    sweeps.forget_compiled()
    cuda_graph.forget()
    if TRITON_BINDING in sys.modules:
        sys.modules[TRITON_BINDING].forget_compiled()


@contextlib.contextmanager
def compiler_cache(folder: Path) -> Iterator[None]:
    """A context in which compiled code is cached in the folder."""
    # the compilers read them each time
    settings = {"TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"), "TRITON_CACHE_DIR": str(folder / "triton")}
    with environment_of(**settings):
        yield


@contextlib.contextmanager
def compile_times() -> Iterator[CompileTimes]:
    """Seconds that go into tracing (Dynamo) and compiling (AOTAutograd and inductor) inside, and how many
    graphs Dynamo gives them to compile; known when the context ends."""
    before, graphs = _compiler_totals(), _compiled_graphs()
    times = CompileTimes()
    try:
        yield times
    finally:
        after = _compiler_totals()
        frame, backend, backward = (
            after.get(name, 0.0) - before.get(name, 0.0)
            for name in ("entire_frame_compile", "backend_compile", "entire_backward_compile")
        )
        # the frame's time includes the forward's backend; the backward, traced with it, is compiled later, on top of it
        times.tracing, times.compiling = frame - backend, backend + backward
        times.compilations = _compiled_graphs() - graphs


def _compiler_totals() -> dict[str, float]:
    return torch._dynamo.utils.calculate_time_spent()


def _compiled_graphs() -> int:
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]


def multiply() -> None:
    """Other work than a case's, on the CPU: a product of two matrices of 4 MiB."""
    torch.mm(*_factors())


@functools.cache
def _factors() -> tuple[torch.Tensor, torch.Tensor]:
    first, second = torch.randn((2, 1024, 1024), generator=torch.Generator().manual_seed(0))
    return first, second


def set_threads(threads: int) -> None:
    """Use this many threads."""
    torch.set_num_threads(threads)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether this error says that an accelerator's memory, or the part that may be used, was too small."""
    return cuda_graph.is_out_of_memory(error)


def release(device: str) -> None:
    """Drop what calls keep to be faster the next time: CUDA graphs, each with a whole call's memory."""
    if device != "cpu":
        cuda_graph.forget()


def environment(device: str) -> dict[str, Any]:
    """Versions, and the accelerator's name if one is used."""
    details: dict[str, Any] = {"torch": torch.__version__}
    if device != "cpu":
        details |= {"gpu": device_name(device), "cuda": torch.version.cuda}
    return details
