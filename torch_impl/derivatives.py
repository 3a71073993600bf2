"""The passes of an engine, and their derivatives under autograd, torch.func and torch.compile.

With S(x) a pair's score, x its similarity and its parameters, g = dS/dx, H = d2S/dx2 and a direction t, an engine has
operators on plain tensors, always of a batch:

    score       S
    gradients   S, g
    tangents    <g, t>, H t
    product     H t for the similarity alone, where t is 0 for the parameters

The gradients are one differentiable function. For cotangents a of S and A of g, its backward is a g + H A: H is
symmetric, so the backward is again a tangent.

Outside of every transform, a call is at most one node of autograd's graph, without a vmap rule: for such a rule PyTorch
would bind the arguments to a signature in each call. Marginals by `fused` are computed directly, not by differentiating
a score through autograd's engine. With cold caches, as after a large similarity, this saves half a millisecond.

Shapes: s (batch, rows, cols); lengths (batch, 2) of integers, or (0, 2) if all matrices are whole; values (batch, P):
the parameters in the order of shared.alignments.ALIGNMENTS; gaps, a list: those by position, each like s; their columns
in values are not used. In names, d_ is a derivative of the score, t_ a tangent, ct_ a cotangent, grad_ what a backward
returns. Masking is the engine's responsibility.
"""

import functools
from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch._C import _autograd, _functorch  # pyright: ignore[reportAttributeAccessIssue]
from torch._library.custom_ops import get_library_allowing_overwrite
from torch.autograd import forward_ad
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

from shared.checks import EXPORT_TEXT, HVP_TEXT, CannotDifferentiate, third_order_text
from shared.variants import EAGER_LOOPS
from torch_impl.arguments import inside
from torch_impl.transforms import (
    is_exporting,
    is_recorded,
    is_traced,
    levels_of,
    runs_eagerly,
    under_derivative_transform,
    under_forward_mode,
)

Tensor = torch.Tensor
Tensors = tuple[Tensor, ...]
Gaps = Sequence[Tensor]
# scores (batch,); their gradients: of s (batch, rows, cols), of values (batch, P), of gaps each (batch, rows, cols)
Derivatives = tuple[Tensor, Tensor, Tensor, list[Tensor]]


class Engine(NamedTuple):
    """The operators of a variant for one alignment, with fake versions for torch.compile; not differentiable."""

    variant: str
    operators: Any  # cpp_binding or its DIRECT or RECORDED, triton_binding, wavefront
    call: tuple[Any, ...]  # how these name the alignment: kind and options, or the recurrence and whether by a graph
    is_recorded: bool | None = None  # whether autograd records the similarity, values or gaps; None: not known yet

    def records(self, s: Tensor, values: Tensor, gaps: Gaps) -> bool:
        """Whether autograd records what is done with one of them."""
        return is_any_recorded(s, values, *gaps) if self.is_recorded is None else self.is_recorded

    def score(self, s: Tensor, lengths: Tensor, values: Tensor, gaps: Gaps) -> Tensor:
        """Scores (batch,)."""
        return self.operators.score(s, lengths, values, gaps, *self.call)

    def gradients(self, s: Tensor, lengths: Tensor, values: Tensor, gaps: Gaps, with_values: bool) -> Derivatives:
        """Scores and gradients. Without values, d_values may be anything of its shape, and d_gaps is empty."""
        return self.operators.gradients(s, lengths, values, gaps, *self.call, with_values)

    def tangents(
        self, s: Tensor, lengths: Tensor, values: Tensor, gaps: Gaps, t_s: Tensor, t_values: Tensor, t_gaps: Gaps
    ) -> Derivatives:
        """The tangents of all results of gradients."""
        return self.operators.tangents(s, lengths, values, gaps, t_s, t_values, t_gaps, *self.call)

    def product(self, s: Tensor, lengths: Tensor, values: Tensor, gaps: Gaps, t_s: Tensor) -> Tensor:
        """The tangent of d_s alone."""
        return self.operators.product(s, lengths, values, gaps, t_s, *self.call)

    def third_order_error(self) -> CannotDifferentiate:
        """The error where a third derivative is asked for."""
        return CannotDifferentiate(third_order_text(self.variant, EAGER_LOOPS) + HVP_TEXT)


def score(engine: Engine, s: Tensor, lengths: Tensor, values: Tensor, gaps: Gaps) -> Tensor:
    """Scores (batch,), outside of every transform: they can be differentiated twice by autograd."""
    if engine.records(s, values, gaps):
        s, lengths, *gaps = _saveable(s, lengths, *gaps)
        return _GradientsWithoutVmap.apply(engine, is_any_recorded(values, *gaps), s, lengths, values, *gaps)[0]
    return engine.score(s, lengths, values, gaps)


def marginals(engine: Engine, s: Tensor, lengths: Tensor, values: Tensor, gaps: Gaps) -> Tensor:
    """The gradients of the scores with respect to s, outside of every transform: differentiable once by autograd."""
    if engine.records(s, values, gaps):
        s, lengths, *gaps = _saveable(s, lengths, *gaps)
        return _Marginals.apply(engine, s, lengths, values, *gaps)
    return engine.gradients(s, lengths, values, gaps, False)[1]


def _saveable(*tensors: Tensor) -> list[Tensor]:
    """Clones of what was made in inference mode, which cannot be saved for the backward."""
    return [tensor.clone() if tensor.is_inference() else tensor for tensor in tensors]


def product(vector: Tensor, engine: Engine, s: Tensor, lengths: Tensor, values: Tensor, gaps: Gaps) -> Tensor:
    """The tangents of the marginals in the direction vector, outside of every transform; not differentiable."""
    if vector.dtype != s.dtype or vector.shape != s.shape:
        vector = vector.to(s).view(s.shape)
    if engine.records(s, values, gaps) or is_any_recorded(vector):
        return _Product.apply(engine, vector, s, lengths, values, *gaps)
    return engine.product(s, lengths, values, gaps, vector)


def kernel_pass(pass_function: Callable[..., Any], similarity: Any, values: Iterable[Any]) -> str:
    """Name of the kernel pass that a pass function needs, as far as is known before its arguments are checked."""
    if pass_function is not score:
        return "marginals" if pass_function is marginals else "tangents"
    if is_any_recorded(*values):
        return "gradients"
    return "marginals" if is_any_recorded(similarity) else "score"


def is_any_recorded(*values: Any) -> bool:
    """Whether autograd records what is done with one of them; an exported program is not differentiated."""
    if is_exporting() or not torch.is_grad_enabled():
        return False
    return any(isinstance(value, Tensor) and value.requires_grad for value in values)


def transformed_score(engine: Engine, s: Tensor, lengths: Tensor, values: Tensor, gaps: Gaps) -> Tensor:
    """Scores (batch,) under any transform; differentiable twice; compiled, by autograd alone, once."""
    if torch.compiler.is_compiling():
        return _compiled(engine, s, lengths, values, gaps)
    forward_mode = under_forward_mode()
    are_values_recorded = any(is_recorded(value) for value in (values, *gaps))
    recorded = torch.is_grad_enabled() and (is_recorded(s) or are_values_recorded)
    if not recorded and not levels_of("grad"):
        return (_ScoreForward if forward_mode else _Score).apply(engine, s, lengths, values, *gaps)
    # the tensors do not show what a transform differentiates
    with_values = forward_mode or under_derivative_transform() or are_values_recorded
    functions = _GradientsForward if forward_mode else _Gradients
    return functions.apply(engine, with_values, s, lengths, values, *gaps)[0]


def _compiled(engine: Engine, s: Tensor, lengths: Tensor, values: Tensor, gaps: Gaps) -> Tensor:
    """Scores under torch.compile, which supports only first derivatives of a Function and neither its vmap nor its jvp.

    It would silently drop a second derivative. So to the innermost level of torch.func.grad the score is linear in its
    inputs; the coefficients, its gradients, come from a Function that the next level outwards differentiates.
    """
    mapped, levels = levels_of("vmap"), levels_of("grad")
    if under_forward_mode():
        raise CannotDifferentiate("forward mode does not work inside torch.compile here; use it outside")
    lower = inputs = [s, values, *gaps]
    for level in reversed(levels):
        lower = [_functorch._unwrap_for_grad(tensor, level) for tensor in lower]
    if levels and is_exporting():
        raise CannotDifferentiate(EXPORT_TEXT)
    recorded = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in lower)
    if mapped and (levels or recorded):
        raise CannotDifferentiate("a gradient cannot be mapped inside torch.compile here; use torch.func.vmap outside")
    if len(levels) + recorded > 2:
        raise engine.third_order_error()
    if not levels and not recorded:
        return engine.score(s, lengths, values, list(gaps))
    if not levels:
        with_values = any(tensor.requires_grad for tensor in inputs[1:])
        return _FirstOrderScore.apply(engine, with_values, s, lengths, values, *gaps)
    below = [_functorch._unwrap_for_grad(tensor, levels[-1]) for tensor in inputs]
    # where nothing is recorded, the compiler miscounts the arguments of a Function's forward that takes *gaps
    again = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in below)
    function = _Gradients.apply if again else _Gradients.forward
    scores, *gradients = function(engine, True, below[0], lengths, *below[1:])
    # each difference is 0 but differentiable; at a forbidden match (-inf) it would be NaN
    direction = [tensor.nan_to_num() - base.nan_to_num() for tensor, base in zip(inputs, below, strict=True)]
    return scores + _directional(lengths, gradients, direction)


def vmap_rule(function: Callable[..., Any], info: Any, in_dims: tuple, tensors: tuple[Tensor, ...]) -> tuple[Any, Any]:
    """The vmap rule of a function of batches: (mapped, batch, ...) becomes one batch; unmapped tensors are repeated."""
    moved = [
        tensor.expand(info.batch_size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
        for tensor, dim in zip(tensors, in_dims, strict=True)
    ]
    sizes = moved[0].shape[:2]
    results = function(*(tensor.flatten(0, 1) for tensor in moved))
    return tree_map(lambda result: result.unflatten(0, sizes), results), tree_map(lambda _: 0, results)


def with_vmap(function: Any) -> Any:
    """A class decorator: the vmap rule of a Function of batches, whose first inputs are no tensors."""

    def vmap(info: Any, in_dims: tuple, *inputs: Any) -> Any:
        count = next(number for number, value in enumerate(inputs) if isinstance(value, Tensor))
        return vmap_rule(functools.partial(function.apply, *inputs[:count]), info, in_dims[count:], inputs[count:])

    function.vmap = staticmethod(vmap)
    return function


@with_vmap
class _Score(torch.autograd.Function):
    """The score alone, where nothing is differentiated."""

    @staticmethod
    def forward(engine: Engine, s: Tensor, lengths: Tensor, values: Tensor, *gaps: Tensor) -> Tensor:
        return engine.score(s, lengths, values, list(gaps))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Any) -> None:
        pass


class _FirstOrderScore(torch.autograd.Function):
    """The score with a first derivative, for the compiler.

    The compiler gives every output a cotangent, zeros if need be: with gradients as outputs, each backward would run
    tangents.
    """

    @staticmethod
    def forward(
        ctx: Any, engine: Engine, with_values: bool, s: Tensor, lengths: Tensor, values: Tensor, *gaps: Tensor
    ) -> Tensor:
        scores, d_s, d_values, d_gaps = engine.gradients(s, lengths, values, list(gaps), with_values)
        ctx.with_values, ctx.gaps = with_values, len(gaps)
        ctx.save_for_backward(d_s, d_values, *d_gaps)
        return scores

    @staticmethod
    def backward(ctx: Any, ct_scores: Tensor) -> tuple[Tensor | None, ...]:
        d_s, d_values, *d_gaps = ctx.saved_tensors
        grad_s = ct_scores[:, None, None] * d_s
        grad_values = _scaled(ct_scores, d_values, *d_gaps) if ctx.with_values else [None] * (1 + ctx.gaps)
        return None, None, grad_s, None, *grad_values


@with_vmap
class _Gradients(torch.autograd.Function):
    """Scores and their gradients."""

    @staticmethod
    def forward(
        engine: Engine, with_values: bool, s: Tensor, lengths: Tensor, values: Tensor, *gaps: Tensor
    ) -> Tensors:
        scores, d_s, d_values, d_gaps = engine.gradients(s, lengths, values, list(gaps), with_values)
        return scores, d_s, d_values, *d_gaps

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Tensors) -> None:
        ctx.engine, ctx.with_values, *tensors = inputs
        ctx.count = len(tensors)
        ctx.save_for_backward(*tensors, *output[1:])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor | None) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors
        s, lengths, *other_saved = saved[: ctx.count]
        d_s, *d_others = saved[ctx.count :]
        ct_scores, *ct_gradients = cotangents
        grad_s, grad_others = None, [None] * len(other_saved)
        if ct_scores is not None:
            grad_s = _reused_or_cloned(d_s) if _are_ones(ct_scores) else ct_scores[:, None, None] * d_s
            if ctx.with_values:
                grad_others = _scaled(ct_scores, *d_others)
        if any(cotangent is not None for cotangent in ct_gradients):
            values, *gaps = other_saved
            t_s, t_values, *t_gaps = _direction(ct_gradients, (s, *other_saved))
            tangents = s, lengths, values, t_s, t_values, *gaps, *t_gaps
            more_s, *more = _tangents_of(ctx.engine, ctx.with_values, *tangents)
            grad_s = more_s if grad_s is None else grad_s + more_s
            if ctx.with_values:
                grad_others = [b if a is None else a + b for a, b in zip(grad_others, more, strict=True)]
        return None, None, grad_s, None, *grad_others


class _GradientsWithoutVmap(torch.autograd.Function):
    """_Gradients without a vmap rule."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensors:
        results = _Gradients.forward(*inputs)
        _Gradients.setup_context(ctx, inputs, results)
        return results

    backward = staticmethod(_Gradients.backward)


class _Marginals(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, engine: Engine, s: Tensor, lengths: Tensor, values: Tensor, *gaps: Tensor) -> Tensor:
        ctx.engine, ctx.with_values = engine, any(x.requires_grad for x in (values, *gaps))
        ctx.save_for_backward(s, lengths, values, *gaps)
        return engine.gradients(s, lengths, values, gaps, False)[1]

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> tuple[Tensor | None, ...]:
        s, lengths, values, *gaps = ctx.saved_tensors
        t_gaps = [torch.zeros_like(gap) for gap in gaps] if ctx.with_values else []
        tangents = s, lengths, values, cotangent, torch.zeros_like(values), *gaps, *t_gaps
        grad_s, *grad_values = _tangents_of(ctx.engine, ctx.with_values, *tangents)
        return None, grad_s, None, *(grad_values or [None] * (1 + len(gaps)))


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, engine: Engine, vector: Tensor, s: Tensor, lengths: Tensor, values: Tensor, *gaps: Tensor
    ) -> Tensor:
        ctx.engine = engine
        return engine.product(s, lengths, values, gaps, vector)

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> None:
        raise ctx.engine.third_order_error()


def _tangents_of(engine: Engine, with_values: bool, *tensors: Tensor) -> Tensors:
    """The tangents of the gradients of s, values and each gap; not differentiable.

    tensors: s, lengths, values, t_s, t_values, the gaps and their tangents. Without values, the direction is 0 for
    values and gaps, the gaps' tangents are left out, and only the tangent of d_s is returned.
    """
    if not torch.is_grad_enabled() and (torch.compiler.is_compiling() or runs_eagerly()):
        return _Tangents.forward(engine, with_values, *tensors)
    return (_TangentsForward if under_forward_mode() else _Tangents).apply(engine, with_values, *tensors)


@with_vmap
class _Tangents(torch.autograd.Function):
    """The gradients' tangents, which cannot be differentiated."""

    @staticmethod
    def forward(
        engine: Engine,
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
        ctx.engine = inputs[0]

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> None:
        raise ctx.engine.third_order_error()


# Forward mode: the same, with methods that the compiler does not support.


@with_vmap
class _ScoreForward(_Score):
    """The scores' Function for forward mode alone."""

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Tensor) -> None:
        ctx.engine, *tensors = inputs
        ctx.save_for_forward(*tensors)

    @staticmethod
    def jvp(ctx: Any, *directions: Any) -> Tensor:
        with forward_ad._set_fwd_grad_enabled(True):
            s, lengths, *values = (forward_ad.unpack_dual(tensor).primal for tensor in ctx.saved_tensors)
            _, *gradients = _GradientsForward.apply(ctx.engine, True, s, lengths, *values)
            return _directional(lengths, gradients, (directions[1], *directions[3:]))


@with_vmap
class _GradientsForward(_Gradients):
    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Tensors) -> None:
        _Gradients.setup_context(ctx, inputs, output)
        ctx.save_for_forward(*inputs[2:], *output[1:])

    @staticmethod
    def jvp(ctx: Any, *directions: Any) -> Tensors:
        saved = ctx.saved_tensors
        s, lengths, values, *gaps = saved[: ctx.count]
        direction = t_s, t_values, *t_gaps = _direction((directions[2], *directions[4:]), (s, values, *gaps))
        tangents = s, lengths, values, t_s, t_values, *gaps, *t_gaps
        t_gradients = _TangentsForward.apply(ctx.engine, True, *tangents)
        return _directional(lengths, saved[ctx.count :], direction), *t_gradients


@with_vmap
class _TangentsForward(_Tangents):
    @staticmethod
    def jvp(ctx: Any, *directions: Any) -> Tensors:
        raise ctx.engine.third_order_error()


def _scaled(ct_scores: Tensor, d_values: Tensor, *d_gaps: Tensor) -> list[Tensor]:
    """The gradients of values and gaps, those of each pair times its score's cotangent."""
    return [ct_scores[:, None] * d_values, *(ct_scores[:, None, None] * d_gap for d_gap in d_gaps)]


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
    """The tangents, with None replaced by zeros like the tensor at the same place in `of`, which may be longer."""
    return [torch.zeros_like(x) if tangent is None else tangent for tangent, x in zip(tangents, of, strict=False)]


def _are_ones(cotangent: Tensor) -> bool:
    """Whether a cheap check shows that all are 1, as in the backward of a sum: that saves a pass over the matrices."""
    if cotangent.device.type != "cpu" or cotangent.requires_grad or is_traced(cotangent):
        return False
    try:
        return bool((cotangent == 1).all())
    except RuntimeError:  # inside a vmapped backward there is no single answer
        return False


def _reused_or_cloned(saved: Tensor) -> Tensor:
    """A saved output, to be returned by the backward: cloned if a later backward still needs it, as the caller may
    modify what is returned.

    With create_graph it is returned itself: autograd tracks that.
    """
    if torch.is_grad_enabled():
        return saved
    return saved.clone() if _autograd._get_current_graph_task_keep_graph() else saved.detach()


def library_of(name: str) -> torch.library.Library:
    """A library that defines operators, replacing those of an earlier import of this package."""
    return get_library_allowing_overwrite("smooth_alignment", name)


def register_vmap(operator: Any, library: torch.library.Library | None = None) -> None:
    """Give an operator of batches its rule for torch.func.vmap and the older vmap; PyTorch's own cannot map lists.

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
        return vmap_rule(function, info, tuple(dims[number] for number in at), tuple(leaves[number] for number in at))

    def of_older_vmap(*arguments: Any) -> Any:
        """Map over one level of the vmap of autograd.grad(is_grads_batched=True)."""
        leaves, structure = tree_flatten(arguments)
        absent = 2**31  # the size given to a tensor that this level does not batch
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
    # for good, without `library`: functions of an earlier import still call the old operator, which outlives a second
    # definition only with such a rule
    if not torch._C._dispatch_has_kernel_for_dispatch_key(name, "Batched"):
        torch.library.impl(name, "Batched", of_older_vmap)
