"""Second derivatives, through variant="auto": losses on the marginals. And variants without them say so.

The loss is <c, marginals> for a random c. Its gradients for similarity, gap and temperature are compared with central
differences of the reference's exact first derivatives, in float64.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from frameworks import FRAMEWORKS, PROBLEMS, Inputs, ragged, single

import jax_impl
import jax_impl.backend
import torch_impl
import torch_impl.sweeps
from shared import reference
from torch_impl.compiler import compiled
from torch_impl.sweeps import SCANNING

EVERY = [(problem, options) for problem, (_, every) in PROBLEMS.items() for options in every]
INPUTS = {"a pair": single(4, 5), "a ragged batch": ragged(4, 5), "shared parameters": ragged(4, 5, per_pair=False)}


def clean(inputs: Inputs) -> tuple[np.ndarray, dict[str, np.ndarray], np.ndarray]:
    """Similarity, parameters and the weights c, which have a value in the padding too."""
    weights = np.random.default_rng(5).normal(size=inputs.similarity.shape)
    return inputs.similarity, inputs.parameters, weights


def by_differences(problem: str, inputs: Inputs, options: dict) -> dict[str, np.ndarray]:
    """Gradients of sum(c * marginals), by central differences of the reference's first derivatives.

    d/dx sum(c * d score/ds) is the change of d score/dx along c: two evaluations of the exact gradients give all.
    """
    similarity, parameters, weights = clean(inputs)
    step = 1e-5
    ends = [
        reference.gradients(problem, similarity + sign * step * weights, inputs.lengths, **parameters, **options)
        for sign in (1, -1)
    ]
    slopes = {name: (ends[0][name] - ends[1][name]) / (2 * step) for name in ends[0]}
    return {
        name: slope if name == "similarity" or np.ndim(parameters[name]) else slope.sum()
        for name, slope in slopes.items()
    }


def jax_loss_gradients(problem: str, inputs: Inputs, options: dict) -> dict[str, np.ndarray]:
    similarity, parameters, weights = clean(inputs)
    score = functools.partial(getattr(jax_impl, problem), **options)

    @jax.jit
    def gradients(matrix: jax.Array, values: dict[str, jax.Array]) -> Any:
        def loss(matrix: jax.Array, values: dict[str, jax.Array]) -> jax.Array:
            return (weights * jax_impl.marginals(score, matrix, inputs.lengths, **values)).sum()

        return jax.grad(loss, argnums=(0, 1))(matrix, values)

    with jax_impl.backend.precision("float64"):
        to_similarity, to_parameters = gradients(jnp.asarray(similarity), jax.tree.map(jnp.asarray, parameters))
        return {name: np.asarray(value) for name, value in {"similarity": to_similarity, **to_parameters}.items()}


def torch_loss_gradients(problem: str, inputs: Inputs, options: dict) -> dict[str, np.ndarray]:
    similarity, parameters, weights = clean(inputs)
    leaves = {name: torch.tensor(value, requires_grad=True) for name, value in parameters.items()}
    leaves = {"similarity": torch.tensor(similarity, requires_grad=True), **leaves}
    score = functools.partial(getattr(torch_impl, problem), **options)
    keywords = {name: leaf for name, leaf in leaves.items() if name != "similarity"}
    expected = torch_impl.marginals(score, leaves["similarity"], inputs.lengths, **keywords)
    gradients = torch.autograd.grad((torch.from_numpy(weights) * expected).sum(), list(leaves.values()))
    return {name: value.numpy() for name, value in zip(leaves, gradients, strict=True)}


LOSS_GRADIENTS = {"jax": jax_loss_gradients, "torch": torch_loss_gradients}


@pytest.mark.parametrize("name", INPUTS)
@pytest.mark.parametrize(("problem", "options"), EVERY, ids=str)
def test_gradients_of_a_loss_on_the_marginals_are_right_in_both_frameworks(problem, options, name):
    inputs = INPUTS[name]
    expected = by_differences(problem, inputs, options)
    results = {framework: LOSS_GRADIENTS[framework](problem, inputs, options) for framework in FRAMEWORKS}
    for parameter, value in expected.items():
        scale = max(1.0, float(np.abs(value).max()))
        for framework, result in results.items():
            error = np.abs(result[parameter] - value).max()
            assert error < 1e-8 * scale, f"{framework} {parameter}: {error}"
        assert np.abs(results["jax"][parameter] - results["torch"][parameter]).max() < 1e-12 * scale, parameter


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_second_derivatives_are_exactly_zero_in_the_padding(framework):
    inputs = ragged(4, 5)
    result = LOSS_GRADIENTS[framework]("smith_waterman", inputs, {"end": "any"})
    outside = np.isnan(inputs.similarity) | np.isinf(inputs.similarity)
    assert outside.any()
    assert not result["similarity"][outside].any()
    assert np.isfinite(result["similarity"]).all()


@pytest.mark.parametrize(("problem", "options"), EVERY, ids=str)
def test_torch_passes_gradcheck_to_second_order(problem, options):
    similarity, parameters, _ = clean(single(3, 3))
    leaves = [torch.tensor(value, requires_grad=True) for value in (similarity, *parameters.values())]

    def score(matrix: torch.Tensor, *values: torch.Tensor) -> torch.Tensor:
        return getattr(torch_impl, problem)(matrix, **dict(zip(parameters, values, strict=True)), **options)

    assert torch.autograd.gradcheck(score, leaves)
    assert torch.autograd.gradgradcheck(score, leaves)


def test_torch_func_grad_of_grad_equals_autograd():
    similarity, parameters, weights = clean(single(3, 4))
    values = {name: torch.tensor(value) for name, value in parameters.items()}
    c = torch.from_numpy(weights)

    def loss(matrix: torch.Tensor) -> torch.Tensor:
        score = functools.partial(torch_impl.smith_waterman, **values)
        return (c * torch.func.grad(score)(matrix)).sum()

    expected = torch_loss_gradients("smith_waterman", single(3, 4), {})["similarity"]
    got = torch.func.grad(loss)(torch.tensor(similarity))
    torch.testing.assert_close(got, torch.from_numpy(expected), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("variant", ["cell_loop", "diagonal_loop", "scan_cond", "scan_select", "batch_loop", "vmap"])
def test_every_jax_variant_is_right_to_second_order(variant):
    inputs = single(2, 2)
    got = jax_loss_gradients("smith_waterman", inputs, {"variant": variant})
    expected = by_differences("smith_waterman", inputs, {})
    for name, value in expected.items():
        np.testing.assert_allclose(got[name], value, rtol=1e-8, atol=1e-8, err_msg=name)


# what is right to first order only

# a variant is traced anew for each choice of what requires a gradient, which takes seconds
EACH_ONCE = [*((variant, "similarity") for variant in SCANNING), ("scan_select", "gap"), ("vmap", "temperature")]


def first_derivatives(score: Callable[..., torch.Tensor], wanted: str) -> tuple[torch.Tensor, ...]:
    """Differentiable gradients of a tiny batch for one argument; the others require no gradient."""
    leaves = {"similarity": torch.ones(2, 2, 2), "gap": torch.tensor(-1.0), "temperature": torch.tensor(1.0)}
    leaves[wanted].requires_grad_()
    return torch.autograd.grad(score(**leaves).sum(), leaves[wanted], create_graph=True)


@pytest.mark.parametrize(("variant", "wanted"), EACH_ONCE)
def test_torch_variants_that_scan_raise_on_a_double_backward(variant, wanted, monkeypatch):
    if variant == "batch_loop":  # what inductor makes of it is not the question here
        monkeypatch.setattr("torch_impl.sweeps.compiled", functools.partial(compiled, backend="eager"))
        torch_impl.sweeps.forget_compiled()
    score = functools.partial(torch_impl.smith_waterman, variant=variant)
    (gradient,) = first_derivatives(score, wanted)
    torch_impl.sweeps.forget_compiled()
    text = f"variant '{variant}' is right to first order only; for second derivatives use 'cell_loop', 'diagonal_loop'"
    with pytest.raises(RuntimeError, match=text):
        gradient.sum().backward()


@pytest.mark.parametrize("variant", ["scan_select", "vmap"])
def test_torch_losses_on_the_marginals_of_a_scan_raise(variant):
    similarity = torch.ones(2, 2, 2, requires_grad=True)
    expected = torch_impl.marginals(torch_impl.smith_waterman, similarity, variant=variant)
    with pytest.raises(RuntimeError, match=f"variant '{variant}' is right to first order only"):
        (expected**2).sum().backward()


@pytest.mark.parametrize(("variant", "wanted"), [("diagonal_loop", "similarity"), *EACH_ONCE])
def test_torch_compiled_functions_raise_on_a_double_backward(variant, wanted):
    score = functools.partial(torch_impl.smith_waterman, variant=variant)
    with pytest.raises(RuntimeError):  # noqa: PT012 - either step may be the one that raises
        (gradient,) = first_derivatives(compiled(score, backend="aot_eager"), wanted)
        gradient.sum().backward()


@pytest.mark.parametrize("variant", SCANNING)
def test_torch_func_derivatives_of_a_scan_raise(variant):
    score = lambda matrix: torch_impl.smith_waterman(matrix, variant=variant)  # noqa: E731
    text = f"variant '{variant}' cannot be differentiated by torch.func; use 'cell_loop', 'diagonal_loop' or 'auto'"
    with pytest.raises(RuntimeError, match=text):
        torch.func.grad(score)(torch.ones(2, 2))
    with pytest.raises(RuntimeError, match=text):
        torch.func.jvp(score, (torch.ones(2, 2),), (torch.ones(2, 2),))
    with pytest.raises(RuntimeError, match=text):
        torch.func.vmap(torch.func.grad(score))(torch.ones(3, 2, 2))


@pytest.mark.parametrize("variant", ["auto", "cell_loop", "diagonal_loop"])
def test_torch_forward_mode_is_right(variant):
    similarity, parameters, direction = clean(single(3, 4))
    score = functools.partial(torch_impl.smith_waterman, variant=variant, **parameters)
    slope = torch.func.jvp(score, (torch.tensor(similarity),), (torch.from_numpy(direction),))[1]
    exact = reference.gradients("smith_waterman", similarity, **parameters)["similarity"]
    assert float(slope) == pytest.approx(float((exact * direction).sum()), rel=1e-10)


@pytest.mark.parametrize("variant", SCANNING)
def test_torch_forward_mode_of_a_scan_is_never_wrong(variant, monkeypatch):
    if variant == "batch_loop":
        monkeypatch.setattr("torch_impl.sweeps.compiled", functools.partial(compiled, backend="eager"))
        torch_impl.sweeps.forget_compiled()
    similarity, direction = torch.ones(2, 2), torch.ones(2, 2)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(similarity, direction)
        with pytest.raises((RuntimeError, NotImplementedError)):
            torch_impl.smith_waterman(dual, variant=variant)
    torch_impl.sweeps.forget_compiled()


def test_jax_forward_mode_is_right():
    similarity, parameters, direction = clean(single(3, 4))
    with jax_impl.backend.precision("float64"):
        score = jax.jit(functools.partial(jax_impl.smith_waterman, **parameters))
        _, slope = jax.jvp(score, (jnp.asarray(similarity),), (jnp.asarray(direction),))
        exact = reference.gradients("smith_waterman", similarity, **parameters)["similarity"]
        assert float(slope) == pytest.approx(float((exact * direction).sum()), rel=1e-10)
