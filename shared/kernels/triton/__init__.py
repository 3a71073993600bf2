"""The kernels for CUDA devices, in Triton, and how a call is made of them. What both frameworks share of `fused`.

    cells           what is computed in a cell
    pairs           what cells need to know of their pair
    tiles           how columns go in and out of registers
    forward         the kernel that walks a matrix forwards
    backward        the one that walks it back
    ceiling         one that measures the GPU
    kernels         all of them, and how the two do it
    programs        a call as a list of launches, with the memory between; without Triton
    machine_code    what a GPU runs, made on any machine

PyTorch launches them through Triton; JAX through XLA's foreign function interface, by the CUDA driver. Importing this
imports none of them.
"""

import importlib.util


def why_absent() -> str | None:
    """None if there is a Triton to compile the kernels with; else what to install."""
    if importlib.util.find_spec("triton") is None:
        return "on a GPU it is compiled by Triton, which is not installed: pip install triton"
    return None
