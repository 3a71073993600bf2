"""The wavefront: anti-diagonals packed one after the other, the batch innermost, derivatives written by hand.

Similarity and gaps are divided by the temperature T, so that the recurrence is walked at temperature 1 and every
smooth maximum is a chain of log(e^a + e^b). With c the choices of a state h, and a dot for a tangent:

    fill    h = smax(c)                                      the states, forward
    weigh   w = exp((c - h) / T)                             what each choice counts; entropy = -sum w ln w
    pull    v = d score / d h = [end] + sum over successors w v          the marginals are sums of w v, backward
    push    h' = sum w c' + entropy T'                       the tangents of the states, forward
    weigh'  w' = (w (c' - h') - w ln w T') / T
    pull'   v' = [end]' + sum over successors (w' v + w v')              Hessian times direction, backward

Only fill, pull, push and pull' are loops, over anti-diagonals; the rest is elementwise over all cells at once. What
is a choice of what is read from the recurrence itself, by handing it symbols.

Cells (i, j) are packed by (i + j, i), each a row of one value per pair. Arrays of states have a border slot at either
end of each anti-diagonal, for the cells outside. So the neighbours of an anti-diagonal's cells are slices: their
states stand in the order of the cells, and no shift or select is needed.
"""

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import torch

from shared.alignments import ALIGNMENTS
from shared.numerics import LOWEST
from torch_impl.derivatives import Engine
from torch_impl.recurrences import RECURRENCES, Parameters, Tensor

SIMILARITY = "similarity"
# numbers that are worked on at once: on a CPU they should stay in its cache
IN_CACHE, IN_MEMORY = 64_000, 2**26
# where a choice comes from: the offsets of the row and the column
NEIGHBOURS = {"diagonal": (1, 1), "left": (0, 1), "up": (1, 0), "cell": (0, 0)}


class Choice(NamedTuple):
    """One choice of a smooth maximum: a neighbour's state plus some terms."""

    neighbour: str | None  # None: an alignment begins here
    state: int
    terms: tuple[str, ...]  # SIMILARITY, or a parameter


class Plan(NamedTuple):
    """A recurrence as data."""

    recurrence: Any
    names: tuple[str, ...]  # of the parameters that are added; the temperature apart
    states: tuple[tuple[Choice, ...], ...]
    endings: tuple[Choice, ...]


class _Symbols(frozenset):
    """A sum of symbols."""

    def __add__(self, other: Any) -> "_Symbols":
        return self if isinstance(other, float) else _Symbols(self | other)

    def choice(self) -> Choice:
        source = [symbol for symbol in self if not isinstance(symbol, str)]
        neighbour, state = source[0] if source else (None, 0)
        return Choice(neighbour, state, tuple(symbol for symbol in self if isinstance(symbol, str)))


@functools.cache
def plan_of(problem: str, options: str) -> Plan:
    """What the recurrence of a problem is made of. options: "name=value,..."."""
    given = dict(option.split("=") for option in options.split(",") if option)
    chosen = {name: {str(value): value for value in (True, False)}.get(value, value) for name, value in given.items()}
    recurrence = RECURRENCES[problem](**chosen)
    names = tuple(name for name in ALIGNMENTS[problem].parameters if name != "temperature")
    symbols: Any = {name: _Symbols([name]) for name in names}
    count = len(recurrence.border(dict.fromkeys(names, 0.0), 0))
    near, own = (
        [tuple(_Symbols([(name, k)]) for k in range(count)) for name in names]
        for names in (("diagonal", "left", "up"), ("cell",))
    )
    choices = recurrence.choices(symbols, _Symbols([SIMILARITY]), *near)
    states = tuple(tuple(choice.choice() for choice in of_state) for of_state in choices)
    return Plan(recurrence, names, states, tuple(choice.choice() for choice in recurrence.endings(choices, *own)))


class Layout(NamedTuple):
    """Where the cells of the first rows x cols of a matrix with `width` columns and `area` cells are packed."""

    i: Tensor  # (cells,)
    j: Tensor
    order: Tensor  # (cells,): the place of each cell in the matrix
    back: Tensor  # (area,): the cell of each place of the matrix; beyond rows x cols, one that does not exist
    sizes: list[int]  # cells of each anti-diagonal
    slots: int
    border: Tensor  # the slots outside the matrix
    border_diagonal: Tensor  # (border slots, 1): i + j of each
    places: dict[str, Tensor]  # neighbour -> (cells,): the slot of each cell's neighbour
    splits: dict[str, list[int]]  # neighbour -> sizes for split; every second piece is the slots of a diagonal

    def views(self, states: Tensor, neighbour: str) -> tuple[Tensor, ...]:
        """For each anti-diagonal the states (slots, batch) of its cells' neighbours."""
        return states.split(self.splits[neighbour])[1::2]


@functools.lru_cache(maxsize=16)
def layout_of(rows: int, cols: int, height: int, width: int, device: torch.device) -> Layout:
    """The layout of the first rows x cols of a height x width matrix."""
    first = [max(0, d - cols + 1) for d in range(-2, rows + cols - 1)]  # the lowest row of a diagonal, from -2 on
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
    border_diagonal = torch.arange(-2, rows + cols - 1).repeat_interleave(torch.tensor(sizes) + 2)[border]
    order = i * width + d - i
    back = torch.full((height * width,), len(order)).index_copy_(0, order, torch.arange(len(order)))
    i, j, order, back, border, border_diagonal = (
        tensor.to(device) for tensor in (i, d - i, order, back, border, border_diagonal[:, None])
    )
    places = {name: place.to(device) for name, place in places.items()}
    return Layout(i, j, order, back, sizes[2:], slots, border, border_diagonal, places, splits)


class Chunk(NamedTuple):
    """Some anti-diagonals."""

    diagonals: range
    sizes: list[int]
    cells: slice


def _chunks(sizes: list[int], limit: int) -> Iterator[Chunk]:
    """Anti-diagonals with up to so many cells together, or a single one."""
    begin = end = cells = 0
    while begin < len(sizes):
        count = 0
        while end < len(sizes) and (end == begin or count + sizes[end] <= limit):
            count, end = count + sizes[end], end + 1
        yield Chunk(range(begin, end), sizes[begin:end], slice(cells, cells + count))
        begin, cells = end, cells + count


class Walk:
    """A batch on its way: what all passes need of it. Arrays of cells are (cells, batch), of states (slots, batch)."""

    def __init__(self, s: Tensor, lengths: Tensor, values: Tensor, problem: str, options: str) -> None:
        self.plan = plan_of(problem, options)
        self.shape = s.shape
        batch, rows, cols = s.shape
        lengths = lengths.clamp(min=0).minimum(lengths.new_tensor([rows, cols]))
        longest: list[int] = [rows, cols]
        if s.device.type == "cpu":  # elsewhere it would mean to wait for the device
            longest = lengths.amax(0).clamp(min=1).tolist()
        self.layout = layout_of(*longest, rows, cols, s.device)
        self.chunks = list(_chunks(self.layout.sizes, (IN_CACHE if s.device.type == "cpu" else IN_MEMORY) // batch))
        self.lengths = lengths.t().contiguous()  # (2, batch)
        *own, self.temperature = values.t().contiguous().unbind(0)  # each (batch,)
        self.parameters: Parameters = dict(zip(self.plan.names, own, strict=True))
        self.scaled = {n: (v / self.temperature).clamp(LOWEST, -LOWEST) for n, v in self.parameters.items()}
        # of each row and of each column; where an alignment may end, the two never have to do with each other
        i, j = (torch.arange(count, device=s.device)[:, None] for count in longest)
        may_end, last = self.plan.recurrence.may_end, self.lengths - 1
        self.inside = i < self.lengths[0], j < self.lengths[1]
        self.may_end = may_end(i, last[1], self.lengths), may_end(last[0], j, self.lengths)
        self.s = self.pack(s)
        for chunk in self.chunks:
            self.s[chunk.cells].div_(self.temperature).clamp_(min=LOWEST)

    def pack(self, matrix: Tensor) -> Tensor:
        """(batch, rows, cols) as cells, with zeros for the padding, which may be NaN."""
        cells = matrix.flatten(1).index_select(1, self.layout.order).t().contiguous()
        zero = cells.new_zeros(())
        for chunk in self.chunks:
            own = cells[chunk.cells]
            torch.where(self.both(self.inside, chunk), own, zero, out=own)
        return cells

    def both(self, masks: tuple[Tensor, Tensor], chunk: Chunk) -> Tensor:
        """Masks (rows, batch) and (cols, batch) of some of the cells: faster than to compare the cells' numbers."""
        i, j = self.layout.i[chunk.cells], self.layout.j[chunk.cells]
        return masks[0].index_select(0, i).logical_and_(masks[1].index_select(0, j))

    def own(self, states: Tensor, chunk: Chunk) -> Tensor:
        """The states of some of the cells."""
        return states.index_select(0, self.layout.places["cell"][chunk.cells])

    def unpack(self, cells: Tensor) -> Tensor:
        """Cells, and a last row of zeros for what is not among them, as (batch, rows, cols)."""
        return cells.t().contiguous().index_select(1, self.layout.back).view(self.shape)

    def states(self, border: Sequence[Any]) -> list[Tensor]:
        """Arrays of states whose border has these values; the rest is to be written."""
        states = [self.s.new_empty((self.layout.slots, self.shape[0])) for _ in border]
        for state, value in zip(states, border, strict=True):
            state[self.layout.border] = torch.as_tensor(value, dtype=state.dtype, device=state.device)
        return states

    def choices(
        self, choices: Sequence[Choice], states: Sequence[Tensor], terms: dict[str, Tensor], chunk: Chunk
    ) -> Tensor:
        """The choices in some of the cells, (choices, cells, batch). Linear, so it maps tangents too."""
        result = self.s.new_empty((len(choices), sum(chunk.sizes), self.shape[0]))
        for value, choice in zip(result, choices, strict=True):
            added = [terms[name][chunk.cells] if name == SIMILARITY else terms[name] for name in choice.terms]
            if choice.neighbour:
                places = self.layout.places[choice.neighbour][chunk.cells]
                torch.index_select(states[choice.state], 0, places, out=value)
            else:
                value.copy_(added.pop())
            for term in added:
                value += term
        return result


def fill(walk: Walk) -> list[Tensor]:
    """The states at temperature 1."""
    plan, layout = walk.plan, walk.layout
    states = walk.states(plan.recurrence.border(walk.scaled, layout.border_diagonal))
    terms: dict[str, Any] = {name: [value] * len(layout.sizes) for name, value in walk.scaled.items()}
    terms[SIMILARITY] = walk.s.split(layout.sizes)
    views, own = _all_views(walk, states)
    scratch = {size: walk.s.new_empty((size, walk.shape[0])) for size in set(layout.sizes)}
    zero = walk.s.new_zeros(())
    steps = [_groups(choices) for choices in plan.states]
    for d, size in enumerate(layout.sizes):
        for k, groups in enumerate(steps):
            result = own[k][d]
            for number, (added, sources) in enumerate(groups):
                target = scratch[size] if number else result
                first, *others = [views[source][d] if source[0] else zero for source in sources]
                for other in others:
                    first = torch.logaddexp(first, other, out=target)
                for name in added:
                    first = torch.add(first, terms[name][d], out=target)
                if number:
                    torch.logaddexp(result, first, out=result)
                elif first is not target:
                    target.copy_(first)
    return states


def _all_views(walk: Walk, states: list[Tensor]) -> tuple[dict[Any, Any], list[Any]]:
    """For each choice's (neighbour, state) its views for each anti-diagonal; and those of the cells' own states."""
    near = {(c.neighbour, c.state) for choices in walk.plan.states for c in choices}
    views = {(name, k): walk.layout.views(states[k], name) for name, k in near if name}
    return views, [walk.layout.views(state, "cell") for state in states]


def _groups(choices: Sequence[Choice]) -> list[tuple[tuple[str, ...], list[tuple[str | None, int]]]]:
    """Choices with the same terms together, which are then added once."""
    groups: dict[tuple[str, ...], list[tuple[str | None, int]]] = {}
    for choice in choices:
        groups.setdefault(choice.terms, []).append((choice.neighbour, choice.state))
    return list(groups.items())


class Ends:
    """Scores, and what they need to be differentiated."""

    def __init__(self, walk: Walk, states: list[Tensor]) -> None:
        self.walk, self.states, self.lowest = walk, states, walk.s.new_tensor(LOWEST)
        largest, odds = zip(*map(self._of_chunk, walk.chunks), strict=True)
        best, odds = torch.stack(largest), torch.stack(odds)
        highest = best.amax(0)
        self.scaled = highest + odds.mul_((best - highest).exp_()).sum(0).log()
        recurrence = walk.plan.recurrence
        # as low as LOWEST in the units of the walk, or in those of the similarity
        lowest = torch.where(highest <= LOWEST / 2, LOWEST, highest * walk.temperature)
        self.empty = recurrence.is_empty(lowest, walk.lengths)
        self.counts = torch.where(self.empty, 0.0, torch.ones_like(self.scaled))
        self.scores = self.unless_empty(walk.temperature * self.scaled, walk.parameters)

    def unless_empty(self, scores: Tensor, parameters: Parameters) -> Tensor:
        """The scores, but where there is no alignment what it counts by these parameters. Linear."""
        return torch.where(self.empty, self.walk.plan.recurrence.empty_score(parameters, self.walk.lengths), scores)

    def _of_chunk(self, chunk: Chunk) -> tuple[Tensor, Tensor]:
        worths = self._worths(chunk)
        largest = worths.amax((0, 1))
        return largest, _exp_(worths.sub_(largest)).sum((0, 1))

    def _worths(self, chunk: Chunk) -> Tensor:
        """What an alignment that ends in some of the cells is worth, (endings, cells, batch)."""
        walk = self.walk
        worths = walk.choices(walk.plan.endings, self.states, {SIMILARITY: walk.s, **walk.scaled}, chunk)
        return torch.where(walk.both(walk.may_end, chunk), worths, self.lowest, out=worths)

    def weights(self, chunk: Chunk) -> tuple[Tensor, Tensor]:
        """The probability w that the alignment ends in each of the cells, (endings, cells, batch); and w ln w."""
        logs = self._worths(chunk).sub_(self.scaled)
        weights = _exp_(logs.clone()).mul_(self.counts)
        return weights, weights * logs


def _exp_(values: Tensor) -> Tensor:
    """e to the power of them, in place. By exp2: exp is up to 30 times slower where the result is 0 or nearly so."""
    return values.mul_(math.log2(math.e)).exp2_()


def weigh(walk: Walk, states: list[Tensor], chunk: Chunk) -> list[Tensor]:
    """For each state how much each choice counts in some of the cells, (choices, cells, batch)."""
    terms = {SIMILARITY: walk.s, **walk.scaled}
    return [walk.choices(choices, states, terms, chunk).softmax(0) for choices in walk.plan.states]


def logs_of(weights: Tensor) -> Tensor:
    """Finite, and only ever multiplied by a weight."""
    return weights.clamp_min(torch.finfo(weights.dtype).tiny).log_()


class Slopes:
    """Derivatives of one number of each pair for all states, collected from the last anti-diagonal to the first."""

    def __init__(self, walk: Walk) -> None:
        self.walk = walk
        self.states = [walk.s.new_zeros((walk.layout.slots, walk.shape[0])) for _ in walk.plan.states]
        self.views, self.own = _all_views(walk, self.states)

    def end(self, weights: Tensor, chunk: Chunk) -> None:
        """Begin with the endings."""
        for choice, weight in zip(self.walk.plan.endings, weights, strict=True):
            places = self.walk.layout.places[str(choice.neighbour)][chunk.cells]
            self.states[choice.state].index_copy_(0, places, weight)

    def of_cells(self, chunk: Chunk) -> list[Tensor]:
        return [self.walk.own(state, chunk) for state in self.states]


def pull(chunk: Chunk, moves: Sequence[tuple[Slopes, list[Tensor], Slopes]]) -> None:
    """Carry the slopes of some anti-diagonals over to the states they come from: target += weights * slopes."""
    plan = moves[0][0].walk.plan
    steps = [
        (target.views[choice.neighbour, choice.state], weight.split(chunk.sizes), slopes.own[k])
        for target, weights, slopes in moves
        for k, choices in enumerate(plan.states)
        for choice, weight in zip(choices, weights[k], strict=True)
        if choice.neighbour
    ]
    for number, d in reversed(list(enumerate(chunk.diagonals))):
        for source, weight, slope in steps:
            source[d].addcmul_(weight[number], slope[d])


class Totals:
    """Derivatives for the inputs, of which each chunk of cells adds its part."""

    def __init__(self, walk: Walk, with_values: bool) -> None:
        self.walk, self.with_values = walk, with_values
        self.cells = walk.s.new_zeros((len(walk.layout.order) + 1, walk.shape[0]))  # the last is for unpack
        self.values = {name: torch.zeros_like(walk.temperature) for name in (*walk.parameters, "temperature")}

    def add(self, choices: Sequence[Choice], parts: Tensor, chunk: Chunk) -> None:
        """parts: derivatives for the choices, (choices, cells, batch)."""
        for choice, part in zip(choices, parts, strict=True):
            for name in choice.terms:
                if name == SIMILARITY:
                    self.cells[chunk.cells] += part
                elif self.with_values:
                    self.values[name] += part.sum(0)

    def add_border(self, slopes: Slopes) -> None:
        walk = self.walk
        for name in walk.parameters:
            ones = {other: float(other == name) for other in walk.parameters}
            tangents = walk.plan.recurrence.border_tangent(ones, walk.layout.border_diagonal)
            for state, tangent in zip(slopes.states, tangents, strict=True):
                self.values[name] += (state.index_select(0, walk.layout.border) * tangent).sum(0)

    def results(self, ends: Ends | None) -> tuple[Tensor, Tensor]:
        """(batch, rows, cols) and (batch, parameters). ends: where an empty pair's derivatives come from."""
        for name in self.walk.parameters if ends else ():
            ones = {other: torch.full_like(value, other == name) for other, value in self.walk.parameters.items()}
            self.values[name] = ends.unless_empty(self.values[name], ones) if ends else self.values[name]
        return self.walk.unpack(self.cells), torch.stack(list(self.values.values()), dim=1)


def _alone(function: Callable[..., Any], tensors: tuple[Tensor, ...], *others: Any) -> Any:
    """Call the function in a thread of its own, which may take numbers too small for a normal float as 0.

    Those are slow, and far from the best alignment there are many of them. The setting is that thread's.
    """
    if tensors[0].device.type != "cpu":
        return function(*tensors, *others)

    def call() -> Any:
        torch.set_flush_denormal(True)
        with torch.no_grad():
            return function(*(tensor.detach() for tensor in tensors), *others)

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(call).result()


@torch.library.custom_op("smooth_alignment::wavefront_score", mutates_args=())
def score(s: Tensor, lengths: Tensor, values: Tensor, problem: str, options: str) -> Tensor:
    """Scores (batch,)."""
    return _alone(_score, (s, lengths, values), problem, options)


def _score(s: Tensor, lengths: Tensor, values: Tensor, problem: str, options: str) -> Tensor:
    walk = Walk(s, lengths, values, problem, options)
    return Ends(walk, fill(walk)).scores


@score.register_fake
def _(s: Tensor, lengths: Tensor, values: Tensor, problem: str, options: str) -> Tensor:
    return s.new_empty(len(s))


@torch.library.custom_op("smooth_alignment::wavefront_gradients", mutates_args=())
def gradients(
    s: Tensor, lengths: Tensor, values: Tensor, problem: str, options: str, with_values: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Scores (batch,), and their derivatives for s (batch, rows, cols) and values (batch, parameters)."""
    return _alone(_gradients, (s, lengths, values), problem, options, with_values)


def _gradients(
    s: Tensor, lengths: Tensor, values: Tensor, problem: str, options: str, with_values: bool
) -> tuple[Tensor, Tensor, Tensor]:
    walk = Walk(s, lengths, values, problem, options)
    states = fill(walk)
    ends, slopes, totals = Ends(walk, states), Slopes(walk), Totals(walk, with_values)
    for chunk in walk.chunks:
        weights, entropies = ends.weights(chunk)
        slopes.end(weights, chunk)
        totals.add(walk.plan.endings, weights, chunk)
        if with_values:
            totals.values["temperature"] -= entropies.sum((0, 1))
    for chunk in reversed(walk.chunks):
        weights = weigh(walk, states, chunk)
        pull(chunk, [(slopes, weights, slopes)])
        for choices, weight, slope in zip(walk.plan.states, weights, slopes.of_cells(chunk), strict=True):
            if with_values:
                totals.values["temperature"] -= ((weight * logs_of(weight)).sum(0) * slope).sum(0)
            totals.add(choices, weight.mul_(slope), chunk)
    if with_values:
        totals.add_border(slopes)
    return ends.scores, *totals.results(ends)


@gradients.register_fake
def _(
    s: Tensor, lengths: Tensor, values: Tensor, problem: str, options: str, with_values: bool
) -> tuple[Tensor, Tensor, Tensor]:
    return s.new_empty(len(s)), s.new_empty(s.shape), values.new_empty(values.shape)


@torch.library.custom_op("smooth_alignment::wavefront_tangents", mutates_args=())
def tangents(
    s: Tensor, lengths: Tensor, values: Tensor, t_s: Tensor, t_values: Tensor, problem: str, options: str
) -> tuple[Tensor, Tensor, Tensor]:
    """What scores and gradients change by when s and values change by t_s and t_values; shapes as there."""
    return _alone(_tangents, (s, lengths, values, t_s, t_values), problem, options)


def _tangents(
    s: Tensor, lengths: Tensor, values: Tensor, t_s: Tensor, t_values: Tensor, problem: str, options: str
) -> tuple[Tensor, Tensor, Tensor]:
    walk = Walk(s, lengths, values, problem, options)
    states = fill(walk)
    ends = Ends(walk, states)
    *own, t_temperature = t_values.t().contiguous().unbind(0)
    t_parameters = dict(zip(walk.parameters, own, strict=True))
    t_terms = {SIMILARITY: walk.pack(t_s), **t_parameters}

    t_states = walk.states(walk.plan.recurrence.border_tangent(t_parameters, walk.layout.border_diagonal))
    views, own_views = _all_views(walk, t_states)
    t_score = torch.zeros_like(walk.temperature)
    for chunk in walk.chunks:
        weights = weigh(walk, states, chunk)
        steps = []
        for k, (choices, weight) in enumerate(zip(walk.plan.states, weights, strict=True)):
            added = (weight * logs_of(weight)).sum(0).mul_(-t_temperature)
            for choice, part in zip(choices, weight, strict=True):
                for name in choice.terms:
                    added.addcmul_(part, t_terms[name][chunk.cells] if name == SIMILARITY else t_terms[name])
                if choice.neighbour:
                    steps.append((own_views[k], part.split(chunk.sizes), views[choice.neighbour, choice.state]))
            t_states[k].index_copy_(0, walk.layout.places["cell"][chunk.cells], added)
        for number, d in enumerate(chunk.diagonals):
            for target, weight, source in steps:
                target[d].addcmul_(weight[number], source[d])
        weights, entropies = ends.weights(chunk)
        t_worths = walk.choices(walk.plan.endings, t_states, t_terms, chunk)
        t_score += (weights * t_worths - entropies * t_temperature).sum((0, 1))

    slopes, t_slopes, totals = Slopes(walk), Slopes(walk), Totals(walk, True)
    for chunk in walk.chunks:
        weights, entropies = ends.weights(chunk)
        t_worths = walk.choices(walk.plan.endings, t_states, t_terms, chunk)
        t_weights = (weights * (t_worths - t_score) - entropies * t_temperature) / walk.temperature
        slopes.end(weights, chunk)
        t_slopes.end(t_weights, chunk)
        totals.add(walk.plan.endings, t_weights, chunk)
        logs = entropies / weights.clamp_min(torch.finfo(weights.dtype).tiny)
        totals.values["temperature"] -= (t_weights * logs).sum((0, 1))
    for chunk in reversed(walk.chunks):
        weights = weigh(walk, states, chunk)
        logs = [logs_of(weight) for weight in weights]
        t_weights = []
        for choices, weight, log, t_state in zip(walk.plan.states, weights, logs, t_states, strict=True):
            change = walk.choices(choices, t_states, t_terms, chunk).sub_(walk.own(t_state, chunk))
            t_weights.append(change.sub_(log * t_temperature).mul_(weight).div_(walk.temperature))
        pull(chunk, [(slopes, weights, slopes), (t_slopes, weights, t_slopes), (t_slopes, t_weights, slopes)])
        parts = zip(
            walk.plan.states, weights, t_weights, logs, slopes.of_cells(chunk), t_slopes.of_cells(chunk), strict=True
        )
        for choices, weight, t_weight, log, slope, t_slope in parts:
            part = (weight * t_slope).addcmul_(t_weight, slope)
            totals.values["temperature"] -= (part * log).sum((0, 1))
            totals.add(choices, part, chunk)
    totals.add_border(t_slopes)
    return ends.unless_empty(t_score, t_parameters), *totals.results(None)


@tangents.register_fake
def _(
    s: Tensor, lengths: Tensor, values: Tensor, t_s: Tensor, t_values: Tensor, problem: str, options: str
) -> tuple[Tensor, Tensor, Tensor]:
    return s.new_empty(len(s)), s.new_empty(s.shape), values.new_empty(values.shape)


def engine(problem: str, options: dict[str, Any]) -> Engine:
    """The operators for one problem."""
    text = ",".join(f"{name}={value}" for name, value in options.items())
    keywords = {"problem": problem, "options": text}
    return Engine(*(functools.partial(operator, **keywords) for operator in (score, gradients, tangents)))
