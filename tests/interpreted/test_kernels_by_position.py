"""The kernels with gaps by position give what the reference gives. Its gradients on either side give the tangents."""

from typing import Any

import jax.numpy as jnp
import kernel_calls  # noqa: F401 - it puts the kernels behind both frameworks' calls
import numpy as np
import pytest
import torch
from frameworks import Inputs, Result, assert_parity, of_pairs, ragged, reference_result
from gaps_by_position import Options, Values, by_differences, directions_of, outside

import jax_impl.kernels.triton_binding as jax_calls
import torch_impl.kernels.triton_binding as torch_calls
from shared.kernels import cpp

operators: Any = torch_calls
ALL_TURNS = {"restrict_turns": False, "penalize_turns": True}
FREE_TURNS = {"restrict_turns": False, "penalize_turns": False}
# each kind; of an affine gap each choice of what is by position, and of what turns cost
CASES = [
    ("torch", "smith_waterman", {"end": "any"}, ("gap",), "float32"),
    ("jax", "smith_waterman", {"end": "match"}, ("gap",), "float64"),
    ("torch", "needleman_wunsch", {}, ("gap",), "float64"),
    ("jax", "smith_waterman_affine", FREE_TURNS, ("gap_open",), "float32"),
    ("torch", "smith_waterman_affine", FREE_TURNS, ("gap_extend",), "float64"),
    ("jax", "smith_waterman_affine", ALL_TURNS, ("gap_open", "gap_extend"), "float64"),
]


def derivatives(
    framework: str, problem: str, options: Options, inputs: Inputs, dtype: str, towards: Values | None = None
) -> tuple[np.ndarray, Values]:
    """Scores and their gradients by name, or in a direction the tangents of both, by the calls of a framework."""
    by_position = [name for name, value in inputs.parameters.items() if value.ndim > 1]
    call = cpp.call_of(problem, options, by_position)
    given = {"similarity": inputs.similarity, **inputs.parameters}
    both = [{name: value.astype(dtype) for name, value in own.items()} for own in (given, towards) if own]
    if framework == "jax":
        (s, parameters), *direction = ((own.pop("similarity"), tuple(map(jnp.asarray, own.values()))) for own in both)
        arrays = call, jnp.asarray(s), jnp.asarray(inputs.lengths), parameters
        if direction:
            scores, *rest = jax_calls.tangents(*arrays, jnp.asarray(direction[0][0]), direction[0][1])
        else:
            scores, *rest = jax_calls.gradients(call, True, *arrays[1:])
        found = [rest[0], *rest[1]]
    else:
        matrices = [tensors(own, by_position) for own in both]
        first = matrices[0][0], torch.from_numpy(inputs.lengths), *matrices[0][1:]
        if len(matrices) > 1:
            scores, d_similarity, d_values, d_gaps = operators.tangents(*first, *matrices[1], *call)
        else:
            scores, d_similarity, d_values, d_gaps = operators.gradients(*first, *call, True)
        gaps = dict(zip(by_position, d_gaps, strict=True))
        found = [d_similarity, *(gaps.get(name, d_values[:, k]) for k, name in enumerate(inputs.parameters))]
        assert not any(
            d_values[:, k].nan_to_num().any() for k, name in enumerate(inputs.parameters) if name in by_position
        )
    return np.asarray(scores), dict(zip(given, map(np.asarray, found), strict=True))


def tensors(given: Values, by_position: list[str]) -> tuple[torch.Tensor, torch.Tensor, list[torch.Tensor]]:
    """Similarity, values, NaN where nobody reads, and gaps, which do not lie in one piece."""
    own = {name: torch.from_numpy(value) for name, value in given.items()}
    similarity, gaps = own.pop("similarity"), [own[name].mT.contiguous().mT for name in by_position]
    nothing = torch.full_like(similarity[:, 0, 0], torch.nan)
    return similarity, torch.stack([nothing if name in by_position else own[name] for name in own], 1), gaps


@pytest.mark.parametrize(
    ("framework", "problem", "options", "by_position", "dtype"),
    [CASES[0], CASES[3], *(pytest.param(*case, marks=pytest.mark.slow) for case in (*CASES[1:3], *CASES[4:]))],
)
def test_first_and_second_derivatives_are_the_references(
    framework: str, problem: str, options: Options, by_position: tuple[str, ...], dtype: str
):
    inputs = ragged(6, 5, problem=problem, by_position=by_position)
    scores, found = derivatives(framework, problem, options, inputs, dtype)
    weights = {name: inputs.cotangent.astype(dtype).reshape(-1, *[1] * (own.ndim - 1)) for name, own in found.items()}
    result = Result(scores, {name: own * weights[name] for name, own in found.items()}, inputs.cotangent)
    wanted = reference_result(inputs, problem, **options)
    assert_parity(result, wanted, dtype, inputs.parameters["temperature"])
    direction, *_ = directions_of(inputs, by_position)
    _, found = derivatives(framework, problem, options, inputs, dtype, direction)
    for name, own in by_differences(problem, inputs, direction, options).items():
        np.testing.assert_allclose(found[name], own, rtol=0, atol=1e-7 if dtype == "float64" else 1e-4, err_msg=name)
        assert own.ndim == 1 or not found[name][outside(inputs)].any(), name


@pytest.mark.slow
def test_what_is_not_asked_for_is_left_out():
    problem, names = "smith_waterman_affine", ("gap_extend",)
    inputs = of_pairs(ragged(5, 3, problem=problem, by_position=names), (0, 1, 4))  # full, empty and partial
    scores, whole = derivatives("torch", problem, ALL_TURNS, inputs, "float64")
    *_, direction = directions_of(inputs, names)
    _, along = derivatives("torch", problem, ALL_TURNS, inputs, "float64", direction)
    call = cpp.call_of(problem, ALL_TURNS, names)
    s, values, gaps = tensors({"similarity": inputs.similarity, **inputs.parameters}, list(names))
    lengths, t = torch.from_numpy(inputs.lengths), torch.from_numpy(direction["similarity"])
    np.testing.assert_array_equal(operators.score(s, lengths, values, gaps, *call), scores)
    _, marginals, d_values, none = operators.gradients(s, lengths, values, gaps, *call, False)
    assert none == [] and not d_values[:, 1:].any()
    np.testing.assert_array_equal(marginals, whole["similarity"])
    product = operators.product(s, lengths, values, gaps, t, *call)
    np.testing.assert_allclose(product, along["similarity"], rtol=0, atol=1e-13)
    arrays = jnp.asarray(s), jnp.asarray(lengths), tuple(map(jnp.asarray, inputs.parameters.values()))
    np.testing.assert_array_equal(jax_calls.score(call, *arrays), scores)
    again, d_similarity, (*_, d_extend, d_temperature) = jax_calls.gradients(call, False, *arrays)
    np.testing.assert_array_equal(again, scores)
    np.testing.assert_array_equal(d_similarity, marginals)
    assert d_extend.shape == s.shape and not d_extend.any() and not d_temperature.any()
    np.testing.assert_array_equal(jax_calls.product(call, *arrays, jnp.asarray(t)), product)


def test_a_cost_beyond_the_limits_is_at_them_and_nan_spoils_its_own_pair():
    inputs = ragged(5, 3, by_position=("gap",))
    results = []
    for lowest, highest in ((-np.inf, np.inf), (-1e20, 1e18)):
        gap = inputs.parameters["gap"].copy()
        gap[0, 1:3, 1], gap[0, 3, 2], gap[4, 0, 0] = lowest, highest, np.nan
        own = inputs._replace(parameters=inputs.parameters | {"gap": gap})
        results.append(derivatives("torch", "smith_waterman", {"end": "any"}, own, "float32"))
    (scores, found), (again, others) = results
    assert np.isnan(scores).tolist() == [number == 4 for number in range(6)]
    np.testing.assert_array_equal(scores, again)
    for name, own in found.items():
        np.testing.assert_array_equal(own, others[name], err_msg=name)
        assert np.isfinite(np.delete(own, 4, axis=0)).all()
