"""Facts about compiled GPU kernels, as the disassembler that comes with Triton prints them; no GPU is needed."""

import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any


def printed(option: str, compiled: Any) -> str:
    """The output of cuobjdump for a compiled kernel."""
    import triton  # here: an optional package

    tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.asm["cubin"])
        file.flush()
        return subprocess.run([tool, option, file.name], capture_output=True, text=True, check=True).stdout


def resources(compiled: Any) -> dict[str, int]:
    """The kernel's resources: REG and STACK (bytes) of a thread, SHARED (bytes) of a block."""
    usage = re.findall(r"(REG|STACK|SHARED):(\d+)", printed("-res-usage", compiled))
    return {name: int(value) for name, value in usage}


def parameters(compiled: Any) -> list[int]:
    """The bytes of each kernel parameter in order, as the driver reads them."""
    pattern = r"Ordinal\s*:\s*0x(\w+)\s+Offset\s*:\s*0x\w+\s+Size\s*:\s*0x(\w+)"
    sizes = {int(ordinal, 16): int(size, 16) for ordinal, size in re.findall(pattern, printed("-elf", compiled))}
    assert sorted(sizes) == list(range(len(sizes)))
    return [sizes[ordinal] for ordinal in sorted(sizes)]


def inner_loop(compiled: Any) -> list[str]:
    """The instructions of the innermost loop that shuffles most: the one that computes cells."""
    lines = re.findall(r"/\*([0-9a-f]{4,})\*/\s+(.*?);", printed("-sass", compiled))
    code = [(int(address, 16), text) for address, text in lines]
    jumps = [(re.search(r"\bBRA\b.*0x([0-9a-f]+)", text), address) for address, text in code]
    spans = [(int(jump[1], 16), end) for jump, end in jumps if jump and int(jump[1], 16) < end]
    innermost = [(a, b) for a, b in spans if not any(a <= c and d <= b and (a, b) != (c, d) for c, d in spans)]
    loops = [[text for address, text in code if a <= address <= b] for a, b in innermost]
    return max(loops, key=lambda loop: sum("SHFL" in text or "BAR.SYNC" in text for text in loop))
