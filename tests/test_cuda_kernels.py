"""The list of kernels that are compiled before the tests marked cuda: what these launch is in it."""

import contextlib
import importlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import MagicMock

import cuda_kernels
import numpy as np
import pytest
import test_cuda
import test_transforms
import torch
from frameworks import FRAMEWORKS

import torch_impl.alignment
from shared.kernels.triton.programs import TYPES, Kernel, Program
from torch_impl.kernels import exact_pairs, fused, plain_calls

small_launches = pytest.importorskip("small_launches", reason="Triton is not installed", exc_type=ImportError)


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> set[Kernel]:
    """The kernels that PyTorch launches from now on, where the CPU is taken for a GPU; results are 0."""
    found: set[Kernel] = set()

    def note(program: Program, inputs: dict[str, Any]) -> dict[str, Any]:
        found.update(launch.kernel for launch in program.launches)
        dtypes = {name: getattr(torch, own) for name, own in TYPES.items()}
        like = inputs["similarity"]
        return {name: like.new_zeros(own, dtype=dtypes.get(name)) for name, own in program.results.items()}

    best_alignment = importlib.import_module("torch_impl.best_alignment")
    for module in (fused, torch_impl.alignment, best_alignment, exact_pairs):
        monkeypatch.setattr(module, "is_on_gpu", lambda own: isinstance(own, torch.Tensor))
    monkeypatch.setattr(plain_calls, "is_plain", lambda *_: False)
    monkeypatch.setattr(small_launches.calls, "_run", note)
    monkeypatch.setattr(small_launches.calls, "forced_layout", None)  # so that it is put back
    return found


def parametrizations(test: Callable[..., object]) -> Iterator[dict[str, Any]]:
    """The arguments of each run of a test."""
    marks = [mark.args for mark in getattr(test, "pytestmark", ()) if mark.name == "parametrize"]
    names = [[name] if isinstance(name, str) else name for name, _ in marks]
    for values in itertools.product(*(values for _, values in marks)):
        given: dict[str, Any] = {}
        for own, value in zip(names, values, strict=True):
            given |= zip(own, value if len(own) > 1 else [value], strict=True)
        yield given


def test_every_kernel_that_the_tests_launch_is_in_the_list(launched: set[Kernel], monkeypatch: pytest.MonkeyPatch):
    right = MagicMock(unsafe=True)  # whose names may begin with assert
    right.best_alignment.return_value = 0, 0
    for name in ("BENCHMARK", "assert_parity", "reference", "reference_result", "reference_results"):
        monkeypatch.setattr(test_cuda, name, right)
    monkeypatch.setattr(np, "testing", right)
    monkeypatch.setattr(torch, "testing", right)
    monkeypatch.setattr(test_cuda, "FRAMEWORKS", dict.fromkeys(FRAMEWORKS, FRAMEWORKS["torch"]))
    monkeypatch.setattr(test_cuda, "DEVICE", "cpu")
    monkeypatch.setattr(test_transforms, "usable_variants", lambda *_: ["fused"])
    monkeypatch.setattr(FRAMEWORKS["torch"].backend, "to_device", lambda array, device: torch.from_numpy(array))
    monkeypatch.setattr(torch.Tensor, "cuda", lambda tensor: tensor)
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    tests = [test for name, test in vars(test_cuda).items() if name.startswith("test_")]
    tests += [test for name, test in vars(test_transforms).items() if name.startswith("test_") and "cuda" in name]
    for test in tests:
        for given in parametrizations(test):
            if given.get("framework") != "jax" and given.get("variant", "fused") == "fused":
                with contextlib.suppress(Exception):  # what is asserted of results, and what only a GPU can do
                    test(**given)
    assert len(launched) > 250
    # JAX's calls always have lengths
    launched |= {
        kernel._replace(constants=tuple((name, 1 if name == "has_lengths" else own) for name, own in kernel.constants))
        for kernel in launched
    }
    assert not launched - set(cuda_kernels.kernels())


def test_compute_sanitizer_looks_at_every_kernel_in_each_layout(launched: set[Kernel], monkeypatch: pytest.MonkeyPatch):
    from shared.kernels.triton.kernels import KERNELS

    monkeypatch.setattr(small_launches, "DEVICE", "cpu")
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    small_launches.launch_all()
    assert {kernel.name for kernel in launched} == KERNELS.keys() - {"exponentials_kernel"}
    lanes = {dict(kernel.constants).get("lanes") for kernel in launched if not kernel.name.startswith("odds")}
    assert lanes == {layout.lanes for layout in small_launches.LAYOUTS}
    assert not launched - set(cuda_kernels.kernels())
