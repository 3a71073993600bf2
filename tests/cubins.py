"""A GPU's machine code, read by the tool that comes with Triton."""

import re
from typing import Any

from tools.warp_cycles import Instruction, instructions, loop_of, told


def resources(compiled: Any) -> dict[str, int]:
    """A kernel's use of a GPU's resources."""
    found = re.findall(r"(REG|STACK|SHARED):(\d+)", told("-res-usage", compiled.asm["cubin"]))
    return {name: int(value) for name, value in found}


def parameters(compiled: Any) -> list[int]:
    """The bytes of each of a kernel's parameters, in their order: what the driver goes by."""
    text = told("-elf", compiled.asm["cubin"])
    found = re.findall(r"Ordinal\s*:\s*0x(\w+)\s+Offset\s*:\s*0x\w+\s+Size\s*:\s*0x(\w+)", text)
    sizes = {int(ordinal, 16): int(size, 16) for ordinal, size in found}
    assert sorted(sizes) == list(range(len(found)))
    return [sizes[ordinal] for ordinal in sorted(sizes)]


def resident_warps(registers: int) -> int:
    """The warps of a multiprocessor whose threads may have so many registers each, which come in eights."""
    return 4 * (16384 // (32 * -(-registers // 8) * 8))


def pipes_of_loop(compiled: Any) -> dict[str, int]:
    """The instructions in the inner loop by the pipe that executes them."""
    found: dict[str, int] = dict.fromkeys(("special", "alu", "fma", "memory", "others"), 0)
    for own in _inner_loop(compiled):
        found["fma" if own.pipe == "half" else own.pipe] += 1
    return found


def inner_loop(compiled: Any) -> list[str]:
    """The instructions of the innermost loop that shuffles most."""
    return [own.text for own in _inner_loop(compiled)]


def _inner_loop(compiled: Any) -> list[Instruction]:
    return loop_of(instructions(compiled.asm["cubin"]))
