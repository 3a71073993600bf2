"""The kernels' machine code for a GPU, made on any machine: no GPU, no driver and no framework is needed."""

import functools
from collections.abc import Iterable
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile

from shared.cuda.kernels import KERNELS
from shared.cuda.programs import Kernel

REALS = {"float32": "*fp32", "float64": "*fp64"}
INTEGERS = {"int32": "*i32", "int64": "*i64"}
WIDE = ("pair_stride", "row_stride", "t_pair_stride", "t_row_stride")
_VERSION = tuple(int(part) for part in triton.__version__.split(".")[:2])
NARROW = ("pairs", "rows", "cols", "rounds")


@functools.cache
def machine_code(kernel: Kernel, capability: int, lengths: str = "int32") -> Any:
    """What Triton has compiled: .asm["cubin"], .metadata. capability: 90 for compute capability 9.0.

    lengths: the type of the lengths. Kept on disk by Triton, in TRITON_CACHE_DIR.
    """
    function = KERNELS[kernel.name]
    constants = dict(kernel.constants)
    signature = {name: _type_of(name, kernel, constants, lengths) for name in function.arg_names}
    source = ASTSource(function, signature, constants, _nothing_known(signature.values()))
    return compile(source, target=GPUTarget("cuda", capability, 32), options={"num_warps": kernel.warps})


def _nothing_known(types: Iterable[str]) -> dict[tuple[int], list[Any]]:
    """What Triton's own launcher notes of these arguments: no property of any.

    The name of what is kept on disk is made of it too. With the same note, PyTorch finds there what JAX has compiled,
    and the other way round.
    """
    noted = ("*", "constexpr") if _VERSION >= (3, 7) else ("*",)
    return {(place,): [] for place, own in enumerate(types) if own.startswith(noted)}


def _type_of(name: str, kernel: Kernel, constants: dict[str, int], lengths: str) -> str:
    if name in constants:
        return "constexpr"
    if name in WIDE:
        return "i64"
    if name in NARROW:
        return "i32"
    return INTEGERS[lengths] if name == "lengths" and constants["has_lengths"] else REALS[kernel.dtype]
