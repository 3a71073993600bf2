"""Public functions on a CPU that is taken for a GPU: best alignments, passes, transforms, and tests of the GPU's."""

import functools
from typing import Any

import jax
import numpy as np
import pytest
import test_cuda
import torch
from frameworks import BY_AXIS, DTYPES, FRAMEWORKS, PROBLEMS, packed, ragged
from gaps_by_position import GAPS
from kernel_calls import take_for_a_gpu, torch_calls
from test_best_alignment import best

import jax_impl
import torch_impl
from shared import reference
from shared.alignments import COST
from shared.kernels.triton.programs import NARROW
from torch_impl.kernels import exact_pairs as exact_pairs_module
from torch_impl.kernels.exact_pairs import exact_pairs

BOTH = pytest.mark.parametrize("framework", FRAMEWORKS)
# gaps are also by axis where they are free at the ends, so those have no cases of numbers
CASES = [
    (problem, options, ())
    for problem, (_, every) in PROBLEMS.items()
    for options in every
    if options.get("end_gaps", COST) == COST
]
CASES += [(problem, {}, names) for problem, names in GAPS] + BY_AXIS
# several strips, a row of several tiles, a column of several strips, a cell, and strips without an unused lane
SIZES = [(6, 11), (1, 9), (9, 1), (1, 1), (8, 2)]


@pytest.fixture(autouse=True)
def _taken_for_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    take_for_a_gpu(monkeypatch)
    monkeypatch.setattr(test_cuda, "DEVICE", "cpu")
    monkeypatch.setattr(test_cuda, "SIZE", (5, 4))


@BOTH
def test_hessian_products_are_right_with_gaps_by_position(framework: str):
    test_cuda.test_gaps_by_position_are_right(framework, "smith_waterman_affine", "float64", 5)


@BOTH
def test_public_functions_are_mapped_and_differentiated(framework: str):
    test_cuda.test_fused_is_mapped_and_differentiated(framework, "smith_waterman")


def test_exact_pairs_tells_which_pairs_take_the_exact_kernels(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch_calls, "forced_layout", NARROW)
    s = torch.zeros(3, 9, 10)
    s[1, 4, 5] = 60.0
    assert exact_pairs(torch_impl.smith_waterman, s).tolist() == [False, True, False]
    affine = functools.partial(torch_impl.smith_waterman_affine, penalize_turns=False)
    gap = torch.tensor([-1.0, -2.0, -20.0])
    exact = exact_pairs(affine, s, torch.full((3, 2), 9), gap_open=gap, pass_name="score")
    assert exact.tolist() == [False, True, True]
    assert exact_pairs(torch_impl.free_gap, s.double()).all() and exact_pairs(torch_impl.soft_dtw, s).all()
    assert exact_pairs(torch_impl.needleman_wunsch_affine, s).all()
    for gap in (-torch.ones_like(s), (-1.0, -2.0)):
        assert exact_pairs(torch_impl.needleman_wunsch, s, gap=gap).all()
    assert not exact_pairs(torch_impl.needleman_wunsch, s[0])
    refused: tuple[tuple[type[Exception], str, dict[str, Any]], ...] = (
        (ValueError, "pass_name must be 'score' or 'marginals', not 'hvp'", {"pass_name": "hvp"}),
        (TypeError, "unexpected keyword argument 'gapp'", {"gapp": -1.0}),
        (TypeError, "function must be an alignment of torch_impl with variant", {"variant": "wavefront"}),
    )
    for error, text, keywords in refused:
        with pytest.raises(error, match=text):
            exact_pairs(torch_impl.smith_waterman, s, **keywords)
    monkeypatch.setattr(exact_pairs_module, "is_on_gpu", lambda _: False)
    for tensor, device in ((s, "cpu"), (None, "no tensor")):
        with pytest.raises(ValueError, match=f"similarity must be on a CUDA device, got {device}"):
            exact_pairs(torch_impl.smith_waterman, tensor)  # pyright: ignore[reportArgumentType]


def test_numbers_arrays_and_lengths_of_the_host_go_with_a_matrix():
    test_cuda.test_numbers_arrays_and_lengths_of_the_host_go_with_a_matrix_on_the_gpu("smith_waterman_affine")


def whole_numbers(problem: str, by_position: tuple[str, ...], rows: int, cols: int) -> tuple[Any, Any, dict[str, Any]]:
    """A ragged batch of few different values, so that many alignments are equally good; NaN around it."""
    inputs = ragged(rows, cols, problem=problem, by_position=by_position)
    gaps = {name: np.rint(value) % 3 - 2 for name, value in inputs.parameters.items() if name != "temperature"}
    return np.rint(inputs.similarity) % 5 - 2, inputs.lengths, packed(gaps)


def assert_best(found: Any, wanted: Any, dtype: str = "float64") -> None:
    (scores, matches), (own_scores, own_matches) = found, wanted
    assert (scores.dtype, matches.dtype) == (dtype, bool)
    np.testing.assert_array_equal(scores, own_scores)
    np.testing.assert_array_equal(matches, own_matches)


@pytest.mark.parametrize(
    "number",
    [pytest.param(number, marks=pytest.mark.slow if number % 5 or number > 15 else ()) for number in range(len(CASES))],
)
def test_best_alignments_are_the_references(number: int):
    problem, options, names = CASES[number]
    framework, dtype = tuple(FRAMEWORKS)[number % 2], DTYPES[number // 2 % 2]
    similarity, lengths, gaps = whole_numbers(problem, names, *SIZES[number % len(SIZES)])
    expected = reference.best_alignment(problem, similarity, lengths, **gaps, **options)
    assert_best(best(framework, problem, similarity, lengths, dtype, **gaps, **options), expected, dtype)


def test_a_local_alignment_that_needs_a_forbidden_gap_is_none():
    similarity = np.array([[-2, -np.inf, -np.inf], [-np.inf, -np.inf, 1]])  # no two matches on a diagonal
    score, matches = best("torch", "smith_waterman", similarity, None, "float32", gap=-1e39, end="match")
    assert score == 0 and not matches.any()


@BOTH
def test_fewer_bits_single_pairs_and_a_batch_of_nothing(framework: str):
    similarity = np.random.default_rng(0).integers(-2, 3, size=(2, 5, 4)).astype(float)
    expected = reference.best_alignment("smith_waterman_affine", similarity[0])
    assert_best(best(framework, "smith_waterman_affine", similarity[0], None, "float16"), expected, "float16")
    scores, matches = best(framework, "smith_waterman_affine", similarity[:0], None)
    assert (scores.shape, matches.shape) == ((0,), (0, 5, 4))
    scores, matches = best(framework, "needleman_wunsch", similarity[:, :, :0], None, gap=-2.0)
    assert scores.tolist() == [-10, -10] and matches.shape == (2, 5, 0)


def test_matrices_may_lie_anywhere():
    wide = torch.from_numpy(np.random.default_rng(2).integers(-2, 3, size=(5, 3, 14)).astype(float))
    similarity, gap = wide[:, :, 2:8].transpose(0, 1), -wide[:, :, 8:].transpose(0, 1).abs()
    assert similarity.stride(2) == 1 and not similarity.is_contiguous()
    scores, matches = torch_impl.best_alignment(torch_impl.smith_waterman, similarity, gap=gap)
    expected = reference.best_alignment("smith_waterman", similarity.numpy(), gap=gap.numpy())
    assert_best((scores.numpy(), matches.numpy()), expected)


@BOTH
def test_what_is_no_number_makes_its_own_pair_nan_and_no_other(framework: str):
    similarity, gap = np.zeros((7, 3, 4)), np.full((7, 3, 4), -1.0)
    similarity[0, 1, 2], similarity[1, 2, 3], similarity[2, 1, 1] = np.nan, np.inf, -np.inf
    similarity[3], similarity[4, 1:] = -np.inf, -6e19
    gap[5, 1, 1], gap[6] = np.nan, -np.inf
    scores, matches = best(framework, "smith_waterman", similarity, None, "float32", gap=gap)
    np.testing.assert_array_equal(scores, [np.nan, np.nan, 0, 0, 0, np.nan, 0])
    assert matches.any((1, 2)).tolist() == [False, False, True, False, True, False, True]
    assert not matches[2, 1, 1] and not matches[4, 1:].any()


def test_vmap_is_the_batch_and_jax_compiles():
    similarity, lengths, gaps = whole_numbers("smith_waterman", ("gap",), 4, 3)
    expected = reference.best_alignment("smith_waterman", similarity, lengths, **gaps)
    of_torch = lambda s, n, gap: torch_impl.best_alignment(torch_impl.smith_waterman, s, n, gap=gap)  # noqa: E731
    of_jax = lambda s, n, gap: jax_impl.best_alignment(jax_impl.smith_waterman, s, n, gap=gap)  # noqa: E731
    arrays = similarity, lengths, gaps["gap"]
    assert_best(map(np.asarray, jax.jit(jax.vmap(of_jax))(*arrays)), expected)
    tensors = [torch.from_numpy(array) for array in arrays]
    assert_best(map(np.asarray, torch.func.vmap(of_torch)(*tensors)), expected)
