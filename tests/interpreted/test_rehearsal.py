"""Tests of the GPU's, as far as a CPU that is taken for one can go: public functions, passes, transforms, the gate."""

import functools
import importlib
from typing import Any

import kernel_calls  # noqa: F401 - it puts the kernels behind both frameworks' calls
import numpy as np
import pytest
import small_launches
import test_cuda
import torch
from frameworks import FRAMEWORKS, PROBLEMS
from torch._C import _dispatch_keys

import jax_impl.alignment
import torch_impl
import torch_impl.alignment
from shared.kernels.triton.programs import NARROW, Layout
from torch_impl.kernels import cpp_binding, plain_calls, triton_binding
from torch_impl.kernels import exact_pairs as exact_pairs_module
from torch_impl.kernels import fused as torch_fused
from torch_impl.kernels.exact_pairs import exact_pairs

BOTH = pytest.mark.parametrize("framework", FRAMEWORKS)


@pytest.fixture(autouse=True)
def _taken_for_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def is_tensor(similarity: Any) -> bool:
        return isinstance(similarity, torch.Tensor)

    def never(*_: Any) -> Any:
        raise AssertionError("a kernel for CPUs was called")

    best_alignment = importlib.import_module("torch_impl.best_alignment")
    for module in (torch_fused, torch_impl.alignment, best_alignment, exact_pairs_module):
        monkeypatch.setattr(module, "is_on_gpu", is_tensor)
    for keys in ("_KEYS", "_KEYS_IN_INFERENCE_MODE"):  # no tensor is an ordinary one in this machine's memory
        monkeypatch.setattr(plain_calls, keys, _dispatch_keys(torch.empty(0, device="meta")))
    for name in ("score", "gradients", "tangents", "best"):
        monkeypatch.setattr(cpp_binding, name, never)
    for module in (jax_impl.alignment, importlib.import_module("jax_impl.best_alignment")):
        monkeypatch.setattr(module, "platform_of", lambda _: "cuda")
    monkeypatch.setattr(test_cuda, "DEVICE", "cpu")
    monkeypatch.setattr(test_cuda, "SIZE", (5, 4))


@pytest.mark.parametrize(
    ("problem", "pass_name"),
    [
        ("smith_waterman", "score"),
        *((problem, "marginals") for problem in PROBLEMS),
        ("smith_waterman_affine", "hvp"),
    ],
)
@BOTH
def test_public_functions_give_the_reference(framework: str, problem: str, pass_name: str):
    test_cuda.test_a_gpu_gives_the_reference(framework, problem, "fused", pass_name, "float32", 0)


def test_it_is_told_which_pairs_take_the_exact_kernels(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(triton_binding, "forced_layout", NARROW)
    s = torch.zeros(3, 9, 10)
    s[1, 4, 5] = 60.0
    assert exact_pairs(torch_impl.smith_waterman, s).tolist() == [False, True, False]
    affine = functools.partial(torch_impl.smith_waterman_affine, penalize_turns=False)
    gap = torch.tensor([-1.0, -2.0, -20.0])
    found = exact_pairs(affine, s, torch.full((3, 2), 9), gap_open=gap, pass_name="score")
    assert found.tolist() == [False, True, True]
    assert exact_pairs(torch_impl.free_gap, s.double()).all()
    assert exact_pairs(torch_impl.needleman_wunsch, s, gap=-torch.ones_like(s)).all()
    assert not exact_pairs(torch_impl.needleman_wunsch, s[0])


def test_it_says_what_it_cannot_tell(monkeypatch: pytest.MonkeyPatch):
    s = torch.zeros(3, 9, 10)
    with pytest.raises(ValueError, match="pass_name must be 'score' or 'marginals', not 'hvp'"):
        exact_pairs(torch_impl.smith_waterman, s, pass_name="hvp")
    with pytest.raises(TypeError, match="unexpected keyword argument 'gapp'"):
        exact_pairs(torch_impl.smith_waterman, s, gapp=-1.0)
    with pytest.raises(TypeError, match="function must be an alignment of torch_impl with variant 'fused' or 'auto'"):
        exact_pairs(torch_impl.smith_waterman, s, variant="wavefront")
    monkeypatch.setattr(exact_pairs_module, "is_on_gpu", lambda _: False)
    with pytest.raises(ValueError, match="similarity must be on a CUDA device, not cpu"):
        exact_pairs(torch_impl.smith_waterman, s)


@pytest.mark.parametrize(("framework", "problem"), [("jax", "smith_waterman_affine"), ("torch", "needleman_wunsch")])
def test_public_functions_take_gaps_by_position(framework: str, problem: str):
    test_cuda.test_gaps_by_position_are_right(framework, problem, "float64", 5)


def test_numbers_arrays_and_lengths_of_the_host_go_with_a_matrix():
    test_cuda.test_numbers_arrays_and_lengths_of_the_host_go_with_a_matrix_on_the_gpu("smith_waterman_affine")


@BOTH
def test_best_alignments_are_the_references(framework: str):
    test_cuda.test_best_alignments_of_whole_numbers_are_the_references(framework, "needleman_wunsch", True)


@BOTH
def test_larger_best_alignments_are_those_of_the_cpu(framework: str):
    test_cuda.test_best_alignments_on_a_gpu_are_those_on_the_cpu(framework, "free_gap", (3, 9, 5))


@BOTH
def test_powers_of_two_are_exact(framework: str):  # in float32 NumPy rounds 2^127
    test_cuda.test_powers_of_two_are_exact(framework, "float64")


def test_ragged_batches_are_right():
    test_cuda.test_fused_is_right_on_ragged_batches("torch", "smith_waterman", (3, 9, 5), "float64")


def test_both_frameworks_map_and_differentiate():
    test_cuda.test_torch_maps_and_differentiates_fused("smith_waterman")
    test_cuda.test_jax_compiles_maps_and_differentiates_fused("smith_waterman")


def test_a_single_pair_and_fewer_bits():
    random = np.random.default_rng(0)
    similarity = torch.from_numpy(random.normal(size=(5, 4)).astype(np.float32))
    function = torch_impl.needleman_wunsch
    for given, error in ((similarity, 1e-6), (similarity.bfloat16(), 1e-2)):
        exact = given.double()
        score, marginals = function(given), torch_impl.marginals(function, given)
        product = torch_impl.hessian_vector_product(function, given, given)
        assert {score.dtype, marginals.dtype, product.dtype} == {given.dtype}
        wanted = function(exact, variant="diagonal_loop"), torch.func.grad(function)(exact, variant="diagonal_loop")
        torch.testing.assert_close((score.double(), marginals.double()), wanted, rtol=error, atol=error)


def test_what_compute_sanitizer_looks_at_launches_every_kernel_in_each_layout(monkeypatch: pytest.MonkeyPatch):
    launched = set()

    def note(launch: Any, *rest: Any, launch_it: Any = triton_binding._launch) -> None:
        launched.add((launch.kernel.name, launch.kernel.constants))
        launch_it(launch, *rest)

    monkeypatch.setattr(triton_binding, "_launch", note)
    monkeypatch.setattr(triton_binding, "forced_layout", None)  # so that it is put back
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(small_launches, "LAYOUTS", (Layout(2, 1), Layout(4, 1)))
    monkeypatch.setattr(small_launches, "DEVICE", "cpu")
    monkeypatch.setattr(small_launches, "CASES", (("needleman_wunsch", torch.float32),))
    small_launches.launch_all()
    assert len(launched) == 2 * 6
    assert {dict(constants)["lanes"] for _, constants in launched} == {2, 4}
