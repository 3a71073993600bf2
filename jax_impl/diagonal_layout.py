"""How the wavefront stores a batch: by anti-diagonal, batch innermost.

D = rows + cols - 1 anti-diagonals have P = min(rows, cols) positions, which are indices along the shorter side; an
anti-diagonal is one axis (P * batch), the batch innermost, for which the compiler makes better loops than for two.
Tables are (2 + D + 2, (1 + P + 1) * batch): the margin is the border. The neighbour at the same position keeps its
place; the two others stand one position before, whatever the anti-diagonal.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental.layout import Layout, with_layout_constraint
from jax.extend.core import Primitive
from jax.interpreters import mlir

from jax_impl.recurrences import Array, Parameters
from shared.alignments import COLS, ROWS, SIMILARITY, Choice, Recurrence
from shared.tolerances import LARGEST_SCALE, LOWEST

LOG2_E = math.log2(math.e)
# of x, x^2, ...: 2^x for |x| <= 1/2 with a relative error up to 2e-9, fitted by least squares with weights
_POWERS = (0.693147203, 0.240226479, 0.055503324, 0.00961843628, 0.00133988956, 0.000153536758)


class DiagonalBatch:
    """A batch by anti-diagonals. d is always one of them, giving (P * batch), or None: all, giving (D, P * batch)."""

    def __init__(self, recurrence: Recurrence, s: Array, lengths: Array, parameters: Parameters) -> None:
        self.recurrence = recurrence
        self.temperature = parameters["temperature"]
        self.names = recurrence.parameters
        self.matrices = (SIMILARITY, *recurrence.by_position)  # the terms with a value for each cell, as tables
        self.pairs, self.rows, self.cols = s.shape
        self.diagonals, self.positions = self.rows + self.cols - 1, min(self.rows, self.cols)
        self.transposed = self.cols < self.rows  # positions are columns, where they are the shorter side
        # the axes of the borders: of that before the first position, of that before the first cell across
        self.axes = (COLS, ROWS) if self.transposed else (ROWS, COLS)
        self.neighbours = {
            "diagonal": (2, 1),
            "left": (1, int(self.transposed)),
            "up": (1, int(not self.transposed)),
            "cell": (0, 0),
        }
        self.parameters = parameters
        lowest = LOWEST * jnp.maximum(jnp.minimum(1 / self.temperature, LARGEST_SCALE * self.temperature), 1)
        self.lowest = self.tiled(lowest)  # (P * batch)

        def limited(values: Array) -> Array:
            limit = jnp.expand_dims(lowest, range(1, values.ndim))
            return jnp.clip(self.by_temperature(values), limit, -limit)

        self.s = self.skew(jnp.maximum(self.by_temperature(s), lowest[:, None, None]))
        scaled = {name: limited(parameters[name]) for name in self.names}
        self.scaled, by_position = self.arranged(scaled)
        self.terms = {SIMILARITY: self.s, **by_position, **self.scaled}
        self.lengths = lengths.T  # (2, batch)
        self._sizes = self.tiled(lengths[:, 0]), self.tiled(lengths[:, 1])
        self.position = jnp.arange(self.positions * self.pairs, dtype=lengths.dtype) // self.pairs
        along, across = (self._sizes[1], self._sizes[0]) if self.transposed else (self._sizes[0], self._sizes[1])
        self.limit = jnp.where(self.position < along, across, 0)
        self.used_diagonals = jnp.max(lengths.sum(1)) - 1  # after these no cell is inside lengths

    def by_temperature(self, values: Array) -> Array:
        """Values of each pair, or of each of its cells, divided by its temperature."""
        return values / jnp.expand_dims(self.temperature, range(1, values.ndim))

    def arranged(self, values: Parameters) -> tuple[Parameters, Parameters]:
        """Values for the parameters that have one for each pair, tiled, and for those by position, as tables."""
        tables = {name: self.skew(values[name]) for name in self.recurrence.by_position}
        return {name: self.tiled(values[name]) for name in self.names if name not in tables}, tables

    def tiled(self, values: Array) -> Array:
        """One value of each pair, (batch) -> (P * batch)."""
        return jnp.tile(values, self.positions)

    def total(self, values: Array) -> Array:
        """(P * batch) -> (batch)."""
        return values.reshape(self.positions, self.pairs).sum(0)

    def skew(self, s: Array) -> Array:
        """(batch, rows, cols) -> a table. Rows padded by one element too many, and reshaped without it, are skewed."""
        s = pin(jnp.transpose(s, (2, 1, 0) if self.transposed else (1, 2, 0)))
        height, width = self.positions + 2, self.diagonals + 4
        padded = jnp.pad(s, ((1, 1), (1, width - s.shape[1]), (0, 0)))
        flat = padded.reshape(height * (width + 1), self.pairs)[: height * width]
        table = pin(jnp.swapaxes(flat.reshape(height, width, self.pairs), 0, 1))
        return pin(table.reshape(width, height * self.pairs))

    def unskew(self, cells: Array) -> Array:
        """(D, P * batch) -> (batch, rows, cols), one position at a time: all at once becomes a slow loop in XLA."""
        longer, axes = max(self.rows, self.cols), (2, 0, 1) if self.transposed else (2, 1, 0)
        cells = pin(pin(cells).reshape(self.diagonals, self.positions, self.pairs))

        def write(p: Array, s: Array) -> Array:
            line = jax.lax.dynamic_slice(cells, (p, p, jnp.zeros_like(p)), (longer, 1, self.pairs))
            begin = (0, 0, p) if self.transposed else (0, p, 0)
            return jax.lax.dynamic_update_slice(s, jnp.transpose(line, axes), begin)

        s = jnp.zeros((self.pairs, self.rows, self.cols), cells.dtype)
        return pin(jax.lax.fori_loop(0, self.positions, write, pin(s)))

    def _diagonals(self, d: Any) -> Array:
        """The anti-diagonal d; None: all."""
        numbers = jnp.arange(self.diagonals)[:, None] if d is None else d
        return numbers.astype(self.position.dtype)

    def spread(self, values: Array, d: Any) -> Array:
        """(P * batch) as the cells of d have it: for all anti-diagonals (D, P * batch)."""
        return jnp.broadcast_to(values, (self.diagonals, *values.shape)) if d is None else values

    def across(self, d: Any) -> Array:
        return self._diagonals(d) - self.spread(self.position, d)

    def inside(self, d: Any) -> Array:
        """Mask of the cells inside lengths."""
        across = self.across(d)
        return (across >= 0) & (across < self.spread(self.limit, d))

    def may_end(self, d: Any, at: tuple[int, int] = (0, 0)) -> Array:
        """Mask of the cells, `at` (anti-diagonals, positions) before those of d, where an alignment may end."""
        position = self.spread(self.position, d) - at[1]
        across = self.across(d) - at[0] + at[1]
        i, j = (across, position) if self.transposed else (position, across)
        return (i >= 0) & (j >= 0) & self.recurrence.may_end(i, j, [self.spread(size, d) for size in self._sizes])

    def read(self, table: Array, d: Any, at: tuple[int, int] = (0, 0)) -> Array:
        """The part of a table that is `at` (anti-diagonals, positions) before the cells."""
        row, begin = 2 - at[0], (1 - at[1]) * self.pairs
        size = self.positions * self.pairs
        if d is None:
            return jax.lax.slice(table, (row, begin), (row + self.diagonals, begin + size))
        return jax.lax.dynamic_slice(table, (row + d, jnp.array(begin, d.dtype)), (1, size))[0]

    def border(self, function: Callable[..., Any], parameters: Any) -> list[Any]:
        """Tables filled with the values outside the matrix."""
        gaps = jnp.arange(self.diagonals + 4)[:, None]
        wide = {
            name: v if isinstance(v, float) else jnp.tile(v[: self.pairs], self.positions + 2)[None]
            for name, v in parameters.items()
        }
        axes = self.axes[:1] if self.recurrence.is_same_along_axes else self.axes
        first, *across = (
            [jnp.broadcast_to(jnp.asarray(value, self.s.dtype), self.s.shape) for value in function(wide, gaps, axis)]
            for axis in axes
        )
        is_first = jnp.arange(self.s.shape[1])[None] < self.pairs
        return [jnp.where(is_first, *values) for values in zip(first, *across, strict=True)] if across else first

    def choice(self, choice: Choice, tables: Any, terms: Any, d: Any, at: tuple[int, int] = (0, 0)) -> Any:
        """The value of one choice. Linear, so it maps tangents too."""
        parts = [self.read(terms[n], d, at) if n in self.matrices else self.spread(terms[n], d) for n in choice.terms]
        if choice.neighbour:
            back, shift = self.neighbours[choice.neighbour]
            parts.append(self.read(tables[choice.state], d, (at[0] + back, at[1] + shift)))
        return sum(parts[1:], parts[0])

    def offset(self, choice: Choice) -> tuple[int, int]:
        """The offset from the cell that a choice reads to the cell that chooses."""
        back, shift = self.neighbours[choice.neighbour or "cell"]
        return -back, -shift

    def count(self, choice: Choice, name: str, d: Any) -> Any:
        """Count how often a choice adds a term: by itself, and within the border value that it reads."""
        counted = float(name in choice.terms)
        if name in self.matrices or not choice.neighbour:
            return counted
        back, shift = self.neighbours[choice.neighbour]
        gaps = self._diagonals(d) - back + 2
        units = {other: self.s.dtype.type(other == name) for other in self.names}
        places = self.spread(self.position, d) < shift, self.across(d) < back - shift
        for axis, is_outside in zip(self.axes, places, strict=True):
            border = self.recurrence.border_tangent(units, gaps, axis)[choice.state]
            if not isinstance(border, float):
                counted += jnp.where(is_outside, border, 0.0).astype(self.s.dtype)
        return counted

    def row(self, cells: Array, d: Array) -> Array:
        """Row d of an array (D, P * batch)."""
        return jax.lax.dynamic_index_in_dim(cells, d, keepdims=False)

    def table(self, cells: Array) -> Array:
        """(D, P * batch) as a table whose border is 0."""
        return pin(jnp.pad(cells, ((2, 2), (self.pairs, self.pairs))))

    def forward(self, step: Callable[[int, Any, Any], Array], tables: Sequence[Array]) -> list[Array]:
        """The tables, written one anti-diagonal at a time: step(k, d, tables) returns row d of table k.

        A step must not read row d of any table: some are already overwritten there.
        """
        return self._loop(lambda number: number, range(len(tables)), step, tables)

    def backward(self, step: Callable[[int, Any, Any], Array], tables: Sequence[Array]) -> list[Array]:
        return self._loop(lambda number: self.used_diagonals - 1 - number, range(len(tables))[::-1], step, tables)

    def _loop(self, diagonal: Callable, order: Sequence[int], step: Callable, tables: Sequence[Array]) -> list[Array]:
        """Tables are written in turn, and each step reads those already updated: so XLA:CPU works in place.

        It copies a whole table in every step unless every read of the old table must precede the write. Here each row
        reads the table that was written just before: a state chooses, among others, from the state numbered one lower.
        So the order is ascending forward, and descending backward, where a state is read by its choosers.
        """

        def write(number: Array, tables: list[Array]) -> list[Array]:
            d, tables = diagonal(number), list(tables)
            begin = (d + 2, jnp.array(self.pairs, d.dtype))
            for k in order:
                tables[k] = jax.lax.dynamic_update_slice(tables[k], step(k, d, tables)[None], begin)
            return tables

        zero = jnp.zeros_like(self.used_diagonals)
        return [pin(t) for t in jax.lax.fori_loop(zero, self.used_diagonals, write, [pin(t) for t in tables])]

    def collect(self, merge: Callable[[Array, Any], Array], first: Array) -> Array:
        """(P * batch), folded over all anti-diagonals by merge(collected, d): a fused reduction is not vectorized."""
        zero = jnp.zeros_like(self.used_diagonals)
        return jax.lax.fori_loop(zero, self.used_diagonals, lambda d, collected: merge(collected, d), first)


def exp(x: Array, highest: float = 0.0) -> Array:
    """e^x for x <= highest * ln 2; a greater x counts as that. In float32, highest = 128 is infinity."""
    if x.dtype != jnp.float32:
        return jnp.exp(jnp.minimum(x, highest / LOG2_E))
    # cheaper than XLA's, which has to cover all x: at -127 the exponent's bits are 0, and so is the result
    x = jnp.clip(x * LOG2_E, -127.0, highest)
    whole = jnp.round(x)
    part, power = x - whole, jnp.full_like(x, _POWERS[-1])
    for coefficient in (*_POWERS[-2::-1], 1.0):
        power = power * part + coefficient
    return power * jax.lax.bitcast_convert_type((whole.astype(jnp.int32) + 127) << 23, jnp.float32)


def sum_of_weights(values: Sequence[Array]) -> tuple[Array, Array]:
    """The largest of some arrays, and the sum of e^(value - largest), with one exponential for each value but one."""
    pairs = [(value, jnp.ones_like(value)) for value in values]
    while len(pairs) > 1:
        merged = [_merged(*pair) for pair in zip(pairs[::2], pairs[1::2], strict=False)]
        pairs = merged + pairs[2 * len(merged) :]
    return pairs[0]


def _merged(a: tuple[Array, Array], b: tuple[Array, Array]) -> tuple[Array, Array]:
    weight, first = exp(-jnp.abs(a[0] - b[0])), a[0] > b[0]
    total = jnp.where(first, a[1], b[1]) + weight * jnp.where(first, b[1], a[1])
    return jnp.maximum(a[0], b[0]), total


def pin(x: Array) -> Array:
    """Keep the batch innermost in memory too: XLA:CPU would otherwise take the layout of the caller's array."""
    return _pinned.bind(x)


def _constrained(x: Array) -> Array:
    return with_layout_constraint(x, Layout(tuple(range(x.ndim))))


def _lowered(context: mlir.LoweringRuleContext, x: Any) -> Any:
    # jax.export refuses layout constraints; without them the same is computed, more slowly on some CPUs
    function = (lambda x: x) if context.module_context.lowering_parameters.for_export else _constrained
    return mlir.lower_fun(function, multiple_results=False)(context, x)


_pinned = Primitive("pinned")
_pinned.def_impl(_constrained)
_pinned.def_abstract_eval(lambda x: x)
mlir.register_lowering(_pinned, _lowered)
