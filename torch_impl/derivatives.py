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
shared.alignments.ALIGNMENTS. Masking is the engine's responsibility.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch._C import _autograd, _functorch  # pyright: ignore[reportAttributeAccessIssue]
from torch.autograd import forward_ad

from shared.checks import EXPORT_TEXT, CannotDifferentiate
from torch_impl.arguments import inside
from torch_impl.transforms import (
    is_recorded,
    is_traced,
    levels_of,
    nothing_at_work,
    under_derivative_transform,
    under_forward_mode,
)

Tensor = torch.Tensor
Pair = tuple[Tensor, Tensor]
Triple = tuple[Tensor, Tensor, Tensor]


class Engine(NamedTuple):
    """Operators that compute scores and derivatives; not differentiable, with fake versions for torch.compile."""

    score: Callable[..., Tensor]  # (s, lengths, values) -> (batch,)
    # (s, lengths, values, with_values=) -> scores (batch,), d_s (batch, rows, cols), d_values (batch, P);
    # without values, d_values may be anything of that shape
    gradients: Callable[..., Triple]
    # (s, lengths, values, t_s, t_values) -> the tangents of all three
    tangents: Callable[..., Triple]
    # (s, lengths, values, t_s) -> the tangent of d_s alone
    product: Callable[..., Tensor]


def scores_of(engine: Engine, text: str, s: Tensor, lengths: Tensor, values: Tensor) -> Tensor:
    """The engine's scores, which can be differentiated twice; a third time raises CannotDifferentiate(text)."""
    if torch.compiler.is_compiling():
        return _compiled(engine, text, s, lengths, values)
    forward_mode = under_forward_mode()
    recorded = torch.is_grad_enabled() and (is_recorded(s) or is_recorded(values))
    if not recorded and not levels_of("grad"):
        return (_ScoreForward if forward_mode else _Score).apply(engine, text, s, lengths, values)
    # the tensors do not show what a transform differentiates
    with_values = under_derivative_transform() or is_recorded(values)
    functions = _GradientsForward if forward_mode else _Gradients
    return functions.apply(engine, text, with_values, s, lengths, values)[0]


def _compiled(engine: Engine, text: str, s: Tensor, lengths: Tensor, values: Tensor) -> Tensor:
    """The same under the compiler, where a Function has a first derivative only, and neither vmap nor jvp.

    It would silently drop a second derivative. So of torch.func.grad's levels the last sees a linear
    function, whose coefficients are the gradients at the level below; the Function has to be differentiated there.
    """
    mapped, levels = levels_of("vmap"), levels_of("grad")
    if under_forward_mode():
        raise CannotDifferentiate("forward mode does not work inside torch.compile here; use it outside")
    lower = [s, values]
    for level in reversed(levels):
        lower = [_functorch._unwrap_for_grad(tensor, level) for tensor in lower]
    if levels and torch.compiler.is_exporting():
        raise CannotDifferentiate(EXPORT_TEXT)
    recorded = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in lower)
    if mapped and (levels or recorded):
        raise CannotDifferentiate("a gradient cannot be mapped inside torch.compile here; use torch.func.vmap outside")
    if len(levels) + recorded > 2:
        raise CannotDifferentiate(text)
    if not levels and not recorded:
        return engine.score(s, lengths, values)
    if not levels:
        return _ScoreOnce.apply(engine, values.requires_grad, s, lengths, values)
    below = [_functorch._unwrap_for_grad(tensor, levels[-1]) for tensor in (s, values)]
    scores, d_s, d_values = _Gradients.apply(engine, text, True, below[0], lengths, below[1])
    # each difference is 0 but differentiable; at a forbidden match (-inf) it would be NaN
    t_s, t_values = (tensor.nan_to_num() - base.nan_to_num() for tensor, base in zip((s, values), below, strict=True))
    return scores + _directional(lengths, d_s, d_values, t_s, t_values)


class _Score(torch.autograd.Function):
    """The score alone, where nothing is differentiated."""

    @staticmethod
    def forward(engine: Engine, text: str, s: Tensor, lengths: Tensor, values: Tensor) -> Tensor:
        return engine.score(s, lengths, values)

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
    def forward(ctx: Any, engine: Engine, with_values: bool, s: Tensor, lengths: Tensor, values: Tensor) -> Tensor:
        scores, *gradients = engine.gradients(s, lengths, values, with_values=with_values)
        ctx.with_values = with_values
        ctx.save_for_backward(*gradients)
        return scores

    @staticmethod
    def backward(ctx: Any, of_scores: Tensor) -> tuple[Tensor | None, ...]:
        d_s, d_values = ctx.saved_tensors
        to_values = of_scores[:, None] * d_values if ctx.with_values else None
        return None, None, of_scores[:, None, None] * d_s, None, to_values


class _Gradients(torch.autograd.Function):
    """Scores and their gradients."""

    @staticmethod
    def forward(engine: Engine, text: str, with_values: bool, s: Tensor, lengths: Tensor, values: Tensor) -> Triple:
        return engine.gradients(s, lengths, values, with_values=with_values)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Triple) -> None:
        ctx.engine, ctx.text, ctx.with_values, *tensors = inputs
        ctx.save_for_backward(*tensors, *output[1:])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor | None) -> tuple[Tensor | None, ...]:
        s, lengths, values, d_s, d_values = ctx.saved_tensors
        of_scores, *of_gradients = cotangents
        to_s = to_values = None
        if of_scores is not None:
            to_s = _given_away(d_s) if _are_ones(of_scores) else of_scores[:, None, None] * d_s
            to_values = of_scores[:, None] * d_values if ctx.with_values else None
        if any(cotangent is not None for cotangent in of_gradients):
            direction = _direction(of_gradients, s, values)
            more_s, more_values = tangents_of(ctx.engine, ctx.text, ctx.with_values, s, lengths, values, *direction)
            to_s = more_s if to_s is None else to_s + more_s
            to_values = more_values if to_values is None else to_values + more_values
        return None, None, None, to_s, None, to_values

    @staticmethod
    def vmap(info: Any, in_dims: tuple, engine: Engine, text: str, with_values: bool, *tensors: Tensor) -> Any:
        return mapped(functools.partial(_Gradients.apply, engine, text, with_values), info, in_dims[3:], tensors)


def tangents_of(engine: Engine, text: str, with_values: bool, *tensors: Tensor) -> Pair:
    """The tangents of both gradients; differentiating them raises CannotDifferentiate(text).

    Without values, those of the values are zeros in the direction too.
    """
    if nothing_at_work() and not torch.is_grad_enabled():
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
    ) -> Pair:
        if with_values:
            return engine.tangents(s, lengths, values, t_s, t_values)[1:]
        return engine.product(s, lengths, values, t_s), torch.zeros_like(values)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Pair) -> None:
        ctx.text = inputs[1]

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> None:
        raise CannotDifferentiate(ctx.text)

    @staticmethod
    def vmap(info: Any, in_dims: tuple, engine: Engine, text: str, with_values: bool, *tensors: Tensor) -> Any:
        return mapped(functools.partial(_Tangents.apply, engine, text, with_values), info, in_dims[3:], tensors)


# Forward mode: the same, with methods that the compiler does not support.


class _ScoreForward(_Score):
    """For forward mode alone."""

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Tensor) -> None:
        ctx.engine, ctx.text, *tensors = inputs
        ctx.save_for_forward(*tensors)

    @staticmethod
    def jvp(ctx: Any, *directions: Any) -> Tensor:
        with forward_ad._set_fwd_grad_enabled(True):
            s, lengths, values = (forward_ad.unpack_dual(tensor).primal for tensor in ctx.saved_tensors)
            _, d_s, d_values = _GradientsForward.apply(ctx.engine, ctx.text, True, s, lengths, values)
            return _directional(lengths, d_s, d_values, *directions[2::2])

    @staticmethod
    def vmap(info: Any, in_dims: tuple, engine: Engine, text: str, *tensors: Tensor) -> Any:
        return mapped(functools.partial(_ScoreForward.apply, engine, text), info, in_dims[2:], tensors)


class _GradientsForward(_Gradients):
    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Triple) -> None:
        _Gradients.setup_context(ctx, inputs, output)
        ctx.save_for_forward(*inputs[3:], *output[1:])

    @staticmethod
    def jvp(ctx: Any, *directions: Any) -> Triple:
        s, lengths, values, d_s, d_values = ctx.saved_tensors
        direction = _direction(directions[3::2], s, values)
        t_s, t_values = _TangentsForward.apply(ctx.engine, ctx.text, True, s, lengths, values, *direction)
        return _directional(lengths, d_s, d_values, *direction), t_s, t_values

    @staticmethod
    def vmap(info: Any, in_dims: tuple, engine: Engine, text: str, with_values: bool, *tensors: Tensor) -> Any:
        function = functools.partial(_GradientsForward.apply, engine, text, with_values)
        return mapped(function, info, in_dims[3:], tensors)


class _TangentsForward(_Tangents):
    @staticmethod
    def jvp(ctx: Any, *directions: Any) -> Pair:
        raise CannotDifferentiate(ctx.text)

    @staticmethod
    def vmap(info: Any, in_dims: tuple, engine: Engine, text: str, with_values: bool, *tensors: Tensor) -> Any:
        function = functools.partial(_TangentsForward.apply, engine, text, with_values)
        return mapped(function, info, in_dims[3:], tensors)


def _directional(lengths: Tensor, d_s: Tensor, d_values: Tensor, t_s: Tensor | None, t_values: Tensor | None) -> Tensor:
    """The tangent of the scores. The gradients are 0 outside lengths, but a tangent may be NaN there."""
    parts = [] if t_s is None else [(d_s * _inside(lengths, t_s)).sum((1, 2))]
    parts += [] if t_values is None else [(d_values * t_values).sum(1)]
    return torch.stack(parts).sum(0)


def _inside(lengths: Tensor, matrices: Tensor) -> Tensor:
    """The matrices with zeros outside lengths."""
    if not len(lengths):  # whole matrices
        return matrices
    return torch.where(inside(lengths, *matrices.shape[1:]), matrices, 0.0)


def _direction(tangents: Sequence[Tensor | None], s: Tensor, values: Tensor) -> list[Tensor]:
    """The tangents, zeros where there are none."""
    return [torch.zeros_like(of) if own is None else own for own, of in zip(tangents, (s, values), strict=True)]


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
    if isinstance(results, Tensor):
        return results.unflatten(0, sizes), 0
    return tuple(result.unflatten(0, sizes) for result in results), (0,) * len(results)
