"""Second derivatives and forward mode against differences of the reference's exact gradients.

What people differentiate twice is a loss on the marginals. Its gradients for similarity and every parameter come by
three ways: JAX's grad of grad, PyTorch's autograd (create_graph) and torch.func.grad of grad; each through the variants
whose derivatives are written by hand, and in PyTorch through a loop that autograd differentiates by itself. All must be
equal, and equal to the reference, in float64.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from frameworks import BY_HAND, PROBLEMS, Inputs, ragged, single

import jax_impl
import jax_impl.backend
import torch_impl
from shared import reference

EVERY = [(problem, options) for problem, (_, every) in PROBLEMS.items() for options in every]
INPUTS: dict[str, Callable[[str], Inputs]] = {
    "a ragged batch": lambda problem: ragged(3, 4, problem=problem),
    "shared parameters": lambda problem: ragged(4, 3, problem=problem, per_pair=False),
    "a pair": lambda problem: single(3, 4, problem=problem),
}
CASES = [(problem, options, "a ragged batch") for problem, options in EVERY]
CASES += [
    ("smith_waterman_affine", {"restrict_turns": False, "penalize_turns": False}, "shared parameters"),
    ("free_gap", {}, "a pair"),
    ("needleman_wunsch", {}, "a pair"),
]

# name -> how much of sum(c * marginals), and of sum(c * marginals^2), is in the loss
LOSSES = {"linear": (1.0, 0.0), "quadratic": (0.0, 1.0)}


def random_like(array: np.ndarray, seed: int = 5) -> np.ndarray:
    """Normal random numbers of this shape, with values in the padding too."""
    return np.random.default_rng(seed).normal(size=array.shape)


def loss_of(expected_alignment: Any, weights: Any, linear: Any, quadratic: Any) -> Any:
    return (weights * (linear * expected_alignment + quadratic * expected_alignment**2)).sum()


def by_reference(problem: str, inputs: Inputs, options: dict, loss: str) -> dict[str, np.ndarray]:
    """The gradients of the loss: the Hessian times the loss's slope at the exact marginals."""
    similarity, lengths, parameters, _ = inputs
    linear, quadratic = LOSSES[loss]
    marginals = reference.gradients(problem, similarity, lengths, **parameters, **options)["similarity"]
    slope = random_like(similarity) * (linear + 2 * quadratic * marginals)
    result = reference.hessian_vector_product(problem, similarity, slope, lengths, **parameters, **options)
    shared = {name for name, value in parameters.items() if not value.ndim}
    return {name: value.sum() if name in shared else value for name, value in result.items()}


@functools.cache
def jax_gradients_of_the_loss(problem: str, options: tuple[tuple[str, Any], ...]) -> Callable[..., Any]:
    """Compiled once for the inputs of a shape and all losses."""
    score = functools.partial(getattr(jax_impl, problem), **dict(options))

    def loss(matrix: jax.Array, values: dict[str, jax.Array], lengths: Any, weights: Any, kind: Any) -> jax.Array:
        return loss_of(jax_impl.marginals(score, matrix, lengths, **values), weights, *kind)

    return jax.jit(jax.grad(loss, argnums=(0, 1)))


def by_jax(problem: str, inputs: Inputs, options: dict, loss: str) -> dict[str, np.ndarray]:
    similarity, lengths, parameters, _ = inputs
    gradients = jax_gradients_of_the_loss(problem, tuple(options.items()))
    with jax_impl.backend.precision("float64"):
        to_similarity, to_parameters = gradients(
            similarity, parameters, lengths, random_like(similarity), np.array(LOSSES[loss])
        )
        return {name: np.asarray(value) for name, value in {"similarity": to_similarity, **to_parameters}.items()}


def by_autograd(problem: str, inputs: Inputs, options: dict, loss: str) -> dict[str, np.ndarray]:
    similarity, lengths, parameters, _ = inputs
    arrays = {"similarity": similarity, **parameters}
    leaves = {name: torch.tensor(value, requires_grad=True) for name, value in arrays.items()}
    score = functools.partial(getattr(torch_impl, problem), **options)
    keywords = {name: leaves[name] for name in parameters}
    expected = torch_impl.marginals(score, leaves["similarity"], lengths, **keywords)
    value = loss_of(expected, torch.tensor(random_like(similarity)), *LOSSES[loss])
    gradients = torch.autograd.grad(value, list(leaves.values()))
    return {name: gradient.numpy() for name, gradient in zip(leaves, gradients, strict=True)}


def by_torch_func(problem: str, inputs: Inputs, options: dict, loss: str) -> dict[str, np.ndarray]:
    similarity, lengths, parameters, _ = inputs

    def total(matrix: torch.Tensor, values: dict[str, torch.Tensor]) -> torch.Tensor:
        return getattr(torch_impl, problem)(matrix, lengths, **values, **options).sum()

    def value(matrix: torch.Tensor, values: dict[str, torch.Tensor]) -> torch.Tensor:
        return loss_of(torch.func.grad(total)(matrix, values), torch.tensor(random_like(similarity)), *LOSSES[loss])

    tensors = torch.tensor(similarity), {name: torch.tensor(v) for name, v in parameters.items()}
    to_similarity, to_parameters = torch.func.grad(value, argnums=(0, 1))(*tensors)
    return {name: gradient.numpy() for name, gradient in {"similarity": to_similarity, **to_parameters}.items()}


def _by_variant(
    function: Callable[..., dict[str, np.ndarray]], variant: str, problem: str, inputs: Inputs, options: dict, loss: str
) -> dict[str, np.ndarray]:
    return function(problem, inputs, {**options, "variant": variant}, loss)


# "way, variant" -> how
WAYS: dict[str, Callable[[str, Inputs, dict, str], dict[str, np.ndarray]]] = {}
for _way, _function, _variants in (
    ("jax", by_jax, BY_HAND),
    ("autograd", by_autograd, ("diagonal_loop", *BY_HAND)),
    ("torch.func", by_torch_func, ("diagonal_loop", *BY_HAND)),
):
    for _variant in _variants:
        WAYS[f"{_way}, {_variant}"] = functools.partial(_by_variant, _function, _variant)


def assert_near(got: np.ndarray, wanted: np.ndarray, relative: float, what: str) -> None:
    error = float(np.abs(got - wanted).max()) / max(1.0, float(np.abs(wanted).max()))
    assert error < relative, f"{what}: {error}"


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(("problem", "options", "name"), CASES, ids=str)
def test_gradients_of_a_loss_on_the_marginals_are_right_in_every_way(problem, options, name, loss):
    inputs = INPUTS[name](problem)
    expected = by_reference(problem, inputs, options, loss)
    # XLA takes seconds to compile a wavefront's second derivatives: one choice of options will do
    is_last = name == "a ragged batch" and options == PROBLEMS[problem].options[-1]
    ways = {way: function for way, function in WAYS.items() if way != "jax, wavefront" or is_last}
    results = {way: function(problem, inputs, options, loss) for way, function in ways.items()}
    for argument, value in expected.items():
        for way, result in results.items():
            assert result[argument].shape == value.shape
            assert_near(result[argument], value, 1e-8, f"{way} {argument}")
            by_loop = results["autograd, diagonal_loop"][argument]
            assert_near(result[argument], by_loop, 1e-12, f"{way} and autograd of a loop, {argument}")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("problem", PROBLEMS)
def test_second_derivatives_are_exactly_zero_in_the_padding(problem, way):
    inputs = INPUTS["a ragged batch"](problem)
    result = WAYS[way](problem, inputs, PROBLEMS[problem].options[-1], "linear")
    outside = ~np.isfinite(inputs.similarity)
    assert outside.any()
    assert not result["similarity"][outside].any()
    assert result["similarity"][~outside].any()
    for name, value in result.items():
        assert np.isfinite(value).all(), name


# the whole Hessian of a small pair: d marginals / d gap, d (d score / d gap) / d similarity, and all the rest


def flat(problem: str) -> tuple[np.ndarray, Callable[[Any], tuple[Any, dict[str, Any]]]]:
    """A pair's similarity and parameters in one vector, and what takes such a vector apart."""
    similarity, _, parameters, _ = single(2, 3, problem=problem)

    def apart(vector: Any) -> tuple[Any, dict[str, Any]]:
        return vector[:6].reshape(2, 3), {name: vector[6 + number] for number, name in enumerate(parameters)}

    return np.concatenate([similarity.ravel(), list(parameters.values())]), apart


def hessian_by_differences(problem: str, options: dict) -> np.ndarray:
    vector, apart = flat(problem)
    columns = []
    for change in 1e-5 * np.eye(len(vector)):
        ends = []
        for sign in (1, -1):
            similarity, parameters = apart(vector + sign * change)
            result = reference.gradients(problem, similarity, **parameters, **options)
            ends.append(np.concatenate([np.ravel(value) for value in result.values()]))
        columns.append((ends[0] - ends[1]) / 2e-5)
    return np.stack(columns, axis=1)


def jax_hessian(problem: str, options: dict, variant: str) -> np.ndarray:
    vector, apart = flat(problem)

    def score(vector: jax.Array) -> jax.Array:
        similarity, parameters = apart(vector)
        return getattr(jax_impl, problem)(similarity, **parameters, **options, variant=variant)

    with jax_impl.backend.precision("float64"):
        # forward over reverse, and reverse over reverse
        both = jax.jit(lambda at: (jax.hessian(score)(at), jax.jacrev(jax.jacrev(score))(at)))
        forward, reverse = map(np.asarray, both(jnp.asarray(vector)))
    assert_near(forward, reverse, 1e-13, "forward and reverse")
    return reverse


def torch_hessian(problem: str, options: dict, variant: str) -> np.ndarray:
    vector, apart = flat(problem)

    def score(vector: torch.Tensor) -> torch.Tensor:
        similarity, parameters = apart(vector)
        return getattr(torch_impl, problem)(similarity, **parameters, **options, variant=variant)

    reverse = torch.func.jacrev(torch.func.jacrev(score))(torch.tensor(vector)).numpy()
    assert_near(torch.func.hessian(score)(torch.tensor(vector)).numpy(), reverse, 1e-13, "forward and reverse")
    return reverse


@pytest.mark.parametrize("variant", ["diagonal_loop", *BY_HAND])
@pytest.mark.parametrize(("problem", "options"), EVERY, ids=str)
def test_the_hessian_is_symmetric_and_right_in_torch(problem, options, variant):
    hessian = torch_hessian(problem, options, variant)
    expected = hessian_by_differences(problem, options)
    assert np.abs(expected).max() > 0.1
    assert_near(hessian, hessian.T, 1e-13, "transposed")
    assert_near(hessian, expected, 1e-8, "differences")


# in torch every option was right: in JAX, which compiles wavefront for seconds, two must be the same
HESSIANS = [(problem, options, "fused") for problem, options in EVERY]
HESSIANS += [("smith_waterman", {"end": "match"}, "wavefront"), ("needleman_wunsch", {}, "wavefront")]


@pytest.mark.parametrize(("problem", "options", "variant"), HESSIANS, ids=str)
def test_the_hessian_is_symmetric_in_jax_and_equal_to_that_of_torch(problem, options, variant):
    hessian = jax_hessian(problem, options, variant)
    assert_near(hessian, hessian.T, 1e-13, "transposed")
    assert_near(hessian, torch_hessian(problem, options, "diagonal_loop"), 1e-13, "torch")


@pytest.mark.parametrize("variant", ["diagonal_loop", *BY_HAND])
@pytest.mark.parametrize(("problem", "options"), EVERY, ids=str)
def test_torch_passes_gradcheck_to_second_order(problem, options, variant):
    similarity, _, parameters, _ = single(2, 2, problem=problem)
    leaves = [torch.tensor(value, requires_grad=True) for value in (similarity, *parameters.values())]

    def score(matrix: torch.Tensor, *values: torch.Tensor) -> torch.Tensor:
        keywords = dict(zip(parameters, values, strict=True))
        return getattr(torch_impl, problem)(matrix, **keywords, **options, variant=variant)

    assert torch.autograd.gradcheck(score, leaves, check_forward_ad=True, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(score, leaves)


# those with a loop of JAX's own; one with the most states, the others with a border that hangs on the gap
JAX_VARIANTS = {
    "scan_cond": ("needleman_wunsch", {}),
    "scan_select": ("smith_waterman_affine", {"penalize_turns": False}),
    "vmap": ("needleman_wunsch", {}),
}


@pytest.mark.parametrize(("variant", "case"), JAX_VARIANTS.items(), ids=JAX_VARIANTS)
def test_a_scan_of_jax_is_right_to_second_order(variant, case):
    problem, options = case
    inputs = single(2, 2, problem=problem)
    got = by_jax(problem, inputs, {**options, "variant": variant}, "linear")
    for name, value in by_reference(problem, inputs, options, "linear").items():
        assert_near(got[name], value, 1e-8, name)


# forward mode


def slopes_by_reference(problem: str, inputs: Inputs, options: dict, directions: dict[str, np.ndarray]) -> np.ndarray:
    """The change of each pair's score along the directions."""
    similarity, lengths, parameters, _ = inputs
    exact = reference.gradients(problem, similarity, lengths, **parameters, **options)
    by_similarity = (exact["similarity"] * directions["similarity"]).sum(axis=(-2, -1))
    return by_similarity + sum(exact[name] * directions[name] for name in parameters)


def directions_of(inputs: Inputs) -> dict[str, np.ndarray]:
    arrays = {"similarity": inputs.similarity, **inputs.parameters}
    return {name: random_like(array, seed) for seed, (name, array) in enumerate(arrays.items())}


# variants take turns, but fused, which is cheap
JAX_FORWARD = [
    ("smith_waterman", {"end": "match"}, "scan_select"),
    ("smith_waterman_affine", {"restrict_turns": False}, "vmap"),
    ("free_gap", {}, "diagonal_loop"),
    ("needleman_wunsch", {}, "wavefront"),
    *((problem, options, "fused") for problem, options in EVERY),
]


@pytest.mark.parametrize(("problem", "options", "variant"), JAX_FORWARD, ids=str)
def test_jax_forward_mode_is_right(problem, options, variant):
    inputs = ragged(2, 3, problem=problem)
    directions = directions_of(inputs)

    def score(arrays: dict[str, jax.Array]) -> jax.Array:
        return getattr(jax_impl, problem)(lengths=inputs.lengths, **arrays, **options, variant=variant)

    with jax_impl.backend.precision("float64"):
        pushed = jax.jit(lambda *pair: jax.jvp(score, pair[:1], pair[1:]))
        _, slopes = pushed({"similarity": inputs.similarity, **inputs.parameters}, directions)
        np.testing.assert_allclose(slopes, slopes_by_reference(problem, inputs, options, directions), 1e-12, 1e-12)


def torch_func_jvp(score: Callable[..., Any], names: list[str], at: list, along: list) -> torch.Tensor:
    return torch.func.jvp(lambda *tensors: score(**dict(zip(names, tensors, strict=True))), (*at,), (*along,))[1]


def torch_forward_ad(score: Callable[..., Any], names: list[str], at: list, along: list) -> torch.Tensor:
    with torch.autograd.forward_ad.dual_level():
        duals = map(torch.autograd.forward_ad.make_dual, at, along)
        tangent = torch.autograd.forward_ad.unpack_dual(score(**dict(zip(names, duals, strict=True)))).tangent
        assert tangent is not None
        return tangent


@pytest.mark.parametrize("forward", [torch_func_jvp, torch_forward_ad])
@pytest.mark.parametrize("variant", ["cell_loop", "diagonal_loop", *BY_HAND])
@pytest.mark.parametrize(("problem", "options"), EVERY, ids=str)
def test_torch_forward_mode_is_right(problem, options, variant, forward):
    inputs = ragged(2, 3, problem=problem)
    directions = directions_of(inputs)
    score = functools.partial(getattr(torch_impl, problem), lengths=inputs.lengths, variant=variant, **options)
    at = [torch.tensor(array) for array in (inputs.similarity, *inputs.parameters.values())]
    slopes = forward(score, list(directions), at, [torch.tensor(array) for array in directions.values()])
    np.testing.assert_allclose(slopes, slopes_by_reference(problem, inputs, options, directions), 1e-12, 1e-12)
