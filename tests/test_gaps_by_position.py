"""Gaps by position: a cost for each cell, in every variant of both frameworks, against the reference.

The ragged batches have NaN and infinities in the padding of these matrices too. The variants whose derivatives are
written by hand are shown every problem, option and choice of the gaps by position; the others compute all of them by
the same code, and are shown one option for each choice. Second derivatives are those along a direction of all
arguments at once, in which the padding is NaN, of the gaps by position alone, or of the similarity alone.
"""

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from frameworks import (
    AWKWARD_SIZES,
    BY_HAND,
    DTYPES,
    FRAMEWORKS,
    PROBLEMS,
    QUICK,
    Inputs,
    Result,
    assert_parity,
    ragged,
    reference_result,
    run,
    run_function,
    single,
)

from shared import reference
from shared.alignments import ALIGNMENTS
from shared.tolerances import LARGEST_GAP, LOWEST
from shared.variants import FOR_GPUS, variant_names

Options = dict[str, Any]
Values = dict[str, Any]
# (problem, names of the gaps by position)
GAPS = [
    (problem, names)
    for problem, alignment in ALIGNMENTS.items()
    for count in range(1, len(alignment.gaps) + 1)
    for names in itertools.combinations(alignment.gaps, count)
]
EVERY = [(problem, names, options) for problem, names in GAPS for options in PROBLEMS[problem].options]
# one option for each, none like another's
TURNS = [
    (problem, names, PROBLEMS[problem].options[-1 - number % len(PROBLEMS[problem].options)])
    for number, (problem, names) in enumerate(GAPS)
]
LADDER = [name for name in variant_names("smith_waterman") if name not in (*BY_HAND, *FOR_GPUS)]
FRAMEWORK = pytest.mark.parametrize("framework", FRAMEWORKS)
VARIANT = pytest.mark.parametrize("variant", BY_HAND)


def how_to_run(framework: str, variant: str) -> str:
    """The cheapest way that is still the variant itself."""
    if framework == "jax":
        return "eager" if variant == "fused" else "quick"
    return "quick" if variant == "batch_loop" else "eager"


def outside(inputs: Inputs) -> np.ndarray:
    """Mask of the padding."""
    assert inputs.lengths is not None
    i, j = np.indices(inputs.similarity.shape[1:])
    return (i >= inputs.lengths[:, 0, None, None]) | (j >= inputs.lengths[:, 1, None, None])


# first derivatives


def by_hand() -> Iterator[tuple[str, str, str, tuple[str, ...], Options, str, tuple[int, int]]]:
    """(framework, variant, problem, gaps by position, options, dtype, size); XLA takes seconds for each wavefront."""
    for framework, variant in itertools.product(FRAMEWORKS, BY_HAND):
        for number, case in enumerate(EVERY):
            if (framework, variant) == ("jax", "wavefront"):
                yield framework, variant, *case, DTYPES[number % 2], ((5, 8), (8, 5), (17, 9))[number % 3]
            else:
                for dtype in DTYPES:
                    yield framework, variant, *case, dtype, AWKWARD_SIZES[3 + number % 4]
        for size in AWKWARD_SIZES[:3]:
            yield framework, variant, *EVERY[-1], "float64", size


@pytest.mark.parametrize(
    ("framework", "variant", "problem", "names", "options", "dtype", "size"), list(by_hand()), ids=str
)
def test_a_variant_by_hand_equals_the_reference(framework, variant, problem, names, options, dtype, size):
    inputs = ragged(*size, problem=problem, by_position=names)
    result = run(framework, inputs, dtype, variant, how_to_run(framework, variant), problem, **options)
    assert_parity(result, reference_result(inputs, problem, **options), dtype, inputs.parameters["temperature"])
    for name in ("similarity", *names):
        assert not result.gradients[name][outside(inputs)].any(), name


@pytest.mark.parametrize(("problem", "names", "options"), TURNS, ids=str)
@pytest.mark.parametrize("variant", LADDER)
@FRAMEWORK
def test_a_rung_equals_the_reference(framework, variant, problem, names, options):
    inputs = ragged(3, 4, problem=problem, by_position=names)
    result = run(framework, inputs, "float64", variant, how_to_run(framework, variant), problem, **options)
    assert_parity(result, reference_result(inputs, problem, **options), "float64", inputs.parameters["temperature"])
    for name in ("similarity", *names):
        assert not result.gradients[name][outside(inputs)].any(), name


@pytest.mark.parametrize("variant", ["vmap", *BY_HAND])
@FRAMEWORK
def test_a_single_pair_equals_the_reference(framework, variant):
    problem, names, options = "smith_waterman_affine", ("gap_extend",), {"restrict_turns": False}
    inputs = single(4, 5, problem=problem, by_position=names)
    result = run(framework, inputs, "float64", variant, how_to_run(framework, variant), problem, **options)
    assert_parity(result, reference_result(inputs, problem, **options), "float64", inputs.parameters["temperature"])


@VARIANT
@FRAMEWORK
def test_a_pair_without_rows_or_columns_has_gradients_of_its_shape(framework, variant):
    for shape in ((0, 4), (3, 0), (0, 3, 4)):
        empty, batch = np.zeros(shape), shape[:-2]
        inputs = Inputs(empty, None, {"gap": empty, "temperature": np.ones(batch)}, np.ones(batch))
        result = run(framework, inputs, "float64", variant, problem="needleman_wunsch")
        assert not result.score.any()
        assert result.gradients["gap"].shape == shape


@pytest.mark.parametrize("variant", ["diagonal_loop", *BY_HAND])
@FRAMEWORK
def test_gaps_beyond_the_limits_are_at_the_limits(framework, variant):
    inputs = ragged(3, 4, by_position=("gap",))
    for beyond, limit in ((-np.inf, LOWEST), (-1e30, LOWEST), (np.inf, LARGEST_GAP), (1e30, LARGEST_GAP)):
        scores = []
        for value in (beyond, limit):
            gap = inputs.parameters["gap"].copy()
            gap[:, ::2, 1] = value
            own = inputs._replace(parameters=inputs.parameters | {"gap": gap})
            scores.append(run(framework, own, "float32", variant, how_to_run(framework, variant)).score)
        assert np.isfinite(scores[0]).all()
        np.testing.assert_array_equal(*scores)


@pytest.mark.parametrize("variant", ["diagonal_loop", *BY_HAND])
@FRAMEWORK
def test_forbidden_and_free_gaps_equal_the_reference(framework, variant):
    for problem, names in GAPS if how_to_run(framework, variant) == "eager" else GAPS[:1]:
        inputs = ragged(5, 8, problem=problem, by_position=names)
        random = np.random.default_rng(7)
        for name in names:
            chosen = random.random(inputs.similarity.shape)
            gap = np.where(chosen < 0.2, -np.inf, np.where(chosen < 0.4, 0.0, inputs.parameters[name]))
            inputs.parameters[name] = np.where(outside(inputs), np.nan, gap)
        result = run(framework, inputs, "float32", variant, how_to_run(framework, variant), problem)
        assert_parity(result, reference_result(inputs, problem), "float32", inputs.parameters["temperature"])


@VARIANT
@FRAMEWORK
def test_a_gap_that_is_no_number_spoils_its_own_pair_alone(framework, variant):
    inputs = ragged(5, 8, by_position=("gap",))
    inputs.parameters["gap"][0, 2, 3] = np.nan
    result = run(framework, inputs, "float32", variant, how_to_run(framework, variant))
    assert np.isnan(result.score).tolist() == [True] + [False] * 5
    assert np.isnan(result.gradients["gap"][0]).all()
    assert np.isfinite(result.gradients["gap"][1:]).all()


@VARIANT
@FRAMEWORK
def test_equal_costs_everywhere_are_one_gap_for_the_pair_in_a_local_alignment(framework, variant):
    for problem in ("smith_waterman", "smith_waterman_affine"):
        inputs = ragged(5, 8, problem=problem)
        gaps = ALIGNMENTS[problem].gaps
        matrices = {name: np.where(outside(inputs), np.nan, inputs.parameters[name][:, None, None]) for name in gaps}
        given = inputs, inputs._replace(parameters=inputs.parameters | matrices)
        one, other = (run(framework, own, "float64", variant, how_to_run(framework, variant), problem) for own in given)
        np.testing.assert_allclose(other.score, one.score, rtol=1e-13)
        for name, gradient in one.gradients.items():
            found = other.gradients[name].sum((1, 2)) if name in gaps else other.gradients[name]
            np.testing.assert_allclose(found, gradient, rtol=1e-12, atol=1e-13, err_msg=name)


@pytest.mark.parametrize("variant", ["cell_loop", *BY_HAND])
@FRAMEWORK
def test_gaps_along_the_border_of_a_global_alignment_are_free(framework, variant):
    # of one row, whose left and upper neighbours outside are 0
    s, gap = np.array([[[0.5, -1.0], [9.0, 9.0]]] * 2), np.array([[[-1.5, -0.25], [9.0, 9.0]]] * 2)
    lengths = np.array([(1, 2), (0, 2)], np.int32)
    inputs = Inputs(s, lengths, {"gap": gap, "temperature": np.ones(2)}, np.ones(2))
    result = run(framework, inputs, "float64", variant, how_to_run(framework, variant), "needleman_wunsch")
    first = np.logaddexp(0.5, np.log(2) - 1.5)
    second = np.logaddexp.reduce([-1.0, first - 0.25, -0.25])
    np.testing.assert_allclose(result.score, [second, 0.0], rtol=1e-12)


@FRAMEWORK
def test_half_precision_is_computed_in_float32_and_kept(framework):
    package, backend = FRAMEWORKS[framework]
    random = np.random.default_rng(2)
    s, gap = random.normal(size=(2, 3, 5, 6)).astype(np.float16)
    half = package.smith_waterman(backend.to_device(s, "cpu"), gap=backend.to_device(gap, "cpu"))
    full = package.smith_waterman(s.astype(np.float32), gap=gap.astype(np.float64))
    whole = package.smith_waterman(s.astype(np.float32), gap=np.full(gap.shape, -2))
    assert backend.to_numpy(half).dtype == np.float16
    np.testing.assert_array_equal(backend.to_numpy(half), backend.to_numpy(full).astype(np.float16))
    np.testing.assert_allclose(backend.to_numpy(whole), reference.smith_waterman(s, gap=-2.0), rtol=1e-5)


# second derivatives


def products(framework: str, score: Callable[..., Any], inputs: Inputs, directions: list[Values]) -> list[Values]:
    """For each direction, the gradients of the product of it and the first derivatives: the Hessian times it."""
    backend = FRAMEWORKS[framework].backend
    with backend.precision("float64"):
        arguments = {"similarity": inputs.similarity, **inputs.parameters}
        slope = {"jax": _jax_slope, "torch": _torch_slope}[framework](score, inputs.lengths)
        move = lambda values: {name: backend.to_device(value, "cpu") for name, value in values.items()}  # noqa: E731
        results = [slope(move(arguments), move(direction)) for direction in directions]
        return [{name: backend.to_numpy(value) for name, value in result.items()} for result in results]


def _jax_slope(score: Callable[..., Any], lengths: Any) -> Callable[[Values, Values], Values]:
    def loss(arguments: Values, direction: Values) -> Any:
        total = lambda own: score(lengths=lengths, **own).sum()  # noqa: E731
        return sum((direction[name] * slope).sum() for name, slope in jax.grad(total)(arguments).items())

    return jax.jit(jax.grad(loss), compiler_options=QUICK)


def _torch_slope(score: Callable[..., Any], lengths: Any) -> Callable[[Values, Values], Values]:
    def slope(arguments: Values, direction: Values) -> Values:
        leaves = {name: value.clone().requires_grad_() for name, value in arguments.items()}
        total = score(lengths=None if lengths is None else torch.from_numpy(lengths), **leaves).sum()
        first = torch.autograd.grad(total, list(leaves.values()), create_graph=True)
        loss = sum((direction[name] * own).sum() for name, own in zip(leaves, first, strict=True))
        assert isinstance(loss, torch.Tensor)
        return dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True))

    return slope


def by_differences(problem: str, inputs: Inputs, direction: Values, options: Options) -> Values:
    """The same from the reference's exact gradients on either side."""
    arguments = {"similarity": inputs.similarity, **inputs.parameters}

    def gradients(step: float) -> Values:
        moved = {name: value + step * direction[name] for name, value in arguments.items()}
        return reference.gradients(problem, lengths=inputs.lengths, **moved, **options)

    ahead, behind = gradients(1e-5), gradients(-1e-5)
    return {name: (ahead[name] - behind[name]) / 2e-5 for name in arguments}


def directions_of(inputs: Inputs, names: tuple[str, ...]) -> list[Values]:
    """Of all arguments, with NaN in the padding; of the gaps by position alone; of the similarity alone."""
    random = np.random.default_rng(11)
    arguments = {"similarity": inputs.similarity, **inputs.parameters}
    every = {name: random.normal(size=value.shape) for name, value in arguments.items()}
    poisoned = {
        name: np.where(outside(inputs), np.nan, value) if value.ndim > 1 else value for name, value in every.items()
    }
    alone = [
        {name: value if name in chosen else 0 * value for name, value in every.items()}
        for chosen in (names, ("similarity",))
    ]
    return [poisoned, *alone]


SECOND = [(*which, *case) for which in itertools.product(FRAMEWORKS, BY_HAND) for case in EVERY]
SECOND += [(*which, *case) for which in (("jax", "scan_select"), ("torch", "diagonal_loop")) for case in TURNS]


@pytest.mark.parametrize(("framework", "variant", "problem", "names", "options"), SECOND, ids=str)
def test_second_derivatives_are_those_of_the_reference(framework, variant, problem, names, options):
    inputs = ragged(4, 5, problem=problem, by_position=names)
    score = functools.partial(getattr(FRAMEWORKS[framework].package, problem), variant=variant, **options)
    directions = directions_of(inputs, names)
    for direction, found in zip(directions, products(framework, score, inputs, directions), strict=True):
        expected = by_differences(problem, inputs, direction, options)
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, rtol=0, atol=1e-7, err_msg=name)
            assert value.ndim == 1 or not found[name][outside(inputs)].any(), name


@VARIANT
@FRAMEWORK
def test_a_hessian_vector_product_with_gaps_that_are_not_differentiated_is_right(framework, variant):
    inputs = ragged(4, 5, problem="needleman_wunsch", by_position=("gap",))
    package, backend = FRAMEWORKS[framework]
    direction, *_ = directions_of(inputs, ())
    given = inputs.similarity, direction["similarity"], inputs.lengths
    wanted = reference.hessian_vector_product("needleman_wunsch", *given, **inputs.parameters)["similarity"]
    for dtype, tolerance in (("float32", 1e-5), ("float64", 1e-7)):
        matrices = (array.astype(dtype) for array in given[:2])
        with backend.precision(dtype):
            function = functools.partial(package.needleman_wunsch, variant=variant)
            found = package.hessian_vector_product(function, *matrices, inputs.lengths, **inputs.parameters)
            np.testing.assert_allclose(backend.to_numpy(found), wanted, rtol=0, atol=tolerance)


@VARIANT
def test_jax_tangents_are_right_whatever_their_padding_is(variant):
    inputs = ragged(4, 5, by_position=("gap",))
    arguments = {"similarity": inputs.similarity, **inputs.parameters}
    direction, *_ = directions_of(inputs, ("gap",))
    score = functools.partial(FRAMEWORKS["jax"].package.smith_waterman, lengths=inputs.lengths, variant=variant)
    first = reference.gradients("smith_waterman", lengths=inputs.lengths, **arguments)
    along = [np.nan_to_num(first[name] * direction[name]).reshape(6, -1).sum(1) for name in arguments]
    second = by_differences("smith_waterman", inputs, direction, {})
    with FRAMEWORKS["jax"].backend.precision("float64"):
        total = lambda given: score(**given).sum()  # noqa: E731
        both = lambda given, t: [  # noqa: E731
            jax.jvp(function, (given,), (t,))[1] for function in (lambda own: score(**own), jax.grad(total))
        ]
        t_scores, t_gradients = jax.jit(both, compiler_options=QUICK)(arguments, direction)
    np.testing.assert_allclose(t_scores, sum(along), rtol=0, atol=1e-12)
    for name, value in second.items():
        np.testing.assert_allclose(t_gradients[name], value, rtol=0, atol=1e-7, err_msg=name)


# mapped, and in parts


@pytest.mark.parametrize("variant", ["vmap", *BY_HAND])
def test_jax_gradients_of_single_pairs_are_mapped(variant):
    inputs = ragged(4, 5, by_position=("gap",))
    score = functools.partial(FRAMEWORKS["jax"].package.smith_waterman, variant=variant)
    one = lambda s, gap, t, lengths: score(s, lengths, gap=gap, temperature=t)  # noqa: E731
    matrix, gap, temperature = inputs.similarity[0], inputs.parameters["gap"], inputs.parameters["temperature"]
    with FRAMEWORKS["jax"].backend.precision("float64"):
        expected = reference.gradients("smith_waterman", inputs.similarity, inputs.lengths, **inputs.parameters)
        each = jax.jit(jax.vmap(jax.grad(one, argnums=(0, 1, 2))), compiler_options=QUICK)
        for found, name in zip(
            each(inputs.similarity, gap, temperature, inputs.lengths), ("similarity", "gap", "temperature"), strict=True
        ):
            np.testing.assert_allclose(found, expected[name], rtol=0, atol=1e-12)

        # one similarity with several matrices of gaps
        several = np.nan_to_num(gap, posinf=0, neginf=0)
        total = lambda gap: jax.vmap(one, in_axes=(None, 0, None, None))(matrix, gap, 1.0, None).sum()  # noqa: E731
        expected = reference.gradients("smith_waterman", np.stack([matrix] * 6), None, gap=several)
        found = jax.jit(jax.grad(total), compiler_options=QUICK)(jnp.asarray(several))
        np.testing.assert_allclose(found, expected["gap"], rtol=0, atol=1e-12)

        # the other way round, and over a batch
        total = lambda s: jax.vmap(score)(s, gap=jnp.broadcast_to(several, s.shape)).sum()  # noqa: E731
        outer = np.stack([several[::-1], several])
        expected = [reference.gradients("smith_waterman", s, None, gap=several)["similarity"] for s in outer]
        found = jax.jit(jax.grad(total), compiler_options=QUICK)(jnp.asarray(outer))
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("variant", ["diagonal_loop", *BY_HAND])
def test_torch_gradients_of_single_pairs_are_mapped(variant):
    inputs = ragged(4, 5, by_position=("gap",))
    score = functools.partial(FRAMEWORKS["torch"].package.smith_waterman, variant=variant)
    one = lambda s, gap, t, lengths: score(s, lengths, gap=gap, temperature=t)  # noqa: E731
    s, gap, temperature = map(torch.from_numpy, (inputs.similarity, *inputs.parameters.values()))
    expected = reference.gradients("smith_waterman", inputs.similarity, inputs.lengths, **inputs.parameters)
    each = torch.func.vmap(torch.func.grad(one, argnums=(0, 1, 2)))
    for found, name in zip(
        each(s, gap, temperature, torch.tensor(inputs.lengths)), ("similarity", "gap", "temperature"), strict=True
    ):
        np.testing.assert_allclose(found, expected[name], rtol=0, atol=1e-12)

    several = torch.nan_to_num(gap, posinf=0, neginf=0)
    of_gap = torch.func.vmap(torch.func.grad(one, argnums=1), in_dims=(None, 0, None, None))
    expected = reference.gradients("smith_waterman", np.stack([inputs.similarity[0]] * 6), None, gap=several)
    np.testing.assert_allclose(of_gap(s[0], several, 1.0, None), expected["gap"], rtol=0, atol=1e-12)


@FRAMEWORK
def test_a_batch_too_large_for_the_cache_is_the_same_in_parts(framework):
    random = np.random.default_rng(3)
    s, gap = random.normal(size=(2, 6000, 5, 6))  # JAX: tables of 2 MiB, of 440 bytes for a pair
    lengths = random.integers(0, (6, 7), size=(6000, 2), dtype=np.int32)
    inputs = Inputs(s, lengths, {"gap": gap, "temperature": np.ones(())}, random.normal(size=6000))

    def result_of(variant: str) -> Result:
        score = functools.partial(FRAMEWORKS[framework].package.smith_waterman, variant=variant)
        return run_function(framework, score, inputs, "float64", how_to_run(framework, variant))

    whole, parts = map(result_of, ("fused", "wavefront"))
    np.testing.assert_allclose(parts.score, whole.score, rtol=1e-12)
    np.testing.assert_allclose(parts.gradients["gap"], whole.gradients["gap"], rtol=0, atol=1e-12)
