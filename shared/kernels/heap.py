"""Freed memory stays with the process, so that results as large as the last ones need no new pages.

glibc returns what is free at the end of its heap to the system once that is more than twice the largest block that it
has unmapped so far: the "dynamic" threshold of mallopt(3). The marginals of a small batch are such a block, of 6 MB. A
loss on them and its gradient need three at a time, so that every step of training gives all of them back, and in the
next one the first writes to 4,500 pages take longer than the derivatives do.
"""

import ctypes
import functools
import sys

# just below DEFAULT_MMAP_THRESHOLD_MAX, the largest block from which glibc learns: it then keeps up to twice as much
LARGEST_BYTES = 2**25 - 2**15


@functools.cache
def keep_freed_memory() -> None:
    """Have glibc keep up to 64 MiB, from now on, as after any program's first free of a block of 32 MiB.

    Has no effect with another allocator, nor where the user has set a threshold (GLIBC_TUNABLES, MALLOC_*_THRESHOLD_).
    """
    if sys.platform != "linux":
        return
    process = ctypes.CDLL(None)
    process.malloc.argtypes, process.malloc.restype = [ctypes.c_size_t], ctypes.c_void_p
    process.free.argtypes, process.free.restype = [ctypes.c_void_p], None
    process.free(process.malloc(LARGEST_BYTES))  # never written: it takes no memory
