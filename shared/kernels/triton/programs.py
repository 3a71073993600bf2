"""A call as a list of kernel launches and their buffers, independent of the framework.

Buffers have names, those of the kernels' arguments; a framework brings its own memory for them, and a way to launch.
"""

import functools
import json
from collections.abc import Callable
from typing import Any, NamedTuple

from shared.kernels.cpp import Call
from shared.kernels.cpp.library import (
    BY_AXIS,
    EXTEND_BY_POSITION,
    FREE_COLS,
    FREE_ROWS,
    GAPS_BY_POSITION,
    KINDS,
    OPEN_BY_POSITION,
    PENALIZE_TURNS,
    RESTRICT_TURNS,
)

AFFINE, FREE_GAP = KINDS["smith_waterman_affine", None], KINDS["free_gap", None]
SOFT_DTW, GLOBAL_AFFINE = KINDS["soft_dtw", None], KINDS["needleman_wunsch_affine", None]

Shape = tuple[Any, ...]


class Kernel(NamedTuple):
    """A kernel of `kernels` with its number type and constants: the unit of compilation.

    A constant None is a buffer that the kernel does without. registers: the most that a thread may have, or None.
    """

    name: str
    dtype: str
    constants: tuple[tuple[str, int | None], ...]
    warps: int
    registers: int | None = None


def kernel_of(text: str | bytes) -> Kernel:
    """The kernel that was written as JSON."""
    name, dtype, constants, *rest = json.loads(text)
    return Kernel(name, dtype, tuple((key, value) for key, value in constants), *rest)


class Launch(NamedTuple):
    """One launch: a program for each pair. arguments: in the kernel's order, names of buffers, or numbers.

    is_wide: which of them are numbers of 64 bits. keywords: the kernel's names of the last ones, between which may come
    some that it does without.
    """

    kernel: Kernel
    grid: Any
    arguments: tuple[Any, ...]
    is_wide: tuple[bool, ...]
    keywords: tuple[str, ...] = ()


class Program(NamedTuple):
    """The launches of a call, in order, and the buffers that they write, by name: results first."""

    launches: tuple[Launch, ...]
    results: dict[str, Shape]
    scratch: dict[str, Shape]


# the types of the buffers that do not have the call's: of lengths the caller's
TYPES = {"matches": "uint8", "ends": "int32", "flags": "int32"}


class Chunk(NamedTuple):
    """The part that a program with block exponents processes at once: `height` rows of each lane, `steps` steps.

    lanes: of all warps; of each as many as a GPU's have, in tests less, but not less than steps. Both are multiples of
    BLOCK. registers: as in Kernel.
    """

    lanes: int
    height: int
    steps: int
    registers: int | None = None
    warps: int = 1

    @property
    def group(self) -> int:
        """The lanes of a warp."""
        return self.lanes // self.warps

    @property
    def delay(self) -> int:
        """The number of columns by which a warp is behind the one above, so that what it loads has been stored."""
        return -(-(2 * self.steps + self.group) // self.steps) * self.steps if self.warps > 1 else 0

    @property
    def span(self) -> int:
        """The columns that the lanes are on at the same time."""
        return self.group + (self.warps - 1) * self.delay


class Layout(NamedTuple):
    """The number of rows of a matrix that a program processes at once, and of its warps.

    scores, gradients, products: the chunks of those computed with block exponents where that can be; None: not used.
    """

    lanes: int
    warps: int
    scores: Chunk | None = None
    gradients: Chunk | None = None
    products: Chunk | None = None


# steps for which a lane has one unit with block exponents
BLOCK = 4
# with this many pairs the whole GPU is busy, and the work per cell counts
MANY_PAIRS = 512
# Of many pairs memory counts: with 16 steps rows are read, and gradients written, in pieces of 64 bytes. With fewer
# registers there are more warps, of which some have work while others wait; products need all of them for 8 steps. Of
# few pairs the chain of steps counts, which is short with four rows to a lane.
NARROW = Layout(32, 1, Chunk(32, 2, 16, 128), Chunk(32, 2, 16), Chunk(32, 2, 8))
WIDE = Layout(128, 4, Chunk(32, 4, 8), Chunk(32, 4, 8), Chunk(128, 1, 8, warps=4))
# Of few pairs with many rows each has several warps, one behind the other. (For fewer rows a warp's chunks would be so
# small that each waits for memory.)
TALL = Layout(128, 4, Chunk(128, 4, 8, warps=4), Chunk(128, 4, 8, warps=4), Chunk(128, 2, 8, warps=4))


def layout_of(pairs: Any, rows: Any) -> Layout:
    """Wide strips for few pairs, where a step takes longer but there are fewer of them; else narrow ones."""
    if pairs >= MANY_PAIRS or rows <= NARROW.lanes:
        return NARROW
    return WIDE if rows <= WIDE.lanes else TALL


def states_of(kind: int) -> int:
    """The number of states of a cell."""
    return 3 if kind in (AFFINE, GLOBAL_AFFINE) else 1


def values_of(call: Call) -> int:
    """The number of differentiable parameters of a pair."""
    gaps = {AFFINE: 2, GLOBAL_AFFINE: 2, FREE_GAP: 0, SOFT_DTW: 0}.get(call.kind, 1)
    return gaps * (2 if call.options & BY_AXIS else 1) + 1


def gaps_of(options: int, *prefixes: str) -> tuple[str, ...]:
    """The buffers of the gaps by position: a linear gap is opened in each step. prefixes: "t_", "d_", or "" """
    flags = {"gap_open": OPEN_BY_POSITION, "gap_extend": EXTEND_BY_POSITION}
    return tuple(f"{prefix}{name}" for prefix in prefixes for name, flag in flags.items() if options & flag)


def score_program(call: Call, dtype: str, shape: Shape, strides: Shape, has_lengths: bool, layout: Layout) -> Program:
    """Scores. shape: (pairs, rows, cols); strides: of the pairs and the rows, in elements.

    Buffers given: similarity, lengths (pairs, 2), if there are any, values (pairs, parameters), and gap_open and
    gap_extend, (pairs, rows, cols) in one piece, if they are by position: their entries in values are then ignored.
    """
    pairs, _, cols = shape
    states = states_of(call.kind)
    scratch = {"first_plane": (pairs, cols), "planes": (2 * states - 1, pairs, cols), "totals": (1,)}
    same_as = {"t_similarity": "similarity", "t_values": "values"}
    chunk = layout.scores if _may_have_block_exponents(call, dtype) else None
    exact = _forward(
        call, dtype, shape, (*strides, *strides), has_lengths, layout, same_as, False, keep=False, flagged=bool(chunk)
    )
    if chunk is None:
        return Program((exact,), {"scores": (pairs,)}, scratch)
    first = _block_forward(call, dtype, shape, strides, has_lengths, chunk, tangents=False, keep=False)
    scratch |= _block_scratch(call, shape, chunk, tangents=False, keep=False)
    return Program((first, exact), {"scores": (pairs,)}, scratch)


def gradients_program(
    call: Call, dtype: str, shape: Shape, strides: Shape, has_lengths: bool, layout: Layout, with_values: bool
) -> Program:
    """Scores and their gradients: d_similarity, d_values, and d_gap_open and d_gap_extend of gaps by position.

    What d_values has for gaps by position nobody reads. Unless with_values, it is 0, and there are no others.
    """
    same_as = {"t_similarity": "similarity", "t_values": "values", "first_plane": "d_similarity"}
    chunk = layout.gradients if _may_have_block_exponents(call, dtype) and not with_values else None
    described = call, dtype, shape, (*strides, *strides), has_lengths, layout, same_as, False
    forward = _forward(*described, keep=True, flagged=bool(chunk))
    backward = _backward(*described, with_values=with_values, flagged=bool(chunk))
    exact = _both(call, shape, forward, backward, tangents=False)
    return _block_first(exact, call, dtype, shape, strides, has_lengths, chunk, tangents=False) if chunk else exact


def tangents_program(
    call: Call, dtype: str, shape: Shape, strides: Shape, has_lengths: bool, layout: Layout
) -> Program:
    """The tangents of all results of gradients_program, under the same names.

    Given are also t_similarity, t_values, and t_gap_open and t_gap_extend of gaps by position. strides: of the pairs
    and rows of similarity, then of t_similarity.
    """
    return _exact_tangents(call, dtype, shape, strides, has_lengths, layout, with_values=True, flagged=False)


def product_program(call: Call, dtype: str, shape: Shape, strides: Shape, has_lengths: bool, layout: Layout) -> Program:
    """The tangents of scores and d_similarity alone, in a direction of the similarity; else as tangents_program.

    t_values must be 0; of gaps by position no tangents are given.
    """
    chunk = layout.products if _may_have_block_exponents(call, dtype) else None
    described = call, dtype, shape, strides, has_lengths
    exact = _exact_tangents(*described, layout, with_values=False, flagged=bool(chunk))
    return _block_first(exact, *described, chunk, tangents=True) if chunk else exact


def block_launches(program: Program) -> Program:
    """The launches with block exponents and the buffers that they use; none if the exact kernels compute all pairs."""
    launches = tuple(launch for launch in program.launches if launch.kernel.name.startswith("block"))
    used = {argument for launch in launches for argument in launch.arguments}
    buffers = program.results | program.scratch
    return Program(launches, {}, {name: shape for name, shape in buffers.items() if name in used})


def best_program(call: Call, dtype: str, shape: Shape, strides: Shape, has_lengths: bool, layout: Layout) -> Program:
    """Scores and matches of the best alignments. Given are the buffers of score_program."""
    pairs, _, cols = shape
    constants = {**_constants(call, has_lengths), **_tiling(layout, states_of(call.kind) == 3)}
    buffers = ("similarity", "lengths", "values", "scores", "matches", "ends", "last_row")
    launch = _launch(
        "best_kernel", dtype, buffers, gaps_of(call.options, ""), _GAPS[:2], {}, shape, strides, constants, layout.warps
    )
    scratch = {"ends": (pairs, 2), "last_row": (states_of(call.kind), pairs, cols)}
    return Program((launch,), {"scores": (pairs,), "matches": shape}, scratch)


CALLS: dict[str, Callable[..., Program]] = {
    "score": score_program,
    "gradients": functools.partial(gradients_program, with_values=False),
    "gradients with values": functools.partial(gradients_program, with_values=True),
    "tangents": tangents_program,
    "product": product_program,
    "best": best_program,
}


def program_of(name: str, call: Call, dtype: str, shape: Shape, layout: Layout, has_lengths: bool = True) -> Program:
    """The program of one of CALLS on matrices in one piece."""
    _, rows, cols = shape
    strides = (rows * cols, cols) * (2 if name in ("tangents", "product") else 1)
    return CALLS[name](call, dtype, shape, strides, has_lengths, layout)


def kernels_of(name: str, call: Call, dtype: str, layout: Layout, has_lengths: bool = True) -> list[Kernel]:
    """The kernels of one of CALLS; they are the same for all shapes with this layout."""
    return [launch.kernel for launch in program_of(name, call, dtype, (1, 1, 1), layout, has_lengths).launches]


# numbers per program of the exponentials kernel, with 4 warps, and exponentials of each per round
_NUMBERS, EXPONENTIALS_IN_A_ROUND = 1024, 16


def exponentials_program(dtype: str, count: int, rounds: int, each: int = EXPONENTIALS_IN_A_ROUND) -> Program:
    """Exponentials of `count` numbers, a multiple of 1024: `each` nested ones per round."""
    kernel = Kernel("exponentials_kernel", dtype, (("lanes", _NUMBERS), ("each", each)), 4)
    launch = Launch(kernel, count // _NUMBERS, ("values", "results", rounds), (False, False, False))
    return Program((launch,), {"results": (count,)}, {})


def _exact_tangents(
    call: Call,
    dtype: str,
    shape: Shape,
    strides: Shape,
    has_lengths: bool,
    layout: Layout,
    with_values: bool,
    flagged: bool,
) -> Program:
    described = call, dtype, shape, strides, has_lengths, layout, {"first_plane": "d_similarity"}
    forward = _forward(*described, tangents=True, keep=True, with_values=with_values, flagged=flagged)
    backward = _backward(*described, tangents=True, with_values=with_values, flagged=flagged)
    return _both(call, shape, forward, backward, tangents=True)


def _may_have_block_exponents(call: Call, dtype: str) -> bool:
    """Whether the kernels with block exponents can compute a call, but for pairs that they flag."""
    is_other = call.kind in (SOFT_DTW, GLOBAL_AFFINE) or call.options & (GAPS_BY_POSITION | BY_AXIS)
    return dtype == "float32" and not is_other


def _block_first(
    exact: Program,
    call: Call,
    dtype: str,
    shape: Shape,
    strides: Shape,
    has_lengths: bool,
    chunk: Chunk,
    tangents: bool,
) -> Program:
    """A program of both directions with those with block exponents before it."""
    described = call, dtype, shape, strides, has_lengths, chunk, tangents
    scratch = exact.scratch | _block_scratch(call, shape, chunk, tangents, keep=True)
    launches = (_block_forward(*described, keep=True), _block_backward(*described), *exact.launches)
    return exact._replace(launches=launches, scratch=scratch)


def _block_forward(
    call: Call,
    dtype: str,
    shape: Shape,
    strides: Shape,
    has_lengths: bool,
    chunk: Chunk,
    tangents: bool,
    keep: bool,
) -> Launch:
    constants: dict[str, int] = {"tangents": tangents, "keep": keep}
    buffers = (*_BLOCK_INPUTS, "scores", "block_totals", "flags", *_BLOCK_KEPT)
    return _block_launch("block_forward_kernel", call, dtype, buffers, shape, strides, has_lengths, chunk, constants)


def _block_backward(
    call: Call, dtype: str, shape: Shape, strides: Shape, has_lengths: bool, chunk: Chunk, tangents: bool
) -> Launch:
    constants: dict[str, int] = {"tangents": tangents}
    names_in = (*_BLOCK_INPUTS, "block_totals", "flags", *_BLOCK_KEPT)
    buffers = (*names_in, "block_below", "below_units", "d_similarity", "d_values")
    return _block_launch("block_backward_kernel", call, dtype, buffers, shape, strides, has_lengths, chunk, constants)


_BLOCK_INPUTS = ("similarity", "t_similarity", "lengths", "values")
_BLOCK_KEPT = ("kept_rows", "kept_units", "kept")


def _block_launch(
    name: str,
    call: Call,
    dtype: str,
    buffers: tuple[str, ...],
    shape: Shape,
    strides: Shape,
    has_lengths: bool,
    chunk: Chunk,
    constants: dict[str, int],
) -> Launch:
    """strides: without tangents only of similarity, which then stands in for them."""
    same_as = {} if constants["tangents"] else {"t_similarity": "similarity"}
    tiling = {name: getattr(chunk, name) for name in ("lanes", "group", "delay", "height", "steps")}
    constants = {**_constants(call, has_lengths), **constants, **tiling}
    del constants["form"]
    both = strides if constants["tangents"] else (*strides, *strides)
    return _launch(name, dtype, buffers, (), (), same_as, shape, both, constants, chunk.warps, chunk.registers)


def _block_scratch(call: Call, shape: Shape, chunk: Chunk, tangents: bool, keep: bool) -> dict[str, Shape]:
    """The buffers that the kernels with block exponents share: see there."""
    pairs, rows, cols = shape
    states = 2 if call.kind == AFFINE else 1
    flows = 2 * states if tangents else states
    numbers = states * (chunk.height + 1) + 1
    strips = -(-rows // (chunk.lanes * chunk.height)) if keep else 1
    blocks, chunks, warps = -(-cols // BLOCK), -(-(cols + chunk.span) // chunk.steps), chunk.warps
    scratch: dict[str, Shape] = {
        "flags": (pairs,),
        "block_totals": (pairs, 4 if tangents else 2) if keep else (1,),
        "kept_rows": (pairs, strips, warps, flows, blocks * BLOCK),
        "kept_units": (pairs, strips, warps, flows, blocks),
        "kept": (pairs, strips, chunks, 2 if tangents else 1, numbers, chunk.lanes) if keep else (1,),
    }
    if keep:
        below = pairs, warps, flows, blocks + 1
        scratch |= {"block_below": (*below, BLOCK), "below_units": below}
    return scratch


def _both(call: Call, shape: Shape, forward: Launch, backward: Launch, tangents: bool) -> Program:
    pairs, rows, cols = shape
    states = states_of(call.kind)
    planes, flows = (3 * states, 2 * states) if tangents else (2 * states, states)
    results = {"scores": (pairs,), "d_similarity": shape, "d_values": (pairs, values_of(call))}
    results |= {name: shape for name in backward.keywords if name.startswith("d_")}
    scratch = {"totals": (pairs, 5), "planes": (planes - 1, pairs, rows, cols), "below": (pairs, flows, cols + 1)}
    return Program((forward, backward), results, scratch)


_INPUTS = ("similarity", "t_similarity", "lengths", "values", "t_values")
_GAPS = ("gap_open", "gap_extend", "t_gap_open", "t_gap_extend")
_D_GAPS = ("d_gap_open", "d_gap_extend")


def _forward(
    call: Call,
    dtype: str,
    shape: Shape,
    strides: Shape,
    has_lengths: bool,
    layout: Layout,
    same_as: dict[str, str],
    tangents: bool,
    keep: bool,
    with_values: bool = True,
    flagged: bool = False,
) -> Launch:
    """flagged: only of the pairs that are flagged."""
    buffers = (*_INPUTS, "scores", "totals", "first_plane", "planes")
    gaps = gaps_of(call.options, *(("", "t_") if tangents and with_values else ("",)))
    optional = (*gaps, "flags") if flagged else gaps
    is_large = states_of(call.kind) == 3 and (tangents or keep)
    constants = {**_constants(call, has_lengths), "tangents": tangents, "keep": keep, **_tiling(layout, is_large)}
    every = (*_GAPS, "flags")
    return _launch("forward_kernel", dtype, buffers, optional, every, same_as, shape, strides, constants, layout.warps)


def _backward(
    call: Call,
    dtype: str,
    shape: Shape,
    strides: Shape,
    has_lengths: bool,
    layout: Layout,
    same_as: dict[str, str],
    tangents: bool,
    with_values: bool,
    flagged: bool = False,
) -> Launch:
    """flagged: only of the pairs that are flagged."""
    buffers = (*_INPUTS, "totals", "first_plane", "planes", "below", "d_values")
    prefixes = ("", "t_") if tangents and with_values else ("",)
    gaps = gaps_of(call.options, *prefixes, *(("d_",) if with_values else ()))
    optional = (*gaps, "flags") if flagged else gaps
    every = (*_GAPS, *_D_GAPS, "flags")
    is_large = states_of(call.kind) == 3 or (bool(gaps) and (tangents or with_values))
    constants = {
        **_constants(call, has_lengths),
        "tangents": tangents,
        "with_values": with_values,
        **_tiling(layout, is_large),
    }
    return _launch("backward_kernel", dtype, buffers, optional, every, same_as, shape, strides, constants, layout.warps)


def _tiling(layout: Layout, is_large: bool) -> dict[str, int]:
    """Lanes, and steps per tile: with fewer steps a kernel needs fewer registers, of which a thread has 255."""
    return {"lanes": layout.lanes, "steps": 4 if is_large else 8}


def _constants(call: Call, has_lengths: bool) -> dict[str, int]:
    restrict, penalize = (bool(call.options & flag) for flag in (RESTRICT_TURNS, PENALIZE_TURNS))
    last_turn = RESTRICT_TURNS if call.options & FREE_ROWS else 0  # free end gaps undo it in the last row
    return {
        "kind": call.kind,
        "restrict_turns": restrict and not call.options & FREE_ROWS,
        "penalize_turns": penalize,
        "form": call.options & (GAPS_BY_POSITION | BY_AXIS | FREE_ROWS | FREE_COLS | last_turn),
        "has_lengths": has_lengths,
    }


def _launch(
    name: str,
    dtype: str,
    buffers: tuple[str, ...],
    optional: tuple[str, ...],
    all_optional: tuple[str, ...],
    same_as: dict[str, str],
    shape: Shape,
    strides: Shape,
    constants: dict[str, int],
    warps: int,
    registers: int | None = None,
) -> Launch:
    # an unused pointer must still be valid, unless the kernel does without
    stand_in = same_as if constants["has_lengths"] else same_as | {"lengths": "similarity"}
    arguments = (*(stand_in.get(buffer, buffer) for buffer in buffers), *shape, *strides, *optional)
    absent = tuple((name, None) for name in all_optional if name not in optional)
    numbers = ((key, int(value)) for key, value in constants.items())
    kernel = Kernel(name, dtype, (*numbers, *absent), warps, registers)
    is_wide = (*(False for _ in (*buffers, *shape)), *(True for _ in strides), *(False for _ in optional))
    return Launch(kernel, shape[0], arguments, is_wide, optional)
