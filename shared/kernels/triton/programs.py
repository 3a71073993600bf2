"""A call as a list of kernel launches and their buffers, independent of the framework.

Buffers have names, those of the kernels' arguments; a framework brings its own memory for them, and a way to launch.
"""

from typing import Any, NamedTuple

from shared.kernels.cpp import Call
from shared.kernels.cpp.library import KINDS, PENALIZE_TURNS, RESTRICT_TURNS

AFFINE, FREE_GAP = KINDS["smith_waterman_affine", None], KINDS["free_gap", None]

Shape = tuple[Any, ...]


class Kernel(NamedTuple):
    """A kernel of `kernels` with its number type and constants: the unit of compilation."""

    name: str
    dtype: str
    constants: tuple[tuple[str, int], ...]
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


def score_program(call: Call, dtype: str, shape: Shape, strides: Shape, has_lengths: bool, layout: Layout) -> Program:
    """Scores. shape: (pairs, rows, cols); strides: of the pairs and the rows, in elements.

    Buffers given: similarity, lengths (pairs, 2), if there are any, and values (pairs, parameters).
    """
    pairs, _, cols = shape
    states = states_of(call.kind)
    scratch = {"first_plane": (pairs, cols), "planes": (2 * states - 1, pairs, cols), "totals": (1,)}
    same_as = {"t_similarity": "similarity", "t_values": "values"}
    launch = _forward(
        call, dtype, shape, (*strides, *strides), has_lengths, layout, same_as, tangents=False, keep=False
    )
    return Program((launch,), {"scores": (pairs,)}, scratch)


def gradients_program(
    call: Call, dtype: str, shape: Shape, strides: Shape, has_lengths: bool, layout: Layout, with_values: bool
) -> Program:
    """Scores and their gradients, d_similarity and d_values; 0 for the temperature unless with_values."""
    same_as = {"t_similarity": "similarity", "t_values": "values", "first_plane": "d_similarity"}
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

    Given are also t_similarity and t_values. strides: of the pairs and rows of similarity, then of t_similarity.
    """
    same_as = {"first_plane": "d_similarity"}
    forward = _forward(call, dtype, shape, strides, has_lengths, layout, same_as, tangents=True, keep=True)
    backward = _backward(call, dtype, shape, strides, has_lengths, layout, same_as, tangents=True, with_values=True)
    return _both(call, shape, forward, backward, tangents=True)


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
    scratch = {"totals": (pairs, 4), "planes": (planes - 1, pairs, rows, cols), "below": (pairs, flows, cols + 1)}
    return Program((forward, backward), results, scratch)


_INPUTS = ("similarity", "t_similarity", "lengths", "values", "t_values")


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
    constants = {**_constants(call, has_lengths, tangents), "keep": keep, **_tiling(call, tangents or keep, layout)}
    return _launch("forward_kernel", dtype, buffers, same_as, has_lengths, shape, strides, constants, layout.warps)


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
    constants = {**_constants(call, has_lengths, tangents), "with_values": with_values, **_tiling(call, True, layout)}
    return _launch("backward_kernel", dtype, buffers, same_as, has_lengths, shape, strides, constants, layout.warps)


def _tiling(call: Call, is_large: bool, layout: Layout) -> dict[str, int]:
    """Lanes, and steps per tile: with fewer steps a kernel needs fewer registers, of which a thread has 255."""
    return {"lanes": layout.lanes, "steps": 4 if call.kind == AFFINE and is_large else 8}


def _constants(call: Call, has_lengths: bool, tangents: bool) -> dict[str, int]:
    restrict, penalize = (bool(call.options & flag) for flag in (RESTRICT_TURNS, PENALIZE_TURNS))
    return {
        "kind": call.kind,
        "restrict_turns": restrict,
        "penalize_turns": penalize,
        "has_lengths": has_lengths,
        "tangents": tangents,
    }


def _launch(
    name: str,
    dtype: str,
    buffers: tuple[str, ...],
    same_as: dict[str, str],
    has_lengths: bool,
    shape: Shape,
    strides: Shape,
    constants: dict[str, int],
    warps: int,
) -> Launch:
    # an unused pointer must still be valid
    stand_in = same_as if has_lengths else same_as | {"lengths": "similarity"}
    arguments = (*(stand_in.get(buffer, buffer) for buffer in buffers), *shape, *strides)
    kernel = Kernel(name, dtype, tuple((key, int(value)) for key, value in constants.items()), warps)
    is_wide = (*(False for _ in (*buffers, *shape)), *(True for _ in strides))
    return Launch(kernel, shape[0], arguments, is_wide)
