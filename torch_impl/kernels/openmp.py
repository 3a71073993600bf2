"""PyTorch's OpenMP, so that the native kernels run in the threads of PyTorch's own operators.

After an operator these wait for the next one in a loop for a while. Between matrix products, whose threads keep all
cores busy so, threads of another pool only wait for a core: a second one gained nothing.
"""

import ctypes
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import torch


def _addresses() -> Iterator[int | None]:
    """Of GOMP_parallel in the libraries that PyTorch may have loaded: its own, or one of the system."""
    if sys.platform != "linux" or "ATen parallel backend: OpenMP" not in torch.__config__.parallel_info():
        return
    for name in (*map(str, Path(torch.__file__).parent.glob("lib/libgomp*")), "libgomp.so.1"):
        try:
            library = ctypes.CDLL(name, mode=os.RTLD_NOLOAD)
        except OSError:  # not loaded
            continue
        yield ctypes.cast(library.GOMP_parallel, ctypes.c_void_p).value


def _in_a_child_of_fork() -> None:
    """It has none of the threads, and OpenMP would wait for them forever."""
    global parallel
    parallel = 0


# as cpp.pack_call takes it; 0 if there is none
parallel = next(_addresses(), None) or 0
if parallel:
    os.register_at_fork(after_in_child=_in_a_child_of_fork)
