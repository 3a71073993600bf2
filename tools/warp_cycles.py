"""How long a warp takes for a chunk of a kernel in plain odds, by what the assembler has written into its machine code.

    python -m tools.warp_cycles smith_waterman/score/64x100x150 smith_waterman/gradients/4096x512x512/1x16x128

Arguments are those of tools.kernel_times. No GPU is needed: for compute capability 9.0 each instruction says how many
cycles the warp waits after it, and for which results of unknown latency it waits before it. These latencies, of
`LATENCIES`, and how long a pipe is busy are assumed; that memory answers in time, as well. So this is what binds where
few warps wait for themselves, as with few pairs, and a lower bound where memory does.
"""

import re
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import tabulate

from tools.kernel_times import Asked, asked_for, program

CAPABILITY = 90
# cycles from issue to result, of what the assembler does not know; of others DEFAULT
LATENCIES = {"MUFU": 22, "SHFL": 24, "LDS": 30, "LDSM": 33, "LDG": 550, "LDC": 40, "I2FP": 6}
DEFAULT = 20
READ = 12  # until an instruction's operands may be written over
# cycles for which an instruction of a warp keeps a scheduler's pipe busy
BUSY = {"special": 8, "alu": 2, "memory": 4, "half": 2}


class Instruction(NamedTuple):
    """stall: cycles until the next one at least; waits: the barriers waited for before; sets, frees: those that it sets
    when its result is there, and when its operands have been read."""

    at: int
    text: str
    stall: int
    waits: tuple[int, ...]
    sets: int | None
    frees: int | None

    @property
    def name(self) -> str:
        return re.sub(r"^@!?U?P\w+\s+", "", self.text).split()[0].partition(".")[0]

    @property
    def pipe(self) -> str:
        """What executes it: half and fma are one, others are once for a warp, control, constants and float64."""
        if self.name == "MUFU":
            return "special"
        if self.name in ("FADD", "FMUL", "FFMA"):
            return "fma"
        if self.name in ("IMAD", "HFMA2"):  # which also move numbers
            return "half"
        if self.name.startswith(("LD", "ST", "SHFL")) and self.name != "LDC":
            return "memory"
        control = ("BRA", "BAR", "NOP", "LDC", "BSSY", "BSYNC", "WARPSYNC", "R2UR")
        return "others" if self.name[0] in "UD" or self.name in control else "alu"


def told(option: str, cubin: bytes) -> str:
    """What the tool that comes with Triton says of a kernel's machine code."""
    import triton  # here: an optional package

    tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        return subprocess.run([tool, option, file.name], capture_output=True, text=True, check=True).stdout


def instructions(cubin: bytes) -> list[Instruction]:
    """A kernel's machine code, with the control bits of Volta and later."""
    halves = r"/\* 0x[0-9a-f]{16} \*/\s*/\* 0x([0-9a-f]{16}) \*/"
    found = re.findall(rf"/\*([0-9a-f]{{4,}})\*/\s+(.*?);\s*{halves}", told("-sass", cubin), re.DOTALL)
    return [_instruction(int(at, 16), line.strip(), int(upper, 16)) for at, line, upper in found]


def _instruction(at: int, text: str, upper: int) -> Instruction:
    """upper: the upper half of its 128 bits."""
    sets, frees = upper >> 46 & 7, upper >> 49 & 7  # 7: none
    waits = tuple(barrier for barrier in range(6) if upper >> 52 + barrier & 1)
    return Instruction(at, text, upper >> 41 & 15, waits, None if sets == 7 else sets, None if frees == 7 else frees)


def loop_of(code: Sequence[Instruction]) -> list[Instruction]:
    """The innermost loop that shuffles most: a chunk, no branch in it taken."""
    jumps = [(re.search(r"\bBRA\b.*0x([0-9a-f]+)", own.text), own.at) for own in code]
    spans = [(int(found[1], 16), end) for found, end in jumps if found and int(found[1], 16) < end]
    # a strip's loop has what is done once in a strip as well
    innermost = [(a, b) for a, b in spans if not any(a <= c and d <= b and (a, b) != (c, d) for c, d in spans)]
    loops = [[own for own in code if a <= own.at <= b] for a, b in innermost]
    return max(loops, key=lambda body: sum(own.name in ("SHFL", "BAR") for own in body))


def simulate(body: Sequence[Instruction], warps: int = 1, turns: int = 6) -> tuple[float, Counter[str]]:
    """Cycles for a turn of the loop when `warps` share a scheduler, and what the first of them waited for in it."""
    pipes, names = [own.pipe for own in body], [own.name for own in body]
    clock, busy = 0.0, defaultdict[str, float](float)
    ready = [37.0 * warp for warp in range(warps)]  # not all at the same place
    barriers = [[0.0] * 6 for _ in range(warps)]
    setters = [["" for _ in range(6)] for _ in range(warps)]
    done, waited = [0] * warps, Counter[str]()
    ends: list[float] = []

    def earliest(warp: int) -> float:
        at = done[warp] % len(body)
        after = max((barriers[warp][barrier] for barrier in body[at].waits), default=0.0)
        return max(ready[warp], after, busy[pipes[at]], clock)

    while len(ends) < turns:
        warp = min(range(warps), key=lambda each: (earliest(each), done[each]))
        now, at = earliest(warp), done[warp] % len(body)
        own = body[at]
        if warp == 0 and len(ends) > 0:
            after, barrier = max(((barriers[0][each], each) for each in own.waits), default=(0.0, 0))
            why = setters[0][barrier] if after >= now > ready[0] else "a pipe, or another warp"
            waited[why] += int(now - ready[0])
            waited["a result of fixed latency"] += max(own.stall, 1) - 1
        clock, busy[pipes[at]] = now + 1, now + BUSY.get(pipes[at], 1)
        for barrier, latency in ((own.sets, LATENCIES.get(names[at], DEFAULT)), (own.frees, READ)):
            if barrier is not None:
                barriers[warp][barrier], setters[warp][barrier] = now + latency, names[at]
        ready[warp] = now + max(own.stall, 1)
        done[warp] += 1
        if warp == 0 and done[0] % len(body) == 0:
            ends.append(now)
    return (ends[-1] - ends[0]) / (turns - 1), Counter({why: round(n / (turns - 1)) for why, n in waited.items() if n})


def rows_of(text: str, what: Asked) -> list[list[object]]:
    """A row of the table for each kernel."""
    from shared.kernels.triton.machine_code import machine_code  # here: it imports Triton

    rows: list[list[object]] = []
    for launch in program(what).launches:
        constants = dict[str, Any](launch.kernel.constants)
        body = loop_of(instructions(machine_code(launch.kernel, CAPABILITY).asm["cubin"]))
        alone, waited = simulate(body)
        cells = constants["height"] * constants["steps"]
        together = [f"{simulate(body, warps)[0] / warps / cells:.1f}" for warps in (2, 3, 4)]
        most = ", ".join(f"{why} {count}" for why, count in waited.most_common(4))
        rows.append([text, launch.kernel.name, len(body), round(alone), " / ".join(together), most])
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    """A table; the exit code."""
    rows = [row for text, what in asked_for(arguments, "warp_cycles", __doc__) for row in rows_of(text, what)]
    headers = ["kernels", "kernel", "instructions\nof a chunk", "cycles, a warp\nby itself",
               "cycles for 32 cells,\n2 / 3 / 4 warps", "of a warp by itself, waiting for"]  # fmt: skip
    print(tabulate.tabulate(rows, headers=headers, disable_numparse=True))
    return 0


if __name__ == "__main__":
    sys.exit(main())
