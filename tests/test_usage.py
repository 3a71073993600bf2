"""What people do with the functions in models: closures, masks, odd arrays. Each was wrong once."""

from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from frameworks import FRAMEWORKS, PROBLEMS

import torch_impl
from shared import reference
from shared.tolerances import LARGEST_GAP, LOWEST

PACKAGES = pytest.mark.parametrize("package", [framework.package for framework in FRAMEWORKS.values()])
EVERY = pytest.mark.parametrize("problem", PROBLEMS)
OPTIONS = [(problem, options) for problem, (_, every) in PROBLEMS.items() for options in every]
LOCAL = [case for case in OPTIONS if case[0].startswith("smith_waterman")]
MATRIX = np.random.default_rng(0).normal(size=(4, 5)).astype(np.float32)
FORBIDDEN = np.full((3, 3), -np.inf, np.float32)


@pytest.mark.parametrize(
    ("problem", "name"), [(problem, name) for problem in PROBLEMS for name in PROBLEMS[problem][0]]
)
def test_torch_marginals_stay_connected_to_what_a_function_closes_over(problem: str, name: str):
    function, similarity = getattr(torch_impl, problem), torch.from_numpy(MATRIX)
    value = torch.tensor(0.7 if name == "temperature" else -0.7, requires_grad=True)
    closed = torch_impl.marginals(lambda s, lengths=None: function(s, lengths, **{name: value}), similarity)
    passed = torch_impl.marginals(function, similarity, **{name: value})
    (by_closure,) = torch.autograd.grad(closed.square().sum(), value)
    (by_argument,) = torch.autograd.grad(passed.square().sum(), value)
    assert by_closure == pytest.approx(by_argument)
    assert by_argument != 0


@EVERY
def test_torch_marginals_of_plain_tensors_keep_no_graph(problem: str):
    assert not torch_impl.marginals(getattr(torch_impl, problem), torch.from_numpy(MATRIX)).requires_grad


@EVERY
def test_torch_marginals_work_in_inference_mode(problem: str):
    expected = torch_impl.marginals(getattr(torch_impl, problem), torch.from_numpy(MATRIX))
    with torch.inference_mode():
        got = torch_impl.marginals(getattr(torch_impl, problem), torch.from_numpy(MATRIX) + 0)
    assert torch.equal(got, expected)


@EVERY
def test_torch_names_the_variants_that_can_be_mapped(problem: str):
    usable = "'cell_loop', 'diagonal_loop', 'wavefront', 'fused' or 'auto'"
    with pytest.raises(RuntimeError, match=f"variant 'batch_loop' .* use {usable}"):
        torch.func.vmap(lambda s: getattr(torch_impl, problem)(s, variant="batch_loop"))(torch.ones(2, 3, 3))


@PACKAGES
@pytest.mark.parametrize(("problem", "options"), LOCAL, ids=str)
def test_a_pair_whose_every_match_is_forbidden_has_no_alignment(package: ModuleType, problem: str, options: dict):
    one_match = FORBIDDEN.copy()
    one_match[1, 1] = 2.0
    pairs = np.stack([FORBIDDEN, FORBIDDEN if options.get("end") == "any" else one_match])
    assert np.asarray(getattr(package, problem)(pairs, **options)).tolist() == [0.0, 0.0]
    assert not np.asarray(package.marginals(getattr(package, problem), pairs, **options)).any()
    assert getattr(reference, problem)(pairs, **options).tolist() == [0.0, 0.0]


@PACKAGES
@pytest.mark.parametrize("problem", ["free_gap", "needleman_wunsch"])
def test_a_global_alignment_without_a_match_is_all_gaps(package: ModuleType, problem: str):
    pair = FORBIDDEN[:, :2]
    paths = np.log(10)  # in which order 3 rows and 2 columns are passed over: 5! / (3! 2!) ways
    gaps = -5.0 if problem == "needleman_wunsch" else 0.0
    assert float(getattr(reference, problem)(pair)) == pytest.approx(gaps + paths)
    assert float(getattr(package, problem)(pair)) == pytest.approx(gaps + paths, rel=1e-6)
    assert not np.asarray(package.marginals(getattr(package, problem), pair)).any()


@PACKAGES
@EVERY
def test_arrays_that_run_backwards_are_accepted(package: ModuleType, problem: str):
    lengths = np.array([5, 4])[::-1]
    got = getattr(package, problem)(MATRIX[::-1], lengths)
    assert float(got) == pytest.approx(float(getattr(reference, problem)(MATRIX[::-1], lengths)), rel=1e-5)


@PACKAGES
@pytest.mark.parametrize(
    ("problem", "name", "gap"),
    [("smith_waterman", "gap", -1e300)]
    + [(problem, name, -1e39) for problem in PROBLEMS for name in PROBLEMS[problem][0] if "gap" in name],
)
def test_a_gap_that_float32_cannot_hold_forbids_gaps(package: ModuleType, problem: str, name: str, gap: float):
    square = MATRIX[:, :4]  # so that a global alignment needs no gap
    got = float(getattr(package, problem)(square, **{name: gap}))
    assert got == pytest.approx(float(getattr(reference, problem)(square, **{name: -1e9})), rel=1e-5)


@PACKAGES
def test_a_global_alignment_that_needs_a_forbidden_gap_is_as_low_as_can_be(package: ModuleType):
    score = float(package.needleman_wunsch(MATRIX, gap=-1e39))
    assert np.isfinite(score)
    assert score <= LOWEST / 2
    assert np.isfinite(np.asarray(package.marginals(package.needleman_wunsch, MATRIX, gap=-1e39))).all()


@PACKAGES
@EVERY
@pytest.mark.parametrize("temperature", [1e-40, 9e-16, 1.1e15, 1e300])
def test_a_temperature_beyond_the_limits_is_refused(package: ModuleType, problem: str, temperature: float):
    with pytest.raises(ValueError, match=r"temperature must be between 1e-15 and 1e\+15, got"):
        getattr(package, problem)(MATRIX, temperature=temperature)


@PACKAGES
@EVERY
@pytest.mark.parametrize("similarity", [[[1.0, 2.0]], None, "a", np.ones((2, 2), int), np.ma.array(MATRIX)])
def test_marginals_check_their_similarity_like_the_function(package: ModuleType, problem: str, similarity: Any):
    function = getattr(package, problem)
    with pytest.raises(TypeError) as of_function:
        function(similarity)
    with pytest.raises(TypeError) as of_marginals:
        package.marginals(function, similarity)
    assert str(of_marginals.value) == str(of_function.value)
    assert str(of_function.value).startswith("similarity must be ")


@PACKAGES
def test_the_largest_gap_is_still_far_from_infinity(package: ModuleType):
    # worth most: a match of the first cell, then as many gaps as there can be
    keywords = {"gap": LARGEST_GAP}
    assert float(package.smith_waterman(MATRIX, **keywords)) == pytest.approx(7 * LARGEST_GAP)
    marginals = np.asarray(package.marginals(package.smith_waterman, MATRIX, **keywords))
    assert marginals[0, 0] == pytest.approx(1) and marginals.sum() == pytest.approx(1)


@PACKAGES
@pytest.mark.parametrize("problem", [problem for problem, _ in LOCAL])
def test_similarities_as_low_as_minus_infinity_is_here_forbid_a_match(package: ModuleType, problem: str):
    pair = np.full((3, 3), np.finfo(np.float32).min)
    assert float(getattr(package, problem)(pair)) == 0.0
