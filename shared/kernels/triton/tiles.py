"""Tiles of a few columns in registers: read and written as a whole, processed column by column.

A program's lanes are rows of the matrix, each one column behind the lane above it, so that a step works on an
anti-diagonal. Column k of a tile is what the lanes hold in step k: a tile is a parallelogram of the matrix.
"""

import triton
import triton.language as tl


@triton.jit
def columns(tile, lanes: tl.constexpr, steps: tl.constexpr):
    """The columns of a tile (lanes, steps), of 4 or 8 steps."""
    even, odd = tl.split(tl.reshape(tile, [lanes, steps // 2, 2]))
    if steps == 4:
        c0, c2 = tl.split(even)
        c1, c3 = tl.split(odd)
        return c0, c1, c2, c3
    else:
        c04, c26 = tl.split(tl.reshape(even, [lanes, 2, 2]))
        c15, c37 = tl.split(tl.reshape(odd, [lanes, 2, 2]))
        c0, c4 = tl.split(c04)
        c2, c6 = tl.split(c26)
        c1, c5 = tl.split(c15)
        c3, c7 = tl.split(c37)
        return c0, c1, c2, c3, c4, c5, c6, c7


@triton.jit
def numbers(row, steps: tl.constexpr):
    """The numbers of a vector (steps,)."""
    even, odd = tl.split(tl.reshape(row, [steps // 2, 2]))
    if steps == 4:
        c0, c2 = tl.split(even)
        c1, c3 = tl.split(odd)
        return c0, c1, c2, c3
    else:
        c04, c26 = tl.split(tl.reshape(even, [2, 2]))
        c15, c37 = tl.split(tl.reshape(odd, [2, 2]))
        c0, c4 = tl.split(c04)
        c2, c6 = tl.split(c26)
        c1, c5 = tl.split(c15)
        c3, c7 = tl.split(c37)
        return c0, c1, c2, c3, c4, c5, c6, c7


@triton.jit
def split_columns(tile, lanes: tl.constexpr, steps: tl.constexpr):
    """The columns of a tile (lanes, steps), of 4, 8, 16 or 32 steps."""
    if steps <= 8:
        return columns(tile, lanes, steps)
    elif steps == 16:
        even, odd = tl.split(tl.reshape(tile, [lanes, 8, 2]))
        a, b = columns(even, lanes, 8), columns(odd, lanes, 8)
        every = ()
        for k in tl.static_range(8):
            every = every + (a[k], b[k])
        return every
    else:
        even, odd = tl.split(tl.reshape(tile, [lanes, 16, 2]))
        c0, c2 = tl.split(tl.reshape(even, [lanes, 8, 2]))
        c1, c3 = tl.split(tl.reshape(odd, [lanes, 8, 2]))
        a, b, c, d = columns(c0, lanes, 8), columns(c1, lanes, 8), columns(c2, lanes, 8), columns(c3, lanes, 8)
        every = ()
        for k in tl.static_range(8):
            every = every + (a[k], b[k], c[k], d[k])
        return every


@triton.jit
def tile_of(c, lanes: tl.constexpr, steps: tl.constexpr):
    """The tile made of these columns.

    Lanes stay the last axis until the end, so that each thread holds lanes, and data move between threads once.
    """
    if steps == 4:
        rows = tl.permute(tl.join(tl.trans(tl.join(c[0], c[1])), tl.trans(tl.join(c[2], c[3]))), (2, 0, 1))
    else:
        first = tl.permute(tl.join(tl.trans(tl.join(c[0], c[1])), tl.trans(tl.join(c[2], c[3]))), (2, 0, 1))
        second = tl.permute(tl.join(tl.trans(tl.join(c[4], c[5])), tl.trans(tl.join(c[6], c[7]))), (2, 0, 1))
        rows = tl.permute(tl.join(first, second), (3, 0, 1, 2))
    return tl.trans(tl.reshape(rows, [steps, lanes]))


@triton.jit
def is_inside(col, width):
    """Whether 0 <= col < width, in one comparison."""
    return col.to(tl.uint32) < width.to(tl.uint32)


@triton.jit
def tile_at(lane_rows, t, col, widths, others, steps: tl.constexpr):
    """Columns col to col + steps - 1 of each lane's row, of which widths are in the matrix; elsewhere `others`.

    lane_rows: where a lane is in its row in step 0; t: the step of col.
    """
    k = tl.arange(0, steps)[None, :]
    is_there = is_inside(col[:, None] + k, widths[:, None])
    return tl.load((lane_rows[:, None] + k) + t, mask=is_there, other=others[:, None])


@triton.jit
def tiles_at(rows_of, t, col, widths, others, steps: tl.constexpr):
    """Load the same columns of several matrices."""
    tiles = ()
    for n in tl.static_range(len(rows_of)):
        tiles = tiles + (tile_at(rows_of[n], t, col, widths, others, steps),)
    return tiles


@triton.jit
def columns_of(tiles, lanes: tl.constexpr, steps: tl.constexpr):
    """The columns of several tiles."""
    every = ()
    for n in tl.static_range(len(tiles)):
        every = every + (split_columns(tiles[n], lanes, steps),)
    return every


@triton.jit
def in_step(of_columns, k: tl.constexpr):
    """The k-th entry of each tuple: of tiles given as columns, the k-th columns."""
    values_in_step = ()
    for n in tl.static_range(len(of_columns)):
        values_in_step = values_in_step + (of_columns[n][k],)
    return values_in_step


@triton.jit
def plane(first, others, k: tl.constexpr, size):
    """The k-th plane."""
    if k == 0:
        return first
    else:
        return others + (k - 1) * size


@triton.jit
def shifted(values, source):
    """Each of a tuple of vectors, shifted between lanes."""
    moved = (tl.gather(values[0], source, 0),)
    for k in tl.static_range(1, len(values)):
        moved = moved + (tl.gather(values[k], source, 0),)
    return moved


@triton.jit
def chosen(where, values, others):
    """tl.where for tuples."""
    selected = (tl.where(where, values[0], others[0]),)
    for k in tl.static_range(1, len(values)):
        selected = selected + (tl.where(where, values[k], others[k]),)
    return selected
