"""PyTorch's OpenMP, so that the native kernels run in the threads of PyTorch's own operators.

After an operator these threads spin for a while, waiting for the next one. Between matrix products they thus keep all
cores busy, and threads of another pool would only wait for a core: a second thread gained nothing.
"""

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterator
from typing import Any

import torch


def _function(name: str) -> Any:
    """A function of the OpenMP, or MKL, that PyTorch calls; None if there is none."""
    if "ATen parallel backend: OpenMP" not in torch.__config__.parallel_info():
        return None
    # in the order in which PyTorch's own calls were resolved: global symbols, then PyTorch's libraries
    functions = (getattr(ctypes.CDLL(library), name, None) for library in (None, torch._C.__file__))
    return next(filter(None, functions), None)


def _in_a_child_of_fork() -> None:
    """Forget the threads in a child of fork, which has none: OpenMP would wait for them forever."""
    global parallel
    parallel = 0


# the address of GOMP_parallel, for cpp.pack_call; 0 if there is none
parallel = ctypes.cast(_function("GOMP_parallel") if sys.platform == "linux" else None, ctypes.c_void_p).value or 0
if parallel:
    os.register_at_fork(after_in_child=_in_a_child_of_fork)
# settings of the calling thread; torch.set_num_threads would also set the default of all threads to come
_set_threads = _function("omp_set_num_threads") or (lambda threads: None)
_set_threads_of_mkl = _function("MKL_Set_Num_Threads_Local") or (lambda threads: None)


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Single-threaded operators, in the calling thread alone."""
    before, of_mkl = torch.get_num_threads(), _set_threads_of_mkl(1)
    try:
        _set_threads(1)
        yield
    finally:
        _set_threads(before)
        _set_threads_of_mkl(of_mkl)
