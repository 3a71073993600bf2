"""The kernels' machine code for a GPU, made on any machine: no GPU, no driver and no framework is needed."""

import functools
import math
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile

from shared.kernels.triton.kernels import KERNELS
from shared.kernels.triton.programs import TYPES, Kernel

REALS = {"float32": "*fp32", "float64": "*fp64"}
INTEGERS = {"int32": "*i32", "int64": "*i64", "uint8": "*u8"}
INT64_ARGUMENTS = ("pair_stride", "row_stride", "t_pair_stride", "t_row_stride")
INT32_ARGUMENTS = ("pairs", "rows", "cols", "rounds")
_VERSION = tuple(int(part) for part in triton.__version__.split(".")[:2])


@functools.cache
def machine_code(kernel: Kernel, capability: int, lengths: str = "int32") -> Any:
    """The kernel compiled by Triton: .asm["cubin"], .metadata. capability: 90 for compute capability 9.0.

    lengths: the type of the lengths. Kept on disk by Triton, in TRITON_CACHE_DIR.
    """
    function = KERNELS[kernel.name]
    constants = dict(kernel.constants)
    signature = {name: _type_of(name, kernel, constants, lengths) for name in function.arg_names}
    source = ASTSource(function, signature, constants, _no_attributes(signature.values()))
    options = {"num_warps": kernel.warps} | ({"maxnreg": kernel.registers} if kernel.registers else {})
    return compile(source, target=GPUTarget("cuda", capability, 32), options=options)


def _no_attributes(types: Iterable[str]) -> dict[tuple[int], list[Any]]:
    """The properties that Triton's own launcher would record of these arguments: none.

    They are part of the key of Triton's disk cache. With the same key, PyTorch finds there what JAX has compiled, and
    vice versa.
    """
    noted = ("*", "constexpr") if _VERSION >= (3, 7) else ("*",)
    return {(place,): [] for place, kind in enumerate(types) if kind.startswith(noted)}


def _type_of(name: str, kernel: Kernel, constants: dict[str, int | None], lengths: str) -> str:
    if name in constants:
        return "constexpr"
    if name in INT64_ARGUMENTS:
        return "i64"
    if name in INT32_ARGUMENTS:
        return "i32"
    if name in TYPES:
        return INTEGERS[TYPES[name]]
    return INTEGERS[lengths] if name == "lengths" and constants["has_lengths"] else REALS[kernel.dtype]


class Requirements(NamedTuple):
    """The resources of a launch: threads per block, bytes of shared memory per block, bytes of Triton's own scratch
    memory, and blocks per cluster."""

    threads: int
    shared: int
    scratch: int
    blocks: int


def requirements(compiled: Any) -> Requirements:
    """The resources of a compiled kernel, which versions of Triton report differently."""
    facts = compiled.metadata._asdict()
    scratch = facts.get("global_scratch_size", 0) + facts.get("profile_scratch_size", 0)
    blocks = max(facts["num_ctas"], math.prod(facts.get("cluster_dims", ())))
    return Requirements(facts["num_warps"] * facts["warp_size"], facts["shared"], scratch, blocks)


def parameter_bytes(compiled: Any) -> bytes:
    """The size of each parameter, as PTX declares it: the arguments, then pointers to memory of Triton's own.

    Versions of Triton append different numbers of them.
    """
    declared = re.search(rf"\.entry {re.escape(compiled.metadata.name)}\((.*?)\)", compiled.asm["ptx"], re.DOTALL)
    if not declared:
        raise ValueError(f"the PTX of {compiled.metadata.name} declares no kernel of that name")
    sizes = []
    for parameter in filter(None, map(str.strip, declared[1].split(","))):
        match = re.fullmatch(r"\.param \.[bfsu](\d+) [^\[\]]*", parameter)
        if not match:
            raise ValueError(f"{compiled.metadata.name} takes more than pointers and numbers: {parameter}")
        sizes.append(int(match[1]) // 8)
    return bytes(sizes)
