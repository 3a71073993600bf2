"""The wavefront in JAX: batched, one anti-diagonal at a time, with hand-written derivatives.

Similarity and gaps are divided by the temperature T, so that every smooth maximum is a log-sum-exp: by T and not by
T ln 2, which would save a product in each exponential, because the sum of a large state and a gap such as -1 is exact,
whereas with -1 / ln 2 it is rounded in the same direction at every step. With c the choices of a state h, and a dot
for a tangent (divided by T, as are those of similarity and gaps):

    fill    h = log sum exp(c)                                  the states, forward
    shares  e = exp(c - h),  r = 1 / sum e,  w = r e            r is 1 up to the rounding of h
    pull    u = r d score / d h = r ([end] + sum over successors u e)        the marginals are sums of u e, backward
    push    h. = sum w (c. - T. ln w)                           the tangents of the states, forward
    pull.   x = c. - h. - T. ln e,  u. = r ([end]. + sum over successors e (u. + u (x - sum w x)))
                                                                Hessian times direction, backward

The shares of rounded states do not quite sum to 1. Without r that error would accumulate along a long path, and where
|h| / T is so large that the shares of a tie are 1 and 1, it would grow like a power of 2. Nor is x quite relative to
its mean: h. is rounded, and in a long alignment large.

XLA recomputes everything for every array that a step writes. So a step of pull gathers one state's gradient from the
successors of a cell; scattering from one cell would compute each share three times.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from jax_impl import block_exponent
from jax_impl.chunks import TABLE_BYTES, of_any_batch
from jax_impl.derivatives import scores_of
from jax_impl.diagonal_layout import DiagonalBatch, exp, sum_of_weights
from jax_impl.pairs import number_per_pair
from jax_impl.recurrences import Array, Parameters
from shared.alignments import SIMILARITY, Choice, Recurrence
from shared.tolerances import FORBIDDEN, LOWEST

Arrays = tuple[Array, ...]


def wavefront(
    recurrence: Recurrence, parameters: Parameters, s: Array, lengths: Array, *, text: str, platform: str
) -> Array:
    """Scores (*batch) of similarity (*batch, rows, cols), batch one axis or none, and zeros outside lengths.

    A third derivative raises CannotDifferentiate(text).
    """
    in_blocks = platform == "cpu" and block_exponent.applies(recurrence, s.dtype)
    return _scores(Wavefront(recurrence, tuple(parameters), in_blocks), text, s, lengths, tuple(parameters.values()))


_scores = jax.jit(scores_of, static_argnums=(0, 1))


def fill(batch: DiagonalBatch) -> list[Array]:
    """The states, in units of the temperature, as tables."""

    scaled = {**batch.scaled, "lowest": batch.lowest}

    def border(scaled: Parameters, gaps: Array, axis: int) -> tuple[Any, ...]:
        return batch.recurrence.border(scaled, gaps, axis, scaled["lowest"])

    def step(k: int, d: Array, tables: list[Array]) -> Array:
        largest, total = sum_of_weights(
            [batch.choice(choice, tables, batch.terms, d) for choice in batch.recurrence.states[k]]
        )
        return jnp.where(batch.inside(d), largest + jnp.log(total), border(scaled, d + 2, batch.axes[1])[k])

    return batch.forward(step, batch.border(border, scaled))


class Ends:
    """The scores, and the probability of each end of an alignment."""

    def __init__(self, batch: DiagonalBatch, states: list[Array]) -> None:
        self.batch, self.states, ends = batch, states, batch.recurrence.ends

        def values(d: Array) -> list[Array]:
            # the sum, not a select, propagates NaN as the native kernels and PyTorch do, and makes NaN of +inf
            term = jnp.where(batch.may_end(d), 0.0, -jnp.inf).astype(batch.s.dtype)
            return [batch.choice(end, states, batch.terms, d) + term for end in ends]

        best = batch.collect(lambda best, d: functools.reduce(jnp.maximum, values(d), best), batch.lowest)
        largest = best.reshape(batch.positions, batch.pairs).max(0)
        self.largest = batch.tiled(largest)
        weight = batch.collect(lambda sums, d: sum((exp(x - self.largest) for x in values(d)), sums), 0 * batch.lowest)
        # forbidden in units of the temperature, or of the similarity
        forbidden = largest <= batch.lowest[: batch.pairs] / 2
        best = jnp.where(forbidden, LOWEST, largest * batch.temperature)
        recurrence = batch.recurrence
        self.empty = recurrence.is_empty(best, batch.lengths)
        best = jnp.where(self.empty, recurrence.empty_score(batch.parameters, batch.lengths), best)
        self.impossible = best <= FORBIDDEN  # global pairs whose every alignment is forbidden
        log = jnp.log(jnp.maximum(batch.total(weight), 1.0))  # the largest contributes 1; without any end there is none
        scores = self.unless_empty(batch.temperature * (largest + log), batch.parameters)
        self.scores = jnp.where(self.impossible, -jnp.inf, scores)
        self.log = batch.tiled(jnp.where(self.empty | self.impossible, -LOWEST, log))

    def unless_empty(self, values: Array, parameters: Any) -> Array:
        """The values (batch,), replaced where there is no cell or no alignment; linear, so also for tangents."""
        instead = self.batch.recurrence.empty_score(parameters, self.batch.lengths)
        return jnp.where(self.impossible, 0.0, jnp.where(self.empty, instead, values))

    def logs(self, end: Choice, d: Any, at: tuple[int, int] = (0, 0)) -> Array:
        """Logarithm of the probability that the alignment ends in this way in the cells."""
        logs = self.batch.choice(end, self.states, self.batch.terms, d, at) - self.batch.spread(self.largest, d)
        logs -= self.batch.spread(self.log, d)
        return jnp.where(self.batch.may_end(d, at), logs, LOWEST)


class Shares:
    """The share that each choice has in its state."""

    def __init__(self, batch: DiagonalBatch, states: list[Array]) -> None:
        self.batch, self.states = batch, states
        inside = batch.inside(None)
        totals = [sum(exp(self.logs(k, c, None)) for c in cs) for k, cs in enumerate(batch.recurrence.states)]
        self.inverse = [jnp.where(inside, 1 / total, 0.0) for total in totals]  # each (D, P * batch)

    def logs(self, k: int, choice: Choice, d: Any, at: tuple[int, int] = (0, 0)) -> Array:
        """Logarithm of the shares of a choice of state k, before they are multiplied by the inverse of their sum."""
        return self.batch.choice(choice, self.states, self.batch.terms, d, at) - self.batch.read(self.states[k], d, at)

    def successors(self, k: int) -> list[tuple[int, Choice, tuple[int, int]]]:
        """The choices that read state k: the choosing state, the choice, and the offset of the choosing cell."""
        return [
            (number, choice, self.batch.offset(choice))
            for number, choices in enumerate(self.batch.recurrence.states)
            for choice in choices
            if choice.neighbour and choice.state == k
        ]


def pull(batch: DiagonalBatch, shares: Shares, ends: Ends) -> list[Array]:
    """The gradients of the scores with respect to the states, times the inverse of the sum of shares; tables."""

    def step(k: int, d: Array, tables: list[Array]) -> Array:
        parts = [exp(ends.logs(e, d, batch.offset(e))) for e in batch.recurrence.ends if e.state == k]
        for number, choice, at in shares.successors(k):
            parts.append(exp(shares.logs(number, choice, d, at)) * batch.read(tables[number], d, at))
        return sum(parts) * batch.row(shares.inverse[k], d)

    return batch.backward(step, [jnp.zeros_like(state) for state in shares.states])


def gradients(batch: DiagonalBatch, needed: tuple[bool, ...]) -> tuple[Array, Array, Arrays]:
    """Scores (batch,), and their gradients with respect to similarity and each needed parameter; 0 for the others."""
    states = fill(batch)
    ends, shares = Ends(batch, states), Shares(batch, states)
    d_states = pull(batch, shares, ends)

    def change(k: int, choice: Choice, d: Any) -> Array:
        return exp(shares.logs(k, choice, d)) * batch.read(d_states[k], d)

    def ending(end: Choice, d: Any) -> Array:
        return exp(ends.logs(end, d))

    uncertainty = functools.partial(_uncertainty, batch, ends, shares, change, ending)
    d_similarity = batch.unskew(_of_term(batch, SIMILARITY, change, ending))
    return ends.scores, d_similarity, _of_parameters(batch, needed, change, ending, uncertainty, ends)


def tangents(batch: DiagonalBatch, t_similarity: Array, t_parameters: Any) -> tuple[Array, Arrays]:
    """The tangents, in a direction, of the gradients with respect to similarity and each parameter."""
    states = fill(batch)
    ends, shares = Ends(batch, states), Shares(batch, states)
    d_states, inverses = pull(batch, shares, ends), [batch.table(_log_inverse(r)) for r in shares.inverse]
    by_temperature = {name: batch.by_temperature(value) for name, value in t_parameters.items()}
    warming = batch.tiled(by_temperature["temperature"])
    t_scaled, t_by_position = batch.arranged(by_temperature)
    t_terms = {SIMILARITY: batch.skew(batch.by_temperature(t_similarity)), **t_by_position, **t_scaled}

    def push(k: int, d: Array, tables: list[Array]) -> Array:
        parts = []
        for choice in batch.recurrence.states[k]:
            log, inverse = shares.logs(k, choice, d), batch.read(inverses[k], d)
            parts.append(exp(log) * (batch.choice(choice, tables, t_terms, d) - warming * (log + inverse)))
        outside = batch.recurrence.border_tangent(t_scaled, d + 2, batch.axes[1])[k]
        return jnp.where(batch.inside(d), sum(parts) * batch.row(shares.inverse[k], d), outside)

    t_states = batch.forward(push, batch.border(batch.recurrence.border_tangent, t_scaled))

    def worth(end: Choice, d: Any, at: tuple[int, int] = (0, 0)) -> tuple[Array, Array]:
        """The probability of an end, and the tangent of its value less that of its logarithm."""
        log = ends.logs(end, d, at)
        return exp(log), batch.choice(end, t_states, t_terms, d, at) - batch.spread(warming, d) * log

    parts = lambda d: (probability * t for probability, t in (worth(end, d) for end in batch.recurrence.ends))  # noqa: E731
    t_scores = batch.collect(lambda sums, d: sum(parts(d), sums), jnp.zeros_like(warming))
    t_scores = batch.tiled(batch.total(t_scores))

    def ending(end: Choice, d: Any, at: tuple[int, int] = (0, 0)) -> Array:
        probability, t_worth = worth(end, d, at)
        return probability * (t_worth - batch.spread(t_scores, d))

    def relative(k: int, choice: Choice, d: Any, at: tuple[int, int] = (0, 0)) -> tuple[Array, Array]:
        """e and x of a choice."""
        log = shares.logs(k, choice, d, at)
        t_choice = batch.choice(choice, t_states, t_terms, d, at) - batch.read(t_states[k], d, at)
        return exp(log), t_choice - batch.spread(warming, d) * log

    means = []
    for k, choices in enumerate(batch.recurrence.states):
        mean = sum(weight * t for weight, t in (relative(k, choice, None) for choice in choices)) * shares.inverse[k]
        means.append(batch.table(mean))

    def share(k: int, choice: Choice, t_d_states: list[Array], d: Any, at: tuple[int, int] = (0, 0)) -> Array:
        weight, t_log = relative(k, choice, d, at)
        t_log -= batch.read(means[k], d, at)
        return weight * (batch.read(t_d_states[k], d, at) + batch.read(d_states[k], d, at) * t_log)

    def step(k: int, d: Array, tables: list[Array]) -> Array:
        parts = [ending(e, d, batch.offset(e)) for e in batch.recurrence.ends if e.state == k]
        parts += [share(number, choice, tables, d, at) for number, choice, at in shares.successors(k)]
        return sum(parts) * batch.row(shares.inverse[k], d)

    t_d_states = batch.backward(step, [jnp.zeros_like(state) for state in states])

    def change(k: int, choice: Choice, d: Any) -> Array:
        return share(k, choice, t_d_states, d)

    needed = (True,) * len(t_parameters)
    uncertainty = functools.partial(_uncertainty, batch, ends, shares, change, ending)
    d_similarity = batch.unskew(_of_term(batch, SIMILARITY, change, ending))
    return d_similarity, _of_parameters(batch, needed, change, ending, uncertainty, None)


def _log_inverse(inverse: Array) -> Array:
    """Logarithm of the inverse of the sum of the shares; 0 outside lengths."""
    return jnp.log(jnp.where(inverse > 0, inverse, 1.0))


def _of_term(batch: DiagonalBatch, name: str, change: Callable, ending: Callable, d: Any = None) -> Array:
    """The gradient with respect to a term in the cells, from those with respect to choices and ends there."""
    parts = [ending(end, d) for end in batch.recurrence.ends if name in end.terms]
    for k, choices in enumerate(batch.recurrence.states):
        for choice in choices:
            counts = batch.count(choice, name, d)
            if not isinstance(counts, float) or counts:
                parts.append(change(k, choice, d) * counts)
    return sum(parts[1:], parts[0])


def _uncertainty(
    batch: DiagonalBatch, ends: Ends, shares: Shares, change: Callable, ending: Callable, d: Array
) -> Array:
    """The gradient with respect to the temperature in the cells: the entropy of ends and shares."""
    parts = [ending(end, d) * ends.logs(end, d) for end in batch.recurrence.ends]
    for k, choices in enumerate(batch.recurrence.states):
        inverse = _log_inverse(batch.row(shares.inverse[k], d))
        parts += [change(k, choice, d) * (shares.logs(k, choice, d) + inverse) for choice in choices]
    return -sum(parts[1:], parts[0])


def _of_parameters(
    batch: DiagonalBatch,
    needed: tuple[bool, ...],
    change: Callable,
    ending: Callable,
    uncertainty: Callable,
    ends: Ends | None,
) -> Arrays:
    """The gradients with respect to the parameters, each like it. ends: for those of an empty pair."""
    results = []
    for name, is_needed in zip(batch.parameters, needed, strict=True):
        if not is_needed:
            results.append(jnp.zeros_like(batch.parameters[name]))
            continue
        if name in batch.matrices:
            results.append(batch.unskew(_of_term(batch, name, change, ending)))
            continue
        zero = jnp.zeros(batch.limit.shape, batch.s.dtype)
        of_cells = uncertainty if name == "temperature" else functools.partial(_of_term, batch, name, change, ending)
        value = batch.total(batch.collect(lambda sums, d, own=of_cells: sums + own(d=d), zero))
        if ends and name != "temperature":
            value = ends.unless_empty(value, {n: jnp.full_like(value, n == name) for n in batch.scaled})
        results.append(value)
    return tuple(results)


@dataclass(frozen=True)
class Wavefront:
    """The engine of a recurrence, for jax_impl.derivatives. Arrays have a batch axis or none."""

    recurrence: Recurrence
    names: tuple[str, ...]  # of its parameters
    in_blocks: bool  # by block exponents where these are valid: scores, and gradients of similarity alone

    def score(self, s: Array, lengths: Array, parameters: Arrays) -> Array:
        """Scores (*batch)."""

        def function(s: Array, lengths: Array, *parameters: Array) -> tuple[Array, ...]:
            def in_logarithms() -> tuple[Array, ...]:
                batch = self._batch(s, lengths, parameters)
                return (Ends(batch, fill(batch)).scores,)

            if not self.in_blocks:
                return in_logarithms()
            scores, valid = block_exponent.scores(self.recurrence, s, lengths, self._by_name(parameters))
            return block_exponent.replace_invalid((scores,), valid, in_logarithms)

        # without derivatives only half as many arrays compete for the cache
        table_bytes = TABLE_BYTES if self.in_blocks else 2 * TABLE_BYTES
        (scores,) = of_any_batch(function, [number_per_pair(s)], s, lengths, *parameters, table_bytes=table_bytes)
        return scores

    def gradients(
        self, needed: tuple[bool, ...], s: Array, lengths: Array, parameters: Arrays
    ) -> tuple[Array, Array, Arrays]:
        """Scores, and their gradients with respect to similarity and each needed parameter; 0 for the others."""

        def function(s: Array, lengths: Array, *parameters: Array) -> tuple[Array, ...]:
            def in_logarithms() -> tuple[Array, ...]:
                scores, d_similarity, rest = gradients(self._batch(s, lengths, parameters), needed)
                return scores, d_similarity, *rest

            if not self.in_blocks or any(needed):
                return in_logarithms()
            results, valid = block_exponent.gradients(self.recurrence, s, lengths, self._by_name(parameters))
            nothing = tuple(jnp.zeros_like(value) for value in parameters)
            return block_exponent.replace_invalid((*results, *nothing), valid, in_logarithms)

        results = [number_per_pair(s), *map(jax.typeof, (s, *parameters))]
        scores, d_similarity, *rest = of_any_batch(function, results, s, lengths, *parameters)
        return scores, d_similarity, tuple(rest)

    def tangents(
        self, s: Array, lengths: Array, parameters: Arrays, t_s: Array, t_parameters: Arrays
    ) -> tuple[Array, Arrays]:
        """The tangents of the gradients in a direction."""
        count = len(self.names)

        def function(s: Array, lengths: Array, t_s: Array, *values: Array) -> tuple[Array, ...]:
            batch = self._batch(s, lengths, values[:count])
            d_similarity, rest = tangents(batch, t_s, dict(zip(self.names, values[count:], strict=True)))
            return d_similarity, *rest

        results = map(jax.typeof, (s, *parameters))
        d_similarity, *rest = of_any_batch(function, results, s, lengths, t_s, *parameters, *t_parameters)
        return d_similarity, tuple(rest)

    def product(self, s: Array, lengths: Array, parameters: Arrays, t_s: Array) -> Array:
        """The tangent of the gradient with respect to similarity, in a direction that leaves the parameters alone."""
        return self.tangents(s, lengths, parameters, t_s, tuple(map(jnp.zeros_like, parameters)))[0]

    def _batch(self, s: Array, lengths: Array, parameters: Arrays) -> DiagonalBatch:
        return DiagonalBatch(self.recurrence, s, lengths, self._by_name(parameters))

    def _by_name(self, parameters: Arrays) -> Parameters:
        return dict(zip(self.names, parameters, strict=True))
