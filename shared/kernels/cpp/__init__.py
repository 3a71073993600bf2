"""The native kernels: C++ behind a plain C interface (alignment.h), compiled on first use by the user's own compiler.

Importing this compiles nothing. Environment variables:

    ALIGNMENT_NATIVE=0        turns the native kernels off, for machines where nothing should be compiled
    ALIGNMENT_CACHE=folder    caches the compiled libraries, instead of the user's cache folder
    CXX=command               the compiler, instead of the first of c++, g++, clang++ on the PATH
"""

from shared.kernels.cpp.build import Absent, Target, cache_folder, cache_is_usable, compiled
from shared.kernels.cpp.library import (
    BAD_LENGTHS,
    CHECK_LENGTHS,
    EXTEND_BY_POSITION,
    FORMS,
    GAPS_BY_POSITION,
    KINDS,
    OPEN_BY_POSITION,
    OUT_OF_MEMORY,
    PASSES,
    Call,
    Kernel,
    call_of,
    exact_pairs,
    form_of,
    kernel,
    load,
    pack_call,
    pack_gaps,
    target,
    warn,
    why_absent,
    why_unusable,
)

__all__ = [
    "BAD_LENGTHS",
    "CHECK_LENGTHS",
    "EXTEND_BY_POSITION",
    "FORMS",
    "GAPS_BY_POSITION",
    "KINDS",
    "OPEN_BY_POSITION",
    "OUT_OF_MEMORY",
    "PASSES",
    "Absent",
    "Call",
    "Kernel",
    "Target",
    "cache_folder",
    "cache_is_usable",
    "call_of",
    "compiled",
    "exact_pairs",
    "form_of",
    "kernel",
    "load",
    "pack_call",
    "pack_gaps",
    "target",
    "warn",
    "why_absent",
    "why_unusable",
]
