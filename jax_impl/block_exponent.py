"""Alignments with one gap cost and block exponents: products and sums in place of logarithms.

A step of the wavefront in log space takes a logarithm and three exponentials for each cell. With weights
H = exp(h / T), w = exp(s / T) of a match and g = exp(gap / T), all exponentials are one operation before the loop. One
power of two 2^e for each pair and position keeps weights in range, renewed every BLOCK anti-diagonals:

    forward    H = w (one + q H_diagonal) + g (H_left + q H_up)    one = 2^-e, q = 2^(e of the position before - e)
    score      T log Z,  Z = sum of H over the ends
    backward   U = d log Z / d H = [end] 2^e / Z + g (U_right + q U_down) + q w U_diagonal
    marginals  w (one + q H_diagonal) U

Changing an exponent is exact, so results do not depend on when that happens, unless a number leaves the range of
float32. In a block no state falls below g^BLOCK times its position's last one before, which is about 2^FIRST_EXPONENT;
a local alignment's exponents never go below 0, the exponent of a start. Overflow is checked after the sweep. Weights
that underflow are looked for before it, where cheap gaps might make them count. A pair that fails a check is computed
in logarithms instead, whatever the other pairs of the batch are.

A global alignment gets its border as a row and a column of cells without a match, and starts in the first of them.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jax_impl.arguments import inside
from jax_impl.diagonal_layout import LOG2_E, exp, pin
from jax_impl.recurrences import Array, Parameters
from shared.alignments import ANYWHERE, IN_THE_LAST_CELL, ON_A_LATER_MATCH, Recurrence
from shared.tolerances import (
    FIRST_EXPONENT,
    LARGEST_MATCH,
    LARGEST_TOTAL,
    LEAST_EXPONENT,
    LEAST_LOST,
    MOST_DECAY,
    MOST_GROWTH,
    MOST_LOST,
    MOST_STEEP,
)

Arrays = tuple[Array, ...]

BLOCK = 5  # anti-diagonals with the same exponents


def applies(recurrence: Recurrence, dtype: Any) -> bool:
    """Whether alignments of this kind are computed with block exponents."""
    is_plain = len(recurrence.states) == 1 and not (recurrence.is_cost or recurrence.is_by_axis)
    return is_plain and not recurrence.by_position and dtype == jnp.float32


def scores(recurrence: Recurrence, s: Array, lengths: Array, parameters: Parameters) -> tuple[Array, Array]:
    """Scores (batch,), and whether they are valid."""
    batch = BlockBatch(recurrence, s, lengths, parameters)
    _, *of_blocks, _ = forward(batch, keep=False)
    return Ends(batch, *of_blocks).scores()


def gradients(
    recurrence: Recurrence, s: Array, lengths: Array, parameters: Parameters
) -> tuple[tuple[Array, Array], Array]:
    """Scores (batch,) and their gradients with respect to similarity, and whether both are valid."""
    batch = BlockBatch(recurrence, s, lengths, parameters)
    states, exponents, sums, totals, entering = forward(batch, keep=True)
    ends = Ends(batch, exponents, sums, totals)
    marginals, finite = backward(batch, states, exponents, ends)
    scores, valid = ends.scores()
    valid &= batch.of_pairs(entering, jnp.max) < LARGEST_TOTAL
    return (scores, batch.unskew(marginals)), valid & finite


def replace_invalid(results: Arrays, valid: Array, otherwise: Callable[[], Arrays]) -> Arrays:
    """The results, and for the other pairs those of `otherwise`, which is called only if there are any."""

    def replaced() -> Arrays:
        pairs = zip(results, otherwise(), strict=True)
        return tuple(jnp.where(valid.reshape(-1, *[1] * (new.ndim - 1)), old, new) for old, new in pairs)

    return jax.lax.cond(jnp.all(valid), lambda: results, replaced)


class BlockBatch:
    """A batch by anti-diagonals, as in diagonal_layout, but with one position as margin on one side only.

    States have it before the first position, match weights and gradients after the last. `head` and `tail` of an array
    (P + 1) * batch are its (P * batch) first and last numbers.
    """

    def __init__(self, recurrence: Recurrence, s: Array, lengths: Array, parameters: Parameters) -> None:
        self.recurrence, self.temperature = recurrence, parameters["temperature"]
        self.shape = s.shape
        self.transposed = s.shape[2] < s.shape[1]  # positions are columns, where they are the shorter side
        if self.transposed:
            s, lengths = jnp.swapaxes(s, 1, 2), lengths[:, ::-1]
        self.is_global = recurrence.is_global
        self.empty = jnp.any(lengths == 0, axis=1) & (not self.is_global)
        self.border = int(self.is_global)
        lengths = lengths + self.border
        self.pairs, self.positions, self.across = s.shape[0], s.shape[1] + self.border, s.shape[2] + self.border
        self.size = self.positions * self.pairs
        self.position = jnp.arange(self.size, dtype=lengths.dtype) // self.pairs
        self.blocks = -(-(self.positions + self.across - 1) // BLOCK)
        gap = parameters.get("gap", jnp.zeros_like(self.temperature)) / self.temperature
        self.decay = jnp.abs(gap) * LOG2_E * BLOCK
        # after these no cell is inside lengths of a pair that may be valid
        used_blocks = -(-(lengths.sum(1) - 1) // BLOCK)
        self.used_blocks = jnp.max(jnp.where(self.decay <= MOST_DECAY, used_blocks, 0))
        self.largest_match = jnp.exp2(LARGEST_MATCH - self.decay)
        self.gap_weights = self.tiled(jnp.exp(gap))
        # of positions whose border cell is still to come
        decay = jnp.clip(gap * LOG2_E, -MOST_DECAY, MOST_DECAY)
        position = self.position.astype(decay.dtype)
        begin = jnp.round(self.tiled(decay) * position) - FIRST_EXPONENT if self.is_global else 0 * position
        self.first_exponents = jnp.pad(begin.astype(jnp.int32), (self.pairs, 0))
        self.last = self.tiled(lengths[:, 0]) - 1, self.tiled(lengths[:, 1]) - 1
        self.across_inside = jnp.where(self.position <= self.last[0], self.last[1] + 1, 0)
        self.match_weights = self._match_weights(s, lengths - self.border)
        self.lost = jnp.zeros_like(self.empty) if self.is_global else self._lost(s, lengths, gap * LOG2_E)

    def tiled(self, values: Array) -> Array:
        """One value of each pair, (batch) -> (P * batch)."""
        return jnp.tile(values, self.positions)

    def head(self, values: Array) -> Array:
        return jax.lax.slice(values, (0,), (self.size,))

    def tail(self, values: Array) -> Array:
        return jax.lax.slice(values, (self.pairs,), (self.size + self.pairs,))

    def step(self, exponents: Array) -> Array:
        """The exponents of the positions before less those of the positions, (P * batch); 0 for the first."""
        return jnp.where(self.position == 0, 0, self.head(exponents) - self.tail(exponents))

    def with_margin(self, values: Array) -> Array:
        """(P * batch) with zeros behind them."""
        return jnp.concatenate([values, jnp.zeros(self.pairs, values.dtype)])

    def of_pairs(self, values: Array, merge: Callable[..., Array]) -> Array:
        """(…, P * batch) -> (batch)."""
        return merge(merge(values.reshape(-1, self.size), axis=0).reshape(self.positions, self.pairs), axis=0)

    def inside(self, d: Array) -> Array:
        """Mask of the cells of an anti-diagonal inside lengths."""
        across = self._across(d)
        return (across >= 0) & (across < self.across_inside)

    def is_last(self, d: Array) -> Array:
        """Mask of the cells of an anti-diagonal that are the last inside lengths."""
        return (self.position == self.last[0]) & (self._across(d) == self.last[1])

    def _across(self, d: Array) -> Array:
        return d.astype(self.position.dtype) - self.position

    def _lost(self, s: Array, lengths: Array, gap: Array) -> Array:
        """Whether the weight of a match is lost that may count, (batch,). gap: in bits."""
        rows, cols = lengths.T.astype(s.dtype)
        cells, steps = jnp.log2(rows * cols), rows + cols
        growth = cells + jnp.log2(steps) + steps * jnp.maximum(1 + gap, 0)
        grows = growth > MOST_GROWTH
        least, most = LEAST_LOST - growth, MOST_LOST + cells - jnp.minimum(gap, 0)

        def looked_for() -> Array:
            bits = s * (LOG2_E / self.temperature)[:, None, None]
            small = (bits >= least[:, None, None]) & (bits < most[:, None, None]) & inside(lengths, *s.shape[1:])
            return grows & jnp.any(small, axis=(1, 2))

        return jax.lax.cond(jnp.any(grows), looked_for, lambda: jnp.zeros_like(grows))

    def _match_weights(self, s: Array, lengths: Array) -> Array:
        """(blocks * BLOCK + 2, (P + 1) * batch): zeros outside lengths, on the border, and behind the last position."""
        # before the batch is made innermost: less than half as many cells, and a loop that is vectorized
        weights = exp(s / self.temperature[:, None, None], 128.0)
        # what is too large is then seen in the sum of states
        weights = jnp.where(weights < self.largest_match[:, None, None], weights, jnp.inf)
        weights = pin(jnp.where(inside(lengths, *s.shape[1:]), weights, 0.0))
        weights = pin(jnp.transpose(weights, (1, 2, 0)))
        height, width = self.positions + 1, self.blocks * BLOCK + 2
        padded = jnp.pad(weights, ((self.border, 1), (self.border, width + 1 - self.across), (0, 0)))
        if self.is_global:
            padded = padded.at[0, 0].set(1.0)  # where it starts
        # rows padded by one element too many, and reshaped without it, are skewed
        flat = padded.reshape(height * (width + 1), self.pairs)[: height * width]
        skewed = pin(jnp.swapaxes(flat.reshape(height, width, self.pairs), 0, 1))
        return pin(skewed.reshape(width, height * self.pairs))

    def unskew(self, cells: Array) -> Array:
        """(blocks * BLOCK, P * batch) -> (batch, rows, cols)."""
        axes, border = (2, 0, 1) if self.transposed else (2, 1, 0), self.border
        length = self.across - border
        cells = pin(pin(cells).reshape(-1, self.positions, self.pairs))

        def write(p: Array, s: Array) -> Array:
            begin = (p + 2 * border, p + border, jnp.zeros_like(p))
            line = jnp.transpose(jax.lax.dynamic_slice(cells, begin, (length, 1, self.pairs)), axes)
            return jax.lax.dynamic_update_slice(s, line, (0, 0, p) if self.transposed else (0, p, 0))

        s = jnp.zeros(self.shape, cells.dtype)
        return pin(jax.lax.fori_loop(0, self.positions - border, write, pin(s)))


def forward(batch: BlockBatch, keep: bool) -> tuple[Array, Array, Array, Array, Array]:
    """The states, BLOCK + 2 rows for each block, of which the first two are the last of the block before; the exponents
    (blocks, (P + 1) * batch); sums of states (blocks, P * batch) over the ends, and over all cells; and the largest
    weights (P * batch) of matches that continue an alignment from block to block, in the unit of the one before.

    keep: return the states of all blocks, not only of one, and these weights.
    """
    height, width = BLOCK + 2, batch.size + batch.pairs
    states = jnp.zeros(((batch.blocks if keep else 1) * height, width), jnp.float32)
    if batch.is_global:
        states = states.at[0, : batch.pairs].set(2.0**FIRST_EXPONENT)  # what the first cell continues
    exponents = jnp.zeros((batch.blocks, width), jnp.int32)
    sums = totals = jnp.zeros((batch.blocks, batch.size), jnp.float32)

    def block(number: Array, carried: Any) -> Any:
        states, exponents, sums, totals, entering, before = carried
        base = number * height if keep else jnp.zeros_like(number)
        last = jnp.where(number == 0, base, base - 2 if keep else base + BLOCK)
        state = row(states, last + 1)
        renewed = before + _exponent(state) - FIRST_EXPONENT
        new_exponent = jnp.where(state > 0, renewed if batch.is_global else jnp.maximum(renewed, 0), before)
        # both rows at once: XLA would copy the table in between
        rows = jax.lax.dynamic_slice_in_dim(states, last, 2) * power_of_two(before - new_exponent)[None]
        states = jax.lax.dynamic_update_slice_in_dim(states, rows, base, 0)
        one, ratio = pin(_start(batch, new_exponent)), pin(power_of_two(batch.step(new_exponent)))
        exponents = put(exponents, number, new_exponent)

        def step(k: Array, states: Array) -> Array:
            diagonal, side = row(states, base + k), row(states, base + k + 1)
            match = batch.head(row(batch.match_weights, number * BLOCK + k)) * (one + ratio * batch.head(diagonal))
            state = match + batch.gap_weights * (batch.tail(side) + ratio * batch.head(side))
            return put(states, base + k + 2, state, batch.pairs)

        def collected(value: Callable[[int], Array]) -> Array:
            return functools.reduce(jnp.add, [value(k) for k in range(BLOCK)])

        def inside(k: int) -> Array:
            return jnp.where(batch.inside(number * BLOCK + k), batch.tail(row(states, base + k + 2)), 0.0)

        def ending(k: int) -> Array:
            d = number * BLOCK + k
            if batch.recurrence.where == IN_THE_LAST_CELL:
                return jnp.where(batch.is_last(d), batch.tail(row(states, base + k + 2)), 0.0)
            return batch.head(row(batch.match_weights, d)) * ratio * batch.head(row(states, base + k))

        states = jax.lax.fori_loop(0, BLOCK, step, states)
        totals = put(totals, number, collected(inside))
        if batch.recurrence.where != ANYWHERE:
            sums = put(sums, number, collected(ending))
        if keep:
            unit = ratio * batch.tail(power_of_two(new_exponent - before))
            for k in range(2):
                match = batch.head(row(batch.match_weights, number * BLOCK + k)) * batch.head(row(states, base + k))
                entering = jnp.maximum(entering, match * unit)
        return states, exponents, sums, totals, entering, new_exponent

    carried = states, exponents, sums, totals, jnp.zeros(batch.size, jnp.float32), batch.first_exponents
    states, exponents, sums, totals, entering, _ = jax.lax.fori_loop(0, batch.used_blocks, block, carried)
    return states, exponents, totals if batch.recurrence.where == ANYWHERE else sums, totals, entering


class Ends:
    """The end sums Z = fraction * 2^exponent of each pair, from the sums of each block, and whether they are valid."""

    def __init__(self, batch: BlockBatch, exponents: Array, sums: Array, totals: Array) -> None:
        self.batch = batch
        last_exponents = exponents[:, batch.pairs :]
        highest = jnp.where(sums > 0, last_exponents + _exponent(sums), -(10**6))
        # a pair without rows or columns scores 0, and has no cell for its gradient
        self.exponent = jnp.where(batch.empty, 0, batch.of_pairs(highest, jnp.max))
        scaled = jnp.where(sums > 0, sums * power_of_two(last_exponents - batch.tiled(self.exponent)[None]), sums)
        self.fraction = jnp.where(batch.empty, 1.0, batch.of_pairs(scaled, jnp.sum))
        steps = jnp.where(totals > 0, jnp.abs(jax.vmap(batch.step)(exponents)), 0)
        self.valid = (batch.of_pairs(totals, jnp.max) < LARGEST_TOTAL) & (batch.of_pairs(steps, jnp.max) <= MOST_STEEP)
        self.valid &= jnp.isfinite(self.fraction) & (self.fraction > 0) & (batch.decay <= MOST_DECAY)
        if not batch.is_global:
            largest = jnp.zeros_like(self.exponent)  # of starts, and where not all of them are ends, states
            if batch.recurrence.where != ANYWHERE:
                of_states = jnp.where(totals > 0, last_exponents + _exponent(totals), 0)
                largest = jnp.maximum(largest, batch.of_pairs(of_states, jnp.max))
            self.valid &= (self.exponent > largest + LEAST_EXPONENT) & ~batch.lost

    def scores(self) -> tuple[Array, Array]:
        """Scores (batch,), and whether they are valid."""
        log = self.exponent.astype(jnp.float32) * math.log(2) + jnp.log(self.fraction)
        return self.batch.temperature * log, self.valid

    def gradient(self, exponents: Array) -> Array:
        """2^exponent / Z, (P * batch)."""
        difference = exponents - self.batch.tiled(self.exponent)
        # finite outside lengths too, where it is multiplied by 0
        return power_of_two(jnp.minimum(difference, 127)) * self.batch.tiled(1 / self.fraction)


def backward(batch: BlockBatch, states: Array, exponents: Array, ends: Ends) -> tuple[Array, Array]:
    """The marginals (blocks * BLOCK, P * batch), and whether they are finite."""
    height, width = BLOCK + 2, batch.size + batch.pairs
    where = batch.recurrence.where

    def block(number: Array, carried: Any) -> Any:
        gradients, marginals, later = carried
        number = batch.used_blocks - 1 - number
        block_exponent = row(exponents, number)
        scale = batch.with_margin(power_of_two(batch.tail(block_exponent) - batch.tail(later)))
        gradients = jax.lax.dynamic_update_slice_in_dim(gradients, gradients[:2] * scale[None], BLOCK, 0)
        one, ratio = pin(_start(batch, block_exponent)), power_of_two(batch.step(block_exponent))
        following = pin(batch.with_margin(ratio[batch.pairs :]))  # the ratio of the next position
        ratio = pin(ratio)
        ending = ends.gradient(batch.tail(block_exponent))
        later_ending = pin(batch.with_margin(ending[batch.pairs :]))
        ending = pin(ending)

        def step(count: Array, gradients: Array) -> Array:
            k = BLOCK - 1 - count
            d = number * BLOCK + k
            side, diagonal = row(gradients, k + 1), batch.tail(row(gradients, k + 2))
            if where == ON_A_LATER_MATCH:
                diagonal = diagonal + later_ending
            from_gap = batch.gap_weights * (batch.head(side) + following * batch.tail(side))
            from_gap += following * batch.tail(row(batch.match_weights, d + 2)) * diagonal
            if where != ON_A_LATER_MATCH:
                from_gap += jnp.where(batch.inside(d) if where == ANYWHERE else batch.is_last(d), ending, 0.0)
            return put(gradients, k, from_gap)

        def matches(k: Array, marginals: Array) -> Array:
            d = number * BLOCK + k
            gradient, before = batch.head(row(gradients, k)), ratio * batch.head(row(states, number * height + k))
            total = (one + before) * gradient
            if where == ON_A_LATER_MATCH:
                total += before * ending
            return put(marginals, d, batch.head(row(batch.match_weights, d)) * total)

        gradients = jax.lax.fori_loop(0, BLOCK, step, gradients)
        return gradients, jax.lax.fori_loop(0, BLOCK, matches, marginals), block_exponent

    gradients = jnp.zeros((height, width), jnp.float32)
    marginals = jnp.zeros((batch.blocks * BLOCK, batch.size), jnp.float32)
    carried = gradients, marginals, row(exponents, jnp.maximum(batch.used_blocks - 1, 0))
    blocks = jnp.where(jnp.any(ends.valid), batch.used_blocks, 0)
    gradients, marginals, _ = jax.lax.fori_loop(0, blocks, block, carried)
    # an infinite gradient has made those of all cells before it infinite, or NaN
    return marginals, jnp.isfinite(gradients[0, : batch.pairs])


def _start(batch: BlockBatch, exponents: Array) -> Array:
    """The weight of starting an alignment, (P * batch)."""
    return jnp.zeros(batch.size, jnp.float32) if batch.is_global else power_of_two(-batch.tail(exponents))


def power_of_two(exponents: Array) -> Array:
    """2^exponent, 0 below -126 and infinite above 127."""
    return jax.lax.bitcast_convert_type((jnp.clip(exponents, -127, 128) + 127) << 23, jnp.float32)


def _exponent(values: Array) -> Array:
    """The exponent of positive numbers."""
    return (jax.lax.bitcast_convert_type(values, jnp.int32) >> 23) - 127


def row(table: Array, number: Any) -> Array:
    return jax.lax.dynamic_index_in_dim(table, number, keepdims=False)


def put(table: Array, number: Array, values: Array, begin: int = 0) -> Array:
    """The table with these values in a row."""
    return jax.lax.dynamic_update_slice(table, values[None], (number, jnp.array(begin, number.dtype)))
