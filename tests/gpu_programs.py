"""A stand-in for Triton's driver, as PyTorch calls it while tracing, and Triton's launcher while compiling."""

from triton.backends.compiler import GPUTarget


class Driver:
    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0
