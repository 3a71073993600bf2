"""How a matrix is walked, in PyTorch: the ladder. Each rung walks any recurrence.

    cell_loop       the recurrence as written, one cell at a time
    diagonal_loop   all cells of an anti-diagonal at once
    scan_cond       the diagonals inside the scan operator, cond for the shift
    scan_select     arithmetic select instead of cond
    batch_loop      a Python loop over pairs of the compiled single-pair scan_select
    vmap            the single-pair scan_select mapped over the pairs

A sweep takes a recurrence, its parameters, similarity (*batch, rows, cols) with zeros in its padding, and lengths
(*batch, 2), where batch is one axis or none; it returns scores (*batch). The first four rungs also walk a whole
batch, as a last axis of every tensor. Cells outside lengths never feed a cell inside, so lengths only decide where
an alignment may end.

The rotated matrix holds cell (i, j) at row i + j and position (j - i + rows) // 2, which makes an anti-diagonal
contiguous. The neighbour at (i-1, j-1) keeps its position; of the two others one keeps it and one is next to it,
which one alternates with the parity of i + j + rows. The rotation is Petti et al.'s, doi:10.1101/2021.10.23.465204.
"""

# Dynamo cannot evaluate the annotations of functions that are defined inside a compiled one
from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch._higher_order_ops import scan

from shared.numerics import LOWEST
from torch_impl.compiler import compiled
from torch_impl.recurrences import Parameters, States, Tensor, smooth_maximum

Carry = tuple[States, States]  # of the anti-diagonal before the last, and of the last


def cell_loop(recurrence: Any, parameters: Parameters, s: Tensor, lengths: Tensor) -> Tensor:
    """The recurrence as written: every cell in turn, put into the table by functional update."""
    s, lengths = _batch_last(s, lengths)
    rows, cols, *batch = s.shape
    tables = tuple(s.new_zeros((rows + 1, cols + 1, *batch)) for _ in recurrence.border(parameters, -2))
    endings = torch.zeros_like(s)
    for i, j in itertools.product(range(-1, rows), range(-1, cols)):
        if i < 0 or j < 0:
            states = recurrence.border(parameters, i + j)
        else:
            diagonal, left, up = (
                tuple(table[i + di, j + dj] for table in tables) for di, dj in ((0, 0), (1, 0), (0, 1))
            )
            states, ending = recurrence.step(parameters, s[i, j], diagonal, left, up)
            endings = _put(endings, i, j, ending)
        tables = tuple(_put(table, i + 1, j + 1, state) for table, state in zip(tables, states, strict=True))
    return _score(recurrence, parameters, endings, *_indices(rows, cols, s), lengths)


def diagonal_loop(recurrence: Any, parameters: Parameters, s: Tensor, lengths: Tensor) -> Tensor:
    """One Python step per anti-diagonal; the shift's direction is known when the loop is written out."""
    s, lengths = _batch_last(s, lengths)
    rotated, i, j, inside = _rotate(s)
    before, last = _initial(recurrence, parameters, rotated)
    endings = []
    # unbind, because the backward of each rotated[d] would fill a tensor of rotated's size
    for d, row in enumerate(rotated.unbind(0)):
        shift = _left_keeps if (d + len(s)) % 2 else _up_keeps
        left, up = shift(last, recurrence.border(parameters, d - 1))
        states, ending = recurrence.step(parameters, row, before, left, up)
        before, last = last, _bordered(states, inside[d], recurrence.border(parameters, d))
        endings.append(ending)
    return _score(recurrence, parameters, torch.stack(endings), i, j, lengths)


def scan_cond(recurrence: Any, parameters: Parameters, s: Tensor, lengths: Tensor, *, unroll: int = 1) -> Tensor:
    """The anti-diagonals inside the scan operator, which compiles one step whatever the size; cond picks the shift."""
    return _scanned(_cond, recurrence, parameters, s, lengths, unroll)


def scan_select(recurrence: Any, parameters: Parameters, s: Tensor, lengths: Tensor, *, unroll: int = 1) -> Tensor:
    """Both shifts are computed and mixed with weights 0 and 1: no control flow inside the step."""
    return _scanned(_select, recurrence, parameters, s, lengths, unroll)


def batch_loop(recurrence: Any, parameters: Parameters, s: Tensor, lengths: Tensor, *, unroll: int = 1) -> Tensor:
    """A Python loop over the pairs, each a call of the compiled single-pair scan_select."""
    single = _compiled_single(recurrence, unroll)
    if s.ndim == 2:
        return single(parameters, s, lengths)
    pairs = range(len(s))
    return torch.stack([single({k: v[b] for k, v in parameters.items()}, s[b], lengths[b]) for b in pairs])


def vmap(recurrence: Any, parameters: Parameters, s: Tensor, lengths: Tensor, *, unroll: int = 1) -> Tensor:
    """The single-pair scan_select mapped over the pairs by torch.func.vmap; a single pair is a batch of one.

    The scan operator has no gradient under vmap inside torch.compile (2.11 fails an internal assertion, 2.13 refuses
    the strides of its carry). So the map goes inside the scan: each single-pair piece is mapped, the loop is not.
    """
    if s.ndim == 2:
        return vmap(recurrence, {k: v[None] for k, v in parameters.items()}, s[None], lengths[None], unroll=unroll)[0]
    each_pair = torch.func.vmap
    rotated, i, j, inside = each_pair(_rotate, out_dims=(1, None, None, None))(s)  # pyright: ignore[reportArgumentType]
    initial = each_pair(functools.partial(_initial, recurrence), in_dims=(0, 1))(parameters, rotated)
    one_step = functools.partial(_step, _select, recurrence, s.shape[1])

    def step(carry: Carry, row: tuple[Tensor, Tensor, Tensor]) -> tuple[Carry, Tensor]:
        similarity, is_inside, d = row

        def pair_step(own: Parameters, own_carry: Carry, own_similarity: Tensor) -> tuple[Carry, Tensor]:
            return one_step(own, own_carry, (own_similarity, is_inside, d))

        return each_pair(pair_step)(parameters, carry, similarity)

    endings = _scan(step, initial, rotated, inside, unroll)
    score = functools.partial(_score, recurrence)
    return each_pair(score, in_dims=(0, 1, None, None, 0))(parameters, endings, i, j, lengths)


def forget_compiled() -> None:
    """Drop the compiled single-pair functions that batch_loop keeps."""
    _compiled_single.cache_clear()


SWEEPS: dict[str, Callable[..., Tensor]] = {
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
def _compiled_single(recurrence: Any, unroll: int) -> Callable[..., Tensor]:
    return compiled(functools.partial(scan_select, recurrence, unroll=unroll))


def _cond(parity: Tensor, last: States, border: tuple) -> tuple[States, States]:
    """The left and the upper neighbours' states, by a branch."""
    return torch.cond(
        parity == 1, lambda: _cloned(*_left_keeps(last, border)), lambda: _cloned(*_up_keeps(last, border))
    )


def _select(parity: Tensor, last: States, border: tuple) -> tuple[States, States]:
    """The left and the upper neighbours' states, by weights 0 and 1."""
    odd = parity.to(last[0].dtype)
    pairs = zip(_left_keeps(last, border), _up_keeps(last, border), strict=True)
    left, up = (tuple(odd * a + (1 - odd) * b for a, b in zip(*pair, strict=True)) for pair in pairs)
    return left, up


def _scanned(
    pick: Callable, recurrence: Any, parameters: Parameters, s: Tensor, lengths: Tensor, unroll: int
) -> Tensor:
    s, lengths = _batch_last(s, lengths)
    rotated, i, j, inside = _rotate(s)
    step = functools.partial(_step, pick, recurrence, len(s), parameters)
    endings = _scan(step, _initial(recurrence, parameters, rotated), rotated, inside, unroll)
    return _score(recurrence, parameters, endings, i, j, lengths)


def _step(
    pick: Callable, recurrence: Any, rows: int, parameters: Parameters, carry: Carry, row: tuple[Tensor, Tensor, Tensor]
) -> tuple[Carry, Tensor]:
    """One anti-diagonal from the two before it."""
    before, last = carry
    similarity, is_inside, d = row
    left, up = pick((d + rows) % 2, last, recurrence.border(parameters, d - 1))
    states, ending = recurrence.step(parameters, similarity, before, left, up)
    return (last, _bordered(states, is_inside, recurrence.border(parameters, d))), ending


def _scan(step: Callable, initial: Carry, rotated: Tensor, inside: Tensor, unroll: int) -> Tensor:
    """What alignments that end in each place are worth, by the compiler's loop over the anti-diagonals.

    The operator has no unroll: a block of diagonals per step does the same. What the last block has too much lies
    after the matrix, where nothing reads it.
    """
    count = len(rotated)
    numbers = torch.arange(count, device=rotated.device)
    blocks = [_in_blocks(rows, unroll) for rows in (rotated, inside, numbers)]

    def block_step(carry: Carry, block: list[Tensor]) -> tuple[Carry, Tensor]:
        endings = []
        for row in zip(*(rows.unbind(0) for rows in block), strict=True):
            carry, ending = step(carry, row)
            endings.append(ending)
        # the operator forbids results that alias its operands or each other
        return _cloned(*carry), torch.stack(endings)

    _, endings = scan(block_step, initial, blocks)
    return endings.flatten(0, 1)[:count]


def _cloned(first: States, second: States) -> tuple[States, States]:
    return tuple(state.clone() for state in first), tuple(state.clone() for state in second)


def _in_blocks(rows: Tensor, size: int) -> Tensor:
    """(count, ...) as (blocks, size, ...), filled up with zeros."""
    missing = -len(rows) % size
    filled = torch.cat([rows, rows.new_zeros((missing, *rows.shape[1:]))]) if missing else rows
    return filled.unflatten(0, (-1, size))


def _batch_last(s: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """(rows, cols, *batch) and (2, *batch): a per-pair parameter then broadcasts by itself."""
    return s.movedim((-2, -1), (0, 1)), lengths.movedim(-1, 0)


def _indices(rows: int, cols: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Row and column number of every place of a rows x cols grid."""
    i, j = torch.meshgrid(torch.arange(rows, device=like.device), torch.arange(cols, device=like.device), indexing="ij")
    return i, j


def _put(table: Tensor, i: int, j: int, value: Tensor | float) -> Tensor:
    """A copy of the table with one cell replaced: PyTorch's functional update."""
    cell = torch.as_tensor(value, dtype=table.dtype, device=table.device).expand(table.shape[2:])
    return torch.select_scatter(table, torch.select_scatter(table[i], cell, 0, j), 0, i)


def _rotate(s: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The rotated matrix (diagonals, positions, *batch); of each of its places i, j and whether it is in the matrix."""
    rows, cols = s.shape[:2]
    i, j = _indices(rows, cols, s)
    diagonals, positions = rows + cols - 1, (rows + cols + 1) // 2
    rotated = s.new_zeros((diagonals, positions, *s.shape[2:])).index_put((i + j, (j - i + rows) // 2), s)
    d, p = _indices(diagonals, positions, s)
    offset = 2 * p + (d + rows) % 2 - rows  # j - i
    i, j = (d - offset) // 2, (d + offset) // 2
    inside = (i >= 0) & (i < rows) & (j >= 0) & (j < cols)
    return rotated, i, j, _trailing(inside, s)


def _initial(recurrence: Any, parameters: Parameters, rotated: Tensor) -> tuple[States, States]:
    """The states of the two anti-diagonals before the first, which lie outside.

    They hang on every differentiable input by a zero: the scan operator cuts the gradient of its earlier steps when
    the first carry needs none (2.11), and vmap wants a carry that is batched like what replaces it.
    """
    zero = 0.0 * (sum(parameters.values()) + rotated[0, 0])
    before, last = (
        tuple(rotated.new_zeros(rotated.shape[1:]) + (value + zero) for value in recurrence.border(parameters, d))
        for d in (-2, -1)
    )
    return before, last


def _bordered(states: States, inside: Tensor, border: tuple) -> States:
    """Places of the anti-diagonal that lie outside the matrix hold the border's states."""
    return tuple(torch.where(inside, state, value) for state, value in zip(states, border, strict=True))


def _left_keeps(last: States, border: tuple) -> tuple[States, States]:
    """Odd parity: the left neighbours keep their position, the upper ones stand one position on."""
    upper = [torch.cat([state[1:], _like(state[:1], value)]) for state, value in zip(last, border, strict=True)]
    return last, tuple(upper)


def _up_keeps(last: States, border: tuple) -> tuple[States, States]:
    """Even parity: the upper neighbours keep their position, the left ones stand one position back."""
    left = [torch.cat([_like(state[:1], value), state[:-1]]) for state, value in zip(last, border, strict=True)]
    return tuple(left), last


def _like(place: Tensor, value: Tensor | float) -> Tensor:
    return torch.zeros_like(place) + value


def _score(recurrence: Any, parameters: Parameters, endings: Tensor, i: Tensor, j: Tensor, lengths: Tensor) -> Tensor:
    """The smooth maximum over the cells where an alignment may end; a pair without one has a score of its own."""
    i, j = _trailing(i, endings), _trailing(j, endings)
    may_end = (i >= 0) & (j >= 0) & recurrence.may_end(i, j, lengths)
    masked = torch.where(may_end, endings, LOWEST).flatten(0, 1)
    score = smooth_maximum(masked, parameters["temperature"], dim=0)
    empty = recurrence.is_empty(masked.detach().amax(0), lengths)
    return torch.where(empty, recurrence.empty_score(parameters, lengths), score)


def _trailing(grid: Tensor, like: Tensor) -> Tensor:
    """A (rows, cols) grid with as many axes as `like`, so that it broadcasts over the batch."""
    return grid.reshape(grid.shape + (1,) * (like.ndim - 2))
