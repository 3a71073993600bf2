"""Programs of the GPU kernels for tests without a GPU, and a stand-in for Triton's driver."""

from typing import Any

from frameworks import PROBLEMS

from shared.kernels import cpp
from shared.kernels.triton.programs import (
    Layout,
    Program,
    best_program,
    gradients_program,
    product_program,
    score_program,
    tangents_program,
)

SHAPE, STRIDES = (2, 9, 7), (63, 7)


def programs(problem: str, dtype: str, layout: Layout, by_position: tuple[str, ...] = ()) -> dict[str, Program]:
    """The calls of a problem."""
    given = cpp.call_of(problem, PROBLEMS[problem].options[0], by_position), dtype, SHAPE
    return {
        "score": score_program(*given, STRIDES, True, layout),
        "gradients": gradients_program(*given, STRIDES, True, layout, False),
        "gradients with values": gradients_program(*given, STRIDES, True, layout, True),
        "tangents": tangents_program(*given, (*STRIDES, *STRIDES), True, layout),
        "product": product_program(*given, (*STRIDES, *STRIDES), True, layout),
        "best": best_program(*given, STRIDES, True, layout),
    }


class Driver:
    """A stand-in for Triton's driver, as PyTorch calls it while tracing, and Triton's launcher while compiling."""

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0
