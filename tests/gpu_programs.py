"""Programs of the GPU kernels for tests without a GPU, and a stand-in for Triton's driver."""

from typing import Any

from frameworks import PROBLEMS

from shared.kernels import cpp
from shared.kernels.triton.programs import CALLS, Layout, Program, program_of

SHAPE = (2, 9, 7)


def programs(problem: str, dtype: str, layout: Layout, by_position: tuple[str, ...] = ()) -> dict[str, Program]:
    """The programs of all calls of a problem."""
    call = cpp.call_of(problem, PROBLEMS[problem].options[0], by_position)
    return {name: program_of(name, call, dtype, SHAPE, layout) for name in CALLS}


class Driver:
    """A stand-in for Triton's driver, as PyTorch calls it while tracing, and Triton's launcher while compiling."""

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0
