"""The rotated matrix of every sweep but cell_loop, in PyTorch, and the score of the ends, which all share.

The rotated matrix holds cell (i, j) at row i + j and position (j - i + rows) // 2, which makes an anti-diagonal
contiguous. The neighbour at (i-1, j-1) keeps its position; of the two others one keeps it and one is next to it;
which of them keeps it alternates with the parity of i + j + rows. The rotation is Petti et al.'s,
doi:10.1101/2021.10.23.465204.
"""

import torch

from shared.alignments import COLS, ROWS, Recurrence
from shared.tolerances import FORBIDDEN, LOWEST
from torch_impl.recurrences import Parameters, States, Tensor, smooth_maximum


def batch_last(s: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """(rows, cols, *batch) and (2, *batch): a parameter per pair then broadcasts."""
    return cells_first(s), lengths.movedim(-1, 0)


def cells_first(matrix: Tensor) -> Tensor:
    """(rows, cols, *batch)."""
    return matrix.movedim((-2, -1), (0, 1))


def indices(rows: int, cols: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Row and column number of every place of a rows x cols grid."""
    i, j = torch.meshgrid(torch.arange(rows, device=like.device), torch.arange(cols, device=like.device), indexing="ij")
    return i, j


def put(table: Tensor, i: int, j: int, value: Tensor | float) -> Tensor:
    """A copy of the table with one cell replaced: PyTorch's functional update.

    By slices: under torch.func.vmap select_scatter's source gets a gradient that is too large by the factor of the
    dimension's size (PyTorch 2.11 to 2.13).
    """
    cell = torch.as_tensor(value, dtype=table.dtype, device=table.device).expand(table.shape[2:])
    row = torch.slice_scatter(table[i : i + 1], cell[None, None], 1, j, j + 1)
    return torch.slice_scatter(table, row, 0, i, i + 1)


def rotate(s: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The rotated matrix (diagonals, positions, *batch); for each element i, j and whether it is in the matrix."""
    rows, cols = s.shape[:2]
    rotated = rotated_matrix(s)
    d, p = indices(len(rotated), rotated.shape[1], s)
    offset = 2 * p + (d + rows) % 2 - rows  # j - i
    i, j = (d - offset) // 2, (d + offset) // 2
    inside = (i >= 0) & (i < rows) & (j >= 0) & (j < cols)
    return rotated, i, j, _trailing(inside, s)


def rotated_matrix(matrix: Tensor) -> Tensor:
    """A matrix (rows, cols, *batch) as (diagonals, positions, *batch), with zeros where it has no cell."""
    rows, cols, *batch = matrix.shape
    i, j = indices(rows, cols, matrix)
    rotated = matrix.new_zeros((rows + cols - 1, (rows + cols + 1) // 2, *batch))
    return rotated.index_put((i + j, (j - i + rows) // 2), matrix)


def border(recurrence: Recurrence, parameters: Parameters, d: int | Tensor, rows: int, like: Tensor) -> tuple:
    """The states outside the matrix on anti-diagonal d: one for all places, or (1 + positions + 1, *batch).

    like: a state (positions, *batch); the border has a place more at either end.
    """
    left = recurrence.border(parameters, d + 2, COLS)
    if recurrence.is_same_along_axes:
        return left
    above = recurrence.border(parameters, d + 2, ROWS)
    # of what lies outside, these places lie above the matrix, or behind its last column
    is_above = 2 * torch.arange(-1, len(like) + 1, device=like.device) >= rows
    is_above, zero = is_above.reshape(-1, *(1 for _ in like.shape[1:])), torch.zeros_like(like[0])
    return tuple(torch.where(is_above, zero + a, zero + b) for a, b in zip(above, left, strict=True))


def initial_states(
    recurrence: Recurrence, rows: int, parameters: Parameters, rotated: Tensor, gaps: Parameters
) -> tuple[States, States]:
    """The states of the two anti-diagonals before the first, which lie outside the matrix.

    They depend on every differentiable input, times 0: the scan operator cuts gradients between steps when the
    first carry needs none (2.11), and vmap wants a carry that is batched like what replaces it.
    """
    zero = 0.0 * sum([*parameters.values(), *(matrix[0, 0] for matrix in (rotated, *gaps.values()))])
    before, last = (
        tuple(
            rotated.new_zeros(rotated.shape[1:]) + (_at(slice(1, -1), rotated[0], value) + zero)
            for value in border(recurrence, parameters, d, rows, rotated[0])
        )
        for d in (-2, -1)
    )
    return before, last


def bordered(states: States, inside: Tensor, outside: tuple) -> States:
    """The states with those of the border where the anti-diagonal lies outside the matrix."""
    pairs = zip(states, outside, strict=True)
    return tuple(torch.where(inside, state, _at(slice(1, -1), state, value)) for state, value in pairs)


def neighbours_odd(last: States, outside: tuple) -> tuple[States, States]:
    """Odd parity: the left neighbours keep their position, the upper ones are one position further."""
    upper = [torch.cat([state[1:], _end(-1, state, value)]) for state, value in zip(last, outside, strict=True)]
    return last, tuple(upper)


def neighbours_even(last: States, outside: tuple) -> tuple[States, States]:
    """The left and upper neighbours at even parity: the upper keep their position, the left are one back."""
    left = [torch.cat([_end(0, state, value), state[:-1]]) for state, value in zip(last, outside, strict=True)]
    return tuple(left), last


def _at(places: int | slice, state: Tensor, outside: Tensor | float) -> Tensor | float:
    """The border's values at some places, or the single value for all."""
    return outside[places] if isinstance(outside, Tensor) and outside.ndim == state.ndim else outside


def _end(place: int, state: Tensor, outside: Tensor | float) -> Tensor:
    """The border's value at its first or last place, (1, *batch)."""
    return torch.zeros_like(state[:1]) + _at(place, state, outside)


def score_of_ends(
    recurrence: Recurrence, parameters: Parameters, ends: Tensor, i: Tensor, j: Tensor, lengths: Tensor
) -> Tensor:
    """The smooth maximum over the cells where an alignment may end; for a pair without one, `empty_score`."""
    i, j = _trailing(i, ends), _trailing(j, ends)
    may_end = (i >= 0) & (j >= 0) & recurrence.may_end(i, j, lengths)
    masked = torch.where(may_end, ends, LOWEST).flatten(0, 1)
    score = smooth_maximum(masked, parameters["temperature"], dim=0)
    empty = recurrence.is_empty(masked.detach().amax(0), lengths)
    score = torch.where(empty, recurrence.empty_score(parameters, lengths), score)
    return torch.where(score <= FORBIDDEN, -torch.inf, score)


def _trailing(grid: Tensor, like: Tensor) -> Tensor:
    """A 2-D grid with as many axes as `like`, so that it broadcasts over the batch."""
    return grid.reshape(grid.shape + (1,) * (like.ndim - 2))
