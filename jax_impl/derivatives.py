"""Derivatives of an engine's scores, under every transform of JAX.

With S(x) a pair's score, x its similarity and its parameters, and t a direction, an engine computes S, dS/dx and H t,
where H is the symmetric matrix of second derivatives. Two rules make them differentiable under every transform:

    S      has the tangent <dS/dx, t>, and S and dS/dx come from the same call
    dS/dx  has the tangent H t, a self-adjoint function of t

Shapes: similarity (*batch, rows, cols), lengths (*batch, 2) of integers, parameters a tuple of (*batch), or of
(*batch, rows, cols) for a gap by position, in the order of shared.alignments.ALIGNMENTS; batch is one axis or none.
"""

import functools
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero

from jax_impl.arguments import inside
from jax_impl.custom_transpose import Linear

Array = jax.Array
Arrays = tuple[Array, ...]


class Engine(Protocol):
    """Computes scores and derivatives; not differentiable itself. Hashable, because JAX's caches are keyed by it."""

    def score(self, similarity: Array, lengths: Array, parameters: Arrays, /) -> Array:
        """Scores (*batch)."""
        ...

    def gradients(
        self, needed: tuple[bool, ...], similarity: Array, lengths: Array, parameters: Arrays, /
    ) -> tuple[Array, Array, Arrays]:
        """Scores, and their gradients for similarity and parameters; anything finite for those not needed."""
        ...

    def tangents(
        self, similarity: Array, lengths: Array, parameters: Arrays, t_similarity: Array, t_parameters: Arrays, /
    ) -> tuple[Array, Arrays]:
        """The tangents of these gradients in a direction: the Hessian times the direction."""
        ...

    def product(self, similarity: Array, lengths: Array, parameters: Arrays, t_similarity: Array, /) -> Array:
        """The tangent of the gradient for similarity alone, in a direction that leaves the parameters alone."""
        ...


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def scores_of(engine: Engine, text: str, similarity: Array, lengths: Array, parameters: Arrays) -> Array:
    """The engine's scores, which can be differentiated twice; a third time raises CannotDifferentiate(text).

    The arrays' batch axes are of one type, as jax_impl.pairs.of_one_type makes them.
    """
    return engine.score(similarity, lengths, parameters)


@functools.partial(scores_of.defjvp, symbolic_zeros=True)
def _score_tangent(engine: Engine, text: str, primals: Any, tangents: Any) -> tuple[Array, Array]:
    t_similarity, _, t_parameters = tangents
    needed = tuple(not _is_zero(tangent) for tangent in t_parameters)
    scores, d_similarity, d_parameters = _gradients(engine, text, needed, *primals)
    return scores, _directional(primals[1], (*d_parameters, d_similarity), (*t_parameters, t_similarity))


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1, 2))
def _gradients(
    engine: Engine, text: str, needed: tuple[bool, ...], similarity: Array, lengths: Array, parameters: Arrays
) -> tuple[Array, Array, Arrays]:
    return engine.gradients(needed, similarity, lengths, parameters)


@functools.partial(_gradients.defjvp, symbolic_zeros=True)
def _gradients_tangent(engine: Engine, text: str, needed: tuple[bool, ...], primals: Any, tangents: Any) -> Any:
    similarity, lengths, parameters = primals
    t_similarity, _, t_parameters = tangents
    needed = tuple(before or not _is_zero(t) for before, t in zip(needed, t_parameters, strict=True))
    results = _gradients(engine, text, needed, similarity, lengths, parameters)
    direction = [
        jnp.zeros_like(value) if _is_zero(tangent) else tangent
        for value, tangent in zip((similarity, *parameters), (t_similarity, *t_parameters), strict=True)
    ]
    t_d_similarity, *rest = _Product(engine, text, any(needed))((similarity, lengths, *parameters), direction)
    t_scores = _directional(lengths, (*results[2], results[1]), (*t_parameters, t_similarity))
    return results, (t_scores, t_d_similarity, tuple(rest))


@dataclass(frozen=True)
class _Product:
    """H t, the Hessian times a direction. H is symmetric, so this function is self-adjoint.

    Without parameters, those of the direction count as zeros, and those of the result are zeros.
    """

    engine: Engine
    text: str
    with_parameters: bool

    def __call__(self, at: Sequence[Array], direction: Sequence[Array]) -> list[Array]:
        return Linear(_Tangents(self.engine, self.with_parameters), self, self.text)(at, direction)


@dataclass(frozen=True)
class _Tangents:
    engine: Engine
    with_parameters: bool

    def __call__(self, at: Sequence[Array], direction: Sequence[Array]) -> list[Array]:
        similarity, lengths, *parameters = at
        t_similarity, *t_parameters = direction
        if not self.with_parameters:
            product = self.engine.product(similarity, lengths, tuple(parameters), t_similarity)
            return [product, *map(jnp.zeros_like, t_parameters)]
        product, rest = self.engine.tangents(similarity, lengths, tuple(parameters), t_similarity, tuple(t_parameters))
        return [product, *rest]


def _directional(lengths: Array, gradients: Arrays, direction: Sequence[Any]) -> Array:
    """The tangent of the scores, from their gradients."""
    terms = [_along(lengths, d, t) for d, t in zip(gradients, direction, strict=True) if not _is_zero(t)]
    return functools.reduce(operator.add, terms)


def _along(lengths: Array, gradient: Array, tangent: Array) -> Array:
    """The contribution of one argument, a number per pair or a matrix, to the tangents of the scores."""
    if gradient.ndim < lengths.ndim:
        return gradient * tangent
    # the gradients are 0 outside lengths, but a tangent may be anything there
    (masked,) = Linear(_inside, _unchanged, "")((lengths,), (tangent,))
    return (gradient * masked).sum(axis=(-2, -1))


def _inside(fixed: Sequence[Array], arguments: Sequence[Array]) -> list[Array]:
    (lengths,), (matrix,) = fixed, arguments
    return [jnp.where(inside(lengths, *matrix.shape[-2:]), matrix, 0)]


def _unchanged(_: Sequence[Array], cotangents: Sequence[Array]) -> list[Array]:
    """The transpose of _inside for cotangents that are 0 outside, as they are here: no pass over the matrix."""
    return list(cotangents)


def _is_zero(tangent: Any) -> bool:
    return isinstance(tangent, SymbolicZero)
