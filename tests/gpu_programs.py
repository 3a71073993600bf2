"""A CPU that is taken for a GPU, which compiles for one and launches nothing on it."""

import importlib
from typing import Any

import pytest

import jax_impl.alignment
import torch_impl.alignment
from torch_impl.kernels import fused


def take_for_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let public functions take every tensor and array for one on a GPU."""
    # functions of the packages have the names of these modules
    jax_best, torch_best = (importlib.import_module(f"{name}_impl.best_alignment") for name in ("jax", "torch"))
    for module in (fused, torch_impl.alignment, torch_best):
        monkeypatch.setattr(module, "is_on_gpu", lambda _: True)
    for module in (jax_impl.alignment, jax_best):
        monkeypatch.setattr(module, "platform_of", lambda _: "cuda")
    monkeypatch.setattr(fused, "is_plain", lambda _: False)


class Driver:
    """A stand-in for Triton's driver, as PyTorch calls it while tracing, and Triton's launcher while compiling."""

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0
