"""What people do with the functions in models: closures, masks, odd arrays. Each was wrong once."""

from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from frameworks import FRAMEWORKS

import torch_impl
from shared import reference

PACKAGES = pytest.mark.parametrize("package", [framework.package for framework in FRAMEWORKS.values()])
MATRIX = np.random.default_rng(0).normal(size=(4, 5)).astype(np.float32)
FORBIDDEN = np.full((3, 3), -np.inf, np.float32)


def test_torch_marginals_stay_connected_to_what_a_function_closes_over():
    similarity, gap = torch.from_numpy(MATRIX), torch.tensor(-1.0, requires_grad=True)
    closed = torch_impl.marginals(lambda s, lengths=None: torch_impl.smith_waterman(s, lengths, gap=gap), similarity)
    passed = torch_impl.marginals(torch_impl.smith_waterman, similarity, gap=gap)
    (by_closure,) = torch.autograd.grad(closed.square().sum(), gap)
    (by_argument,) = torch.autograd.grad(passed.square().sum(), gap)
    assert by_closure == pytest.approx(by_argument)
    assert by_argument != 0


def test_torch_marginals_of_plain_tensors_keep_no_graph():
    assert not torch_impl.marginals(torch_impl.smith_waterman, torch.from_numpy(MATRIX), gap=-1.0).requires_grad


def test_torch_marginals_work_in_inference_mode():
    expected = torch_impl.marginals(torch_impl.smith_waterman, torch.from_numpy(MATRIX))
    with torch.inference_mode():
        got = torch_impl.marginals(torch_impl.smith_waterman, torch.from_numpy(MATRIX) + 0)
    assert torch.equal(got, expected)


def test_torch_names_the_variants_that_can_be_mapped():
    with pytest.raises(RuntimeError, match=r"variant 'batch_loop' .* use 'cell_loop', 'diagonal_loop' or 'auto'"):
        torch.func.vmap(lambda s: torch_impl.smith_waterman(s, variant="batch_loop"))(torch.ones(2, 3, 3))


@PACKAGES
@pytest.mark.parametrize("end", ["any", "match"])
def test_a_pair_whose_every_match_is_forbidden_has_no_alignment(package: ModuleType, end: str):
    one_match = FORBIDDEN.copy()
    one_match[1, 1] = 2.0
    pairs = [FORBIDDEN, *([one_match] if end == "match" else [])]
    for pair in pairs:
        assert float(package.smith_waterman(pair, end=end)) == 0.0
        assert not np.asarray(package.marginals(package.smith_waterman, pair, end=end)).any()
        assert reference.smith_waterman(pair, end=end) == 0.0


@PACKAGES
def test_arrays_that_run_backwards_are_accepted(package: ModuleType):
    lengths = np.array([5, 4])[::-1]
    got = package.smith_waterman(MATRIX[::-1], lengths)
    assert float(got) == pytest.approx(float(reference.smith_waterman(MATRIX[::-1], lengths)), rel=1e-5)


@PACKAGES
@pytest.mark.parametrize("gap", [-1e39, -1e300])
def test_a_gap_that_float32_cannot_hold_forbids_gaps(package: ModuleType, gap: float):
    got = float(package.smith_waterman(MATRIX, gap=gap))
    assert got == pytest.approx(float(reference.smith_waterman(MATRIX, gap=-1e9)), rel=1e-5)


@PACKAGES
@pytest.mark.parametrize("temperature", [1e-40, 1e300])
def test_a_temperature_that_float32_cannot_hold_is_refused(package: ModuleType, temperature: float):
    with pytest.raises(ValueError, match="temperature must be positive and finite, got"):
        package.smith_waterman(MATRIX, temperature=temperature)


@PACKAGES
@pytest.mark.parametrize("similarity", [[[1.0, 2.0]], None, "a", np.ones((2, 2), int), np.ma.array(MATRIX)])
def test_marginals_check_their_similarity_like_the_function(package: ModuleType, similarity: Any):
    with pytest.raises(TypeError) as of_function:
        package.smith_waterman(similarity)
    with pytest.raises(TypeError) as of_marginals:
        package.marginals(package.smith_waterman, similarity)
    assert str(of_marginals.value) == str(of_function.value)
    assert str(of_function.value).startswith("similarity must be ")
