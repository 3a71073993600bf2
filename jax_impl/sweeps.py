"""How a matrix is traversed, in JAX: six variants. Each takes any recurrence.

    cell_loop       the recurrence as written, one cell at a time
    diagonal_loop   all cells of an anti-diagonal at once
    scan_cond       the diagonals inside lax.scan, cond for the shift
    scan_select     arithmetic select instead of cond
    batch_loop      a Python loop over the pairs, each by the compiled single-pair scan_select
    vmap            the single-pair scan_select mapped over the pairs

A sweep takes a recurrence, its parameters, similarity (*batch, rows, cols) with zeros in its padding, and lengths
(*batch, 2), where batch is one axis or none; it returns scores (*batch). A gap by position is a matrix like the
similarity, and arranged in the same way. The first four compute a whole batch at once: they move its axis to the
end of every array. Cells outside lengths never feed a cell inside, so lengths only decide where an alignment may end.

rotation.py describes how an anti-diagonal is stored and how its neighbours are found. The first two variants of
smith_waterman, with one gap for the pair, are written out in plain_loops.py.
"""

import functools
import itertools
from collections.abc import Callable

import jax
import jax.numpy as jnp

from jax_impl.plain_loops import PLAIN_LOOPS
from jax_impl.recurrences import Array, Parameters, States, recurrence_step
from jax_impl.rotation import (
    along_diagonal,
    batch_last,
    border,
    bordered,
    gaps_batch_last,
    initial_states,
    neighbours_even,
    neighbours_odd,
    rotate,
    score_of_ends,
)
from shared.alignments import COLS, ROWS, Recurrence


def cell_loop(recurrence: Recurrence, parameters: Parameters, s: Array, lengths: Array) -> Array:
    """The recurrence as written: cell by cell, each written into the table by functional update."""
    s, lengths = batch_last(s, lengths)
    gaps = gaps_batch_last(recurrence, parameters)
    rows, cols, *batch = s.shape
    tables = tuple(jnp.full((rows + 1, cols + 1, *batch), 0.0, s.dtype) for _ in recurrence.states)
    ends = jnp.zeros_like(s)
    for i, j in itertools.product(range(-1, rows), range(-1, cols)):
        if i < 0 or j < 0:
            states = recurrence.border(parameters, i + j + 2, ROWS if i < 0 else COLS)
        else:
            diagonal, left, up = (
                tuple(table[i + di, j + dj] for table in tables) for di, dj in ((0, 0), (1, 0), (0, 1))
            )
            costs = parameters | {name: gap[i, j] for name, gap in gaps.items()}
            states, end = recurrence_step(recurrence, costs, s[i, j], diagonal, left, up)
            ends = ends.at[i, j].set(end)
        tables = tuple(table.at[i + 1, j + 1].set(state) for table, state in zip(tables, states, strict=True))
    i, j = jnp.indices((rows, cols))
    return score_of_ends(recurrence, parameters, ends, i, j, lengths)


def diagonal_loop(recurrence: Recurrence, parameters: Parameters, s: Array, lengths: Array) -> Array:
    """One Python step per anti-diagonal; the direction of the shift is known when the loop is unrolled."""
    s, lengths = batch_last(s, lengths)
    rotated, i, j, inside = rotate(s)
    gaps = {name: rotate(gap)[0] for name, gap in gaps_batch_last(recurrence, parameters).items()}
    of_diagonal = along_diagonal(recurrence, parameters)
    before, last = initial_states(recurrence, len(s), of_diagonal, rotated)
    outside = functools.partial(border, recurrence, of_diagonal, rows=len(s), like=rotated[0])
    ends = []
    for d in range(len(rotated)):
        shift = neighbours_odd if (d + len(s)) % 2 else neighbours_even
        left, up = shift(last, outside(d - 1))
        costs = of_diagonal | {name: gap[d] for name, gap in gaps.items()}
        states, end = recurrence_step(recurrence, costs, rotated[d], before, left, up)
        before, last = last, bordered(states, inside[d], outside(d))
        ends.append(end)
    return score_of_ends(recurrence, parameters, jnp.stack(ends), i, j, lengths)


def scan_cond(recurrence: Recurrence, parameters: Parameters, s: Array, lengths: Array) -> Array:
    """The anti-diagonals inside lax.scan, which compiles one step whatever the size; cond picks the shift."""

    def pick(parity: Array, last: States, outside: tuple) -> tuple[States, States]:
        return jax.lax.cond(parity == 1, lambda: neighbours_odd(last, outside), lambda: neighbours_even(last, outside))

    return _scan(pick, recurrence, parameters, s, lengths)


def scan_select(recurrence: Recurrence, parameters: Parameters, s: Array, lengths: Array) -> Array:
    """Both shifts are computed and blended with weights 0 and 1: no control flow inside the step."""

    def pick(parity: Array, last: States, outside: tuple) -> tuple[States, States]:
        odd = parity.astype(s.dtype)
        pairs = zip(neighbours_odd(last, outside), neighbours_even(last, outside), strict=True)
        left, up = (tuple(odd * a + (1 - odd) * b for a, b in zip(*pair, strict=True)) for pair in pairs)
        return left, up

    return _scan(pick, recurrence, parameters, s, lengths)


def batch_loop(recurrence: Recurrence, parameters: Parameters, s: Array, lengths: Array) -> Array:
    """A Python loop over the pairs, each a call of the compiled single-pair scan_select."""
    single = _compiled_single(recurrence)
    if s.ndim == 2:
        return single(parameters, s, lengths)
    pairs = range(len(s))
    return jnp.stack([single({k: v[b] for k, v in parameters.items()}, s[b], lengths[b]) for b in pairs])


def vmap(recurrence: Recurrence, parameters: Parameters, s: Array, lengths: Array) -> Array:
    """The single-pair scan_select mapped over the pairs by jax.vmap; a single pair is a batch of one."""
    mapped = jax.vmap(functools.partial(scan_select, recurrence))
    if s.ndim == 2:
        return mapped({k: v[None] for k, v in parameters.items()}, s[None], lengths[None])[0]
    return mapped(parameters, s, lengths)


def forget_compiled() -> None:
    """Drop the compiled single-pair functions that batch_loop keeps."""
    _compiled_single.cache_clear()


SWEEPS: dict[str, Callable[..., Array]] = {
    "cell_loop": cell_loop,
    "diagonal_loop": diagonal_loop,
    "scan_cond": scan_cond,
    "scan_select": scan_select,
    "batch_loop": batch_loop,
    "vmap": vmap,
}
# those that have a scan
SCANNING = ("scan_cond", "scan_select", "batch_loop", "vmap")


def sweep_of(function_name: str, variant: str, recurrence: Recurrence) -> Callable[..., Array]:
    """The sweep of a variant; the first two of smith_waterman with one gap for the pair are those of plain_loops."""
    is_plain = function_name == "smith_waterman" and not (recurrence.by_position or recurrence.is_by_axis)
    return (is_plain and PLAIN_LOOPS.get(variant)) or SWEEPS[variant]


@functools.lru_cache(maxsize=64)
def _compiled_single(recurrence: Recurrence) -> Callable[..., Array]:
    return jax.jit(functools.partial(scan_select, recurrence))


def _scan(pick: Callable, recurrence: Recurrence, parameters: Parameters, s: Array, lengths: Array) -> Array:
    s, lengths = batch_last(s, lengths)
    rotated, i, j, inside = rotate(s)
    gaps = {name: rotate(gap)[0] for name, gap in gaps_batch_last(recurrence, parameters).items()}
    of_diagonal = along_diagonal(recurrence, parameters)
    outside = functools.partial(border, recurrence, of_diagonal, rows=len(s), like=rotated[0])

    def step(
        carry: tuple[States, States], row: tuple[Array, Parameters, Array, Array]
    ) -> tuple[tuple[States, States], Array]:
        before, last = carry
        similarity, costs, is_inside, d = row
        left, up = pick((d + len(s)) % 2, last, outside(d - 1))
        states, end = recurrence_step(recurrence, of_diagonal | costs, similarity, before, left, up)
        return (last, bordered(states, is_inside, outside(d))), end

    rows = (rotated, gaps, inside, jnp.arange(len(rotated)))
    _, ends = jax.lax.scan(step, initial_states(recurrence, len(s), of_diagonal, rotated), rows)
    return score_of_ends(recurrence, parameters, ends, i, j, lengths)
