"""How the wavefront stores a batch of matrices: cells packed by anti-diagonal, batch innermost, neighbours as slices.

Cells (i, j) are packed by (i + j, i), each a row of one value per pair. Arrays of states have a border slot at either
end of each anti-diagonal, for the cells outside. So the neighbours of an anti-diagonal's cells are slices: their
states stand in the order of the cells, and no shift or select is needed.
"""

import contextlib
import functools
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch

from shared.alignments import COLS, RECURRENCES, ROWS, SIMILARITY, Choice
from shared.tolerances import LARGEST_SCALE, LOWEST
from torch_impl import cuda_graph
from torch_impl.kernels import openmp
from torch_impl.recurrences import Parameters, Tensor

# how many numbers are processed at once: on a CPU they should stay in its cache
IN_CACHE, IN_MEMORY = 100_000, 2**26
# bytes of the largest block that is kept for later calls (two blocks at most): gradients of 100 pairs of 100 x 150 with
# affine gaps use 73 MB
MOST_FREE = 2**27
# neighbour -> how many rows and columns before the cell it is
NEIGHBOURS = {"diagonal": (1, 1), "left": (0, 1), "up": (1, 0), "cell": (0, 0)}


class Layout(NamedTuple):
    """The packed places of the cells of the first rows x cols of a matrix with `width` columns and `area` cells."""

    i: Tensor  # (cells,)
    j: Tensor
    order: Tensor  # (cells,): the index in the matrix, row by row, of each packed cell
    back: Tensor  # (area,): packed index of each matrix element; beyond rows x cols, of the zeros after the last cell
    sizes: list[int]  # cells of each anti-diagonal
    slots: int
    border: Tensor  # the slots outside the matrix
    border_gaps: Tensor  # (border slots, 1): the gap positions from the corner to each
    is_above: Tensor  # (border slots, 1): whether it lies above the matrix, or behind its last column
    places: dict[str, Tensor]  # neighbour -> (cells,): the slot of each cell's neighbour
    splits: dict[str, list[int]]  # neighbour -> sizes for split: slots to skip, slots of a diagonal, and so on

    def views(self, states: Tensor, neighbour: str) -> tuple[Tensor, ...]:
        """The states (slots, batch) of the neighbours of each anti-diagonal's cells."""
        return states.split(self.splits[neighbour])[1::2]


@functools.lru_cache(maxsize=16)
def layout_of(rows: int, cols: int, height: int, width: int, device: torch.device) -> Layout:
    """The layout of the first rows x cols of a height x width matrix."""
    first = [max(0, d - cols + 1) for d in range(-2, rows + cols - 1)]  # the first row of each diagonal, from -2 on
    sizes = [min(rows - 1, d) - low + 1 for d, low in enumerate(first, -2)]
    starts = [0]
    for size in sizes:
        starts.append(starts[-1] + size + 2)
    slots = starts.pop()
    low, start = torch.tensor(first), torch.tensor(starts)
    i = torch.cat([torch.arange(low, low + size) for low, size in zip(first[2:], sizes[2:], strict=True)])
    d = torch.arange(rows + cols - 1).repeat_interleave(torch.tensor(sizes[2:]))
    places, splits = {}, {}
    for name, (di, dj) in NEIGHBOURS.items():
        at = d - di - dj + 2
        places[name] = start[at] + i - di - low[at] + 1
        splits[name], end = [], 0
        for number in range(2, len(sizes)):
            behind = number - di - dj
            begin = starts[behind] + first[number] - di - first[behind] + 1
            splits[name] += [begin - end, sizes[number]]
            end = begin + sizes[number]
        splits[name].append(slots - end)
    outside = torch.ones(slots, dtype=torch.bool)
    outside[places["cell"]] = False
    border = outside.nonzero()[:, 0]
    border_gaps = torch.arange(rows + cols + 1).repeat_interleave(torch.tensor(sizes) + 2)[border]
    is_above = torch.isin(border, start)
    order = i * width + d - i
    back = torch.full((height * width,), len(order)).index_copy_(0, order, torch.arange(len(order)))
    i, j, order, back, border, border_gaps, is_above = (
        tensor.to(device) for tensor in (i, d - i, order, back, border, border_gaps[:, None], is_above[:, None])
    )
    places = {name: place.to(device) for name, place in places.items()}
    return Layout(i, j, order, back, sizes[2:], slots, border, border_gaps, is_above, places, splits)


class Chunk(NamedTuple):
    """Some anti-diagonals."""

    diagonals: range
    sizes: list[int]
    cells: slice


def _chunks(sizes: list[int], limit: int) -> Iterator[Chunk]:
    """Anti-diagonals with up to `limit` cells together, or a single one."""
    begin = end = cells = 0
    while begin < len(sizes):
        count = 0
        while end < len(sizes) and (end == begin or count + sizes[end] <= limit):
            count, end = count + sizes[end], end + 1
        yield Chunk(range(begin, end), sizes[begin:end], slice(cells, cells + count))
        begin, cells = end, cells + count


class Memory:
    """Memory for large arrays on a CPU, reused from call to call.

    The system provides new memory page by page, on the first write, which costs more than a pass over the array.
    """

    _free: list[Tensor] = []  # noqa: RUF012 - shared on purpose: each call takes one out and puts one back

    def __init__(self, device: torch.device) -> None:
        self.block, self.used = self._of_size(0), 0
        with contextlib.suppress(IndexError):  # another thread may have taken the last one
            self.block = Memory._free.pop() if device.type == "cpu" else self.block

    @staticmethod
    def _of_size(size: int) -> Tensor:
        with torch.inference_mode(False):  # tensors made in inference mode can only be written to in it
            return torch.empty(size, dtype=torch.uint8, device="cpu")

    def new(self, shape: Sequence[int], like: Tensor) -> Tensor:
        """An uninitialized array, valid until the call ends."""
        size = math.prod(shape) * like.element_size()
        begin, self.used = self.used, self.used + -(-size // 64) * 64
        if like.device.type != "cpu" or self.used > len(self.block):
            return like.new_empty(shape)
        return self.block[begin : begin + size].view(like.dtype).view(shape)

    def give_back(self) -> None:
        """Return the block for the next call, enlarged to what this one needed."""
        if len(self.block) < self.used <= MOST_FREE:
            self.block = self._of_size(self.used)
        if len(Memory._free) < 2:
            Memory._free.append(self.block)


class DiagonalBatch:
    """A batch by anti-diagonals, for all passes. Arrays of cells are (cells, batch), of states (slots, batch)."""

    def __init__(
        self, memory: Memory, recurrence: str, s: Tensor, lengths: Tensor, values: Tensor, gaps: Sequence[Tensor]
    ) -> None:
        self.memory = memory
        self.recurrence = RECURRENCES[recurrence]
        self.names = self.recurrence.parameters
        self.matrices = (SIMILARITY, *self.recurrence.by_position)  # the terms that have a value for each cell
        self.shape = s.shape
        batch, rows, cols = s.shape
        # nothing here may synchronize with the device or copy to it: a CUDA graph can hold neither
        lengths = torch.stack([lengths[:, axis].clamp(0, size) for axis, size in enumerate((rows, cols))], dim=1)
        longest: list[int] = [rows, cols]
        if s.device.type == "cpu":  # elsewhere this would synchronize with the device
            longest = lengths.amax(0).clamp(min=1).tolist()
        self.layout = layout_of(*longest, rows, cols, s.device)
        self.limit = IN_CACHE if s.device.type == "cpu" else IN_MEMORY
        self.chunks = list(_chunks(self.layout.sizes, self.limit // batch))
        self.lengths = lengths.t().contiguous()  # (2, batch)
        *gap_costs, self.temperature = values.t().contiguous().unbind(0)  # each (batch,)
        columns = zip(self.names, gap_costs, strict=True)
        self.parameters: Parameters = {n: v for n, v in columns if n not in self.matrices}
        self.lowest = LOWEST * (1 / self.temperature).minimum(LARGEST_SCALE * self.temperature).clamp_(min=1)
        self.scaled = {n: (v / self.temperature).clamp(self.lowest, -self.lowest) for n, v in self.parameters.items()}
        # separately for rows and columns: whether an alignment may end in a cell is a condition on each
        i, j = (torch.arange(count, device=s.device)[:, None] for count in longest)
        may_end, last = self.recurrence.may_end, self.lengths - 1
        self.inside = i < self.lengths[0], j < self.lengths[1]
        ends = may_end(i, last[1], self.lengths), may_end(last[0], j, self.lengths)
        # added to the value of an end: takes a tenth of the time of a select, and makes NaN of +inf, as it should
        numbers = s.new_zeros(()), s.new_full((), -torch.inf)
        self.end_terms = [torch.where(mask, *numbers) for mask in ends]
        cells = self.pack_all((s, *gaps))
        for name, matrix in cells.items():
            for chunk in self.chunks:
                scaled = matrix[chunk.cells].div_(self.temperature).clamp_(min=self.lowest)
                if name != SIMILARITY:
                    # so that a NaN gap makes the pair NaN, even in a cell that no gap can step into
                    self.temperature = self.temperature + 0 * scaled.clamp_(max=-self.lowest).amax(0)
        self.s = cells[SIMILARITY]
        self.terms = {**cells, **self.scaled}

    def pack_all(self, matrices: Sequence[Tensor]) -> dict[str, Tensor]:
        """The similarity and the gaps by position, or what is like them, as cells."""
        return {name: self.pack(matrix) for name, matrix in zip(self.matrices, matrices, strict=True)}

    def pack(self, matrix: Tensor) -> Tensor:
        """A matrix (batch, rows, cols) as cells; its padding, which may be NaN, becomes 0."""
        flat, order = matrix.flatten(1).t(), self.layout.order
        # transposed first: a cell is then gathered with all its pairs
        transposed = self.memory.new(flat.shape, matrix)
        for block in self.blocks():
            transposed[block].copy_(flat[block])
        rows, cols = self.inside
        _clear(transposed.view(*self.shape[1:], len(matrix))[: len(rows), : len(cols)], rows[:, None], cols)
        return torch.index_select(transposed, 0, order, out=self.memory.new((len(order), len(matrix)), matrix))

    def blocks(self) -> Iterator[slice]:
        """The matrix in blocks that, with all pairs, are read and written within the cache."""
        area, size = self.shape[1] * self.shape[2], max(1, self.limit // (2 * self.shape[0]))
        return (slice(begin, min(begin + size, area)) for begin in range(0, area, size))

    def own(self, states: Tensor, chunk: Chunk) -> Tensor:
        """The states of some of the cells."""
        return states.index_select(0, self.layout.places["cell"][chunk.cells])

    def unpack(self, cells: Tensor) -> Tensor:
        """Cells, followed by a row of zeros for all other elements, as (batch, rows, cols)."""
        result = cells.new_empty((self.shape[0], self.shape[1] * self.shape[2]))
        for block in self.blocks():
            result[:, block].copy_(cells.index_select(0, self.layout.back[block]).t())
        result = result.view(self.shape)
        # in a pair with NaN inside its lengths, NaN may be anywhere
        rows, cols = (mask.t() for mask in self.inside)
        _clear(result[:, : rows.shape[1], : cols.shape[1]], rows[:, :, None], cols[:, None])
        return result

    def of_cells(self, terms: dict[str, Tensor], name: str, chunk: Chunk) -> Tensor:
        """A term in some of the cells."""
        return terms[name][chunk.cells] if name in self.matrices else terms[name]

    def border(self, function: Callable[..., Any], parameters: Any, *others: Any) -> Sequence[Any]:
        """The values on the border by `function`: a recurrence's border or border_tangent."""
        left = function(parameters, self.layout.border_gaps, COLS, *others)
        if self.recurrence.is_same_along_axes:
            return left
        above, zero = function(parameters, self.layout.border_gaps, ROWS, *others), self.s.new_zeros(())
        return [
            torch.where(self.layout.is_above, zero + a, zero + b).to(zero.dtype)
            for a, b in zip(above, left, strict=True)
        ]

    def states(self, border: Sequence[Any]) -> list[Tensor]:
        """Arrays of states with these values on the border; the rest is uninitialized."""
        states = [self.memory.new((self.layout.slots, self.shape[0]), self.s) for _ in border]
        for state, value in zip(states, border, strict=True):
            if not isinstance(value, Tensor):
                state.index_fill_(0, self.layout.border, value)
            else:
                value = value.to(state.dtype).expand(len(self.layout.border), state.shape[1])
                state.index_copy_(0, self.layout.border, value)
        return states

    def choices(
        self,
        choices: Sequence[Choice],
        states: Sequence[Tensor],
        terms: dict[str, Tensor],
        chunk: Chunk,
        keep: bool = False,
    ) -> Tensor:
        """The choices in some of the cells, (choices, cells, batch). Linear, so it maps tangents too.

        keep: whether the result must stay valid until the call ends.
        """
        shape = len(choices), sum(chunk.sizes), self.shape[0]
        result = self.memory.new(shape, self.s) if keep else self.s.new_empty(shape)
        for value, choice in zip(result, choices, strict=True):
            added = [self.of_cells(terms, name, chunk) for name in choice.terms]
            if choice.neighbour:
                places = self.layout.places[choice.neighbour][chunk.cells]
                torch.index_select(states[choice.state], 0, places, out=value)
            else:
                value.copy_(added.pop())
            for term in added:
                value += term
        return result


def _clear(numbers: Tensor, *masks: Tensor) -> None:
    """Write 0 where one of the masks is false, even over NaN."""
    # bitwise, because NaN * 0 is NaN, and a select takes ten times as long
    bits = numbers.view(torch.int32 if numbers.element_size() == 4 else torch.int64)
    for mask in masks:
        bits.bitwise_and_(mask.to(bits.dtype).neg_())


def fill(batch: DiagonalBatch) -> list[Tensor]:
    """The states, of terms that are divided by the temperature."""
    layout = batch.layout
    states = batch.states(batch.border(batch.recurrence.border, batch.scaled, batch.lowest))
    terms: dict[str, Any] = {name: [value] * len(layout.sizes) for name, value in batch.scaled.items()}
    terms |= {name: batch.terms[name].split(layout.sizes) for name in batch.matrices}
    views, diagonals = all_views(batch, states)
    scratch = {size: batch.s.new_empty((size, batch.shape[0])) for size in set(layout.sizes)}
    zero = batch.s.new_zeros(())
    steps = [_groups(choices) for choices in batch.recurrence.states]
    for d, size in enumerate(layout.sizes):
        for k, groups in enumerate(steps):
            result = diagonals[k][d]
            for number, (added, sources) in enumerate(groups):
                target = scratch[size] if number else result
                first, *other_sources = [views[source][d] if source[0] else zero for source in sources]
                for other in other_sources:
                    first = torch.logaddexp(first, other, out=target)
                for name in added:
                    first = torch.add(first, terms[name][d], out=target)
                if number:
                    torch.logaddexp(result, first, out=result)
                elif first is not target:
                    target.copy_(first)
    return states


def all_views(batch: DiagonalBatch, states: list[Tensor]) -> tuple[dict[Any, Any], list[Any]]:
    """Views per anti-diagonal: of each (neighbour, state) that choices read, and of the cells' own states."""
    near = {(c.neighbour, c.state) for choices in batch.recurrence.states for c in choices}
    views = {(name, k): batch.layout.views(states[k], name) for name, k in near if name}
    return views, [batch.layout.views(state, "cell") for state in states]


def _groups(choices: Sequence[Choice]) -> list[tuple[tuple[str, ...], list[tuple[str | None, int]]]]:
    """The choices grouped by their terms, which are then added once per group."""
    groups: dict[tuple[str, ...], list[tuple[str | None, int]]] = {}
    for choice in choices:
        groups.setdefault(choice.terms, []).append((choice.neighbour, choice.state))
    return list(groups.items())


def run_single_threaded(
    function: Callable[..., Any], tensors: tuple[Tensor, ...], *others: Any, graph: bool = False
) -> Any:
    """Call function(memory, *others, *tensors), on a CPU with single-threaded operators.

    graph: on a GPU, launch its CUDA graph instead. tensors: similarity (batch, rows, cols) first.

    On a CPU, subnormal numbers are flushed to 0: they are slow, and far from the best alignment there are many of them.
    An anti-diagonal is too small for PyTorch to split among threads, and larger arrays are processed in chunks. Both
    settings are those of the calling thread alone, which gets its own back.
    """
    device, (_, rows, cols) = tensors[0].device, tensors[0].shape
    memory = Memory(device)
    if device.type != "cpu":
        launched = functools.partial(function, memory, *others)
        tables = layout_of(rows, cols, rows, cols, device)
        if not graph:
            cuda_graph.keep_if_captured(tables)
            return launched(*tensors)
        return cuda_graph.replayed(launched, tensors, key=(function, *others), reads=tables)
    flushes = sys.float_info.min / 2 == 0
    try:
        torch.set_flush_denormal(True)
        with (
            openmp.one_thread(),
            torch.inference_mode(False),
            torch.no_grad(),
            torch.autocast("cpu", enabled=False),
        ):
            return function(memory, *others, *(tensor.detach() for tensor in tensors))
    finally:
        torch.set_flush_denormal(flushes)
        memory.give_back()
