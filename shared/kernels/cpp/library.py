"""The compiled kernels as functions.

There is a library for each dtype, kind of alignment, form of its gaps and pass, built and loaded when it is first
called: a few seconds each, where all of them take more than a minute.
"""

import ctypes
import os
import struct
import sys
import threading
import warnings
from collections.abc import Collection, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from shared.alignments import COST
from shared.kernels.cpp.build import Absent, Target, cache_folder, check_compiler, compiled, forget, why_no_compiler
from shared.kernels.heap import keep_freed_memory

FOLDER = Path(__file__).parent
HEADERS = tuple(sorted(FOLDER.glob("*.h")))
# what is the same for all libraries: how a batch is split, huge pages, threads
_COMMON = ("batching", "huge_pages", "threads")
COMMON = Target(
    "alignment-common",
    tuple(FOLDER / f"{name}.cpp" for name in _COMMON),
    tuple(FOLDER / f"{name}.h" for name in _COMMON),  # which include no others
    makes="object",
)
REALS = {"float32": "float", "float64": "double"}

# (function name, its `end`) -> kind, in alignment.h
KINDS = {
    ("smith_waterman", "any"): 0,
    ("smith_waterman", "match"): 1,
    ("smith_waterman_affine", None): 2,
    ("needleman_wunsch", None): 3,
    ("free_gap", None): 4,
    ("soft_dtw", None): 5,
    ("needleman_wunsch_affine", None): 6,
}
RESTRICT_TURNS, PENALIZE_TURNS, CHECK_LENGTHS, OPEN_BY_POSITION, EXTEND_BY_POSITION = 1, 2, 4, 8, 16
BY_AXIS, FREE_ROWS, FREE_COLS = 32, 64, 128
_FLAGS_BY_POSITION = {"gap": OPEN_BY_POSITION, "gap_open": OPEN_BY_POSITION, "gap_extend": EXTEND_BY_POSITION}
GAPS_BY_POSITION = OPEN_BY_POSITION | EXTEND_BY_POSITION
_FLAGS_OF_ENDS = {
    COST: 0,
    "free": BY_AXIS | FREE_ROWS | FREE_COLS,
    "free_rows": BY_AXIS | FREE_ROWS,
    "free_cols": BY_AXIS | FREE_COLS,
}
OUT_OF_MEMORY, BAD_LENGTHS = 1, 3


class Call(NamedTuple):
    """The kind and options of alignment.h: a public function with its options."""

    kind: int
    options: int


_POINTER = ctypes.c_void_p
# how gaps are given: per pair, by position, by axis; the suffix of a library's name
FORMS = ("", "by-position", "by-axis")
# pass -> the arguments of its function in alignment.h after the packed AlignmentCall: pointers, as integers
PASSES: dict[str, tuple[Any, ...]] = {
    "score": (_POINTER,),  # scores
    "marginals": (_POINTER,) * 2,  # scores, d_similarity
    "gradients": (_POINTER,) * 3,  # scores, d_similarity, d_parameters
    # t_similarity, its stride, t_parameters or 0; t_scores or 0, t_d_similarity, t_d_parameters or 0
    "tangents": (_POINTER, ctypes.c_int64, *(_POINTER,) * 4),
    "best": (_POINTER,) * 2,  # scores, matches
}


class Kernel:
    """The passes of one kind in one dtype: functions that return a status.

    Each is built and loaded when it is first read, which raises Absent with the reason if that is impossible.
    """

    score: Any
    marginals: Any
    gradients: Any
    tangents: Any
    best: Any

    def __init__(self, dtype: str, kind: int, form: int) -> None:
        self._dtype, self._kind, self._form = dtype, kind, form

    def __getattr__(self, name: str) -> Any:  # called only for passes that are not loaded yet
        if name not in PASSES:
            raise AttributeError(name)
        form = self._form or int(name == "best")  # one library of `best` serves gaps by position too: it is as fast
        function = _kernel_of(target(self._dtype, self._kind, (name,), form=form), name)
        setattr(self, name, function)
        return function


# AlignmentCall, field by field: kind, options, threads, layout; pairs, rows, cols; similarity, its stride; lengths;
# parameters; openmp; gaps. Packing bytes takes a fraction of the time that filling a ctypes structure does.
pack_call = struct.Struct("@4i3qPqPPPP").pack
# two AlignmentGap, each: costs, their stride; t_costs, their stride; d_costs
pack_gaps = struct.Struct("@PqPqPPqPqP").pack

_TURNED_OFF = "the environment variable ALIGNMENT_NATIVE turns the native kernels off"
# packages whose frames may stand between a user's line and a warning
_NOT_THE_USERS = ("shared", "jax_impl", "torch_impl", "jax", "torch")

# free_gap has the recurrence of needleman_wunsch, so they have one library
_LIBRARIES = {kind: kind for kind in KINDS.values()} | {KINDS["free_gap", None]: KINDS["needleman_wunsch", None]}

_kernels = {
    (dtype, kind, form): Kernel(dtype, _LIBRARIES[kind], form)
    for dtype in REALS
    for kind in _LIBRARIES
    for form in range(len(FORMS))
}
_loaded: dict[str, ctypes.CDLL] = {}  # name of a build -> its library
_failures: dict[str, str] = {}  # name of a build that failed -> why
_building = threading.RLock()
_warned = False


def call_of(function_name: str, options: Mapping[str, Any], gaps: Collection[str] = ()) -> Call:
    """The kernel's numbers for a public function's name and options, and for the gaps by position or by axis."""
    flags = _FLAGS_OF_ENDS[options.get("end_gaps", COST)]
    for name in gaps:
        flags |= _FLAGS_BY_POSITION.get(name, BY_AXIS)
    if options.get("restrict_turns"):
        flags |= RESTRICT_TURNS
    if options.get("penalize_turns"):
        flags |= PENALIZE_TURNS
    return Call(KINDS[function_name, options.get("end")], flags)


def why_absent() -> str | None:
    """None if the native kernels seem usable; else why not, in one line. Cheap: it compiles and runs nothing.

    If a build has failed and no library has been loaded, the reason of that failure.
    """
    if os.environ.get("ALIGNMENT_NATIVE", "1").strip().lower() in ("0", "no", "off", "false"):
        return _TURNED_OFF
    if _loaded:
        return None
    if _failures:
        return next(iter(_failures.values()))
    reason = why_no_compiler()
    # a cached library needs no compiler
    return None if reason and any(cache_folder().glob("alignment-*.so")) else reason


def why_unusable() -> str | None:
    """Return why_absent's result; first try the compiler, once, unless a library of the form "" is cached."""
    reason = why_absent()
    if reason or _loaded:
        return reason
    try:
        check_compiler(*{target(dtype, kind, (name,)) for dtype, kind, _ in _kernels for name in PASSES})
    except Absent as error:
        _failures["compiler"] = str(error)
    return why_absent()


def warn(reason: str) -> None:
    """Warn once, at the user's line, why "auto" is not `fused`; not if the user has turned the native kernels off."""
    global _warned
    if _warned or reason == _TURNED_OFF:
        return
    _warned = True
    frame, level = sys._getframe(), 1
    while frame.f_back and str(frame.f_globals.get("__name__")).partition(".")[0] in _NOT_THE_USERS:
        frame, level = frame.f_back, level + 1
    text = f"variant 'auto' is 'wavefront' here, which is slower than 'fused': {reason}"
    warnings.warn(text, RuntimeWarning, stacklevel=level)


def exact_pairs() -> int:
    """The number of pairs that this process has computed with an exponent per cell, 1.4 to 5.3 times slower.

    Their numbers leave the range of block exponents (docs/engineering-notes-native.md), or they have few columns or no
    rows. Calls that never have block exponents (docs/kernels.md, "Range and accuracy") are not counted. The
    number only grows: call this before and after some work, and subtract.
    """
    return sum(library.alignment_exact_pairs() for library in tuple(_loaded.values()))


def target(
    dtype: str,
    kind: int | None = None,
    passes: tuple[str, ...] = tuple(PASSES),
    flags: tuple[str, ...] = (),
    form: int = 0,
) -> Target:
    """The build target of some passes of one kind, or of all kinds, in "float32" or "float64"; form: of FORMS."""
    name = f"alignment-{dtype}" if kind is None else f"alignment-{dtype}-{kind}-{'-'.join(passes)}"
    kind_flags = () if kind is None else (f"-DKIND={kind}",)
    if form:
        name, kind_flags = f"{name}-{FORMS[form]}", (*kind_flags, f"-D{FORMS[form].replace('-', '_').upper()}")
    sources = tuple(FOLDER / f"{name}.cpp" for name in passes)
    return Target(name, sources, HEADERS, (f"-DREAL={REALS[dtype]}", *kind_flags, *flags), objects=(COMMON,))


def kernel(dtype: str, kind: int, options: int = 0) -> Kernel:
    """The kernels for "float32" or "float64", and a kind and options of alignment.h."""
    return _kernels[dtype, kind, form_of(options)]


def form_of(options: int) -> int:
    """Return which of FORMS the gaps of a call have."""
    return 2 if options & BY_AXIS else int(bool(options & GAPS_BY_POSITION))


def _kernel_of(target: Target, pass_name: str) -> Any:
    """The function of a pass in a library of kernels, which uses the helper threads of libraries loaded before."""
    name = f"alignment_{pass_name}"
    with _building:
        library = load(target, {name: (ctypes.c_char_p, *PASSES[pass_name])})
        if target.name not in _loaded:
            keep_freed_memory()
            library.alignment_exact_pairs.restype = ctypes.c_int64
            library.alignment_helpers.restype = ctypes.c_void_p
            library.alignment_share_helpers.argtypes = [ctypes.c_void_p]
            if _loaded:
                library.alignment_share_helpers(next(iter(_loaded.values())).alignment_helpers())
            _loaded[target.name] = library
    return getattr(library, name)


def load(target: Target, functions: Mapping[str, Any] = MappingProxyType({})) -> ctypes.CDLL:
    """Build, from the cache if possible, and load. functions: name -> types of the arguments; all return a status.

    Raises Absent. A build that has failed is not tried again by this process: it would take as long again.
    """
    with _building:
        reason = _failures.get(target.name) or why_absent()
        if reason:
            raise Absent(reason)
        try:
            return _typed(_opened(target), functions)
        except Absent as error:
            _failures[target.name] = str(error)
            raise


def _opened(target: Target) -> ctypes.CDLL:
    path = compiled(target)
    try:
        return ctypes.CDLL(str(path))
    except OSError:  # complete, but for another system, such as a container with another C library
        forget(path, target)
        path = compiled(target)
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise Absent(f"what was compiled cannot be loaded: {error}; set ALIGNMENT_CACHE to another folder") from error


def _typed(library: ctypes.CDLL, functions: Mapping[str, Any]) -> ctypes.CDLL:
    for name, types in functions.items():
        try:
            function = getattr(library, name)
        except AttributeError as error:
            raise Absent(f"what was compiled lacks a function: {error}") from error
        function.argtypes, function.restype = types, ctypes.c_int32
    return library
