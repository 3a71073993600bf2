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
from frameworks import PROBLEMS

from shared.kernels import cpp
from shared.kernels.triton.hardware_limit import SPECIAL_FUNCTIONS
from shared.kernels.triton.programs import NARROW, TYPES, WIDE, Launch, Layout, program_of

pytestmark = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
# of a thread, where registers do not suffice: they cost time; in float64 they never do
MOST_LOCAL_BYTES = 48
# exponentials and the like of a cell with block exponents; each in the layout that takes fewest, others have none
CASES = [
    ("smith_waterman", "score", WIDE, (), "float32", SPECIAL_FUNCTIONS["score"]),
    ("smith_waterman", "best", NARROW, (), "float32", 0),
    ("smith_waterman", "gradients", WIDE, (), "float32", SPECIAL_FUNCTIONS["marginals"]),
    ("smith_waterman", "product", NARROW, (), "float32", SPECIAL_FUNCTIONS["hvp"]),
    ("smith_waterman", "gradients with values", NARROW, (), "float64", 0),
    ("smith_waterman_affine", "gradients", NARROW, ("gap_open", "gap_extend"), "float32", 0),
]


def launches(
    problem: str, call: str, layout: Layout, by_position: tuple[str, ...] = (), dtype: str = "float32"
) -> tuple[Launch, ...]:
    described = cpp.call_of(problem, PROBLEMS[problem].options[0], by_position)
    return program_of(call, described, dtype, (2, 9, 7), layout).launches


@pytest.mark.usefixtures("triton_cache")
@pytest.mark.parametrize(
    ("problem", "call", "layout", "by_position", "dtype", "special_functions"),
    [*CASES[:2], *(pytest.param(*case, marks=pytest.mark.slow) for case in CASES[2:])],
)
def test_kernels_compile_fit_and_take_what_is_passed(problem, call, layout, by_position, dtype, special_functions):
    from shared.kernels.triton.machine_code import machine_code, parameter_bytes, requirements

    count = 0.0
    # exact gradients, which follow those with block exponents, have cases of their own
    every = launches(problem, call, layout, by_position, dtype)
    with_blocks = [launch for launch in every if launch.kernel.name.startswith("block")]
    for launch in with_blocks if with_blocks and call == "gradients" else every:
        compiled = machine_code(launch.kernel, 90, "int64" if dtype == "float64" else "int32")
        # arguments as launch.cc passes them, then pointers of Triton's own
        both = zip(launch.arguments, launch.is_wide, strict=True)
        passed = [4 if not isinstance(argument, str) and not is_wide else 8 for argument, is_wide in both]
        sizes = parameters(compiled)
        assert sizes[: len(passed)] == passed and set(sizes[len(passed) :]) <= {8}, (launch.kernel, sizes)
        assert sizes == list(parameter_bytes(compiled)), launch.kernel
        used, (threads, _, scratch, blocks) = resources(compiled), requirements(compiled)
        assert 0 < used["REG"] <= (launch.kernel.registers or 255), (launch.kernel, used)
        assert used["SHARED"] <= 1024 * launch.kernel.warps, (launch.kernel, used)
        assert used["STACK"] <= MOST_LOCAL_BYTES or dtype == "float64", (launch.kernel, used)
        assert (threads, scratch, blocks) == (32 * launch.kernel.warps, 0, 1), launch.kernel
        if launch.kernel.name.startswith("block"):
            constants = dict[str, Any](launch.kernel.constants)
            cells = constants["height"] * constants["steps"]
            count += sum("MUFU" in instruction for instruction in inner_loop(compiled)) / cells
    if importlib.metadata.version("triton") >= "3.7":  # an older one keeps other numbers in registers
        assert count == pytest.approx(special_functions, abs=0.1)


def test_there_is_one_machine_code_for_all_shapes_and_addresses():
    """Else JAX, which describes a kernel without its arguments, would run another code than PyTorch."""
    from shared.kernels.triton.kernels import KERNELS
    from shared.kernels.triton.machine_code import INT32_ARGUMENTS, INT64_ARGUMENTS

    for parameter in [parameter for kernel in KERNELS.values() for parameter in kernel.params]:
        if parameter.name in (*INT32_ARGUMENTS, *INT64_ARGUMENTS):
            assert parameter.do_not_specialize
        else:
            assert parameter.is_constexpr or parameter.do_not_specialize_on_alignment


KEYS = """
import sys
from shared.kernels.triton.kernels import KERNELS

print(*sorted((name, KERNELS[name].cache_key) for name in sorted(KERNELS, reverse="backwards" in sys.argv)))
"""


def test_every_process_looks_for_a_kernel_under_the_same_key():
    """Triton's own key of a kernel depends on which others a process has used before."""
    ways = ([], ["backwards"])
    ran = [subprocess.Popen([sys.executable, "-c", KEYS, *way], cwd=ROOT, stdout=subprocess.PIPE) for way in ways]
    forwards, backwards = [process.communicate()[0] for process in ran]
    assert b"block_forward_kernel" in forwards and forwards == backwards


@pytest.mark.usefixtures("triton_cache", "triton_knows_a_gpu")
@pytest.mark.parametrize(
    ("problem", "by_position"), [("smith_waterman", ("gap",)), pytest.param("free_gap", (), marks=pytest.mark.slow)]
)
def test_pytorch_finds_on_disk_what_jax_has_compiled(problem, by_position, tmp_path: Path):
    """Triton's launcher, which PyTorch's calls go through, names what it compiles by more than its source."""
    from shared.kernels.triton.kernels import KERNELS
    from shared.kernels.triton.machine_code import machine_code

    machine_code.cache_clear()
    launch, *_ = launches(problem, "score", NARROW, by_position)
    compiled = machine_code(launch.kernel, 90)
    types = {"lengths": "int32", **TYPES}
    arguments = [
        torch.empty(1, dtype=getattr(torch, types.get(argument, "float32"))) if isinstance(argument, str) else argument
        for argument in launch.arguments
    ]
    kernel = KERNELS[launch.kernel.name]
    kernel.device_caches.clear()
    limits = {"num_warps": launch.kernel.warps}
    limits |= {"maxnreg": launch.kernel.registers} if launch.kernel.registers else {}
    warmed = kernel.warmup(*arguments, grid=(1,), **dict(launch.kernel.constants), **limits)
    kernel.device_caches.clear()
    assert warmed.hash == compiled.hash
    assert len(list(tmp_path.rglob("*.cubin"))) == 1
