"""A GPU's machine code, read by the tool that comes with Triton."""

import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any


def resources(compiled: Any) -> dict[str, int]:
    """A kernel's use of a GPU's resources."""
    return {name: int(value) for name, value in re.findall(r"(REG|STACK|SHARED):(\d+)", _told("-res-usage", compiled))}


def parameters(compiled: Any) -> list[int]:
    """The bytes of each of a kernel's parameters, in their order: what the driver goes by."""
    found = re.findall(r"Ordinal\s*:\s*0x(\w+)\s+Offset\s*:\s*0x\w+\s+Size\s*:\s*0x(\w+)", _told("-elf", compiled))
    sizes = {int(ordinal, 16): int(size, 16) for ordinal, size in found}
    assert sorted(sizes) == list(range(len(found)))
    return [sizes[ordinal] for ordinal in sorted(sizes)]


def resident_warps(registers: int) -> int:
    """The warps of a multiprocessor whose threads may have so many registers each, which come in eights."""
    return 4 * (16384 // (32 * -(-registers // 8) * 8))


def pipes_of_loop(compiled: Any) -> dict[str, int]:
    """The instructions in `inner_loop` by the pipe that executes them."""
    found: dict[str, int] = dict.fromkeys(("special", "alu", "fma", "memory", "others"), 0)
    for line in inner_loop(compiled):
        found[_pipe(re.sub(r"^@!?U?P\w+\s+", "", line.strip()).split()[0].partition(".")[0])] += 1
    return found


def _pipe(name: str) -> str:
    if name == "MUFU":
        return "special"
    if name in ("FADD", "FMUL", "FFMA", "IMAD", "HFMA2"):  # IMAD and HFMA2 also move numbers
        return "fma"
    if name.startswith(("LD", "ST", "SHFL")) and name != "LDC":
        return "memory"
    # once for a warp, control, constants, float64
    is_other = name[0] in "UD" or name in ("BRA", "BAR", "NOP", "LDC", "BSSY", "BSYNC", "WARPSYNC", "R2UR")
    return "others" if is_other else "alu"


def inner_loop(compiled: Any) -> list[str]:
    """The instructions of the innermost loop that shuffles most."""
    text = _told("-sass", compiled)
    lines = {int(at, 16): line for at, line in re.findall(r"^\s*/\*([0-9a-f]{4,})\*/\s+(.*?);", text, re.MULTILINE)}
    jumps = [(re.search(r"\bBRA\b.*0x([0-9a-f]+)", line), end) for end, line in lines.items()]
    spans = [(int(found[1], 16), end) for found, end in jumps if found and int(found[1], 16) < end]
    # a strip's loop has what is done once in a strip as well
    innermost = [(a, b) for a, b in spans if not any(a <= c and d <= b and (a, b) != (c, d) for c, d in spans)]
    loops = [[line for at, line in lines.items() if a <= at <= b] for a, b in innermost]
    return max(loops, key=lambda body: sum("SHFL" in line or "BAR" in line for line in body))


def _told(option: str, compiled: Any) -> str:
    import triton

    tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.asm["cubin"])
        file.flush()
        return subprocess.run([tool, option, file.name], capture_output=True, text=True, check=True).stdout
