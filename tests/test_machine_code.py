"""The machine code of the GPU kernels: that some of each kind compile and fit, what bounds them, where it is found."""

import importlib.metadata
import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import ROOT
from compiled_kernels import inner_loop, parameters, resources
from gpu_programs import programs

from shared.kernels.triton.hardware_limit import SPECIAL_FUNCTIONS
from shared.kernels.triton.programs import NARROW, TYPES, WIDE, Launch, Layout

pytestmark = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
# an older one keeps other numbers in registers
AS_NOTED = pytest.mark.skipif(
    importlib.util.find_spec("triton") is not None and importlib.metadata.version("triton") < "3.7",
    reason="the figures are those of Triton 3.7",
)

# of a thread, where registers do not suffice: they cost time
MOST_LOCAL_BYTES = 48
# the layout of each pass that takes fewest special functions
ODDS = [(WIDE, "score", "score"), (WIDE, "gradients", "marginals"), (NARROW, "product", "hvp")]


def check_parameters(launch: Launch, compiled: Any) -> None:
    """Check that the machine code takes what launch.cc passes: arguments, then pointers of Triton's own."""
    from shared.kernels.triton.machine_code import parameter_bytes

    both = zip(launch.arguments, launch.is_wide, strict=True)
    passed = [4 if not isinstance(argument, str) and not is_wide else 8 for argument, is_wide in both]
    sizes = parameters(compiled)
    assert sizes[: len(passed)] == passed and set(sizes[len(passed) :]) <= {8}, (launch.kernel, sizes)
    assert sizes == list(parameter_bytes(compiled)), launch.kernel


@pytest.mark.usefixtures("triton_cache")
@pytest.mark.parametrize(
    ("problem", "by_position", "layout", "call"),
    [
        ("smith_waterman", (), WIDE, "score"),
        ("smith_waterman", (), NARROW, "best"),
        *(pytest.param("smith_waterman", (), *own[:2], marks=pytest.mark.slow) for own in ODDS[1:]),
        pytest.param("smith_waterman_affine", ("gap_open", "gap_extend"), NARROW, "gradients", marks=pytest.mark.slow),
    ],
)
def test_the_kernels_compile_and_fit(problem: str, by_position: tuple[str, ...], layout: Layout, call: str):
    from shared.kernels.triton.machine_code import machine_code, requirements

    for launch in programs(problem, "float32", layout, by_position)[call].launches:
        compiled = machine_code(launch.kernel, 90)
        check_parameters(launch, compiled)
        used, (threads, _, scratch, blocks) = resources(compiled), requirements(compiled)
        assert 0 < used["REG"] <= (launch.kernel.registers or 255), (launch.kernel, used)
        assert used["SHARED"] <= 1024 * launch.kernel.warps, (launch.kernel, used)
        assert used["STACK"] <= MOST_LOCAL_BYTES, (launch.kernel, used)
        assert (threads, scratch, blocks) == (32 * launch.kernel.warps, 0, 1), launch.kernel


@AS_NOTED
@pytest.mark.slow
@pytest.mark.usefixtures("triton_cache")
@pytest.mark.parametrize(("layout", "call", "pass_name"), ODDS)
def test_the_special_functions_of_a_cell_are_those_of_the_hardware_limit(layout: Layout, call: str, pass_name: str):
    from shared.kernels.triton.machine_code import machine_code

    count = 0.0
    for launch in programs("smith_waterman", "float32", layout)[call].launches:
        if launch.kernel.name.startswith("odds"):
            constants, loop = dict[str, Any](launch.kernel.constants), inner_loop(machine_code(launch.kernel, 90))
            count += sum("MUFU" in text for text in loop) / (constants["height"] * constants["steps"])
    assert count == pytest.approx(SPECIAL_FUNCTIONS[pass_name], abs=0.1)


@pytest.mark.slow
@pytest.mark.usefixtures("triton_cache")
def test_kernels_compile_in_float64_and_with_lengths_of_64_bits():
    from shared.kernels.triton.machine_code import machine_code

    for launch in programs("smith_waterman", "float64", NARROW)["gradients with values"].launches:
        check_parameters(launch, machine_code(launch.kernel, 90, "int64"))


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


@pytest.mark.usefixtures("triton_cache", "triton_knows_a_gpu")
@pytest.mark.parametrize(
    ("problem", "by_position"), [("smith_waterman", ("gap",)), pytest.param("free_gap", (), marks=pytest.mark.slow)]
)
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
