"""How a matrix is walked, in JAX: the ladder. Each rung walks any recurrence.

    cell_loop       the recurrence as written, one cell at a time
    diagonal_loop   all cells of an anti-diagonal at once
    scan_cond       the diagonals inside lax.scan, cond for the shift
    scan_select     arithmetic select instead of cond
    batch_loop      a Python loop over pairs of the compiled single-pair scan_select
    vmap            the single-pair scan_select mapped over the pairs

A sweep takes a recurrence, its parameters, similarity (*batch, rows, cols) with zeros in its padding, and lengths
(*batch, 2), where batch is one axis or none; it returns scores (*batch). The first four rungs also walk a whole
batch, as a last axis of every array. Cells outside lengths never feed a cell inside, so lengths only decide where
an alignment may end.

The rotated matrix holds cell (i, j) at row i + j and position (j - i + rows) // 2, which makes an anti-diagonal
contiguous. The neighbour at (i-1, j-1) keeps its position; of the two others one keeps it and one is next to it,
which one alternates with the parity of i + j + rows. The rotation is Petti et al.'s, doi:10.1101/2021.10.23.465204.
"""

import functools
import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jax_impl.recurrences import Array, Parameters, States, smooth_maximum
from shared.numerics import LOWEST


def cell_loop(recurrence: Any, parameters: Parameters, s: Array, lengths: Array) -> Array:
    """The recurrence as written: every cell in turn, put into the table by functional update."""
    s, lengths = batch_last(s, lengths)
    rows, cols, *batch = s.shape
    tables = tuple(jnp.full((rows + 1, cols + 1, *batch), 0.0, s.dtype) for _ in recurrence.border(parameters, -2))
    endings = jnp.zeros_like(s)
    for i, j in itertools.product(range(-1, rows), range(-1, cols)):
        if i < 0 or j < 0:
            states = recurrence.border(parameters, i + j)
        else:
            diagonal, left, up = (
                tuple(table[i + di, j + dj] for table in tables) for di, dj in ((0, 0), (1, 0), (0, 1))
            )
            states, ending = recurrence.step(parameters, s[i, j], diagonal, left, up)
            endings = endings.at[i, j].set(ending)
        tables = tuple(table.at[i + 1, j + 1].set(state) for table, state in zip(tables, states, strict=True))
    i, j = jnp.indices((rows, cols))
    return score_of_endings(recurrence, parameters, endings, i, j, lengths)


def diagonal_loop(recurrence: Any, parameters: Parameters, s: Array, lengths: Array) -> Array:
    """One Python step per anti-diagonal; the shift's direction is known when the loop is written out."""
    s, lengths = batch_last(s, lengths)
    rotated, i, j, inside = _rotate(s)
    before, last = _initial(recurrence, parameters, rotated)
    endings = []
    for d in range(len(rotated)):
        shift = _left_keeps if (d + len(s)) % 2 else _up_keeps
        left, up = shift(last, recurrence.border(parameters, d - 1))
        states, ending = recurrence.step(parameters, rotated[d], before, left, up)
        before, last = last, _bordered(states, inside[d], recurrence.border(parameters, d))
        endings.append(ending)
    return score_of_endings(recurrence, parameters, jnp.stack(endings), i, j, lengths)


def scan_cond(recurrence: Any, parameters: Parameters, s: Array, lengths: Array, *, unroll: int = 1) -> Array:
    """The anti-diagonals inside lax.scan, which compiles one step whatever the size; cond picks the shift."""

    def pick(parity: Array, last: States, border: tuple) -> tuple[States, States]:
        return jax.lax.cond(parity == 1, lambda: _left_keeps(last, border), lambda: _up_keeps(last, border))

    return _scan(pick, recurrence, parameters, s, lengths, unroll)


def scan_select(recurrence: Any, parameters: Parameters, s: Array, lengths: Array, *, unroll: int = 1) -> Array:
    """Both shifts are computed and mixed with weights 0 and 1: no control flow inside the step."""

    def pick(parity: Array, last: States, border: tuple) -> tuple[States, States]:
        odd = parity.astype(s.dtype)
        pairs = zip(_left_keeps(last, border), _up_keeps(last, border), strict=True)
        left, up = (tuple(odd * a + (1 - odd) * b for a, b in zip(*pair, strict=True)) for pair in pairs)
        return left, up

    return _scan(pick, recurrence, parameters, s, lengths, unroll)


def batch_loop(recurrence: Any, parameters: Parameters, s: Array, lengths: Array, *, unroll: int = 1) -> Array:
    """A Python loop over the pairs, each a call of the compiled single-pair scan_select."""
    single = _compiled_single(recurrence, unroll)
    if s.ndim == 2:
        return single(parameters, s, lengths)
    pairs = range(len(s))
    return jnp.stack([single({k: v[b] for k, v in parameters.items()}, s[b], lengths[b]) for b in pairs])


def vmap(recurrence: Any, parameters: Parameters, s: Array, lengths: Array, *, unroll: int = 1) -> Array:
    """The single-pair scan_select mapped over the pairs by jax.vmap; a single pair is a batch of one."""
    mapped = jax.vmap(functools.partial(scan_select, recurrence, unroll=unroll))
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
# the rungs that have a scan, whose unroll the benchmark may set
SCANNING = ("scan_cond", "scan_select", "batch_loop", "vmap")


@functools.lru_cache(maxsize=64)
def _compiled_single(recurrence: Any, unroll: int) -> Callable[..., Array]:
    return jax.jit(functools.partial(scan_select, recurrence, unroll=unroll))


def _scan(pick: Callable, recurrence: Any, parameters: Parameters, s: Array, lengths: Array, unroll: int) -> Array:
    s, lengths = batch_last(s, lengths)
    rotated, i, j, inside = _rotate(s)

    def step(carry: tuple[States, States], row: tuple[Array, Array, Array]) -> tuple[tuple[States, States], Array]:
        before, last = carry
        similarity, is_inside, d = row
        left, up = pick((d + len(s)) % 2, last, recurrence.border(parameters, d - 1))
        states, ending = recurrence.step(parameters, similarity, before, left, up)
        return (last, _bordered(states, is_inside, recurrence.border(parameters, d))), ending

    rows = (rotated, inside, jnp.arange(len(rotated)))
    _, endings = jax.lax.scan(step, _initial(recurrence, parameters, rotated), rows, unroll=unroll)
    return score_of_endings(recurrence, parameters, endings, i, j, lengths)


def batch_last(s: Array, lengths: Array) -> tuple[Array, Array]:
    """(rows, cols, *batch) and (2, *batch): a per-pair parameter then broadcasts by itself."""
    return jnp.moveaxis(s, (-2, -1), (0, 1)), jnp.moveaxis(lengths, -1, 0)


def _rotate(s: Array) -> tuple[Array, Array, Array, Array]:
    """The rotated matrix (diagonals, positions, *batch); of each of its places i, j and whether it is in the matrix."""
    rows, cols = s.shape[:2]
    i, j = jnp.indices((rows, cols))
    diagonals, positions = rows + cols - 1, (rows + cols + 1) // 2
    rotated = jnp.zeros((diagonals, positions, *s.shape[2:]), s.dtype).at[i + j, (j - i + rows) // 2].set(s)
    d, p = jnp.indices((diagonals, positions))
    offset = 2 * p + (d + rows) % 2 - rows  # j - i
    i, j = (d - offset) // 2, (d + offset) // 2
    inside = (i >= 0) & (i < rows) & (j >= 0) & (j < cols)
    return rotated, i, j, _trailing(inside, s)


def _initial(recurrence: Any, parameters: Parameters, rotated: Array) -> tuple[States, States]:
    """The states of the two anti-diagonals before the first, which lie outside."""
    before, last = (
        tuple(jnp.full(rotated.shape[1:], value, rotated.dtype) for value in recurrence.border(parameters, d))
        for d in (-2, -1)
    )
    return before, last


def _bordered(states: States, inside: Array, border: tuple) -> States:
    """Places of the anti-diagonal that lie outside the matrix hold the border's states."""
    return tuple(jnp.where(inside, state, value) for state, value in zip(states, border, strict=True))


def _left_keeps(last: States, border: tuple) -> tuple[States, States]:
    """Odd parity: the left neighbours keep their position, the upper ones stand one position on."""
    upper = [
        jnp.concatenate([state[1:], jnp.full_like(state[:1], value)]) for state, value in zip(last, border, strict=True)
    ]
    return last, tuple(upper)


def _up_keeps(last: States, border: tuple) -> tuple[States, States]:
    """Even parity: the upper neighbours keep their position, the left ones stand one position back."""
    left = [
        jnp.concatenate([jnp.full_like(state[:1], value), state[:-1]])
        for state, value in zip(last, border, strict=True)
    ]
    return tuple(left), last


def score_of_endings(
    recurrence: Any, parameters: Parameters, endings: Array, i: Array, j: Array, lengths: Array
) -> Array:
    """The smooth maximum over the cells where an alignment may end; a pair without one has a score of its own."""
    i, j = _trailing(i, endings), _trailing(j, endings)
    may_end = (i >= 0) & (j >= 0) & recurrence.may_end(i, j, lengths)
    flat = (endings.shape[0] * endings.shape[1], *endings.shape[2:])
    masked = jnp.where(may_end, endings, LOWEST).reshape(flat)
    score = smooth_maximum(masked, parameters["temperature"], axis=0)
    empty = recurrence.is_empty(masked.max(axis=0), lengths)
    return jnp.where(empty, recurrence.empty_score(parameters, lengths), score)


def _trailing(grid: Array, like: Array) -> Array:
    """A (rows, cols) grid with as many axes as `like`, so that it broadcasts over the batch."""
    return grid.reshape(grid.shape + (1,) * (like.ndim - 2))
