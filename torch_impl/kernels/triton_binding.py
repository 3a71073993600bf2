"""The Triton kernels as operators of PyTorch: score, gradients, tangents, product and best; without derivatives.

They take and return the same tensors as those of `cpp_binding`. torch.compile sees the kernels that an operator
launches. Triton's interpreter, where it is on, runs them on CPU tensors.
"""

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
import triton
from torch.library import triton_op, wrap_triton

from shared.kernels.cpp import Call
from shared.kernels.triton.kernels import KERNELS
from shared.kernels.triton.programs import (
    EXPONENTIALS_IN_A_ROUND,
    TYPES,
    Launch,
    Layout,
    Program,
    best_program,
    block_launches,
    exponentials_program,
    gaps_of,
    gradients_program,
    layout_of,
    product_program,
    score_program,
    tangents_program,
)
from torch_impl.derivatives import Derivatives, register_vmap
from torch_impl.kernels import without_gradient
from torch_impl.kernels.cpp_binding import DTYPE_NAMES

Tensor = torch.Tensor

# overrides the choice of the layout, for tests
forced_layout: Layout | None = None


@triton_op("smooth_alignment::triton_score", mutates_args=())
def score(similarity: Tensor, lengths: Tensor, values: Tensor, gaps: list[Tensor], kind: int, options: int) -> Tensor:
    """Scores (batch,)."""
    inputs = _inputs(similarity, lengths, values, gaps, options)
    program = _program(score_program, Call(kind, options), inputs)
    return _run(program, inputs)["scores"]


@triton_op("smooth_alignment::triton_gradients", mutates_args=())
def gradients(
    similarity: Tensor,
    lengths: Tensor,
    values: Tensor,
    gaps: list[Tensor],
    kind: int,
    options: int,
    with_values: bool,
) -> tuple[Tensor, Tensor, Tensor, list[Tensor]]:
    """Scores, and their gradients with respect to similarity, values and gaps.

    Unless with_values, 0 for the values and none for the gaps.
    """
    inputs = _inputs(similarity, lengths, values, gaps, options)
    program = _program(gradients_program, Call(kind, options), inputs, with_values)
    return _derivatives(_run(program, inputs))


@triton_op("smooth_alignment::triton_tangents", mutates_args=())
def tangents(
    similarity: Tensor,
    lengths: Tensor,
    values: Tensor,
    gaps: list[Tensor],
    t_similarity: Tensor,
    t_values: Tensor,
    t_gaps: list[Tensor],
    kind: int,
    options: int,
) -> tuple[Tensor, Tensor, Tensor, list[Tensor]]:
    """The tangents of all results of gradients, in the direction (t_similarity, t_values, t_gaps)."""
    inputs = _inputs(similarity, lengths, values, gaps, options)
    inputs |= {"t_similarity": _rows(t_similarity), "t_values": t_values.contiguous()}
    inputs |= _matrices(t_gaps, options, "t_")
    program = _program(tangents_program, Call(kind, options), inputs)
    return _derivatives(_run(program, inputs))


@triton_op("smooth_alignment::triton_product", mutates_args=())
def product(
    similarity: Tensor,
    lengths: Tensor,
    values: Tensor,
    gaps: list[Tensor],
    t_similarity: Tensor,
    kind: int,
    options: int,
) -> Tensor:
    """The tangents of the gradients with respect to similarity, in a direction that is 0 for values and gaps."""
    inputs = _inputs(similarity, lengths, values, gaps, options)
    inputs |= {"t_similarity": _rows(t_similarity), "t_values": torch.zeros_like(inputs["values"])}
    program = _program(product_program, Call(kind, options), inputs)
    return _run(program, inputs)["d_similarity"]


@triton_op("smooth_alignment::triton_best", mutates_args=())
def best(
    similarity: Tensor, lengths: Tensor, values: Tensor, gaps: list[Tensor], kind: int, options: int
) -> tuple[Tensor, Tensor]:
    """The scores (batch,) of the best alignments, and their matches (batch, rows, cols), boolean."""
    inputs = _inputs(similarity, lengths, values, gaps, options)
    program = _program(best_program, Call(kind, options), inputs)
    results = _run(program, inputs)
    matches = results["matches"]
    is_traced = type(matches) is not torch.Tensor  # the compiler of PyTorch 2.11 cannot view bytes as booleans
    return results["scores"], matches != 0 if is_traced else matches.view(torch.bool)


def flags(
    similarity: Tensor, lengths: Tensor, values: Tensor, gaps: list[Tensor], kind: int, options: int, gradients: bool
) -> Tensor:
    """Boolean mask (batch,) of the pairs left to the exact kernels by gradients or, if not `gradients`, by scores."""
    inputs = _inputs(similarity, lengths, values, gaps, options)
    of_gradients = (gradients_program, Call(kind, options), inputs, False)
    program = _program(*of_gradients) if gradients else _program(score_program, Call(kind, options), inputs)
    flags_found = _run(block_launches(program), inputs).get("flags")
    return similarity.new_ones(len(similarity), dtype=torch.bool) if flags_found is None else flags_found != 0


def forget_compiled() -> None:
    """Forget what was compiled in this process; it is then recompiled, or loaded from disk."""
    for kernel in KERNELS.values():
        getattr(kernel, "device_caches", {}).clear()  # the interpreter has none


def exponentials(values: Tensor, rounds: int, each: int = EXPONENTIALS_IN_A_ROUND) -> Tensor:
    """values after x -> 2^-x, `each` times per round. Their number must be a multiple of 1024."""
    program = exponentials_program(DTYPE_NAMES[values.dtype], len(values), rounds, each)
    buffers = {"values": values, "results": torch.empty_like(values)}
    (launch,) = program.launches
    with _on(values):
        _launch(launch, buffers)
    return buffers["results"]


def _inputs(
    similarity: Tensor, lengths: Tensor, values: Tensor, gaps: Sequence[Tensor], options: int
) -> dict[str, Tensor]:
    inputs = {"similarity": _rows(similarity), "lengths": lengths.contiguous(), "values": values.contiguous()}
    return inputs | _matrices(gaps, options, "")


def _matrices(gaps: Sequence[Tensor], options: int, prefix: str) -> dict[str, Tensor]:
    """The matrices of gaps by position, or of their directions, of which there are all or none."""
    names = gaps_of(options, prefix) if gaps else ()
    return {name: gap.contiguous() for name, gap in zip(names, gaps, strict=True)}


def _rows(matrices: Tensor) -> Tensor:
    """Make each row contiguous; from row to row and pair to pair there may be any stride."""
    return matrices if matrices.stride(2) == 1 else matrices.contiguous()


def _described(inputs: dict[str, Tensor]) -> tuple[str, tuple[Any, ...], tuple[Any, ...], bool]:
    """Type, shape, strides, and whether there are lengths."""
    matrices = [inputs[name] for name in ("similarity", "t_similarity") if name in inputs]
    strides = tuple(stride for matrix in matrices for stride in matrix.stride()[:2])
    similarity = matrices[0]
    return DTYPE_NAMES[similarity.dtype], tuple(similarity.shape), strides, inputs["lengths"].shape[0] > 0


def _program(make: Callable[..., Program], call: Call, inputs: dict[str, Tensor], *options: bool) -> Program:
    """Cached for each shape: making one takes as long as a launch."""
    dtype, shape, strides, has_lengths = _described(inputs)
    description = call, dtype, shape, strides, has_lengths, _layout(*shape[:2]), *options
    if any(isinstance(size, torch.SymInt) for size in (*shape, *strides)):  # which have no hash
        return make(*description)
    return _kept(make, *description)


@functools.lru_cache(maxsize=256)
def _kept(make: Callable[..., Program], *description: Any) -> Program:
    return make(*description)


def _layout(pairs: Any, rows: Any) -> Layout:
    return forced_layout or layout_of(pairs, rows)


def _run(program: Program, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """The results and intermediate buffers, by name."""
    like = inputs["similarity"]
    types = {name: getattr(torch, type_name) for name, type_name in TYPES.items()}
    outputs = (program.results | program.scratch).items()
    buffers = inputs | {name: like.new_empty(shape, dtype=types.get(name)) for name, shape in outputs}
    if like.shape[0]:
        with _on(like):
            for launch in program.launches:
                _launch(launch, buffers, wrap_triton)
    return buffers


def _on(like: Tensor) -> Any:
    """A context in which Triton launches on the tensors' device."""
    return torch.cuda.device(like.device) if like.is_cuda else contextlib.nullcontext()


def _launch(launch: Launch, buffers: dict[str, Tensor], wrap: Callable[[Any], Any] = lambda kernel: kernel) -> None:
    arguments = [buffers[argument] if isinstance(argument, str) else argument for argument in launch.arguments]
    count = len(arguments) - len(launch.keywords)
    by_keyword = dict(zip(launch.keywords, arguments[count:], strict=True))
    kernel, options = KERNELS[launch.kernel.name], {"num_warps": launch.kernel.warps}
    if launch.kernel.registers and isinstance(kernel, triton.JITFunction):  # the interpreter has no registers
        kernel, options = _limited(kernel, launch.kernel.warps, launch.kernel.registers), {}
    wrap(kernel)[(launch.grid,)](*arguments[:count], **by_keyword, **dict(launch.kernel.constants), **options)


@functools.cache
def _limited(kernel: triton.JITFunction, warps: int, registers: int) -> Any:
    """The kernel with a register limit, as an autotuner of one configuration: PyTorch's compiler takes no other form.

    The compiler's code generation then ignores the limit: the numbers are the same, in more registers.
    """
    return triton.autotune([triton.Config({}, num_warps=warps, maxnreg=registers)], key=[])(kernel)


def _derivatives(results: dict[str, Tensor]) -> Derivatives:
    gaps = [results[name] for name in ("d_gap_open", "d_gap_extend") if name in results]
    return results["scores"], results["d_similarity"], results["d_values"], gaps


for _operator in (score, gradients, tangents, product, best):
    register_vmap(_operator)
without_gradient.register(best)
