"""How a matrix is traversed, in PyTorch: six variants. Each takes any recurrence.

    cell_loop       the recurrence as written, one cell at a time
    diagonal_loop   all cells of an anti-diagonal at once
    scan_cond       the diagonals inside the scan operator, cond for the shift
    scan_select     arithmetic select instead of cond
    batch_loop      a Python loop over the pairs, each by the compiled single-pair scan_select
    vmap            scan_select, its single-pair pieces mapped over the pairs

A sweep takes a recurrence, its parameters, similarity (*batch, rows, cols) with zeros in its padding, and lengths
(*batch, 2), where batch is one axis or none; it returns scores (*batch). The first four compute a whole batch at
once: they move its axis to the end of every tensor. Cells outside lengths never feed a cell inside, so lengths only
decide where an alignment may end. A gap by position is a matrix like the similarity and is arranged like it; each step
gets the values of its cells.

rotation.py describes how an anti-diagonal is stored and how its neighbours are found. The first two variants of
smith_waterman are written out in plain_loops.py.
"""

# Dynamo cannot evaluate the annotations of functions that are defined inside a compiled one
from __future__ import annotations

import functools
import itertools
from collections.abc import Callable

import torch
from torch._higher_order_ops import scan

from shared.alignments import COLS, ROWS, Recurrence
from torch_impl.compiler import compiled
from torch_impl.plain_loops import PLAIN_LOOPS
from torch_impl.recurrences import Parameters, States, Tensor, recurrence_step
from torch_impl.rotation import (
    batch_last,
    border,
    bordered,
    cells_first,
    indices,
    initial_states,
    neighbours_even,
    neighbours_odd,
    put,
    rotate,
    rotated_matrix,
    score_of_ends,
)

Carry = tuple[States, States]  # of the anti-diagonal before the last, and of the last
Row = tuple[Tensor, Tensor, Tensor, Parameters]  # similarity, mask of cells inside, diagonal's number; gaps


def cell_loop(recurrence: Recurrence, parameters: Parameters, s: Tensor, lengths: Tensor) -> Tensor:
    """The recurrence as written: cell by cell, each written into the table by functional update."""
    s, lengths = batch_last(s, lengths)
    parameters, gaps = _split_gaps(recurrence, parameters, cells_first)
    rows, cols, *batch = s.shape
    tables = tuple(s.new_zeros((rows + 1, cols + 1, *batch)) for _ in recurrence.states)
    ends = torch.zeros_like(s)
    for i, j in itertools.product(range(-1, rows), range(-1, cols)):
        if i < 0 or j < 0:
            states = recurrence.border(parameters, i + j + 2, ROWS if i < 0 else COLS)
        else:
            diagonal, left, up = (
                tuple(table[i + di, j + dj] for table in tables) for di, dj in ((0, 0), (1, 0), (0, 1))
            )
            costs = parameters | {name: gaps[name][i, j] for name in recurrence.by_position}
            states, end = recurrence_step(recurrence, costs, s[i, j], diagonal, left, up)
            ends = put(ends, i, j, end)
        tables = tuple(put(table, i + 1, j + 1, state) for table, state in zip(tables, states, strict=True))
    return score_of_ends(recurrence, parameters, ends, *indices(rows, cols, s), lengths)


def diagonal_loop(recurrence: Recurrence, parameters: Parameters, s: Tensor, lengths: Tensor) -> Tensor:
    """One Python step per anti-diagonal; the direction of the shift is known when the loop is unrolled."""
    s, lengths = batch_last(s, lengths)
    rotated, i, j, inside = rotate(s)
    parameters, gaps = _split_gaps(recurrence, parameters, _rotated)
    before, last = initial_states(recurrence, len(s), parameters, rotated, gaps)
    outside = functools.partial(border, recurrence, parameters, rows=len(s), like=rotated[0])
    ends = []
    # unbind, because the backward of each rotated[d] would fill a tensor of rotated's size
    rows = zip(*(matrix.unbind(0) for matrix in (rotated, *gaps.values())), strict=True)
    for d, (row, *costs) in enumerate(rows):
        costs_here = parameters | dict(zip(gaps, costs, strict=True))
        shift = neighbours_odd if (d + len(s)) % 2 else neighbours_even
        left, up = shift(last, outside(d - 1))
        states, end = recurrence_step(recurrence, costs_here, row, before, left, up)
        before, last = last, bordered(states, inside[d], outside(d))
        ends.append(end)
    return score_of_ends(recurrence, parameters, torch.stack(ends), i, j, lengths)


def scan_cond(recurrence: Recurrence, parameters: Parameters, s: Tensor, lengths: Tensor) -> Tensor:
    """The anti-diagonals inside the scan operator, which compiles one step whatever the size; cond picks the shift."""
    return _scanned(_cond, recurrence, parameters, s, lengths)


def scan_select(recurrence: Recurrence, parameters: Parameters, s: Tensor, lengths: Tensor) -> Tensor:
    """Both shifts are computed and blended with weights 0 and 1: no control flow inside the step."""
    return _scanned(_select, recurrence, parameters, s, lengths)


def batch_loop(recurrence: Recurrence, parameters: Parameters, s: Tensor, lengths: Tensor) -> Tensor:
    """A Python loop over the pairs, each by the compiled single-pair scan_select."""
    single = _compiled_single(recurrence)
    if s.ndim == 2:
        return single(parameters, s, lengths)
    pairs = range(len(s))
    return torch.stack([single({k: v[b] for k, v in parameters.items()}, s[b], lengths[b]) for b in pairs])


def vmap(recurrence: Recurrence, parameters: Parameters, s: Tensor, lengths: Tensor) -> Tensor:
    """scan_select, its single-pair pieces mapped over the pairs by torch.func.vmap; a single pair is a batch of one.

    The scan operator has no gradient under vmap inside torch.compile (2.11 fails an internal assertion, 2.13 refuses
    the strides of its carry). So the map goes inside the scan: each single-pair piece is mapped, the loop is not.
    """
    if s.ndim == 2:
        return vmap(recurrence, {k: v[None] for k, v in parameters.items()}, s[None], lengths[None])[0]
    each_pair = torch.func.vmap
    rotated, i, j, inside = each_pair(rotate, out_dims=(1, None, None, None))(s)  # pyright: ignore[reportArgumentType]
    parameters, gaps = _split_gaps(recurrence, parameters, each_pair(rotated_matrix, out_dims=1))
    start = functools.partial(initial_states, recurrence, s.shape[1])
    initial = each_pair(start, in_dims=(0, 1, 1))(parameters, rotated, gaps)
    one_step = functools.partial(_step, _select, recurrence, s.shape[1])

    def step(carry: Carry, row: Row) -> tuple[Carry, Tensor]:
        similarity, is_inside, d, costs = row

        def pair_step(
            own: Parameters, own_carry: Carry, own_similarity: Tensor, own_costs: Parameters
        ) -> tuple[Carry, Tensor]:
            return one_step(own, own_carry, (own_similarity, is_inside, d, own_costs))

        return each_pair(pair_step)(parameters, carry, similarity, costs)

    ends = _scan(step, initial, rotated, inside, gaps)
    score = functools.partial(score_of_ends, recurrence)
    return each_pair(score, in_dims=(0, 1, None, None, 0))(parameters, ends, i, j, lengths)


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
# those that have a scan
SCANNING = ("scan_cond", "scan_select", "batch_loop", "vmap")


def sweep_of(function_name: str, variant: str, recurrence: Recurrence) -> Callable[..., Tensor]:
    """The sweep of a variant; the first two of smith_waterman with one gap per pair are those of plain_loops."""
    is_plain = function_name == "smith_waterman" and not (recurrence.by_position or recurrence.is_by_axis)
    return (is_plain and PLAIN_LOOPS.get(variant)) or SWEEPS[variant]


def _split_gaps(
    recurrence: Recurrence, parameters: Parameters, arranged: Callable[[Tensor], Tensor]
) -> tuple[Parameters, Parameters]:
    """The parameters that have one value per pair; and the gaps by position, in the layout that `arranged` makes."""
    gaps = {name: arranged(parameters[name]) for name in recurrence.by_position}
    return {name: value for name, value in parameters.items() if name not in gaps}, gaps


def _rotated(matrix: Tensor) -> Tensor:
    return rotated_matrix(cells_first(matrix))


@functools.lru_cache(maxsize=64)
def _compiled_single(recurrence: Recurrence) -> Callable[..., Tensor]:
    return compiled(functools.partial(scan_select, recurrence))


def _cond(parity: Tensor, last: States, outside: tuple) -> tuple[States, States]:
    """The left and the upper neighbours' states, by a branch."""
    return torch.cond(
        parity == 1, lambda: _cloned(*neighbours_odd(last, outside)), lambda: _cloned(*neighbours_even(last, outside))
    )


def _select(parity: Tensor, last: States, outside: tuple) -> tuple[States, States]:
    """The left and the upper neighbours' states, by weights 0 and 1."""
    odd = parity.to(last[0].dtype)
    pairs = zip(neighbours_odd(last, outside), neighbours_even(last, outside), strict=True)
    left, up = (tuple(odd * a + (1 - odd) * b for a, b in zip(*pair, strict=True)) for pair in pairs)
    return left, up


def _scanned(pick: Callable, recurrence: Recurrence, parameters: Parameters, s: Tensor, lengths: Tensor) -> Tensor:
    s, lengths = batch_last(s, lengths)
    rotated, i, j, inside = rotate(s)
    parameters, gaps = _split_gaps(recurrence, parameters, _rotated)
    step = functools.partial(_step, pick, recurrence, len(s), parameters)
    ends = _scan(step, initial_states(recurrence, len(s), parameters, rotated, gaps), rotated, inside, gaps)
    return score_of_ends(recurrence, parameters, ends, i, j, lengths)


def _step(
    pick: Callable,
    recurrence: Recurrence,
    rows: int,
    parameters: Parameters,
    carry: Carry,
    row: Row,
) -> tuple[Carry, Tensor]:
    """One anti-diagonal from the two before it."""
    before, last = carry
    similarity, is_inside, d, costs = row
    outside = functools.partial(border, recurrence, parameters, rows=rows, like=similarity)
    left, up = pick((d + rows) % 2, last, outside(d - 1))
    states, end = recurrence_step(recurrence, parameters | costs, similarity, before, left, up)
    return (last, bordered(states, is_inside, outside(d))), end


def _scan(step: Callable, initial: Carry, rotated: Tensor, inside: Tensor, gaps: Parameters) -> Tensor:
    """The scores of the alignments that end in each place, by the compiler's loop over the anti-diagonals."""

    def one_step(carry: Carry, row: Row) -> tuple[Carry, Tensor]:
        carry, end = step(carry, row)
        # the operator forbids results that alias its operands or each other
        return _cloned(*carry), end.clone()

    rows = rotated, inside, torch.arange(len(rotated), device=rotated.device), gaps
    _, ends = scan(one_step, initial, rows)
    return ends


def _cloned(first: States, second: States) -> tuple[States, States]:
    return tuple(state.clone() for state in first), tuple(state.clone() for state in second)
