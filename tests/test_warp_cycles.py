"""tools/warp_cycles.py: a warp's cycles by the control bits of its machine code."""

import importlib.util

import pytest

from tools import kernel_times, warp_cycles
from tools.warp_cycles import LATENCIES, Instruction, simulate

TRITON = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")


def made(text: str, stall: int = 1, waits: tuple[int, ...] = (), sets: int | None = None) -> Instruction:
    return Instruction(0, text, stall, waits, sets, None)


def test_a_loop_takes_its_stalls_and_the_latencies_it_waits_for():
    cycles, waited = simulate([made("FADD R0, R1, R2", 4), made("FADD R3, R0, R2", 4)])
    assert cycles == 8
    assert waited == {"a result of fixed latency": 6}
    cycles, waited = simulate([made("@P0 SHFL.IDX PT, R0, R1, R2", sets=3), made("FADD R1, R0, R2", 4, waits=(3,))])
    assert cycles == LATENCIES["SHFL"] + 4
    assert waited["SHFL"] == LATENCIES["SHFL"] - 1


def test_warps_share_the_issue_and_the_pipes():
    alu, fma = [made("FMNMX R0, R1, R2, PT")] * 10, [made("FFMA R0, R1, R2, R3")] * 10
    found = [simulate(body, warps, 50)[0] for body in (alu, fma) for warps in (1, 4)]
    assert found == pytest.approx([20, 80, 10, 40], rel=0.05)
    waiting = [made("FADD R0, R0, R2", 4)] * 10
    assert [simulate(waiting, warps, 50)[0] for warps in (1, 4, 8)] == pytest.approx([40, 40, 80], rel=0.05)


@TRITON
@pytest.mark.usefixtures("triton_cache")
def test_a_kernel_waits_for_its_own_results_and_not_for_what_it_loads_ahead():
    from shared.kernels.triton.machine_code import machine_code

    (launch,) = kernel_times.program(kernel_times.asked("smith_waterman/score/64x100x150")).launches
    code = warp_cycles.instructions(machine_code(launch.kernel, warp_cycles.CAPABILITY).asm["cubin"])
    assert code[-1].name in ("BRA", "NOP") and all(0 <= own.stall < 16 for own in code)
    body = warp_cycles.loop_of(code)
    cycles, waited = simulate(body)
    assert cycles == pytest.approx(2180, rel=0.1)  # as in the notes
    assert waited["LDG"] < 100 and waited.total() == pytest.approx(cycles - len(body), rel=0.1)


@TRITON
@pytest.mark.usefixtures("triton_cache")
def test_the_table_has_a_row_for_each_kernel(capsys: pytest.CaptureFixture[str]):
    assert warp_cycles.main(["free_gap/gradients/600x40x50/1x8x0"]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert [row.split()[1] for row in rows if row.startswith("free_gap")] == [
        "odds_forward_kernel",
        "odds_backward_kernel",
    ]
