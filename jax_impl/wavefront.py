"""The fast sweep in JAX: all pairs abreast, anti-diagonal after anti-diagonal, with derivatives written by hand.

Similarity and gaps are divided by the temperature T, so that every smooth maximum is a log-sum-exp: by T and not by
T ln 2, which would save a product in each exponential, because the sum of a large state and a gap such as -1 is exact,
but with -1 / ln 2 it is rounded to the same side all the way. With c the choices of a state h, and a dot for a tangent
(divided by T, as are those of similarity and gaps):

    fill    h = log sum exp(c)                                  the states, forward
    shares  e = exp(c - h),  r = 1 / sum e,  w = r e            r is 1 but for the rounding of h
    pull    u = r d score / d h = r ([end] + sum over successors u e)        the marginals are sums of u e, backward
    push    h. = sum w (c. - T. ln w)                           the tangents of the states, forward
    pull.   u. = r ([end]. + sum over successors e (u. + u (c. - h. - T. ln w)))     Hessian times direction, backward

Rounded states give shares whose sum is not quite 1. Without r that would add up over a long path, and where |h| / T is
so large that a tie's shares are 1 and 1, it would grow like a power of 2.

The compiler computes everything anew for every array that a step writes. So a step of pull gathers from the successors
of a cell what one state's slope is made of; to scatter what is known in one cell would compute each share three times.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from jax_impl.derivatives import scores_of
from jax_impl.diagonal_layout import Walk, exp, sum_of_odds
from jax_impl.recurrences import Array, Parameters
from jax_impl.vmap_batching import TABLE_BYTES, of_any_batch
from shared.alignments import SIMILARITY, Choice, Recurrence
from shared.tolerances import LOWEST

Arrays = tuple[Array, ...]


def wavefront(recurrence: Recurrence, parameters: Parameters, s: Array, lengths: Array, *, text: str) -> Array:
    """Scores (*batch) of similarity (*batch, rows, cols), batch one axis or none, and zeros outside lengths.

    A third derivative raises CannotDifferentiate(text).
    """
    return _scores(Wavefront(recurrence, tuple(parameters)), text, s, lengths, tuple(parameters.values()))


_scores = jax.jit(scores_of, static_argnums=(0, 1))


def fill(walk: Walk) -> list[Array]:
    """The states, in units of the temperature, as tables."""

    def step(k: int, d: Array, tables: list[Array]) -> Array:
        largest, total = sum_of_odds(
            [walk.choice(choice, tables, walk.terms, d) for choice in walk.recurrence.states[k]]
        )
        return jnp.where(walk.inside(d), largest + jnp.log(total), walk.recurrence.border(walk.scaled, d)[k])

    return walk.forward(step, walk.border(walk.recurrence.border, walk.scaled))


class Ends:
    """Where alignments end: the scores, and what is needed to differentiate them."""

    def __init__(self, walk: Walk, states: list[Array]) -> None:
        self.walk, self.states, endings = walk, states, walk.recurrence.ends

        def worths(d: Array) -> list[Array]:
            # not selected: the least of both lets NaN through, as in the native kernels and PyTorch
            limit = jnp.where(walk.may_end(d), jnp.inf, LOWEST).astype(walk.s.dtype)
            return [jnp.minimum(walk.choice(end, states, walk.terms, d), limit) for end in endings]

        lowest = jnp.full(walk.limit.shape, LOWEST, walk.s.dtype)
        best = walk.collect(lambda best, d: functools.reduce(jnp.maximum, worths(d), best), lowest)
        largest = best.reshape(walk.positions, walk.batch).max(0)
        self.largest = walk.tiled(largest)
        odds = walk.collect(lambda sums, d: sum((exp(x - self.largest) for x in worths(d)), sums), 0 * lowest)
        # as low as LOWEST in the units of the walk, or in those of the similarity
        best = jnp.where(largest <= LOWEST / 2, LOWEST, largest * walk.temperature)
        self.empty = walk.recurrence.is_empty(best, walk.lengths)
        log = jnp.log(jnp.where(self.empty, 1.0, walk.total(odds)))
        self.scores = self.unless_empty(walk.temperature * (largest + log), walk.parameters)
        self.log = walk.tiled(jnp.where(self.empty, -LOWEST, log))

    def unless_empty(self, values: Array, parameters: Any) -> Array:
        """The values (batch,), but where there is no alignment what it counts by these parameters. Linear."""
        return jnp.where(self.empty, self.walk.recurrence.empty_score(parameters, self.walk.lengths), values)

    def logs(self, end: Choice, d: Any, at: tuple[int, int] = (0, 0)) -> Array:
        """Logarithm of the probability that the alignment ends in this way in the cells."""
        logs = self.walk.choice(end, self.states, self.walk.terms, d, at) - self.largest - self.log
        return jnp.where(self.walk.may_end(d, at), logs, LOWEST)


class Shares:
    """How much each choice counts in its state."""

    def __init__(self, walk: Walk, states: list[Array]) -> None:
        self.walk, self.states = walk, states
        inside = walk.inside(None)
        totals = [sum(exp(self.logs(k, c, None)) for c in cs) for k, cs in enumerate(walk.recurrence.states)]
        self.inverse = [jnp.where(inside, 1 / total, 0.0) for total in totals]  # each (D, P * batch)

    def logs(self, k: int, choice: Choice, d: Any, at: tuple[int, int] = (0, 0)) -> Array:
        """Logarithm of the shares of a choice of state k, before they are multiplied by the inverse of their sum."""
        return self.walk.choice(choice, self.states, self.walk.terms, d, at) - self.walk.read(self.states[k], d, at)

    def successors(self, k: int) -> list[tuple[int, Choice, tuple[int, int]]]:
        """The choices that read state k: of which state, which, and where that cell stands."""
        return [
            (number, choice, self.walk.offset(choice))
            for number, choices in enumerate(self.walk.recurrence.states)
            for choice in choices
            if choice.neighbour and choice.state == k
        ]


def pull(walk: Walk, shares: Shares, ends: Ends) -> list[Array]:
    """The derivatives of the scores for the states, times the inverse of the sum of these states' shares; tables."""

    def step(k: int, d: Array, tables: list[Array]) -> Array:
        parts = [exp(ends.logs(e, d, walk.offset(e))) for e in walk.recurrence.ends if e.state == k]
        for number, choice, at in shares.successors(k):
            parts.append(exp(shares.logs(number, choice, d, at)) * walk.read(tables[number], d, at))
        return sum(parts) * walk.row(shares.inverse[k], d)

    return walk.backward(step, [jnp.zeros_like(state) for state in shares.states])


def gradients(walk: Walk, wanted: tuple[bool, ...]) -> tuple[Array, Array, Arrays]:
    """Scores (batch,), and their derivatives for similarity and for each wanted parameter; 0 for the others."""
    states = fill(walk)
    ends, shares = Ends(walk, states), Shares(walk, states)
    slopes = pull(walk, shares, ends)

    def change(k: int, choice: Choice, d: Any) -> Array:
        return exp(shares.logs(k, choice, d)) * walk.read(slopes[k], d)

    def ending(end: Choice, d: Any) -> Array:
        return exp(ends.logs(end, d))

    uncertainty = functools.partial(_uncertainty, walk, ends, shares, change, ending)
    d_similarity = walk.unskew(_of_term(walk, SIMILARITY, change, ending))
    return ends.scores, d_similarity, _of_parameters(walk, wanted, change, ending, uncertainty, ends)


def tangents(walk: Walk, t_similarity: Array, t_parameters: Any) -> tuple[Array, Arrays]:
    """What the derivatives for similarity and for each parameter change by in a direction."""
    states = fill(walk)
    ends, shares = Ends(walk, states), Shares(walk, states)
    slopes, inverses = pull(walk, shares, ends), [walk.table(_log_inverse(r)) for r in shares.inverse]
    by_temperature = {name: value / walk.temperature for name, value in t_parameters.items()}
    warming = walk.tiled(by_temperature["temperature"])
    t_scaled = {name: walk.tiled(by_temperature[name]) for name in walk.names}
    t_terms = {SIMILARITY: walk.skew(t_similarity / walk.temperature[:, None, None]), **t_scaled}

    def push(k: int, d: Array, tables: list[Array]) -> Array:
        parts = []
        for choice in walk.recurrence.states[k]:
            log, inverse = shares.logs(k, choice, d), walk.read(inverses[k], d)
            parts.append(exp(log) * (walk.choice(choice, tables, t_terms, d) - warming * (log + inverse)))
        outside = walk.recurrence.border_tangent(t_scaled, d)[k]
        return jnp.where(walk.inside(d), sum(parts) * walk.row(shares.inverse[k], d), outside)

    t_states = walk.forward(push, walk.border(walk.recurrence.border_tangent, t_scaled))

    def worth(end: Choice, d: Any, at: tuple[int, int] = (0, 0)) -> tuple[Array, Array]:
        """The probability of an ending, and what its worth and its rarity change by."""
        log = ends.logs(end, d, at)
        return exp(log), walk.choice(end, t_states, t_terms, d, at) - warming * log

    parts = lambda d: (probability * t for probability, t in (worth(end, d) for end in walk.recurrence.ends))  # noqa: E731
    t_scores = walk.collect(lambda sums, d: sum(parts(d), sums), jnp.zeros_like(warming))
    t_scores = walk.tiled(walk.total(t_scores))

    def ending(end: Choice, d: Any, at: tuple[int, int] = (0, 0)) -> Array:
        probability, t_worth = worth(end, d, at)
        return probability * (t_worth - t_scores)

    def share(k: int, choice: Choice, t_slopes: list[Array], d: Any, at: tuple[int, int] = (0, 0)) -> Array:
        log = shares.logs(k, choice, d, at)
        t_choice = walk.choice(choice, t_states, t_terms, d, at) - walk.read(t_states[k], d, at)
        t_log = t_choice - warming * (log + walk.read(inverses[k], d, at))
        return exp(log) * (walk.read(t_slopes[k], d, at) + walk.read(slopes[k], d, at) * t_log)

    def step(k: int, d: Array, tables: list[Array]) -> Array:
        parts = [ending(e, d, walk.offset(e)) for e in walk.recurrence.ends if e.state == k]
        parts += [share(number, choice, tables, d, at) for number, choice, at in shares.successors(k)]
        return sum(parts) * walk.row(shares.inverse[k], d)

    t_slopes = walk.backward(step, [jnp.zeros_like(state) for state in states])

    def change(k: int, choice: Choice, d: Any) -> Array:
        return share(k, choice, t_slopes, d)

    wanted = (True,) * len(t_parameters)
    uncertainty = functools.partial(_uncertainty, walk, ends, shares, change, ending)
    d_similarity = walk.unskew(_of_term(walk, SIMILARITY, change, ending))
    return d_similarity, _of_parameters(walk, wanted, change, ending, uncertainty, None)


def _log_inverse(inverse: Array) -> Array:
    """Logarithm of the inverse of the sum of the shares; 0 outside lengths."""
    return jnp.log(jnp.where(inverse > 0, inverse, 1.0))


def _of_term(walk: Walk, name: str, change: Callable, ending: Callable, d: Any = None) -> Array:
    """The derivatives for a term in the cells. change, ending: the derivatives for choices and for endings there."""
    parts = [ending(end, d) for end in walk.recurrence.ends if name in end.terms]
    for k, choices in enumerate(walk.recurrence.states):
        for choice in choices:
            counts = walk.count(choice, name, d)
            if not isinstance(counts, float) or counts:
                parts.append(change(k, choice, d) * counts)
    return sum(parts[1:], parts[0])


def _uncertainty(walk: Walk, ends: Ends, shares: Shares, change: Callable, ending: Callable, d: Array) -> Array:
    """The derivatives for the temperature in the cells: of the entropy of endings and shares."""
    parts = [ending(end, d) * ends.logs(end, d) for end in walk.recurrence.ends]
    for k, choices in enumerate(walk.recurrence.states):
        inverse = _log_inverse(walk.row(shares.inverse[k], d))
        parts += [change(k, choice, d) * (shares.logs(k, choice, d) + inverse) for choice in choices]
    return -sum(parts[1:], parts[0])


def _of_parameters(
    walk: Walk, wanted: tuple[bool, ...], change: Callable, ending: Callable, uncertainty: Callable, ends: Ends | None
) -> Arrays:
    """The derivatives for the parameters, each (batch,). ends: where those of an empty pair come from."""
    results = []
    for name, is_wanted in zip(walk.parameters, wanted, strict=True):
        zero = jnp.zeros(walk.limit.shape, walk.s.dtype)
        if not is_wanted:
            results.append(zero[: walk.batch])
            continue
        of_cells = uncertainty if name == "temperature" else functools.partial(_of_term, walk, name, change, ending)
        value = walk.total(walk.collect(lambda sums, d, own=of_cells: sums + own(d=d), zero))
        if ends and name != "temperature":
            value = ends.unless_empty(value, {n: jnp.full_like(value, n == name) for n in walk.names})
        results.append(value)
    return tuple(results)


@dataclass(frozen=True)
class Wavefront:
    """The engine of a recurrence, for jax_impl.derivatives. Arrays are those of a batch, or of a single pair."""

    recurrence: Recurrence
    names: tuple[str, ...]  # of its parameters

    def score(self, s: Array, lengths: Array, parameters: Arrays) -> Array:
        """Scores (*batch)."""

        def function(s: Array, lengths: Array, *parameters: Array) -> tuple[Array, ...]:
            walk = self._walk(s, lengths, parameters)
            return (Ends(walk, fill(walk)).scores,)

        # without derivatives half as many arrays share the cache
        return of_any_batch(function, 2 * TABLE_BYTES)(s, lengths, *parameters)[0]

    def gradients(
        self, wanted: tuple[bool, ...], s: Array, lengths: Array, parameters: Arrays
    ) -> tuple[Array, Array, Arrays]:
        """Scores, and their derivatives for similarity and for each wanted parameter; 0 for the others."""

        def function(s: Array, lengths: Array, *parameters: Array) -> tuple[Array, ...]:
            scores, d_similarity, rest = gradients(self._walk(s, lengths, parameters), wanted)
            return scores, d_similarity, *rest

        scores, d_similarity, *rest = of_any_batch(function)(s, lengths, *parameters)
        return scores, d_similarity, tuple(rest)

    def tangents(
        self, s: Array, lengths: Array, parameters: Arrays, t_s: Array, t_parameters: Arrays
    ) -> tuple[Array, Arrays]:
        """What the derivatives change by in a direction."""
        count = len(self.names)

        def function(s: Array, lengths: Array, t_s: Array, *values: Array) -> tuple[Array, ...]:
            walk = self._walk(s, lengths, values[:count])
            d_similarity, rest = tangents(walk, t_s, dict(zip(self.names, values[count:], strict=True)))
            return d_similarity, *rest

        d_similarity, *rest = of_any_batch(function)(s, lengths, t_s, *parameters, *t_parameters)
        return d_similarity, tuple(rest)

    def _walk(self, s: Array, lengths: Array, parameters: Arrays) -> Walk:
        return Walk(self.recurrence, s, lengths, dict(zip(self.names, parameters, strict=True)))
