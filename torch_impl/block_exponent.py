"""Alignments with one gap cost and block exponents: products and sums in place of logarithms.

A step of the wavefront in log space computes log(e^a + e^b) two or three times per cell. With weights H = exp(h / T),
w = exp(s / T) of a match and g = exp(gap / T), all exponentials are one operation before the loop. One power of two 2^e
for each pair and position keeps weights in range, renewed every BLOCK anti-diagonals from the last state:

    forward    M = w (one + q H_diagonal)                       one = 2^-e, q = 2^(e of the position before - e)
               H = M + g (H_left + q H_up)
    score      T log Z,  Z = sum of H over the ends
    backward   U = d log Z / d H = [end] 2^e / Z + g (U_right + q U_down) + q w U_diagonal
    marginals  M U

Changing an exponent is exact, so results do not depend on when that happens, unless a number leaves the range of
float32. In a block no state falls below g^BLOCK times its position's last one before, which is about 2^FIRST_EXPONENT;
a local alignment's exponents never go below 0, the exponent of a start. Overflow is checked after the sweep. Weights
that underflow are looked for before it, where cheap gaps might make them count. A pair that fails a check is computed
in logarithms instead, whatever the other pairs of the batch are.

A global alignment gets its border as a row and a column of cells without a match, and starts in the first of them.

Positions are rows of the matrix, or columns where these are fewer. Arrays of an anti-diagonal are (P * batch), or
((P + 1) * batch) with one position as margin: before the first for states, after the last for weights and gradients.
Such an array without its last position is named `head`, without its first `tail`.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from shared.alignments import ANYWHERE, IN_THE_LAST_CELL, ON_A_LATER_MATCH, RECURRENCES, Recurrence
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
from torch_impl.diagonal_layout import Memory
from torch_impl.recurrences import Tensor

BLOCK = 8  # anti-diagonals with the same exponents
# as tensors: converting a Python number in every call takes as long as 5,000 additions
FRACTION_BITS, BITS_OF_ONE = torch.tensor([23, 127 << 23], dtype=torch.int32, device="cpu")
# how many numbers of an anti-diagonal are computed at once: with their neighbours they should stay in the cache
IN_CACHE = 2**14


def applies(recurrence: Recurrence, s: Tensor, values: Tensor) -> bool:
    """Whether some of the pairs are computed with block exponents."""
    has_kernel = len(recurrence.states) == 1 and not (recurrence.is_cost or recurrence.is_by_axis)
    # on a GPU, reading the decay and the mask of valid pairs would synchronize
    if not has_kernel or recurrence.by_position or s.dtype != torch.float32 or s.device.type != "cpu":
        return False
    return bool((_decay(values) <= MOST_DECAY).any())


def _decay(values: Tensor) -> Tensor:
    """The bits by which the gaps of a block change weights, (batch,); values end with the temperature."""
    return (values[:, :-1].sum(1) / values[:, -1]).abs() * (BLOCK * math.log2(math.e))


def scores(memory: Memory, s: Tensor, lengths: Tensor, values: Tensor, recurrence: str) -> tuple[Tensor, Tensor]:
    """Scores (batch,), and a mask (batch,) of the pairs for which they are valid."""
    results = []
    for chunk in _chunks(memory, s):
        batch = BlockBatch(memory, s[chunk], lengths[chunk], values[chunk], recurrence)
        results.append(Forward(batch, keep=False).scores())
    return _joined(results)


def gradients(
    memory: Memory, s: Tensor, lengths: Tensor, values: Tensor, recurrence: str
) -> tuple[Tensor, Tensor, Tensor]:
    """Scores (batch,), their gradients with respect to similarity, and a mask (batch,) of the valid pairs."""
    results, marginals = [], torch.empty_like(s, memory_format=torch.contiguous_format)
    for chunk in _chunks(memory, s):
        batch = BlockBatch(memory, s[chunk], lengths[chunk], values[chunk], recurrence)
        forward = Forward(batch, keep=True)
        scores, valid = forward.scores()
        if valid.any():
            cells, finite = backward(batch, forward)
            batch.unskew(cells, marginals[chunk])
            valid &= finite
        results.append((scores, valid))
    scores, valid = _joined(results)
    return scores, marginals, valid


def _chunks(memory: Memory, s: Tensor) -> Iterator[slice]:
    """Some pairs at a time, in the same memory."""
    used, size = memory.used, max(1, IN_CACHE // min(s.shape[1:]))
    for begin in range(0, len(s), size):
        memory.used = used
        yield slice(begin, begin + size)


def _joined(results: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    scores, valid = zip(*results, strict=True)
    return torch.cat(scores), torch.cat(valid)


class BlockBatch:
    """The match weights of some pairs, skewed, and what else a sweep needs."""

    def __init__(self, memory: Memory, s: Tensor, lengths: Tensor, values: Tensor, recurrence: str) -> None:
        self.memory, self.recurrence = memory, RECURRENCES[recurrence]
        *gap, self.temperature = values.t().contiguous().unbind(0)  # each (batch,)
        self.transposed = s.shape[2] < s.shape[1]
        if self.transposed:
            s, lengths = s.transpose(1, 2), lengths.flip(1)
        self.is_global = self.recurrence.is_global
        border = self.border = int(self.is_global)
        lengths = torch.stack([lengths[:, axis].clamp(0, s.shape[axis + 1]) for axis in (0, 1)])
        self.rows, self.cols = lengths.amax(1).clamp(min=1).tolist()
        self.pairs, self.positions, self.across = len(s), self.rows + border, self.cols + border
        self.size = self.positions * self.pairs
        self.blocks = -(-(self.positions + self.across - 1) // BLOCK)
        scaled_gap = gap[0] / self.temperature if gap else torch.zeros_like(self.temperature)
        self.decay, self.gap_weights = _decay(values), self.tiled(scaled_gap.exp())
        position = torch.arange(self.positions)[:, None]
        begin = torch.zeros_like(position)
        if self.is_global:  # for positions that the sweep has not reached yet
            bits = (scaled_gap * math.log2(math.e)).clamp(-MOST_DECAY, MOST_DECAY)
            begin = (bits * position).round() - FIRST_EXPONENT
        begin = begin.to(torch.int32).expand(self.positions, self.pairs)
        self.first_exponents = torch.cat([begin[:1], begin]).flatten()  # the margin's are those of the first position
        # the anti-diagonal after the last cell of each row inside lengths
        self.end = (lengths[1] + border + position).to(s.dtype)  # (P, batch)
        self.least_end = int(lengths[1].min()) + border
        self.rows_inside = (position < lengths[0] + border).to(s.dtype)
        # the anti-diagonal of the last cell, at its position; elsewhere -1
        self.last = torch.where(position == lengths[0] + border - 1, self.end - 1, -1.0)
        self.last_blocks = set(((lengths.sum(0) + 2 * border - 2) // BLOCK).tolist())
        diagonals = torch.arange(self.blocks * BLOCK, dtype=s.dtype)
        self.diagonals = diagonals.view(-1, BLOCK, 1, 1).unbind()
        self.match_weights, self.largest_match, self.lost = self._match_weights(
            s, lengths, scaled_gap * math.log2(math.e)
        )

    def new(self, *shape: int) -> Tensor:
        return self.memory.new(shape, self.temperature)

    def integers(self, *shape: int) -> Tensor:
        return self.new(*shape).view(torch.int32)

    def tiled(self, values: Tensor) -> Tensor:
        """One value of each pair, (batch,) -> (P * batch)."""
        return values.expand(self.positions, self.pairs).flatten()

    def _skewed(self, table: Tensor) -> Tensor:
        """The (rows, cols, batch) cells of the matrix, in a table (anti-diagonals, positions, batch)."""
        diagonal, position, _ = table.stride()
        begin = self.border * (2 * diagonal + position)
        return table.as_strided(
            (self.rows, self.cols, self.pairs), (diagonal + position, diagonal, 1), table.storage_offset() + begin
        )

    def _match_weights(self, s: Tensor, lengths: Tensor, gap: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Weights (blocks * BLOCK + 2, (P + 1) * batch), 0 where there is no match; each pair's largest; and whether
        a pair has some that round to 0 and may count. gap: in bits.
        """
        table = self.new(self.blocks * BLOCK + 2, self.positions + 1, self.pairs).zero_()
        cells, factor = self._skewed(table), (math.log2(math.e) / self.temperature)[:, None, None]
        # masks: all bits inside the lengths, none outside
        rows, cols = (
            (torch.arange(count) < length[:, None]).to(torch.int32).neg_()
            for count, length in zip((self.rows, self.cols), lengths, strict=True)
        )
        cells_inside, steps = lengths.prod(0).log2(), lengths.sum(0)
        growth = cells_inside + steps.log2() + steps * (1 + gap).clamp_(min=0)
        grows = (growth > MOST_GROWTH) & (not self.is_global)
        lost, may_be_lost = torch.zeros_like(grows), bool(grows.any())
        bounds = LEAST_LOST - growth, MOST_LOST + cells_inside - gap.clamp(max=0)
        least, most = (bound[:, None, None] for bound in bounds)
        largest, count = [], max(1, 8 * IN_CACHE // (self.cols * self.pairs))  # rows at a time, in the cache
        blocks = s[:, : self.rows, : self.cols].split(count, 1), rows.split(count, 1), cells.split(count)
        for similarity, inside, block in zip(*blocks, strict=True):
            bits = similarity * factor
            if may_be_lost:
                small = (bits >= least) & (bits < most) & (inside[:, :, None] & cols[:, None]).bool()
                lost |= grows & small.any((1, 2))
            weights = bits.exp2_()
            weights.view(torch.int32).bitwise_and_(inside[:, :, None]).bitwise_and_(cols[:, None])  # padding may be NaN
            largest.append(weights.amax((1, 2)))
            block.copy_(weights.permute(1, 2, 0))
        if self.is_global:
            table[0, 0] = 1.0  # where it starts
        return table.flatten(1), torch.stack(largest).amax(0), lost

    def unskew(self, cells: Tensor, result: Tensor) -> None:
        """Write (blocks * BLOCK, P * batch) into (batch, rows, cols)."""
        if self.transposed:
            result = result.transpose(1, 2)
        result[:, self.rows :] = 0
        result[:, : self.rows, self.cols :] = 0
        skewed = self._skewed(cells.view(-1, self.positions, self.pairs))
        result[:, : self.rows, : self.cols] = skewed.permute(2, 0, 1)

    def inside(self, number: int) -> Tensor | None:
        """Mask (BLOCK, n, batch): 0 from a position's end on, else 1; all positions from n on end after this block."""
        positions = min((number + 1) * BLOCK - self.least_end, self.positions)
        return (self.end[:positions] - self.diagonals[number]).clamp_(0, 1) if positions > 0 else None

    def is_last(self, number: int) -> Tensor:
        """Mask (BLOCK, P * batch) of the last cells inside lengths."""
        return (self.last == self.diagonals[number]).to(self.last.dtype).flatten(1)

    def total(self, rows: Tensor, number: int, result: Tensor) -> None:
        """Write the sum of the rows of a block (BLOCK, P * batch) up to each position's end."""
        torch.sum(rows, 0, out=result)
        inside = self.inside(number)
        if inside is not None:
            cells = inside.shape[1] * self.pairs
            torch.sum(inside.flatten(1).mul_(rows[:, :cells]), 0, out=result[:cells])


class Powers:
    """Powers of two for each position: three arrays, computed together; power and ratio end with a margin of 0."""

    def __init__(self, batch: BlockBatch) -> None:
        self.exponents = batch.integers(3, batch.size + batch.pairs).fill_(-127)
        self.result = torch.empty_like(self.exponents)
        self.scale, self.power, self.ratio = self.result.view(torch.float32)
        self.of_power, self.of_ratio = self.exponents[1:, : batch.size]
        self.size, self.pairs = batch.size, batch.pairs

    def compute(self, from_to: tuple[Tensor, Tensor], exponents: Tensor) -> None:
        """scale = 2^(from - to), power = 2^of_power, ratio = 2^(exponent of the position before - exponent)."""
        torch.sub(*from_to, out=self.exponents[0, : len(from_to[0])])
        torch.sub(exponents[: self.size], exponents[self.pairs :], out=self.of_ratio)
        power_of_two(self.exponents, out=self.result)


class Forward:
    """The states, from the first anti-diagonal on.

    keep: whether the weights of matches M are kept for all blocks (ON_A_LATER_MATCH: without the start term w · one).
    With keep, `entering` is each position's M of a block's first two anti-diagonals, added, at the largest, in the
    exponent of the block before: the backward pass converts the gradients of these cells to that exponent.
    """

    def __init__(self, batch: BlockBatch, keep: bool) -> None:
        self.batch, size, pairs = batch, batch.size, batch.pairs
        width, where = size + pairs, batch.recurrence.where
        states = batch.new(BLOCK + 2, width).zero_()
        first, last, last_bits = states[:2], states[BLOCK:], states[BLOCK + 1].view(torch.int32)
        rows = states[2:, pairs:]
        head, tail = [row[:size] for row in states], [row[pairs:] for row in states]
        self.matches = batch.new((batch.blocks if keep else 1) * BLOCK, size)
        match_blocks = [block.unbind() for block in self.matches.split(BLOCK)]
        self.exponents = batch.integers(batch.blocks, width)
        self.totals = batch.new(batch.blocks, size)
        self.entering = batch.new(size).zero_()
        self.sums = self.totals if where == ANYWHERE else batch.new(batch.blocks, size).zero_()
        started, continued, gap_up = batch.new(BLOCK, size), batch.new(BLOCK, size), batch.new(size)
        starts, continues = started.unbind(), continued.unbind()
        gap, powers, before = batch.gap_weights, Powers(batch), batch.first_exponents
        one, ratio = powers.power[:size], powers.ratio[:size]
        bias, addcmul, mul = torch.tensor(127 + FIRST_EXPONENT, dtype=torch.int32), torch.addcmul, torch.mul
        for number in range(batch.blocks):
            out, weights = self.exponents[number], batch.match_weights[number * BLOCK : (number + 1) * BLOCK, :size]
            torch.bitwise_right_shift(last_bits, FRACTION_BITS, out=out)
            if batch.is_global:
                out.copy_(torch.where(out > 0, out.add_(before).sub_(bias), before))
                out[:pairs] = out[pairs : 2 * pairs]
            else:
                out.add_(before).sub_(bias).clamp_(min=0)
            torch.neg(out[pairs:], out=powers.of_power)
            powers.compute((before, out), out)
            mul(last, powers.scale, out=first)
            mul(weights, ratio, out=continued)
            mul(gap, ratio, out=gap_up)
            if batch.is_global and not number:
                first[0, :pairs] = 2.0**FIRST_EXPONENT  # what the first cell continues
            if not batch.is_global:
                mul(weights, one, out=started)
            matches = match_blocks[number if keep else 0]
            for k in range(BLOCK):
                match, state = matches[k], tail[k + 2]
                if where == ANYWHERE:
                    addcmul(starts[k], continues[k], head[k], out=match)
                else:
                    mul(continues[k], head[k], out=match)
                if where == ON_A_LATER_MATCH:
                    match = starts[k].add_(match)
                addcmul(match, gap_up, head[k + 1], out=state)
                state.addcmul_(gap, tail[k + 1])
            if keep:
                torch.add(matches[0], matches[1], out=gap_up).div_(powers.scale[pairs:])
                torch.maximum(self.entering, gap_up, out=self.entering)
            batch.total(rows, number, self.totals[number])
            if where == ON_A_LATER_MATCH:
                torch.sum(torch.stack(matches), 0, out=self.sums[number])
            elif where == IN_THE_LAST_CELL and number in batch.last_blocks:
                torch.sum(batch.is_last(number).mul_(rows), 0, out=self.sums[number])
            before = out
        self._add_up()

    def _add_up(self) -> None:
        """Z = fraction * 2^exponent of each pair."""
        pairs, offset = self.batch.pairs, 10**6
        self.totals.view(-1, *self.batch.rows_inside.shape).mul_(self.batch.rows_inside)
        sums, exponents = self.sums.view(-1, pairs), self.exponents[:, pairs:].reshape(-1, pairs)

        def highest(sums: Tensor) -> tuple[Tensor, Tensor]:
            """The exponents of the largest, and which are not 0."""
            bits = sums.view(torch.int32) >> FRACTION_BITS
            reached = bits.clamp(max=1)
            return bits.add_(exponents).add_(reached, alpha=offset).amax(0) - (offset + 127), reached

        self.exponent, self.reached = highest(sums)
        # finite outside lengths too, where it is multiplied by 0
        self.fraction = power_of_two((exponents - self.exponent).clamp_(max=127)).mul_(sums).sum(0)
        of_states = self.exponent
        if self.sums is not self.totals:
            of_states, self.reached = highest(self.totals.view(-1, pairs))
        self.largest_exponent = of_states.clamp(min=0)  # of states and starts

    def scores(self) -> tuple[Tensor, Tensor]:
        """Scores (batch,), and a mask (batch,) of the pairs for which they are valid."""
        batch = self.batch
        exponents, before = self.exponents[:, batch.pairs :], self.exponents[:, : batch.size]
        steps = (exponents - before).abs_().mul_(self.reached.view_as(exponents))
        largest, steepest = (values.amax(0).view(-1, batch.pairs).amax(0) for values in (self.totals, steps))
        valid = (largest < LARGEST_TOTAL) & (steepest <= MOST_STEEP) & (batch.decay <= MOST_DECAY)
        valid &= batch.largest_match < (LARGEST_MATCH - batch.decay).exp2_()
        valid &= self.fraction.isfinite() & (self.fraction > 0)
        valid &= self.entering.view(-1, batch.pairs).amax(0) < LARGEST_TOTAL
        if not batch.is_global:
            valid &= (self.exponent > self.largest_exponent + LEAST_EXPONENT) & ~batch.lost
        return batch.temperature * (self.exponent.to(self.fraction.dtype) * math.log(2) + self.fraction.log()), valid


def backward(batch: BlockBatch, forward: Forward) -> tuple[Tensor, Tensor]:
    """The marginals (blocks * BLOCK, P * batch), in the memory of the matches, and whether they are finite."""
    size, pairs, where = batch.size, batch.pairs, batch.recurrence.where
    gradients = batch.new(BLOCK + 2, size + pairs).zero_()
    head, tail = [row[:size] for row in gradients], [row[pairs:] for row in gradients]
    first, last, rows = gradients[:2], gradients[BLOCK:], gradients[:BLOCK, :size]
    continued, ends, gap_down = batch.new(BLOCK, size), batch.new(BLOCK, size), batch.new(size)
    continues, end_rows = continued.unbind(), ends.unbind()
    gap, powers = batch.gap_weights, Powers(batch)
    exponent, inverse = batch.tiled(forward.exponent), (batch.rows_inside / forward.fraction).flatten()
    ending, later_ending, following = powers.power[:size], powers.power[pairs:], powers.ratio[pairs:]
    later, addcmul, mul = forward.exponents[-1], torch.addcmul, torch.mul
    for number in reversed(range(batch.blocks)):
        block_exponents, begin = forward.exponents[number], number * BLOCK
        torch.sub(block_exponents[pairs:], exponent, out=powers.of_power).clamp_(max=127)
        powers.compute((block_exponents[pairs:], later[pairs:]), block_exponents)
        ending.mul_(inverse)
        mul(first, powers.scale, out=last)
        mul(batch.match_weights[begin + 2 : begin + 2 + BLOCK, pairs:], following, out=continued)
        mul(gap, following, out=gap_down)
        ends_here: Sequence[Tensor] | None = end_rows
        if where == ON_A_LATER_MATCH:
            mul(continued, later_ending, out=ends)
        elif where == ANYWHERE:
            inside = batch.inside(number)
            if inside is None:
                ends_here = [ending] * BLOCK
            else:
                ends.copy_(ending.expand_as(ends))
                ends[:, : inside.shape[1] * pairs].mul_(inside.flatten(1))
        elif number in batch.last_blocks:
            mul(batch.is_last(number), ending, out=ends)
        else:
            ends_here = None
        for k in reversed(range(BLOCK)):
            gradient = head[k]
            if ends_here:
                addcmul(ends_here[k], gap, head[k + 1], out=gradient)
            else:
                mul(gap, head[k + 1], out=gradient)
            gradient.addcmul_(gap_down, tail[k + 1])
            gradient.addcmul_(continues[k], tail[k + 2])
        matches = forward.matches[begin : begin + BLOCK]
        if where == ON_A_LATER_MATCH:
            started = batch.match_weights[begin : begin + BLOCK, :size] * power_of_two(-block_exponents[pairs:])
            matches.mul_(rows + ending).addcmul_(started, rows)
        else:
            matches.mul_(rows)
        later = block_exponents
    # an infinite gradient has made those of all cells before it infinite, or NaN
    return forward.matches, gradients[0, :pairs].isfinite()


def replace_invalid(valid: Tensor, results: tuple[Tensor, ...], otherwise: Callable[..., Any], *tensors: Tensor) -> Any:
    """The results, with those of pairs where `valid` is False replaced by otherwise(*tensors of these pairs)."""
    if not valid.all():
        failing = (~valid).nonzero()[:, 0]
        for result, result_otherwise in zip(results, otherwise(*(tensor[failing] for tensor in tensors)), strict=True):
            result[failing] = result_otherwise
    return results


def power_of_two(exponents: Tensor, out: Tensor | None = None) -> Tensor:
    """2^exponent, 0 below -126 and infinite above 127. The exponents are clamped in place."""
    return torch.add(BITS_OF_ONE, exponents.clamp_(-127, 128), alpha=1 << 23, out=out).view(torch.float32)
