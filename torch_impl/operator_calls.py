"""Scores, marginals and Hessian products by one call of an operator each, outside of every transform.

Where autograd records, each is one node of its graph. With S(x) a pair's score, x its similarity and its parameters,
g = dS/dx and H = d2S/dx2, for cotangents a and A:

    score       S     backward: a g, and H A where the gradients have been used; from one call of `gradients`
    marginals   g     backward: H A, one call of `product`, or of `tangents` where parameters are recorded
    product     H t   no backward

torch_impl.derivatives computes the same under every transform, but more slowly: a Function with a vmap rule binds its
arguments to a signature in each call, and marginals as the gradient of a score build a graph and run autograd's
engine. With cold caches, as after a large similarity, this takes half a millisecond.

Arguments: `operators`, which is `cpp_binding`, its DIRECT or RECORDED, `triton_binding` or `wavefront`; a batch's
tensors and its gaps by position; `kind` and `options`, which identify the alignment (for `wavefront`: the recurrence's
name and whether to use a CUDA graph); `text`, which returns the error message of a third derivative.
"""

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from shared.checks import CannotDifferentiate
from torch_impl.derivatives import Engine, Tensors, _Gradients, tangents_of
from torch_impl.transforms import is_exporting

Tensor = torch.Tensor
Text = Callable[[], str]


def score(
    operators: Any,
    s: Tensor,
    lengths: Tensor,
    values: Tensor,
    gaps: Sequence[Tensor],
    kind: Any,
    options: Any,
    text: Text,
) -> Tensor:
    """Scores (batch,)."""
    if is_any_recorded(s, values, *gaps):
        engine = engine_of(operators, kind, options)
        return _Scores.apply(engine, text(), is_any_recorded(values, *gaps), s, lengths, values, *gaps)[0]
    return operators.score(s, lengths, values, gaps, kind, options)


def marginals(
    operators: Any,
    s: Tensor,
    lengths: Tensor,
    values: Tensor,
    gaps: Sequence[Tensor],
    kind: Any,
    options: Any,
    text: Text,
) -> Tensor:
    """The gradients of the scores with respect to s."""
    if is_any_recorded(s, values, *gaps):
        # what was made in inference mode cannot be saved for the backward
        s, *gaps = (matrix.clone() if matrix.is_inference() else matrix for matrix in (s, *gaps))
        return _Marginals.apply(engine_of(operators, kind, options), text(), s, lengths, values, *gaps)
    return operators.gradients(s, lengths, values, gaps, kind, options, False)[1]


def product(
    vector: Tensor,
    operators: Any,
    s: Tensor,
    lengths: Tensor,
    values: Tensor,
    gaps: Sequence[Tensor],
    kind: Any,
    options: Any,
    text: Text,
) -> Tensor:
    """The tangents of the marginals in the direction vector."""
    vector = vector.to(s).view(s.shape)
    if is_any_recorded(vector, s, values, *gaps):
        return _Product.apply(engine_of(operators, kind, options), text(), vector, s, lengths, values, *gaps)
    return operators.product(s, lengths, values, gaps, vector, kind, options)


def kernel_pass(call: Callable[..., Tensor], similarity: Any, values: Iterable[Any]) -> str:
    """The pass of the kernels that one of these calls runs, as far as is known before its arguments are checked."""
    if call is not score:
        return "marginals" if call is marginals else "tangents"
    if is_any_recorded(*values):
        return "gradients"
    return "marginals" if is_any_recorded(similarity) else "score"


def is_any_recorded(*values: Any) -> bool:
    """Whether autograd records what is done with one of them; an exported program is not differentiated."""
    if is_exporting() or not torch.is_grad_enabled():
        return False
    return any(isinstance(value, Tensor) and value.requires_grad for value in values)


def engine_of(operators: Any, kind: Any, options: Any) -> Engine:
    """The operators for one alignment."""
    functions = operators.score, operators.gradients, operators.tangents, operators.product
    return Engine(*(functools.partial(operator, kind=kind, options=options) for operator in functions))


class _Scores(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        engine: Engine,
        text: str,
        with_values: bool,
        s: Tensor,
        lengths: Tensor,
        values: Tensor,
        *gaps: Tensor,
    ) -> Tensors:
        scores, d_s, d_values, d_gaps = engine.gradients(s, lengths, values, gaps, with_values=with_values)
        results = scores, d_s, d_values, *d_gaps
        _Gradients.setup_context(ctx, (engine, text, with_values, s, lengths, values, *gaps), results)
        return results

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor | None) -> tuple[Tensor | None, ...]:
        return _Gradients.backward(ctx, *cotangents)


class _Marginals(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, engine: Engine, text: str, s: Tensor, lengths: Tensor, values: Tensor, *gaps: Tensor
    ) -> Tensor:
        ctx.engine, ctx.text, ctx.with_values = engine, text, any(x.requires_grad for x in (values, *gaps))
        ctx.save_for_backward(s, lengths, values, *gaps)
        return engine.gradients(s, lengths, values, gaps, with_values=False)[1]

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> tuple[Tensor | None, ...]:
        s, lengths, values, *gaps = ctx.saved_tensors
        t_gaps = [torch.zeros_like(gap) for gap in gaps] if ctx.with_values else []
        tangents = s, lengths, values, cotangent, torch.zeros_like(values), *gaps, *t_gaps
        to_s, *to_values = tangents_of(ctx.engine, ctx.text, ctx.with_values, *tangents)
        return None, None, to_s, None, *(to_values or [None] * (1 + len(gaps)))


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, engine: Engine, text: str, vector: Tensor, s: Tensor, lengths: Tensor, values: Tensor, *gaps: Tensor
    ) -> Tensor:
        ctx.text = text
        return engine.product(s, lengths, values, gaps, vector)

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> None:
        raise CannotDifferentiate(ctx.text)
