"""Best alignments by the kernel for GPUs: scores and matches are the reference's, whatever may come."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from frameworks import FRAMEWORKS, poison
from gaps_by_position import GAPS
from kernel_calls import DEFAULT, EVERY, take_for_a_gpu

import jax_impl
import torch_impl
import torch_impl.kernels.triton_binding
from shared import reference
from shared.alignments import ALIGNMENTS
from shared.kernels import cpp
from shared.kernels.triton.programs import NARROW

BOTH = pytest.mark.parametrize("framework", FRAMEWORKS)
Arrays = dict[str, Any]
triton_binding: Any = torch_impl.kernels.triton_binding


@pytest.fixture(autouse=True)
def _taken_for_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    take_for_a_gpu(monkeypatch)


def whole_numbers(problem: str, by_position: tuple[str, ...], rows: int, cols: int) -> tuple[Any, Any, Arrays]:
    """A ragged batch of few different values, so that many alignments are equally good; poison around it."""
    random = np.random.default_rng([rows, cols, len(by_position)])
    lengths = np.array([(rows, cols), (0, cols), (rows, 0), (1, 1), (rows - 1, cols - 1)], np.int32)
    shape = (len(lengths), rows, cols)
    gaps = {
        name: poison(random.integers(-2, 2, size=shape).astype(float), lengths)
        if name in by_position
        else random.integers(-2, 1, size=len(lengths)).astype(float)
        for name in ALIGNMENTS[problem].gaps
    }
    return poison(random.integers(-2, 3, size=shape).astype(float), lengths), lengths, gaps


def best(framework: str, problem: str, similarity: Any, lengths: Any = None, dtype: str = "float32", **own: Any) -> Any:
    package, array = FRAMEWORKS[framework].package, {"jax": jnp.asarray, "torch": torch.from_numpy}[framework]
    arrays = {
        name: array(value.astype(dtype)) if isinstance(value, np.ndarray) else value for name, value in own.items()
    }
    found = package.best_alignment(getattr(package, problem), array(similarity.astype(dtype)), lengths, **arrays)
    return tuple(np.asarray(part) for part in found)


def assert_best(found: Any, wanted: Any, dtype: str = "float32") -> None:
    (scores, matches), (own_scores, own_matches) = found, wanted
    assert (scores.dtype, matches.dtype) == (dtype, bool)
    np.testing.assert_array_equal(scores, own_scores)
    np.testing.assert_array_equal(matches, own_matches)


@pytest.mark.parametrize(
    ("problem", "options"),
    [pytest.param(*which, marks=() if which in DEFAULT else pytest.mark.slow) for which in EVERY],
)
def test_best_alignments_are_the_references(problem: str, options: Arrays):
    similarity, lengths, gaps = whole_numbers(problem, (), 6, 11)
    wanted = reference.best_alignment(problem, similarity, lengths, **gaps, **options)
    assert_best(best("torch", problem, similarity, lengths, **gaps, **options), wanted)


@pytest.mark.parametrize(
    ("framework", "problem", "names"),
    [
        pytest.param(tuple(FRAMEWORKS)[number % 2], *which, marks=pytest.mark.slow if number > 1 else ())
        for number, which in enumerate(GAPS)
    ],
)
def test_best_alignments_with_gaps_by_position_are_the_references(framework: str, problem: str, names: tuple[str, ...]):
    similarity, lengths, gaps = whole_numbers(problem, names, 5, 6)
    wanted = reference.best_alignment(problem, similarity, lengths, **gaps)
    found = best(framework, problem, similarity, lengths, "float64", **gaps)
    assert_best(found, wanted, "float64")


# a cell, a row of several tiles, a column of several strips, and strips without an unused lane
@pytest.mark.parametrize(("rows", "cols"), [(1, 1), (1, 9), (9, 1), (8, 2)])
def test_awkward_sizes_and_single_pairs_are_right(rows: int, cols: int):
    problem = "needleman_wunsch" if rows == 1 else "smith_waterman_affine"
    similarity = np.random.default_rng([rows, cols]).integers(-2, 3, size=(rows, cols)).astype(float)
    assert_best(best("torch", problem, similarity), reference.best_alignment(problem, similarity))


def test_a_local_alignment_that_needs_a_forbidden_gap_is_none():
    similarity = np.array([[-2, -np.inf, -np.inf], [-np.inf, -np.inf, 1]])  # no two matches on a diagonal
    score, matches = best("torch", "smith_waterman", similarity, gap=-1e39, end="match")
    assert score == 0 and not matches.any()


@BOTH
def test_fewer_bits_and_a_batch_of_nothing(framework: str):
    similarity = np.random.default_rng(0).integers(-2, 3, size=(2, 5, 4)).astype(float)
    wanted = reference.best_alignment("smith_waterman_affine", similarity)
    assert_best(best(framework, "smith_waterman_affine", similarity, dtype="float16"), wanted, "float16")
    scores, matches = best(framework, "smith_waterman_affine", similarity[:0])
    assert (scores.shape, matches.shape) == ((0,), (0, 5, 4))
    scores, matches = best(framework, "needleman_wunsch", similarity[:, :, :0], gap=-2.0)
    assert scores.tolist() == [-10, -10] and matches.shape == (2, 5, 0)


@pytest.mark.slow
def test_the_layout_changes_nothing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(triton_binding, "forced_layout", NARROW)
    similarity = np.random.default_rng(1).integers(-2, 3, size=(NARROW.lanes + 3, 4)).astype(float)
    assert_best(best("torch", "smith_waterman", similarity), reference.best_alignment("smith_waterman", similarity))


def test_matrices_may_lie_anywhere():
    wide = torch.from_numpy(np.random.default_rng(2).integers(-2, 3, size=(5, 3, 14)).astype(float))
    similarity, gap = wide[:, :, 2:8].transpose(0, 1), -wide[:, :, 8:].transpose(0, 1).abs()
    assert similarity.stride(2) == 1 and not similarity.is_contiguous()
    scores, matches = torch_impl.best_alignment(torch_impl.smith_waterman, similarity, gap=gap)
    wanted = reference.best_alignment("smith_waterman", similarity.numpy(), gap=gap.numpy())
    assert_best((scores.numpy(), matches.numpy()), wanted, "float64")


@BOTH
def test_what_is_no_number_makes_its_own_pair_nan_and_no_other(framework: str):
    similarity, gap = np.zeros((7, 3, 4)), np.full((7, 3, 4), -1.0)
    similarity[0, 1, 2], similarity[1, 2, 3], similarity[2, 1, 1] = np.nan, np.inf, -np.inf
    similarity[3], similarity[4, 1:] = -np.inf, -6e19
    gap[5, 1, 1], gap[6] = np.nan, -np.inf
    scores, matches = best(framework, "smith_waterman", similarity, gap=gap)
    np.testing.assert_array_equal(scores, [np.nan, np.nan, 0, 0, 0, np.nan, 0])
    assert matches.any((1, 2)).tolist() == [False, False, True, False, True, False, True]
    assert not matches[2, 1, 1] and not matches[4, 1:].any()


def test_a_gap_that_is_no_number_and_lengths_beyond_the_matrix():
    similarity = torch.zeros((3, 3, 4))
    similarity[1], similarity[2, 1:] = -torch.inf, -6e19
    lengths = torch.tensor([[3, 4], [2**40, 9], [9, 4]])
    values = torch.tensor([[torch.nan, 1.0], [-1.0, 1.0], [-1.0, 1.0]])
    call = cpp.call_of("needleman_wunsch", {})
    scores, matches = triton_binding.best(similarity, lengths, values, [], *call)
    np.testing.assert_array_equal(scores, [np.nan, -7, -5])
    assert matches.sum((1, 2)).tolist() == [0, 0, 1]


def test_vmap_is_the_batch_and_jax_compiles():
    similarity, lengths, gaps = whole_numbers("smith_waterman", ("gap",), 4, 3)
    wanted = reference.best_alignment("smith_waterman", similarity, lengths, **gaps)
    of_torch = lambda s, n, gap: torch_impl.best_alignment(torch_impl.smith_waterman, s, n, gap=gap)  # noqa: E731
    of_jax = lambda s, n, gap: jax_impl.best_alignment(jax_impl.smith_waterman, s, n, gap=gap)  # noqa: E731
    arrays = similarity, lengths, gaps["gap"]
    assert_best(map(np.asarray, jax.jit(jax.vmap(of_jax))(*arrays)), wanted, "float64")
    tensors = [torch.from_numpy(array) for array in arrays]
    assert_best(map(np.asarray, torch.func.vmap(of_torch)(*tensors)), wanted, "float64")
    similarities, sizes = (own.expand(2, *own.shape) for own in tensors[:2])
    twice = torch.func.vmap(of_torch, (0, 0, None))(similarities, sizes, tensors[2])
    assert_best((np.asarray(part[1]) for part in twice), wanted, "float64")
