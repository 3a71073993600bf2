"""A call as a list of kernel launches and their buffers, independent of the framework.

Buffers have names, those of the kernels' arguments; a framework brings its own memory for them, and a way to launch.
"""

from typing import Any, NamedTuple

from shared.kernels.cpp import Call
from shared.kernels.cpp.library import (
    EXTEND_BY_POSITION,
    KINDS,
    OPEN_BY_POSITION,
    PENALIZE_TURNS,
    RESTRICT_TURNS,
)

AFFINE, FREE_GAP = KINDS["smith_waterman_affine", None], KINDS["free_gap", None]

Shape = tuple[Any, ...]


class Kernel(NamedTuple):
    """A kernel of `kernels` with its number type and constants: the unit of compilation.

    A constant None is a buffer that the kernel does without.
    """

    name: str
    dtype: str
    constants: tuple[tuple[str, int | None], ...]
    warps: int


class Launch(NamedTuple):
    """One launch: a program for each pair. arguments: in the kernel's order, names of buffers, or numbers.

    is_wide: which of them are numbers of 64 bits.
    """

    kernel: Kernel
    grid: Any
    arguments: tuple[Any, ...]
    is_wide: tuple[bool, ...]


class Program(NamedTuple):
    """The launches of a call, in order, and the buffers that they write, by name: results first."""

    launches: tuple[Launch, ...]
    results: dict[str, Shape]
    scratch: dict[str, Shape]


# the types of the buffers that do not have the call's: of lengths the caller's
TYPES = {"matches": "uint8", "ends": "int32"}


class Layout(NamedTuple):
    """How many rows of a matrix a program processes at once, and with how many warps."""

    lanes: int
    warps: int


# with this many pairs the whole GPU is busy, and the work per cell counts
MANY_PAIRS = 512
NARROW, WIDE = Layout(32, 1), Layout(128, 4)


def layout_of(pairs: Any, rows: Any) -> Layout:
    """Wide strips for few pairs, where a step takes longer but there are fewer of them; else narrow ones."""
    return NARROW if pairs >= MANY_PAIRS or rows <= NARROW.lanes else WIDE


def states_of(kind: int) -> int:
    """The number of states of a cell."""
    return 3 if kind == AFFINE else 1


def values_of(kind: int) -> int:
    """The number of differentiable parameters of a pair."""
    return {AFFINE: 3, FREE_GAP: 1}.get(kind, 2)


def gaps_of(options: int) -> tuple[str, ...]:
    """The buffers of the gaps by position: a linear gap opens one with each step."""
    flags = {"gap_open": OPEN_BY_POSITION, "gap_extend": EXTEND_BY_POSITION}
    return tuple(name for name, flag in flags.items() if options & flag)


def score_program(call: Call, dtype: str, shape: Shape, strides: Shape, has_lengths: bool, layout: Layout) -> Program:
    """Scores. shape: (pairs, rows, cols); strides: of the pairs and the rows, in elements.

    Buffers given: similarity, lengths (pairs, 2), if there are any, values (pairs, parameters), and gaps_of the call:
    (pairs, rows, cols), in one piece. The value of a gap by position is ignored.
    """
    pairs, _, cols = shape
    states = states_of(call.kind)
    scratch = {"first_plane": (pairs, cols), "planes": (2 * states - 1, pairs, cols), "totals": (1,)}
    same_as = _NO_TANGENTS
    launch = _forward(
        call, dtype, shape, (*strides, *strides), has_lengths, layout, same_as, tangents=False, keep=False
    )
    return Program((launch,), {"scores": (pairs,)}, scratch)


def gradients_program(
    call: Call, dtype: str, shape: Shape, strides: Shape, has_lengths: bool, layout: Layout, with_values: bool
) -> Program:
    """Scores and their gradients: d_similarity, d_values, and d_gap_open and d_gap_extend, if those are by position.

    d_values is 0 for the temperature unless with_values, and for a gap by position.
    """
    same_as = {**_NO_TANGENTS, "first_plane": "d_similarity"}
    four = (*strides, *strides)
    forward = _forward(call, dtype, shape, four, has_lengths, layout, same_as, tangents=False, keep=True)
    backward = _backward(
        call, dtype, shape, four, has_lengths, layout, same_as, tangents=False, with_values=with_values
    )
    return _both(call, shape, forward, backward, tangents=False)


def tangents_program(
    call: Call, dtype: str, shape: Shape, strides: Shape, has_lengths: bool, layout: Layout
) -> Program:
    """The tangents of all results of gradients_program, under the same names.

    Given are also t_similarity, t_values, and t_gap_open and t_gap_extend like the gaps. strides: of the pairs and rows of similarity, then of t_similarity.
    """
    same_as = {"first_plane": "d_similarity"}
    forward = _forward(call, dtype, shape, strides, has_lengths, layout, same_as, tangents=True, keep=True)
    backward = _backward(call, dtype, shape, strides, has_lengths, layout, same_as, tangents=True, with_values=True)
    return _both(call, shape, forward, backward, tangents=True)


def best_program(call: Call, dtype: str, shape: Shape, strides: Shape, has_lengths: bool, layout: Layout) -> Program:
    """Scores and matches of the best alignments. Given are the buffers of score_program."""
    pairs, _, cols = shape
    constants = {**_constants(call, has_lengths), **_tiling(call, True, layout)}
    buffers = ("similarity", "lengths", "values", "scores", "matches", "ends", "last_row")
    launch = _launch("best_kernel", dtype, buffers, _GAPS[:2], {}, shape, strides, constants, layout.warps)
    scratch = {"ends": (pairs, 2), "last_row": (states_of(call.kind), pairs, cols)}
    return Program((launch,), {"scores": (pairs,), "matches": shape}, scratch)


# numbers per program of the exponentials kernel, with 4 warps, and exponentials of each per round
_NUMBERS, EXPONENTIALS_IN_A_ROUND = 1024, 16


def exponentials_program(dtype: str, count: int, rounds: int, each: int = EXPONENTIALS_IN_A_ROUND) -> Program:
    """Exponentials of `count` numbers, a multiple of 1024: `each` nested ones per round."""
    kernel = Kernel("exponentials_kernel", dtype, (("lanes", _NUMBERS), ("each", each)), 4)
    launch = Launch(kernel, count // _NUMBERS, ("values", "results", rounds), (False, False, False))
    return Program((launch,), {"results": (count,)}, {})


def _both(call: Call, shape: Shape, forward: Launch, backward: Launch, tangents: bool) -> Program:
    pairs, rows, cols = shape
    states = states_of(call.kind)
    planes, flows = (3 * states, 2 * states) if tangents else (2 * states, states)
    results = {"scores": (pairs,), "d_similarity": shape, "d_values": (pairs, values_of(call.kind))}
    results |= {f"d_{name}": shape for name in gaps_of(call.options)}
    scratch = {"totals": (pairs, 4), "planes": (planes - 1, pairs, rows, cols), "below": (pairs, flows, cols + 1)}
    return Program((forward, backward), results, scratch)


_INPUTS = ("similarity", "t_similarity", "lengths", "values", "t_values")
_GAPS = ("gap_open", "gap_extend", "t_gap_open", "t_gap_extend")
_D_GAPS = ("d_gap_open", "d_gap_extend")
_NO_TANGENTS = {"t_similarity": "similarity", "t_values": "values"} | dict.fromkeys(_GAPS[2:], "similarity")


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
) -> Launch:
    buffers = (*_INPUTS, "scores", "totals", "first_plane", "planes")
    constants = {
        **_constants(call, has_lengths),
        "tangents": tangents,
        "keep": keep,
        **_tiling(call, tangents or keep, layout),
    }
    return _launch("forward_kernel", dtype, buffers, _GAPS, same_as, shape, strides, constants, layout.warps)


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
) -> Launch:
    buffers = (*_INPUTS, "totals", "first_plane", "planes", "below", "d_values")
    constants = {
        **_constants(call, has_lengths),
        "tangents": tangents,
        "with_values": with_values,
        **_tiling(call, True, layout),
    }
    gaps = (*_GAPS, *_D_GAPS)
    return _launch("backward_kernel", dtype, buffers, gaps, same_as, shape, strides, constants, layout.warps)


def _tiling(call: Call, is_large: bool, layout: Layout) -> dict[str, int]:
    """Lanes, and steps per tile: with fewer steps a kernel needs fewer registers, of which a thread has 255."""
    return {"lanes": layout.lanes, "steps": 4 if call.kind == AFFINE and is_large else 8}


def _constants(call: Call, has_lengths: bool) -> dict[str, int]:
    restrict, penalize = (bool(call.options & flag) for flag in (RESTRICT_TURNS, PENALIZE_TURNS))
    return {
        "kind": call.kind,
        "restrict_turns": restrict,
        "penalize_turns": penalize,
        "open_by_position": bool(call.options & OPEN_BY_POSITION),
        "extend_by_position": bool(call.options & EXTEND_BY_POSITION),
        "has_lengths": has_lengths,
    }


def _launch(
    name: str,
    dtype: str,
    buffers: tuple[str, ...],
    gaps: tuple[str, ...],
    same_as: dict[str, str],
    shape: Shape,
    strides: Shape,
    constants: dict[str, int],
    warps: int,
) -> Launch:
    """gaps: the buffers for gaps by position; without such gaps a kernel does without all of them."""
    absent = [gap for gap in gaps if not constants[f"{gap.rpartition('_')[2]}_by_position"]]
    gaps, without = ((), gaps) if len(absent) == len(gaps) else (gaps, ())
    # an unused pointer must still be valid
    stand_in = same_as | dict.fromkeys(absent, "similarity")
    if not constants["has_lengths"]:
        stand_in |= {"lengths": "similarity"}
    pointers, last = ([stand_in.get(buffer, buffer) for buffer in own] for own in (buffers, gaps))
    arguments = (*pointers, *shape, *strides, *last)
    values = {key: int(value) for key, value in constants.items()} | dict.fromkeys(without)
    is_wide = (*(False for _ in (*buffers, *shape)), *(True for _ in strides), *(False for _ in gaps))
    return Launch(Kernel(name, dtype, tuple(values.items()), warps), shape[0], arguments, is_wide)
