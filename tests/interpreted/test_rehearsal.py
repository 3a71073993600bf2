"""Tests of the GPU's, as far as a CPU that is taken for one can go: public functions, passes, transforms, the gate."""

import functools

import numpy as np
import pytest
import test_cuda
import torch
from frameworks import FRAMEWORKS
from kernel_calls import take_for_a_gpu

import torch_impl
import torch_impl.alignment
from shared.kernels.triton.programs import NARROW
from tools import kernel_times
from torch_impl.kernels import exact_pairs as exact_pairs_module
from torch_impl.kernels import triton_binding
from torch_impl.kernels.exact_pairs import exact_pairs

BOTH = pytest.mark.parametrize("framework", FRAMEWORKS)


@pytest.fixture(autouse=True)
def _taken_for_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    take_for_a_gpu(monkeypatch)
    monkeypatch.setattr(test_cuda, "DEVICE", "cpu")
    monkeypatch.setattr(test_cuda, "SIZE", (5, 4))


@pytest.mark.parametrize(
    ("problem", "pass_name"),
    [
        ("smith_waterman", "score"),
        ("free_gap", "marginals"),
        pytest.param("smith_waterman_affine", "hvp", marks=pytest.mark.slow),
    ],
)
@BOTH
def test_public_functions_give_the_reference(framework: str, problem: str, pass_name: str):
    test_cuda.test_a_gpu_gives_the_reference(framework, problem, "fused", pass_name, "float32", 0)


def test_exact_pairs_tells_which_pairs_take_the_exact_kernels(monkeypatch: pytest.MonkeyPatch):
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


def test_exact_pairs_says_what_it_cannot_tell(monkeypatch: pytest.MonkeyPatch):
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


def test_numbers_arrays_and_lengths_of_the_host_go_with_a_matrix():
    test_cuda.test_numbers_arrays_and_lengths_of_the_host_go_with_a_matrix_on_the_gpu("smith_waterman_affine")


@BOTH
def test_best_alignments_are_the_references(framework: str):
    test_cuda.test_best_alignments_of_whole_numbers_are_the_references(framework, "needleman_wunsch", True)


@BOTH
def test_powers_of_two_are_exact(framework: str):  # in float32 NumPy rounds 2^127
    test_cuda.test_powers_of_two_are_exact(framework, "float64")


@pytest.mark.slow
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


class Event:
    """A CUDA event of which nobody asks the time before it was recorded: a millisecond from one to the next."""

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None:
        self.is_recorded = True

    def elapsed_time(self, later: "Event") -> float:
        assert self.is_recorded and later.is_recorded
        return 1.0


@pytest.mark.parametrize("call", ["score", pytest.param("gradients", marks=pytest.mark.slow)])
def test_times_of_kernels_are_printed(monkeypatch: pytest.MonkeyPatch, call: str):
    monkeypatch.setattr(kernel_times, "DEVICE", "cpu")
    monkeypatch.setattr(kernel_times, "FLUSHED", 1)
    monkeypatch.setattr(kernel_times, "TIMED_CALLS", 2)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    told = kernel_times.times(kernel_times.asked(f"smith_waterman/{call}/2x3x5/1x16x0"))
    wanted = "1000 µs, 3e-05 GCUPS" if call == "score" else "1000 + 1000 µs, 1.5e-05 GCUPS"
    assert told == f"{wanted}, 0 flagged"
