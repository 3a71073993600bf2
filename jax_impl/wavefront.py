"""The fast sweep in JAX: all pairs abreast, anti-diagonal after anti-diagonal, with derivatives written by hand.

The states h of a cell follow from the choices c_k of the recurrence, and so do the weights, which are probabilities:

    h = T log sum_k exp(c_k / T),    w_k = exp(c_k / T) / sum_l exp(c_l / T).

The choices are linear in the parameters, the similarity and the neighbours' states, so the tangents of the states obey
a linear recurrence of the same shape,

    dh = sum_k w_k c_k(tangents of parameters, similarity and neighbours) - dT sum_k w_k log w_k,

whose transposition, from the last anti-diagonal to the first, gives every gradient. The weights are plain functions of
the states, and these have the rule above, so second and higher derivatives follow by themselves.

Shapes: D = rows + cols - 1 anti-diagonals, P = min(rows, cols) positions, which are the indices along the shorter
side; similarity is (D, P, batch), and tables of states are (2 + D, 1 + P, batch): two anti-diagonals before the first
and one position before the first hold the border. The neighbour at the same position keeps its place; the two others
stand one position before, whatever the anti-diagonal.
"""

import functools
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero
from jax.experimental.layout import Layout, with_layout_constraint

from jax_impl.recurrences import Array, Parameters, States
from jax_impl.sweeps import batch_last, score_of_endings
from shared.numerics import LOWEST


def wavefront(recurrence: Any, parameters: Parameters, s: Array, lengths: Array) -> Array:
    """Scores (*batch) of similarity (*batch, rows, cols), batch one axis or none; see the module for how."""
    if s.ndim == 2:
        return wavefront(recurrence, {k: v[None] for k, v in parameters.items()}, s[None], lengths[None])[0]
    s, lengths = batch_last(s, lengths)
    walk = _Walk(recurrence, s.shape[0], s.shape[1])
    skewed = walk.skew(s)
    states = _fill(walk, parameters, skewed)
    choices = walk.choices(parameters, skewed, *_before_and_last(states))
    endings = recurrence.endings(choices, tuple(state[2:, 1:] for state in states))
    ending = endings[0] if len(endings) == 1 else _smooth_maximum(endings, parameters["temperature"])
    i, j = walk.cells()
    return score_of_endings(recurrence, parameters, ending, i, j, lengths)


@dataclass(frozen=True)
class _Walk:
    """A recurrence on a matrix of rows x cols, and which of its neighbours stands where."""

    recurrence: Any
    rows: int
    cols: int

    @property
    def turned(self) -> bool:
        """Whether positions are columns: they are the shorter side."""
        return self.cols < self.rows

    @property
    def shape(self) -> tuple[int, int]:
        """Diagonals and positions."""
        return self.rows + self.cols - 1, min(self.rows, self.cols)

    def skew(self, s: Array) -> Array:
        """(rows, cols, batch) -> (D, P, batch): padded to D + 1 and cut after every D, each row starts one later."""
        s = jnp.swapaxes(s, 0, 1) if self.turned else s
        diagonals, positions = self.shape
        padded = jnp.pad(_pin(s), ((0, 0), (0, positions), (0, 0)))
        flat = padded.reshape(positions * (diagonals + 1), -1)[: positions * diagonals]
        return _pin(jnp.swapaxes(flat.reshape(positions, diagonals, -1), 0, 1))

    def cells(self) -> tuple[Array, Array]:
        """i and j of every place, each (D, P); outside the matrix where negative or too large."""
        d, p = jnp.indices(self.shape)
        return (d - p, p) if self.turned else (p, d - p)

    def inside(self, diagonal: Any) -> Array:
        """Which places of anti-diagonals are in the matrix. diagonal: () -> (P, 1), or (D, 1, 1) -> (D, P, 1)."""
        across = diagonal - jnp.arange(self.shape[1])[:, None]
        return (across >= 0) & (across < max(self.rows, self.cols))

    def choices(self, parameters: Any, s: Any, before: States, last: States) -> tuple[States, ...]:
        """The choices of (..., P, batch) cells, from states (..., 1 + P, batch) two and one anti-diagonals before."""
        diagonal, comes = (tuple(state[..., :-1, :] for state in states) for states in (before, last))
        keeps = tuple(state[..., 1:, :] for state in last)
        left, up = (comes, keeps) if self.turned else (keeps, comes)
        return self.recurrence.choices(parameters, s, diagonal, left, up)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _fill(walk: _Walk, parameters: Parameters, s: Array) -> States:
    """The states of all cells, each (2 + D, 1 + P, batch), from the skewed similarity (D, P, batch)."""
    diagonals, positions, batch = s.shape
    recurrence, temperature = walk.recurrence, parameters["temperature"]
    borders = recurrence.border(parameters, jnp.arange(-2, diagonals)[:, None, None])
    shape = (2 + diagonals, 1 + positions, batch)
    tables = tuple(_pin(jnp.broadcast_to(jnp.asarray(border, s.dtype), shape)) for border in borders)

    def step(d: Array, tables: States) -> States:
        choices = walk.choices(parameters, s[d], tuple(t[d] for t in tables), tuple(t[d + 1] for t in tables))
        inside, borders = walk.inside(d), recurrence.border(parameters, d)
        states = [
            jnp.where(inside, _smooth_maximum(own, temperature), border)
            for own, border in zip(choices, borders, strict=True)
        ]
        return tuple(
            jax.lax.dynamic_update_slice(table, state[None], (d + 2, 1, 0))
            for table, state in zip(tables, states, strict=True)
        )

    return tuple(_pin(table) for table in jax.lax.fori_loop(0, diagonals, step, tables))


@functools.partial(_fill.defjvp, symbolic_zeros=True)
def _fill_jvp(walk: _Walk, primals: tuple, tangents: tuple) -> tuple[States, States]:
    """The tangents of the tables, by a linear scan. What is not differentiated has a tangent of 0.0: it costs nothing.

    Each step computes its weights anew where JAX would store them: memory costs more than exponentials.
    """
    parameters, s = primals
    d_parameters, ds = jax.tree.map(_plain, tangents, is_leaf=lambda leaf: isinstance(leaf, SymbolicZero))
    tables = _fill(walk, parameters, s)
    recurrence, diagonals = walk.recurrence, len(s)

    @functools.partial(jax.checkpoint, prevent_cse=False)
    def tangent(d: Array, s: Array, ds: Any, around: tuple[States, ...], before: States, last: States) -> States:
        # tangents that are 0.0 are closed over: as arguments they would become arrays
        choices = walk.choices(parameters, s, *around[:2])
        changes = walk.choices(d_parameters, 0.0 if ds is None else ds, before, last)
        inside, ys = walk.inside(d), []
        borders = recurrence.border_tangent(d_parameters, d)
        for own, state, change, border in zip(choices, around[2], changes, borders, strict=True):
            weights, entropy = _weights(own, state[1:], parameters["temperature"], inside)
            y = sum((w * c for w, c in zip(weights, change, strict=True) if not _is_zero(c)), jnp.zeros_like(s))
            y = y if _is_zero(d_parameters["temperature"]) else y + entropy * d_parameters["temperature"]
            y = jnp.where(inside, y, border) if not _is_zero(border) else y
            ys.append(jnp.concatenate([jnp.broadcast_to(border, y[:1].shape).astype(y.dtype), y]))
        return tuple(ys)

    def step(carry: tuple[States, States], row: tuple) -> tuple[tuple[States, States], States]:
        ys = tangent(*row, *carry)
        return (carry[1], ys), ys

    def edge(d: int) -> States:
        return tuple(
            jnp.broadcast_to(jnp.asarray(border, s.dtype), tables[0].shape[1:])
            for border in recurrence.border_tangent(d_parameters, d)
        )

    around = (*_before_and_last(tables), tuple(table[2:] for table in tables))
    rows = (jnp.arange(diagonals), s, None if _is_zero(ds) else _pin(ds), around)
    first = edge(-2), edge(-1)
    _, ys = jax.lax.scan(step, first, rows)
    return tables, tuple(
        _pin(jnp.concatenate([jnp.stack([a, b]), _pin(y)])) for a, b, y in zip(*first, ys, strict=True)
    )


def _weights(choices: States, state: Array, temperature: Array, inside: Array) -> tuple[States, Array]:
    """The probability of each choice, and their entropy; 0 outside the matrix."""
    # only the choices count for a derivative: what is taken off from all of them does not change the weights
    state = jax.lax.stop_gradient(state)
    logits = [jnp.where(inside, choice - state, LOWEST) / temperature for choice in choices]
    odds = [jnp.exp(logit) for logit in logits]
    # the state is rounded, so that they do not sum to quite 1, which would add up over a long path
    total = jnp.where(inside, sum(odds), 1.0)
    weights = tuple(o / total for o in odds)
    return weights, jnp.log(total) - sum(w * logit for w, logit in zip(weights, logits, strict=True))


def _smooth_maximum(choices: States, temperature: Array) -> Array:
    """The smooth maximum of arrays of one shape. Never stacked: the compiler then keeps it in one loop over cells."""
    largest = jax.lax.stop_gradient(functools.reduce(jnp.maximum, choices))
    # the largest is taken off before the division: see recurrences.smooth_maximum
    return largest + temperature * jnp.log(sum(jnp.exp((choice - largest) / temperature) for choice in choices))


def _before_and_last(states: States) -> tuple[States, States]:
    """For all anti-diagonals of the matrix: the states two and one anti-diagonals before."""
    return tuple(state[:-2] for state in states), tuple(state[1:-1] for state in states)


def _plain(tangent: Any) -> Any:
    return 0.0 if isinstance(tangent, SymbolicZero) else tangent


def _is_zero(tangent: Any) -> bool:
    return isinstance(tangent, float) and tangent == 0


def _pin(x: Array) -> Array:
    """The batch innermost in memory too: XLA:CPU would otherwise take the layout of what the caller gave."""
    return with_layout_constraint(x, Layout(tuple(range(x.ndim))))
