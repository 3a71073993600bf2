"""The compiled kernels as functions: one library per dtype, built and loaded on first use."""

import ctypes
import os
import struct
import sys
import threading
import warnings
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from shared.kernels.cpp.build import Absent, Target, check_compiler, compiled, forget, why_no_compiler

FOLDER = Path(__file__).parent
# compiled in parallel: those that take longest first
SOURCES = tuple(FOLDER / f"{name}.cpp" for name in ("tangents", "gradients", "marginals", "score", "alignment"))
HEADERS = tuple(sorted(FOLDER.glob("*.h")))
REALS = {"float32": "float", "float64": "double"}

# (function name, its `end`) -> kind, in alignment.h
KINDS = {
    ("smith_waterman", "any"): 0,
    ("smith_waterman", "match"): 1,
    ("smith_waterman_affine", None): 2,
    ("needleman_wunsch", None): 3,
    ("free_gap", None): 4,
}
RESTRICT_TURNS, PENALIZE_TURNS, CHECK_LENGTHS = 1, 2, 4
OUT_OF_MEMORY, BAD_LENGTHS = 1, 3


class Call(NamedTuple):
    """The kind and options of alignment.h: a public function with its options."""

    kind: int
    options: int


class Kernel(NamedTuple):
    """The functions of alignment.h for one dtype. Each takes a packed AlignmentCall and pointers, as integers."""

    library: ctypes.CDLL
    score: Any  # (call, scores) -> status
    gradients: Any  # (call, scores, d_similarity, d_parameters or 0) -> status
    # (call, t_similarity, its stride, t_parameters or 0, t_scores or 0, t_d_similarity, t_d_parameters or 0) -> status
    tangents: Any


_POINTER = ctypes.c_void_p
FUNCTIONS = {
    "alignment_score": (ctypes.c_char_p, _POINTER),
    "alignment_gradients": (ctypes.c_char_p, *[_POINTER] * 3),
    "alignment_tangents": (ctypes.c_char_p, _POINTER, ctypes.c_int64, *[_POINTER] * 4),
}

# AlignmentCall, field by field: kind, options, threads, layout; pairs, rows, cols; similarity, its stride; lengths;
# parameters. Packing bytes takes a fraction of the time that filling a ctypes structure does.
pack_call = struct.Struct("@4i3qPqPP").pack

_TURNED_OFF = "the environment variable ALIGNMENT_NATIVE turns the native kernels off"
# packages whose frames may stand between a user's line and a warning
_NOT_THE_USERS = ("shared", "jax_impl", "torch_impl", "jax", "torch")

_kernels: dict[str, Kernel] = {}
_failures: dict[str, str] = {}  # name of a build that failed -> why
_building = threading.RLock()
_warned = False


def call_of(function_name: str, options: dict[str, Any]) -> Call:
    """The kernel's numbers for a public function's name and options."""
    kind = KINDS[function_name, options.get("end")]
    turns = (RESTRICT_TURNS, options.get("restrict_turns")), (PENALIZE_TURNS, options.get("penalize_turns"))
    return Call(kind, sum(flag for flag, is_set in turns if is_set))


def why_absent() -> str | None:
    """None if the native kernels seem usable; else why not, in one line. Cheap: it compiles and runs nothing.

    Once a build has failed, and nothing else has been built, its reason.
    """
    if os.environ.get("ALIGNMENT_NATIVE", "1").strip().lower() in ("0", "no", "off", "false"):
        return _TURNED_OFF
    if _kernels:
        return None
    return next(iter(_failures.values()), None) or why_no_compiler()


def why_unusable() -> str | None:
    """The same after a quick try of the compiler, once, where none of these kernels is cached."""
    reason = why_absent()
    if reason or _kernels:
        return reason
    try:
        check_compiler(*map(target, REALS))
    except Absent as error:
        _failures["compiler"] = str(error)
    return why_absent()


def warn(reason: str) -> None:
    """Warn once that "auto" is not `fused`, for this reason, at the user's line; not where the user has chosen that."""
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
    """How many pairs in float32 this process has computed with an exponent per cell, two to three times slower.

    These are pairs that plain odds with shared exponents cannot hold (docs/engineering-notes-native.md says when), and
    those with few columns. Call it before and after to learn how many of the pairs in between were such.
    """
    count = kernel("float32").library.alignment_exact_pairs
    count.restype = ctypes.c_int64
    return count()


def target(dtype: str, flags: tuple[str, ...] = ()) -> Target:
    """The kernels for "float32" or "float64", as a build target."""
    return Target(f"alignment-{dtype}", SOURCES, HEADERS, (f"-DREAL={REALS[dtype]}", *flags))


def is_loaded(dtype: str) -> bool:
    """Whether `kernel` returns without building or loading."""
    return dtype in _kernels


def kernel(dtype: str) -> Kernel:
    """The kernels for "float32" or "float64". Compiles on first use; raises Absent with the reason."""
    found = _kernels.get(dtype)
    if found:
        return found
    with _building:
        if dtype not in _kernels:
            _kernels[dtype] = _functions(load(target(dtype), FUNCTIONS))
        return _kernels[dtype]


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
        forget(path)
        path = compiled(target)
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise Absent(f"what was compiled cannot be loaded: {error}") from error


def _typed(library: ctypes.CDLL, functions: Mapping[str, Any]) -> ctypes.CDLL:
    for name, types in functions.items():
        try:
            function = getattr(library, name)
        except AttributeError as error:
            raise Absent(f"what was compiled lacks a function: {error}") from error
        function.argtypes, function.restype = types, ctypes.c_int32
    return library


def _functions(library: ctypes.CDLL) -> Kernel:
    return Kernel(library, library.alignment_score, library.alignment_gradients, library.alignment_tangents)
