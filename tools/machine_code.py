"""Figures of the GPU kernels' machine code: recorded ones where they are of these very kernels, else compiled now.

    python -m tools.machine_code     compiles every kernel that the tests ask for, and records its figures

That takes minutes without a GPU, and is needed when a kernel or Triton has changed; the tests compile one in each run.
"""

import functools
import hashlib
import json
import re
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from shared.kernels.triton.programs import Kernel
from tools.warp_cycles import instructions, loop_of, told

TESTS = Path(__file__).parents[1] / "tests"
RECORD = TESTS / "machine_code.json"


class Figures(NamedTuple):
    """registers, stack, shared: of a thread, bytes of a thread and of a block, as the assembler gives them.

    threads, launch_shared, scratch, blocks: `machine_code.requirements`. parameters, declared: their bytes, in the
    machine code and in PTX. pipes: instructions of the inner loop by pipe; moved, loads, lines: how many of its
    instructions load or store a thread's own memory, load from global memory, and do so by whole lines.
    """

    registers: int
    stack: int
    shared: int
    threads: int
    launch_shared: int
    scratch: int
    blocks: int
    parameters: list[int]
    declared: list[int]
    pipes: dict[str, int]
    moved: int
    loads: int
    lines: int

    @property
    def instructions(self) -> int:
        """Of the inner loop."""
        return sum(self.pipes.values())


@functools.cache
def recorded() -> dict[str, Figures]:
    """Key of a kernel -> its figures."""
    return {key: Figures(**own) for key, own in read()["kernels"].items()}


def read() -> dict[str, Any]:
    """The record: Triton's version, and the figures of the kernels."""
    return json.loads(RECORD.read_text())


def figures(kernel: Kernel, capability: int, lengths: str = "int32") -> Figures:
    """The figures of a kernel for a compute capability, 90 for 9.0."""
    key = key_of(kernel, capability, lengths)
    if key not in recorded():
        recorded()[key] = compiled_now(kernel, capability, lengths)
    return recorded()[key]


def key_of(kernel: Kernel, capability: int, lengths: str = "int32") -> str:
    """Of everything that determines a kernel's machine code."""
    import triton

    from shared.kernels.triton.kernels import KERNELS

    text = repr((triton.__version__, KERNELS[kernel.name].cache_key, kernel, capability, lengths))
    return f"{kernel.name} {hashlib.sha256(text.encode()).hexdigest()[:16]}"


def compiled_now(kernel: Kernel, capability: int, lengths: str = "int32") -> Figures:
    """The same, compiled."""
    from shared.kernels.triton.machine_code import machine_code, parameter_bytes, requirements

    compiled = machine_code(kernel, capability, lengths)
    used = resources(compiled)
    loop = loop_of(instructions(compiled.asm["cubin"]))
    pipes: dict[str, int] = dict.fromkeys(("special", "alu", "fma", "memory", "others"), 0)
    for own in loop:
        pipes["fma" if own.pipe == "half" else own.pipe] += 1
    return Figures(
        used["REG"],
        used["STACK"],
        used["SHARED"],
        *requirements(compiled),
        parameters(compiled),
        list(parameter_bytes(compiled)),
        pipes,
        moved=sum("LDL" in own.text or "STL" in own.text for own in loop),
        loads=sum("LDG" in own.text for own in loop),
        lines=sum("LDG" in own.text and "LTC128B" in own.text for own in loop),
    )


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


def main() -> int:
    """Record what test_machine_code.py asks for; its exit code."""
    import pytest

    from tools import machine_code as own  # as the tests import it

    own.recorded().clear()
    code = pytest.main(["-q", "-k", "not recorded", str(TESTS / "test_machine_code.py")])
    kernels = (f"{json.dumps(key)}: {json.dumps(value._asdict())}" for key, value in sorted(own.recorded().items()))
    RECORD.write_text(f'{{"triton": "{version("triton")}", "kernels": {{\n' + ",\n".join(kernels) + "\n}}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
