"""The machine code of the GPU kernels: that they compile and fit, what bounds them, where it is found."""

import importlib.metadata
import importlib.util
import itertools
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import ROOT
from gpu_programs import programs

import jax_impl.kernels.triton_binding as jax_calls
from shared.kernels.triton.hardware_limit import SPECIAL_FUNCTIONS
from shared.kernels.triton.programs import (
    NARROW,
    TALL,
    TYPES,
    WIDE,
    Kernel,
    Launch,
    Layout,
    exponentials_program,
    layout_of,
)
from tools.machine_code import Figures, compiled_now, figures, read, recorded, resident_warps

pytestmark = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
# an older one keeps other numbers in registers
AS_NOTED = pytest.mark.skipif(
    importlib.util.find_spec("triton") is not None and importlib.metadata.version("triton") < "3.7",
    reason="the figures are those of Triton 3.7",
)

# registers of a thread: the machine has 255. Bytes of a thread's own memory, where there are not enough: they cost time
LOCAL_BYTES = {"smith_waterman_affine": 256}
LOCAL_BYTES_BY_POSITION = {"smith_waterman_affine": 448}
FEW_LOCAL_BYTES = 48
# of plain odds: a warp's step of similarities, or of gradients, of four rows to a lane two of them
SHARED_BYTES_OF_A_STEP = 256


def check_parameters(launch: Launch, found: Figures) -> None:
    """That the machine code takes what launch.cc passes: the launch's arguments, then pointers of Triton's own."""
    own = [4 if is_narrow else 8 for is_narrow in narrow_numbers(launch)]
    sizes = found.parameters
    assert sizes[: len(own)] == own and set(sizes[len(own) :]) <= {8}, (launch.kernel, sizes)
    assert sizes == found.declared, launch.kernel


def narrow_numbers(launch: Launch) -> list[bool]:
    """Which arguments are numbers of 32 bits."""
    both = zip(launch.arguments, launch.is_wide, strict=True)
    return [not isinstance(argument, str) and not is_wide for argument, is_wide in both]


# free_gap's kernels are needleman_wunsch's without a gap; another layout differs in how a strip is shifted
COMPILED = [
    ("smith_waterman", (), 90, NARROW, ("score", "gradients", "tangents", "product", "best")),
    ("smith_waterman_affine", (), 90, NARROW, ("score", "gradients", "best")),
    ("smith_waterman_affine", (), 80, NARROW, ("tangents",)),  # which need most
    ("smith_waterman_affine", (), 90, NARROW, ("product",)),
    ("needleman_wunsch", (), 90, NARROW, ("tangents",)),
    ("free_gap", (), 80, WIDE, ("score", "gradients with values", "best")),
    ("smith_waterman", ("gap",), 90, NARROW, ("score", "gradients", "gradients with values")),
    ("needleman_wunsch", ("gap",), 90, WIDE, ("tangents", "product")),
    ("smith_waterman_affine", ("gap_open", "gap_extend"), 80, NARROW, ("tangents", "best")),
]


@pytest.mark.usefixtures("triton_cache")
@pytest.mark.parametrize(("problem", "by_position", "capability", "layout", "calls"), COMPILED)
def test_the_kernels_compile_and_fit(
    problem: str, by_position: tuple[str, ...], capability: int, layout: Layout, calls: tuple[str, ...]
):
    every = programs(problem, "float32", layout, by_position)
    limits = LOCAL_BYTES_BY_POSITION if by_position else LOCAL_BYTES
    for kernel in dict.fromkeys(launch.kernel for call in calls for launch in every[call].launches):
        found = figures(kernel, capability)
        assert 0 < found.registers <= 255 and found.shared <= 1024 * kernel.warps, (kernel, found)
        is_odds = kernel.name.startswith("odds")  # below
        assert is_odds or found.stack <= limits.get(problem, FEW_LOCAL_BYTES), (kernel, found)
        assert (found.threads, found.scratch, found.blocks) == (32 * kernel.warps, 0, 1), (kernel, found)
    for launch in (launch for call in calls for launch in every[call].launches):
        check_parameters(launch, figures(launch.kernel, capability))


# rows of a table of the engineering notes: a call's kernel, instructions for 32 cells by pipe, registers, warps
NOTES = (ROOT / "docs/engineering-notes-gpu.md").read_text()
ROW = r"\| (\w+) (\w+)(, few pairs)? \| (\w+), (\d+) × (\d+) \| ([\d. |]+) \| (\d+) \| (\d+) \|"
ROWS = [found.groups() for found in re.finditer(ROW, NOTES)]


def test_the_notes_have_a_row_of_each_kernel_that_gradients_launch():
    assert {row[3] for row in ROWS} == {"odds_forward", "odds_backward", "forward", "backward"}


@AS_NOTED
@pytest.mark.usefixtures("triton_cache")
@pytest.mark.parametrize("row", ROWS, ids=lambda row: "-".join(map(str, row[:4])))
def test_the_pipes_and_registers_are_those_of_the_notes(row: tuple[str, ...]):
    problem, call, is_wide, name, height, steps, counts, registers, warps = row
    launches = programs(problem, "float32", WIDE if is_wide else NARROW)[call].launches
    (kernel,) = (launch.kernel for launch in launches if launch.kernel.name == f"{name}_kernel")
    constants = {"height": 1, **dict[str, Any](kernel.constants)}
    assert (constants["height"], constants["steps"]) == (int(height), int(steps))
    own = figures(kernel, 90)
    found = {name: count / (int(height) * int(steps)) for name, count in own.pipes.items()}
    noted = dict(zip(found, map(float, counts.split(" | ")), strict=True))
    assert found["special"] == pytest.approx(noted["special"], abs=0.1)
    assert sum(found.values()) == pytest.approx(sum(noted.values()), rel=0.1)
    assert all(found[name] <= 1.1 * noted[name] + 0.3 for name in found), (found, noted)
    assert own.registers <= 1.1 * int(registers) and resident_warps(own.registers) >= int(warps), own


# and instructions for a cell where the notes have no row, forwards and back; bytes of a thread's own memory, and loads
# and stores of them for a cell on the way back: where registers are limited, in second derivatives, with affine gaps
ODDS = [
    ("smith_waterman", "score", 90, NARROW, (), 0, 0),
    ("smith_waterman", "score", 90, WIDE, (25.0,), 0, 0),
    ("smith_waterman", "gradients", 90, NARROW, (), 24, 0),
    ("smith_waterman", "gradients", 90, WIDE, (), 24, 0),
    ("smith_waterman", "gradients", 80, WIDE, (28.9, 50.8), 32, 0),
    ("smith_waterman", "gradients", 90, TALL, (26.0, 49.1), 0, 0),
    ("smith_waterman", "product", 90, NARROW, (), 0, 0),
    ("smith_waterman", "product", 90, WIDE, (70.8, 127.6), 0, 0),
    ("smith_waterman", "product", 90, TALL, (53.2, 98.0), 16, 0),
    ("smith_waterman_affine", "score", 90, NARROW, (), 0, 0),
    ("smith_waterman_affine", "gradients", 90, NARROW, (), 40, 0.3),
    ("smith_waterman_affine", "gradients", 90, WIDE, (30.6, 62.7), 32, 0),
    ("smith_waterman_affine", "product", 90, NARROW, (), 224, 3.5),
    ("smith_waterman_affine", "product", 90, WIDE, (91.8, 173.0), 48, 0),
]
# the layout of each pass that takes fewest special functions
FEWEST = {("score", WIDE): "score", ("gradients", WIDE): "marginals", ("product", NARROW): "hvp"}


@AS_NOTED
@pytest.mark.usefixtures("triton_cache")
@pytest.mark.parametrize(("problem", "call", "capability", "layout", "counted", "local", "moved"), ODDS)
def test_plain_odds_have_little_memory_of_their_own(
    problem: str,
    call: str,
    capability: int,
    layout: Layout,
    counted: tuple[float, ...],
    local: int,
    moved: float,
):
    special = 0.0
    launches = programs(problem, "float32", layout)[call].launches
    every = [launch for launch in launches if launch.kernel.name.startswith("odds")]
    for launch, instructions in itertools.zip_longest(every, counted):
        found, constants = figures(launch.kernel, capability), dict[str, Any](launch.kernel.constants)
        check_parameters(launch, found)
        is_back = launch.kernel.name == "odds_backward_kernel"
        assert found.registers <= (launch.kernel.registers or 255), found
        of_forward = 8 if "affine" in problem else 16
        assert found.stack <= (local if is_back or capability == 80 else of_forward), found
        warps = launch.kernel.warps
        assert found.threads == 32 * warps, found
        assert found.launch_shared <= SHARED_BYTES_OF_A_STEP * warps * constants["steps"], found
        cells = constants["height"] * constants["steps"]
        assert found.moved / cells <= (moved if is_back else 0), (launch.kernel, found)
        assert instructions is None or found.instructions / cells <= 1.1 * instructions, found
        special += found.pipes["special"] / cells
    if (call, layout) in FEWEST and capability == 90:
        assert special == pytest.approx(SPECIAL_FUNCTIONS[FEWEST[call, layout]], abs=0.1)


@pytest.mark.usefixtures("triton_cache")
@pytest.mark.parametrize(("call", "matrices"), [("score", 1), ("gradients", 1), ("product", 2)])
def test_matrices_are_read_by_lines_and_each_number_once(call: str, matrices: int):
    for launch in programs("smith_waterman", "float32", NARROW)[call].launches:
        constants = dict[str, Any](launch.kernel.constants)
        if "height" not in constants:  # an exact kernel
            continue
        found = figures(launch.kernel, 90)
        assert found.lines == matrices * constants["height"] * constants["steps"]
        # and a number and a unit of the row above; on the way back also of the row below, and what was kept of a chunk
        others = 2 + 2 + constants["height"] + 2 if launch.kernel.name == "odds_backward_kernel" else 2
        assert found.loads - found.lines == others * matrices
        # what is read by rows goes through shared memory to the lanes
        assert found.launch_shared >= 4 * constants["lanes"] * constants["steps"]


@pytest.mark.usefixtures("triton_cache")
@pytest.mark.parametrize("capability", [80, 90])
def test_the_measure_of_exponentials_is_bound_by_them(capability: int):
    (launch,) = exponentials_program("float32", 2**12, 8).launches
    assert launch.grid == 4
    found = figures(launch.kernel, capability)
    check_parameters(launch, found)
    special = found.pipes["special"]
    others = found.instructions - special
    # 8 numbers for a thread, 16 exponentials of each; a multiprocessor issues 8 instructions in the time of one of them
    assert special == 8 * 16
    assert others <= 2 * special


@pytest.mark.usefixtures("triton_cache")
def test_they_compile_in_float64_and_with_lengths_of_64_bits():
    for launch in programs("smith_waterman", "float64", NARROW)["gradients with values"].launches:
        check_parameters(launch, figures(launch.kernel, 90, "int64"))


@pytest.mark.usefixtures("triton_cache")
def test_there_is_one_machine_code_for_all_shapes_and_addresses():
    """Else JAX, which describes a kernel without its arguments, would run another code than PyTorch."""
    from shared.kernels.triton.kernels import KERNELS

    for function in KERNELS.values():
        numbers = {"pairs", "rows", "cols", "pair_stride", "row_stride", "t_pair_stride", "t_row_stride", "rounds"}
        for parameter in function.params:
            if parameter.is_constexpr:
                continue
            assert (
                parameter.do_not_specialize if parameter.name in numbers else parameter.do_not_specialize_on_alignment
            )


def test_cpp_is_told_where_machine_code_is_and_why_there_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    import ctypes

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(jax_calls, "_alive", [])  # the launcher, which may not be loaded, is the first in it
    kernel = programs("free_gap", "float64", NARROW)["score"].launches[0].kernel
    found = jax_calls._Found()
    assert jax_calls._find(json.dumps(kernel).encode(), 90, ctypes.pointer(found)) == 0
    assert ctypes.string_at(found.code, 4) == b"\x7fELF"
    assert (found.name, found.threads, found.error) == (b"forward_kernel", 32, None)
    assert (found.parameters, len(found.sizes), found.scratch, found.blocks) == (18, 18, 0, 1)
    unknown = json.dumps(Kernel("sideways_kernel", "float32", (), 1)).encode()
    assert jax_calls._find(unknown, 90, ctypes.pointer(found)) == 1
    assert found.error.startswith(b"Triton could not compile a kernel: KeyError: 'sideways_kernel'")


KEYS = """
import sys
from shared.kernels.triton.kernels import KERNELS

print(*sorted((name, KERNELS[name].cache_key) for name in sorted(KERNELS, reverse="backwards" in sys.argv)))
"""


def test_every_process_looks_for_a_kernel_under_the_same_key():
    """By itself, Triton's key of a kernel depends on which others a process has used before."""
    ways = ([], ["backwards"])
    ran = [subprocess.Popen([sys.executable, "-c", KEYS, *way], cwd=ROOT, stdout=subprocess.PIPE) for way in ways]
    forwards, backwards = [process.communicate()[0] for process in ran]
    assert b"odds_forward_kernel" in forwards and forwards == backwards


def test_few_pairs_are_walked_in_wide_strips():
    assert layout_of(1, 100) == layout_of(64, 128) == WIDE
    assert layout_of(1, 129) == layout_of(64, 512) == TALL
    assert layout_of(4096, 512) == layout_of(1, 20) == NARROW


@pytest.mark.usefixtures("triton_cache", "triton_knows_a_gpu")
@pytest.mark.parametrize(("problem", "by_position"), [("free_gap", ()), ("smith_waterman", ("gap",))])
def test_pytorch_finds_on_disk_what_jax_has_compiled(problem: str, by_position: tuple[str, ...], tmp_path: Path):
    """Triton's launcher, which PyTorch's calls go through, names what it compiles by more than its source."""
    from shared.kernels.triton.kernels import KERNELS
    from shared.kernels.triton.machine_code import machine_code

    machine_code.cache_clear()
    launch = programs(problem, "float32", NARROW, by_position)["score"].launches[0]
    compiled = machine_code(launch.kernel, 90)
    types = {"lengths": "int32", **TYPES}
    names = [name for name in launch.arguments if isinstance(name, str)]
    buffers = {name: torch.empty(1, dtype=getattr(torch, types.get(name, "float32"))) for name in names}
    arguments = [buffers.get(argument, argument) for argument in launch.arguments]
    kernel = KERNELS[launch.kernel.name]
    kernel.device_caches.clear()
    limits = {"num_warps": launch.kernel.warps}
    limits |= {"maxnreg": launch.kernel.registers} if launch.kernel.registers else {}
    found = kernel.warmup(*arguments, grid=(1,), **dict(launch.kernel.constants), **limits)
    kernel.device_caches.clear()
    assert found.hash == compiled.hash
    assert len(list(tmp_path.rglob("*.cubin"))) == 1


# what follows asks for what all tests before have asked for
AS_RECORDED = pytest.mark.skipif(
    importlib.util.find_spec("triton") is not None and importlib.metadata.version("triton") != read()["triton"],
    reason="the record is of another Triton",
)


@AS_RECORDED
def test_the_kernels_are_those_recorded():
    not_recorded = recorded().keys() - read()["kernels"].keys()
    assert not not_recorded, "kernels have changed: python -m tools.machine_code records their figures, in minutes"


@AS_RECORDED
@pytest.mark.usefixtures("triton_cache")
def test_a_kernel_has_the_recorded_figures_when_it_is_compiled():
    kernel = programs("smith_waterman", "float32", NARROW)["score"].launches[0].kernel
    assert compiled_now(kernel, 90) == figures(kernel, 90)
