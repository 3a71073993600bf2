"""The kernels for CUDA devices, in Triton, and the launches that a call consists of: `fused` for both frameworks.

    cells           the recurrence in a cell
    pairs           the constants of a pair
    gaps            gaps by position, by axis and outside the matrix
    tiles           loads and stores of columns
    forward         the forward kernel
    gradients       the backward kernel's steps in a cell
    backward        the backward kernel
    block_exponent  common to block_forward and block_backward, the kernels of that arithmetic
    best            the kernel of best alignments
    exponentials    a kernel that measures the rate of exponentials
    kernels         all of them, and their common scheme
    programs        a call as a list of launches with their buffers; imports no Triton
    machine_code    compiles for any GPU on any machine; `ahead`: on all its cores

PyTorch launches them through Triton; JAX through XLA's foreign function interface, by the CUDA driver. Importing this
imports none of them.
"""

import importlib.util


def why_absent() -> str | None:
    """None if there is a Triton to compile the kernels with; else what to install."""
    if importlib.util.find_spec("triton") is None:
        return "on a GPU it is compiled by Triton, which is not installed: pip install triton"
    return None
