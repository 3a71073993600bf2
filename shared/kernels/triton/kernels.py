"""The kernels for CUDA devices, in Triton: forward and backward through a pair's matrix. One program is one pair.

A program's lanes are rows that follow one another: a strip. Lane l works on column t - l in step t, so that what it
needs of the lane above was computed one step before, and goes from lane to lane. A matrix of any height is processed
strip by strip; strips exchange a row in memory. Short pairs end early.

    forward     scores; and, if they are kept, the states of all cells, as planes (pairs, rows, cols): the fractions of
                all states, then their exponents, then, if there are any, their tangents
    backward    from the planes the derivatives of the scores, or their tangents. The first plane becomes the
                similarity's: a cell is read for the last time before it is written
    best        both ways at once, with maxima in place of the smooth ones: the best alignments
    block_...   scores and probabilities of matches with block exponents, several times as fast; pairs whose numbers do
                not allow that are flagged, and left to the first two

What lies outside lengths is never read as a number, and its derivatives are written as 0. A pair whose temperature is
not positive, or that has NaN or +inf inside its lengths, gets NaN; a similarity from -5e19 down forbids the match. Gaps
by position are matrices of their own, which have NaN, but no infinity: it counts as the nearest cost that is allowed.

An infinity is written where it is used, as float("-inf"): PyTorch's compiler copies a module's constants by their repr.
"""

from typing import Any

from shared.kernels.triton.backward import backward_kernel
from shared.kernels.triton.best import best_kernel
from shared.kernels.triton.block_backward import block_backward_kernel
from shared.kernels.triton.block_forward import block_forward_kernel
from shared.kernels.triton.exponentials import exponentials_kernel
from shared.kernels.triton.forward import forward_kernel

KERNELS: dict[str, Any] = {
    "forward_kernel": forward_kernel,
    "backward_kernel": backward_kernel,
    "best_kernel": best_kernel,
    "block_forward_kernel": block_forward_kernel,
    "block_backward_kernel": block_backward_kernel,
    "exponentials_kernel": exponentials_kernel,  # measures the GPU
}

for _kernel in KERNELS.values():
    # now, in this order: its key in Triton's cache depends on what was hashed before
    getattr(_kernel, "cache_key", None)
