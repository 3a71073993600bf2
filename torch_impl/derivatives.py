"""Derivatives of an engine's scores, under autograd, torch.func and torch.compile.

An engine has three operators on plain tensors, always of a batch. With S(x) a pair's score, x its similarity and its
parameters, and t a direction:

    score       S
    gradients   S, dS/dx
    tangents    <dS/dx, t>, (d2S/dx2) t
    product     the part of (d2S/dx2) t that belongs to the similarity, where t has no other part either

The gradients are one differentiable function, whose outputs are S and g = dS/dx. For cotangents a of S and A of g,
its backward is a g + H A: H is symmetric, so the backward is again a tangent.

Shapes: s (batch, rows, cols), lengths (batch, 2) of integers, values (batch, P): the parameters in the order of
shared.alignments.ALIGNMENTS; gaps, a list: those by position, each like s, whose columns in values nobody reads.
Masking is the engine's responsibility.
"""

import functools
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch._C import _autograd, _functorch  # pyright: ignore[reportAttributeAccessIssue]
from torch._library.custom_ops import get_library_allowing_overwrite
from torch.autograd import forward_ad
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

from shared.checks import EXPORT_TEXT, CannotDifferentiate
from torch_impl.arguments import inside
from torch_impl.transforms import (
    is_exporting,
    is_recorded,
    is_traced,
    levels_of,
    no_transform_active,
    under_derivative_transform,
    under_forward_mode,
)

Tensor = torch.Tensor
Tensors = tuple[Tensor, ...]
# scores (batch,); their gradients: of s (batch, rows, cols), of values (batch, P), of gaps each (batch, rows, cols)
Derivatives = tuple[Tensor, Tensor, Tensor, list[Tensor]]


class Engine(NamedTuple):
    """Operators that compute scores and derivatives; not differentiable, with fake versions for torch.compile."""

    score: Callable[..., Tensor]  # (s, lengths, values, gaps) -> (batch,)
    # (s, lengths, values, gaps, with_values=) -> scores and gradients;
    # without values, d_values may be anything of that shape, and there are no gradients of gaps
    gradients: Callable[..., Derivatives]
    # (s, lengths, values, gaps, t_s, t_values, t_gaps) -> the tangents of all of them
    tangents: Callable[..., Derivatives]
    # (s, lengths, values, gaps, t_s) -> the tangent of d_s alone
    product: Callable[..., Tensor]


def scores_of(
    engine: Engine, text: str, s: Tensor, lengths: Tensor, values: Tensor, gaps: Sequence[Tensor] = ()
) -> Tensor:
    """The engine's scores, which can be differentiated twice; a third time raises CannotDifferentiate(text)."""
    if torch.compiler.is_compiling():
        return _compiled(engine, text, s, lengths, values, gaps)
    forward_mode = under_forward_mode()
    are_values_recorded = any(is_recorded(value) for value in (values, *gaps))
    recorded = torch.is_grad_enabled() and (is_recorded(s) or are_values_recorded)
    if not recorded and not levels_of("grad"):
        return (_ScoreForward if forward_mode else _Score).apply(engine, text, s, lengths, values, *gaps)
    # the tensors do not show what a transform differentiates
    with_values = forward_mode or under_derivative_transform() or are_values_recorded
    functions = _GradientsForward if forward_mode else _Gradients
    return functions.apply(engine, text, with_values, s, lengths, values, *gaps)[0]


def _compiled(engine: Engine, text: str, s: Tensor, lengths: Tensor, values: Tensor, gaps: Sequence[Tensor]) -> Tensor:
    """Scores under torch.compile, which supports only first derivatives of a Function and neither its vmap nor its jvp.

    It would silently drop a second derivative. So the innermost level of torch.func.grad gets a function that is linear
    in its inputs; its coefficients are the gradients at the level below, where the Function is differentiated.
    """
    mapped, levels = levels_of("vmap"), levels_of("grad")
    if under_forward_mode():
        raise CannotDifferentiate("forward mode does not work inside torch.compile here; use it outside")
    lower = derivatives_of = [s, values, *gaps]
    for level in reversed(levels):
        lower = [_functorch._unwrap_for_grad(tensor, level) for tensor in lower]
    if levels and is_exporting():
        raise CannotDifferentiate(EXPORT_TEXT)
    recorded = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in lower)
    if mapped and (levels or recorded):
        raise CannotDifferentiate("a gradient cannot be mapped inside torch.compile here; use torch.func.vmap outside")
    if len(levels) + recorded > 2:
        raise CannotDifferentiate(text)
    if not levels and not recorded:
        return engine.score(s, lengths, values, list(gaps))
    if not levels:
        with_values = any(tensor.requires_grad for tensor in derivatives_of[1:])
        return _ScoreOnce.apply(engine, with_values, s, lengths, values, *gaps)
    below = [_functorch._unwrap_for_grad(tensor, levels[-1]) for tensor in derivatives_of]
    # where nothing is recorded, the compiler miscounts the arguments of a Function's forward that takes *gaps
    again = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in below)
    function = _Gradients.apply if again else _Gradients.forward
    scores, *gradients = function(engine, text, True, below[0], lengths, *below[1:])
    # each difference is 0 but differentiable; at a forbidden match (-inf) it would be NaN
    direction = [tensor.nan_to_num() - base.nan_to_num() for tensor, base in zip(derivatives_of, below, strict=True)]
    return scores + _directional(lengths, gradients, direction)


class _Score(torch.autograd.Function):
    """The score alone, where nothing is differentiated."""

    @staticmethod
    def forward(engine: Engine, text: str, s: Tensor, lengths: Tensor, values: Tensor, *gaps: Tensor) -> Tensor:
        return engine.score(s, lengths, values, list(gaps))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Any) -> None:
        pass

    @staticmethod
    def vmap(info: Any, in_dims: tuple, engine: Engine, text: str, *tensors: Tensor) -> Any:
        return mapped(functools.partial(_Score.apply, engine, text), info, in_dims[2:], tensors)


class _ScoreOnce(torch.autograd.Function):
    """The score with a first derivative, for the compiler.

    There every output gets a cotangent, if only zeros: with the gradients as outputs, each would cost a tangent.
    """

    @staticmethod
    def forward(
        ctx: Any, engine: Engine, with_values: bool, s: Tensor, lengths: Tensor, values: Tensor, *gaps: Tensor
    ) -> Tensor:
        scores, d_s, d_values, d_gaps = engine.gradients(s, lengths, values, list(gaps), with_values=with_values)
        ctx.with_values, ctx.gaps = with_values, len(gaps)
        ctx.save_for_backward(d_s, d_values, *d_gaps)
        return scores

    @staticmethod
    def backward(ctx: Any, of_scores: Tensor) -> tuple[Tensor | None, ...]:
        d_s, d_values, *d_gaps = ctx.saved_tensors
        to_s = of_scores[:, None, None] * d_s
        to_values = _scaled(of_scores, d_values, *d_gaps) if ctx.with_values else [None] * (1 + ctx.gaps)
        return None, None, to_s, None, *to_values


class _Gradients(torch.autograd.Function):
    """Scores and their gradients."""

    @staticmethod
    def forward(
        engine: Engine, text: str, with_values: bool, s: Tensor, lengths: Tensor, values: Tensor, *gaps: Tensor
    ) -> Tensors:
        scores, d_s, d_values, d_gaps = engine.gradients(s, lengths, values, list(gaps), with_values=with_values)
        return scores, d_s, d_values, *d_gaps

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Tensors) -> None:
        ctx.engine, ctx.text, ctx.with_values, *tensors = inputs
        ctx.count = len(tensors)
        ctx.save_for_backward(*tensors, *output[1:])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor | None) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors
        s, lengths, *other_saved = saved[: ctx.count]
        d_s, *d_others = saved[ctx.count :]
        of_scores, *of_gradients = cotangents
        to_s, to_others = None, [None] * len(other_saved)
        if of_scores is not None:
            to_s = _given_away(d_s) if _are_ones(of_scores) else of_scores[:, None, None] * d_s
            if ctx.with_values:
                to_others = _scaled(of_scores, *d_others)
        if any(cotangent is not None for cotangent in of_gradients):
            values, *gaps = other_saved
            t_s, t_values, *t_gaps = _direction(of_gradients, (s, *other_saved))
            tangents = s, lengths, values, t_s, t_values, *gaps, *t_gaps
            more_s, *more = tangents_of(ctx.engine, ctx.text, ctx.with_values, *tangents)
            to_s = more_s if to_s is None else to_s + more_s
            if ctx.with_values:
                to_others = [b if a is None else a + b for a, b in zip(to_others, more, strict=True)]
        return None, None, None, to_s, None, *to_others

    @staticmethod
    def vmap(info: Any, in_dims: tuple, engine: Engine, text: str, with_values: bool, *tensors: Tensor) -> Any:
        return mapped(functools.partial(_Gradients.apply, engine, text, with_values), info, in_dims[3:], tensors)


def tangents_of(engine: Engine, text: str, with_values: bool, *tensors: Tensor) -> Tensors:
    """The tangents of the gradients of s, values and each gap; differentiating them raises CannotDifferentiate(text).

    tensors: s, lengths, values, t_s, t_values, the gaps and their tangents. Without values, the direction leaves values
    and gaps alone, their tangents are left out, and the result is that of s alone.
    """
    if not torch.is_grad_enabled() and (torch.compiler.is_compiling() or no_transform_active()):
        return _Tangents.forward(engine, text, with_values, *tensors)
    return (_TangentsForward if under_forward_mode() else _Tangents).apply(engine, text, with_values, *tensors)


class _Tangents(torch.autograd.Function):
    """The gradients' tangents, which cannot be differentiated."""

    @staticmethod
    def forward(
        engine: Engine,
        text: str,
        with_values: bool,
        s: Tensor,
        lengths: Tensor,
        values: Tensor,
        t_s: Tensor,
        t_values: Tensor,
        *gaps: Tensor,
    ) -> Tensors:
        if not with_values:
            return (engine.product(s, lengths, values, list(gaps), t_s),)
        count = len(gaps) // 2
        own_gaps, t_gaps = list(gaps[:count]), list(gaps[count:])
        _, t_d_s, t_d_values, t_d_gaps = engine.tangents(s, lengths, values, own_gaps, t_s, t_values, t_gaps)
        return t_d_s, t_d_values, *t_d_gaps

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Tensors) -> None:
        ctx.text = inputs[1]

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> None:
        raise CannotDifferentiate(ctx.text)

    @staticmethod
    def vmap(info: Any, in_dims: tuple, engine: Engine, text: str, with_values: bool, *tensors: Tensor) -> Any:
        return mapped(functools.partial(_Tangents.apply, engine, text, with_values), info, in_dims[3:], tensors)


# Forward mode: the same, with methods that the compiler does not support.


class _ScoreForward(_Score):
    """The scores' Function for forward mode alone."""

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Tensor) -> None:
        ctx.engine, ctx.text, *tensors = inputs
        ctx.save_for_forward(*tensors)

    @staticmethod
    def jvp(ctx: Any, *directions: Any) -> Tensor:
        with forward_ad._set_fwd_grad_enabled(True):
            s, lengths, *values = (forward_ad.unpack_dual(tensor).primal for tensor in ctx.saved_tensors)
            _, *gradients = _GradientsForward.apply(ctx.engine, ctx.text, True, s, lengths, *values)
            return _directional(lengths, gradients, (directions[2], *directions[4:]))

    @staticmethod
    def vmap(info: Any, in_dims: tuple, engine: Engine, text: str, *tensors: Tensor) -> Any:
        return mapped(functools.partial(_ScoreForward.apply, engine, text), info, in_dims[2:], tensors)


class _GradientsForward(_Gradients):
    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Tensors) -> None:
        _Gradients.setup_context(ctx, inputs, output)
        ctx.save_for_forward(*inputs[3:], *output[1:])

    @staticmethod
    def jvp(ctx: Any, *directions: Any) -> Tensors:
        saved = ctx.saved_tensors
        s, lengths, values, *gaps = saved[: ctx.count]
        direction = t_s, t_values, *t_gaps = _direction((directions[3], *directions[5:]), (s, values, *gaps))
        tangents = s, lengths, values, t_s, t_values, *gaps, *t_gaps
        of_gradients = _TangentsForward.apply(ctx.engine, ctx.text, True, *tangents)
        return _directional(lengths, saved[ctx.count :], direction), *of_gradients

    @staticmethod
    def vmap(info: Any, in_dims: tuple, engine: Engine, text: str, with_values: bool, *tensors: Tensor) -> Any:
        function = functools.partial(_GradientsForward.apply, engine, text, with_values)
        return mapped(function, info, in_dims[3:], tensors)


class _TangentsForward(_Tangents):
    @staticmethod
    def jvp(ctx: Any, *directions: Any) -> Tensors:
        raise CannotDifferentiate(ctx.text)

    @staticmethod
    def vmap(info: Any, in_dims: tuple, engine: Engine, text: str, with_values: bool, *tensors: Tensor) -> Any:
        function = functools.partial(_TangentsForward.apply, engine, text, with_values)
        return mapped(function, info, in_dims[3:], tensors)


def _scaled(of_scores: Tensor, d_values: Tensor, *d_gaps: Tensor) -> list[Tensor]:
    """The gradients of values and gaps, those of each pair times its score's cotangent."""
    return [of_scores[:, None] * d_values, *(of_scores[:, None, None] * d_gap for d_gap in d_gaps)]


def _directional(lengths: Tensor, gradients: Sequence[Tensor], tangents: Sequence[Tensor | None]) -> Tensor:
    """The tangent of the scores. The gradients are 0 outside lengths, but a tangent may be NaN there."""
    parts = [
        (gradient * tangent).sum(1) if tangent.ndim == 2 else (gradient * _inside(lengths, tangent)).sum((1, 2))
        for gradient, tangent in zip(gradients, tangents, strict=True)
        if tangent is not None
    ]
    return torch.stack(parts).sum(0)


def _inside(lengths: Tensor, matrices: Tensor) -> Tensor:
    """The matrices with zeros outside lengths."""
    if not len(lengths):  # whole matrices
        return matrices
    return torch.where(inside(lengths, *matrices.shape[1:]), matrices, 0.0)


def _direction(tangents: Sequence[Tensor | None], of: Sequence[Tensor]) -> list[Tensor]:
    """The tangents of the first of these tensors, zeros where there are none."""
    return [torch.zeros_like(x) if tangent is None else tangent for tangent, x in zip(tangents, of, strict=False)]


def _are_ones(cotangent: Tensor) -> bool:
    """Whether a cheap check shows that all are 1, as below a sum, which saves a pass over the matrices."""
    if cotangent.device.type != "cpu" or cotangent.requires_grad or is_traced(cotangent):
        return False
    try:
        return bool((cotangent == 1).all())
    except RuntimeError:  # inside a vmapped backward there is no single answer
        return False


def _given_away(saved: Tensor) -> Tensor:
    """A saved output as a result of the backward: without a copy where no caller can see it modified.

    Where more is to be differentiated, autograd tracks that the two are one tensor.
    """
    if torch.is_grad_enabled():
        return saved
    return saved.clone() if _autograd._get_current_graph_task_keep_graph() else saved.detach()


def mapped(function: Callable[..., Any], info: Any, in_dims: tuple, tensors: tuple[Tensor, ...]) -> tuple[Any, Any]:
    """The vmap rule of a function of batches: (mapped, batch, ...) becomes one batch; unmapped tensors are repeated."""
    moved = [
        tensor.expand(info.batch_size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
        for tensor, dim in zip(tensors, in_dims, strict=True)
    ]
    sizes = moved[0].shape[:2]
    results = function(*(tensor.flatten(0, 1) for tensor in moved))
    return tree_map(lambda result: result.unflatten(0, sizes), results), tree_map(lambda _: 0, results)


def library_of(name: str) -> torch.library.Library:
    """A library for operators to define, in place of those of an earlier import of this package."""
    return get_library_allowing_overwrite("smooth_alignment", name)


def register_map(operator: Any, library: torch.library.Library | None = None) -> None:
    """Give an operator of batches its rule for both vmaps; PyTorch's own cannot map lists of tensors.

    library: that of the operator, unless PyTorch has made one for it.
    """
    name = (operator if isinstance(operator, torch._ops.OpOverload) else operator._opoverload).name()

    def rule(info: Any, in_dims: tuple, *arguments: Any) -> tuple[Any, Any]:
        leaves, structure = tree_flatten(arguments)
        at = [number for number, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]

        def function(*tensors: Tensor) -> Any:
            new = dict(zip(at, tensors, strict=True))
            return operator(*tree_unflatten([new.get(number, leaf) for number, leaf in enumerate(leaves)], structure))

        dims = tree_leaves(in_dims)
        return mapped(function, info, tuple(dims[number] for number in at), tuple(leaves[number] for number in at))

    def of_older_vmap(*arguments: Any) -> Any:
        """Map over one level of the vmap of autograd.grad(is_grads_batched=True)."""
        leaves, structure = tree_flatten(arguments)
        absent = 2**31  # the size that a tensor without the level gets for it
        for level in range(1, 65):
            moved = [
                torch.ops.aten._remove_batch_dim(x, level, absent, 0) if isinstance(x, Tensor) else x for x in leaves
            ]
            dims = [0 if isinstance(x, Tensor) and len(x) < absent else None for x in moved]
            if 0 in dims:
                break
        aligned = [leaf if dim is None else tensor for leaf, tensor, dim in zip(leaves, moved, dims, strict=True)]
        info = SimpleNamespace(batch_size=len(moved[dims.index(0)]))
        results, _ = rule(info, tuple(dims), *tree_unflatten(aligned, structure))
        return tree_map(lambda result: torch.ops.aten._add_batch_dim(result, 0, level), results)

    torch.library.register_vmap(operator, rule, lib=library)
    # never removed: an operator without any rule vanishes while it is defined again, but functions of an earlier import
    # of this package still call it
    if not torch._C._dispatch_has_kernel_for_dispatch_key(name, "Batched"):
        torch.library.impl(name, "Batched", of_older_vmap)
