"""The wavefront: anti-diagonals packed one after the other, the batch innermost, derivatives written by hand.

Similarity and gaps are divided by the temperature T before `fill`, so that every smooth maximum is a chain of
log(e^a + e^b). Below, in the similarity's units, with c the choices of a state h, and a prime for a tangent:

    fill    h = smax(c)                                      the states, forward
    weigh   w = exp((c - h) / T)                             the weight of each choice; entropy = -sum w ln w
    pull    v = d score / d h = w of its end + sum over successors w v   the marginals are sums of w v, backward
    push    h' = sum w c' + entropy T'                       the tangents of the states, forward
    weigh'  w' = (w (c' - h') - w ln w T') / T
    pull'   v' = w' of its end + sum over successors (w' v + w v')              Hessian times direction, backward

Only fill, pull, push and pull' are loops, over anti-diagonals; the rest is elementwise over many cells at once.
diagonal_layout.py describes how cells, states and neighbours lie in memory. For scores and for gradients of similarity
alone, the products and sums of block_exponent.py take the place of all this where they apply.
"""

import math
from collections.abc import Sequence

import torch

from shared.alignments import RECURRENCES, SIMILARITY, Choice
from shared.tolerances import FORBIDDEN, LOWEST
from torch_impl import block_exponent
from torch_impl.derivatives import Derivatives, register_vmap
from torch_impl.diagonal_layout import Chunk, DiagonalBatch, Memory, all_views, fill, run_single_threaded
from torch_impl.recurrences import Parameters, Tensor


class Ends:
    """The scores and, on request, the weights of the ends: the derivative of the score for the value of each end.

    weights: for each chunk, the probability of each end in each of its cells, (ends, cells, batch).
    """

    def __init__(self, batch: DiagonalBatch, states: list[Tensor], with_weights: bool) -> None:
        self.batch, self.weights = batch, []
        largest, sums = [], []
        for chunk in batch.chunks:
            values_of_ends = batch.choices(batch.recurrence.ends, states, batch.terms, chunk, keep=with_weights)
            for terms, at in zip(batch.end_terms, (batch.layout.i, batch.layout.j), strict=True):
                values_of_ends.add_(terms.index_select(0, at[chunk.cells]))
            largest.append(values_of_ends.amax((0, 1)).clamp_(min=batch.lowest))
            weights = _exp_(values_of_ends.sub_(largest[-1]))
            sums.append(weights.sum((0, 1)))
            if with_weights:
                self.weights.append(weights)
        best = torch.stack(largest)
        highest = best.amax(0)
        # `highest + log_weights` may round the latter away, so the weights below use it separately. A pair's largest
        # end contributes 1, so only the sum of a pair without ends is raised to 1.
        log_weights = torch.stack(sums).mul_((best - highest).exp_()).sum(0).clamp_(min=1).log()
        scaled = highest + log_weights
        recurrence = batch.recurrence
        # in the similarity's units; LOWEST where score / T is already forbidden
        best_score = (highest * batch.temperature).masked_fill(highest <= batch.lowest / 2, LOWEST)
        self.empty = recurrence.is_empty(best_score, batch.lengths)
        self.impossible = torch.zeros_like(self.empty)
        # global pairs whose every alignment is forbidden
        self.impossible = self.unless_empty(best_score, batch.parameters) <= FORBIDDEN
        if with_weights:
            counts = torch.ones_like(scaled).masked_fill(self.empty | self.impossible, 0.0)
            for weights, factor in zip(self.weights, (best - highest - log_weights).exp_().mul_(counts), strict=True):
                weights.mul_(factor)
        scores = self.unless_empty(batch.temperature * scaled, batch.parameters)
        self.scores = scores.masked_fill(self.impossible, -torch.inf)

    def unless_empty(self, scores: Tensor, parameters: Parameters) -> Tensor:
        """The scores, replaced where there is no cell or no alignment; linear, so also for tangents."""
        instead = self.batch.recurrence.empty_score(parameters, self.batch.lengths)
        return torch.where(self.empty, instead, scores).masked_fill(self.impossible, 0.0)


def _exp_(values: Tensor) -> Tensor:
    """exp, in place. Computed by exp2: exp is up to 30 times slower where the result is 0 or subnormal."""
    return values.mul_(math.log2(math.e)).exp2_()


def weigh(batch: DiagonalBatch, states: list[Tensor], chunk: Chunk) -> list[Tensor]:
    """The weights of each state's choices in some of the cells, (choices, cells, batch)."""
    return [batch.choices(choices, states, batch.terms, chunk).softmax(0) for choices in batch.recurrence.states]


def logs_of(weights: Tensor) -> Tensor:
    """The logarithms of the weights, kept finite: they are only ever multiplied by a weight."""
    return weights.clamp_min(torch.finfo(weights.dtype).tiny).log_()


class StateGradients:
    """Gradients of one number per pair with respect to all states, accumulated from the last anti-diagonal back."""

    def __init__(self, batch: DiagonalBatch) -> None:
        self.batch = batch
        shape = batch.layout.slots, batch.shape[0]
        self.states = [batch.memory.new(shape, batch.s).zero_() for _ in batch.recurrence.states]
        self.views, self.own = all_views(batch, self.states)

    def end(self, weights: Tensor, chunk: Chunk) -> None:
        """Initialize with the weights of the ends."""
        for choice, weight in zip(self.batch.recurrence.ends, weights, strict=True):
            places = self.batch.layout.places[str(choice.neighbour)][chunk.cells]
            self.states[choice.state].index_copy_(0, places, weight)

    def of_cells(self, chunk: Chunk) -> list[Tensor]:
        return [self.batch.own(state, chunk) for state in self.states]


def pull(chunk: Chunk, moves: Sequence[tuple[StateGradients, list[Tensor], StateGradients]]) -> None:
    """Propagate the gradients of some anti-diagonals to the states they depend on: target += weights * d_states."""
    states = moves[0][0].batch.recurrence.states
    steps = [
        (target.views[choice.neighbour, choice.state], weight.split(chunk.sizes), d_states.own[k])
        for target, weights, d_states in moves
        for k, choices in enumerate(states)
        for choice, weight in zip(choices, weights[k], strict=True)
        if choice.neighbour
    ]
    for number, d in reversed(list(enumerate(chunk.diagonals))):
        for target_view, weight, d_state in steps:
            target_view[d].addcmul_(weight[number], d_state[d])


class Totals:
    """Gradients with respect to the inputs, to which each chunk of cells adds its part."""

    def __init__(self, batch: DiagonalBatch, with_values: bool) -> None:
        self.batch, self.with_values = batch, with_values
        shape = len(batch.layout.order) + 1, batch.shape[0]  # the last row is for unpack
        matrices = batch.matrices if with_values else (SIMILARITY,)
        self.cells = {name: batch.memory.new(shape, batch.s).zero_() for name in matrices}
        # of gaps by position they stay 0
        self.values = {name: torch.zeros_like(batch.temperature) for name in (*batch.names, "temperature")}

    def add(self, choices: Sequence[Choice], parts: Tensor, chunk: Chunk) -> None:
        """parts: gradients with respect to the choices, (choices, cells, batch)."""
        for choice, part in zip(choices, parts, strict=True):
            for name in choice.terms:
                if name in self.cells:
                    self.cells[name][chunk.cells] += part
                elif self.with_values:
                    self.values[name] += part.sum(0)

    def add_border(self, d_states: StateGradients) -> None:
        batch = self.batch
        for name in batch.parameters:
            ones = {other: float(other == name) for other in batch.parameters}
            tangents = batch.border(batch.recurrence.border_tangent, ones)
            for state, tangent in zip(d_states.states, tangents, strict=True):
                self.values[name] += (state.index_select(0, batch.layout.border) * tangent).sum(0)

    def results(self, ends: Ends | None) -> tuple[Tensor, ...]:
        """(batch, rows, cols), (batch, parameters), and with values (batch, rows, cols) for each gap by position.

        ends: for the gradients of an empty pair.
        """
        if ends:
            for name in self.batch.parameters:
                ones = {other: torch.full_like(value, other == name) for other, value in self.batch.parameters.items()}
                self.values[name] = ends.unless_empty(self.values[name], ones)
        d_s, *d_gaps = (self.batch.unpack(cells) for cells in self.cells.values())
        return d_s, torch.stack(list(self.values.values()), dim=1), *d_gaps


@torch.library.custom_op("smooth_alignment::wavefront_score", mutates_args=())
def score(s: Tensor, lengths: Tensor, values: Tensor, gaps: list[Tensor], recurrence: str, graph: bool) -> Tensor:
    """Scores (batch,). graph: by a CUDA graph."""
    return (
        run_single_threaded(_score, (s, lengths, values, *gaps), recurrence, graph=graph) if len(s) else s.new_empty(0)
    )


def _score(memory: Memory, recurrence: str, s: Tensor, lengths: Tensor, values: Tensor, *gaps: Tensor) -> Tensor:
    def in_logarithms(s: Tensor, lengths: Tensor, values: Tensor) -> tuple[Tensor]:
        batch = DiagonalBatch(memory, recurrence, s, lengths, values, gaps)
        return (Ends(batch, fill(batch), False).scores,)

    if not block_exponent.applies(RECURRENCES[recurrence], s, values):
        return in_logarithms(s, lengths, values)[0]
    scores, valid = block_exponent.scores(memory, s, lengths, values, recurrence)
    return block_exponent.replace_invalid(valid, (scores,), in_logarithms, s, lengths, values)[0]


@score.register_fake
def _(s: Tensor, lengths: Tensor, values: Tensor, gaps: list[Tensor], recurrence: str, graph: bool) -> Tensor:
    return s.new_empty(s.shape[:1])


@torch.library.custom_op("smooth_alignment::wavefront_gradients", mutates_args=())
def gradients(
    s: Tensor, lengths: Tensor, values: Tensor, gaps: list[Tensor], recurrence: str, graph: bool, with_values: bool
) -> tuple[Tensor, Tensor, Tensor, list[Tensor]]:
    """Scores (batch,), and their gradients with respect to s (batch, rows, cols), values (batch, parameters) and gaps.

    Without values, there are none for the gaps.
    """
    if not len(s):
        return _new(s, values, gaps if with_values else [])
    tensors = s, lengths, values, *gaps
    scores, d_s, d_values, *d_gaps = run_single_threaded(_gradients, tensors, recurrence, with_values, graph=graph)
    return scores, d_s, d_values, d_gaps


def _gradients(
    memory: Memory,
    recurrence: str,
    with_values: bool,
    s: Tensor,
    lengths: Tensor,
    values: Tensor,
    *gaps: Tensor,
) -> tuple[Tensor, ...]:
    def in_logarithms(s: Tensor, lengths: Tensor, values: Tensor) -> tuple[Tensor, ...]:
        return _in_logarithms(DiagonalBatch(memory, recurrence, s, lengths, values, gaps), with_values)

    if with_values or not block_exponent.applies(RECURRENCES[recurrence], s, values):
        return in_logarithms(s, lengths, values)
    scores, d_similarity, valid = block_exponent.gradients(memory, s, lengths, values, recurrence)
    results = scores, d_similarity, torch.zeros_like(values)
    return block_exponent.replace_invalid(valid, results, in_logarithms, s, lengths, values)


def _in_logarithms(batch: DiagonalBatch, with_values: bool) -> tuple[Tensor, ...]:
    states = fill(batch)
    ends, d_states, totals = Ends(batch, states, True), StateGradients(batch), Totals(batch, with_values)
    for chunk, weights in zip(batch.chunks, ends.weights, strict=True):
        d_states.end(weights, chunk)
        totals.add(batch.recurrence.ends, weights, chunk)
        if with_values:
            totals.values["temperature"] -= (weights * logs_of(weights)).sum((0, 1))
    for chunk in reversed(batch.chunks):
        weights = weigh(batch, states, chunk)
        pull(chunk, [(d_states, weights, d_states)])
        for choices, weight, d_state in zip(batch.recurrence.states, weights, d_states.of_cells(chunk), strict=True):
            if with_values:
                totals.values["temperature"] -= ((weight * logs_of(weight)).sum(0) * d_state).sum(0)
            totals.add(choices, weight.mul_(d_state), chunk)
    if with_values:
        totals.add_border(d_states)
    return ends.scores, *totals.results(ends)


@gradients.register_fake
def _(
    s: Tensor, lengths: Tensor, values: Tensor, gaps: list[Tensor], recurrence: str, graph: bool, with_values: bool
) -> Derivatives:
    return _new(s, values, gaps if with_values else [])


@torch.library.custom_op("smooth_alignment::wavefront_tangents", mutates_args=())
def tangents(
    s: Tensor,
    lengths: Tensor,
    values: Tensor,
    gaps: list[Tensor],
    t_s: Tensor,
    t_values: Tensor,
    t_gaps: list[Tensor],
    recurrence: str,
    graph: bool,
) -> tuple[Tensor, Tensor, Tensor, list[Tensor]]:
    """The tangents of scores and gradients in the direction (t_s, t_values, t_gaps); shapes as in `gradients`."""
    if not len(s):
        return _new(s, values, gaps)
    tensors = s, lengths, values, t_s, t_values, *gaps, *t_gaps
    t_scores, t_d_s, t_d_values, *t_d_gaps = run_single_threaded(_tangents, tensors, recurrence, graph=graph)
    return t_scores, t_d_s, t_d_values, t_d_gaps


def _tangents(
    memory: Memory,
    recurrence: str,
    s: Tensor,
    lengths: Tensor,
    values: Tensor,
    t_s: Tensor,
    t_values: Tensor,
    *gaps: Tensor,
) -> tuple[Tensor, ...]:
    """gaps: followed by their tangents."""
    count = len(gaps) // 2
    batch = DiagonalBatch(memory, recurrence, s, lengths, values, gaps[:count])
    states = fill(batch)
    ends = Ends(batch, states, True)
    *t_gaps, t_temperature = t_values.t().contiguous().unbind(0)
    t_parameters = {name: value for name, value in zip(batch.names, t_gaps, strict=True) if name in batch.parameters}
    t_terms = {**batch.pack_all((t_s, *gaps[count:])), **t_parameters}

    t_states = batch.states(batch.border(batch.recurrence.border_tangent, t_parameters))
    views, own_views = all_views(batch, t_states)
    t_score = torch.zeros_like(batch.temperature)
    for chunk, end_weights in zip(batch.chunks, ends.weights, strict=True):
        weights = weigh(batch, states, chunk)
        steps = []
        for k, (choices, weight) in enumerate(zip(batch.recurrence.states, weights, strict=True)):
            added = (weight * logs_of(weight)).sum(0).mul_(-t_temperature)
            for choice, part in zip(choices, weight, strict=True):
                for name in choice.terms:
                    added.addcmul_(part, batch.of_cells(t_terms, name, chunk))
                if choice.neighbour:
                    steps.append((own_views[k], part.split(chunk.sizes), views[choice.neighbour, choice.state]))
            t_states[k].index_copy_(0, batch.layout.places["cell"][chunk.cells], added)
        for number, d in enumerate(chunk.diagonals):
            for target, weight, source in steps:
                target[d].addcmul_(weight[number], source[d])
        t_values_of_ends = batch.choices(batch.recurrence.ends, t_states, t_terms, chunk)
        t_score += (t_values_of_ends - logs_of(end_weights) * t_temperature).mul_(end_weights).sum((0, 1))

    d_states, t_d_states, totals = StateGradients(batch), StateGradients(batch), Totals(batch, True)
    for chunk, weights in zip(batch.chunks, ends.weights, strict=True):
        t_values_of_ends, logs = batch.choices(batch.recurrence.ends, t_states, t_terms, chunk), logs_of(weights)
        t_weights = t_values_of_ends.sub_(t_score).sub_(logs * t_temperature).mul_(weights).div_(batch.temperature)
        d_states.end(weights, chunk)
        t_d_states.end(t_weights, chunk)
        totals.add(batch.recurrence.ends, t_weights, chunk)
        totals.values["temperature"] -= (t_weights * logs).sum((0, 1))
    for chunk in reversed(batch.chunks):
        weights = weigh(batch, states, chunk)
        logs = [logs_of(weight) for weight in weights]
        t_weights = []
        for choices, weight, log, t_state in zip(batch.recurrence.states, weights, logs, t_states, strict=True):
            change = batch.choices(choices, t_states, t_terms, chunk).sub_(batch.own(t_state, chunk))
            change.sub_(log * t_temperature)
            # the weighted mean is 0 up to rounding, which would accumulate along a long path
            change.sub_((weight * change).sum(0))
            t_weights.append(change.mul_(weight).div_(batch.temperature))
        pull(
            chunk, [(d_states, weights, d_states), (t_d_states, weights, t_d_states), (t_d_states, t_weights, d_states)]
        )
        parts = zip(
            batch.recurrence.states,
            weights,
            t_weights,
            logs,
            d_states.of_cells(chunk),
            t_d_states.of_cells(chunk),
            strict=True,
        )
        for choices, weight, t_weight, log, d_state, t_d_state in parts:
            part = (weight * t_d_state).addcmul_(t_weight, d_state)
            totals.values["temperature"] -= (part * log).sum((0, 1))
            totals.add(choices, part, chunk)
    totals.add_border(t_d_states)
    return ends.unless_empty(t_score, t_parameters), *totals.results(None)


@tangents.register_fake
def _(
    s: Tensor,
    lengths: Tensor,
    values: Tensor,
    gaps: list[Tensor],
    t_s: Tensor,
    t_values: Tensor,
    t_gaps: list[Tensor],
    recurrence: str,
    graph: bool,
) -> Derivatives:
    return _new(s, values, gaps)


def product(
    s: Tensor, lengths: Tensor, values: Tensor, gaps: Sequence[Tensor], t_s: Tensor, recurrence: str, graph: bool
) -> Tensor:
    """The tangents of the gradients with respect to s, in a direction that is 0 for the values and the gaps."""
    zeros = [torch.zeros_like(gap) for gap in gaps]
    return tangents(s, lengths, values, list(gaps), t_s, torch.zeros_like(values), zeros, recurrence, graph)[1]


def _new(s: Tensor, values: Tensor, gaps: Sequence[Tensor]) -> Derivatives:
    """Uninitialized scores and gradients."""
    d_gaps = [s.new_empty(s.shape) for _ in gaps]
    return s.new_empty(s.shape[:1]), s.new_empty(s.shape), values.new_empty(values.shape), d_gaps


for _operator in (score, gradients, tangents):
    register_vmap(_operator)
