"""Which transforms work: what is recorded in results/cpu-transforms.json, which docs/transforms.md shows, happens.

The record is the one table of what is expected: `make record NAME=cpu-transforms` writes it, by running every transform
on every rung. Here some of them run again, in float64: no transform asks which alignment it is applied to.
"""

import functools
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch._dynamo
from frameworks import FRAMEWORKS, ragged

import jax_impl.transformed
import torch_impl
import torch_impl.transformed
from shared.bench.questions.transforms import RAISES, RIGHT, transforms_of
from shared.bench.record import Record
from shared.checks import CannotDifferentiate
from shared.transforms import ROUNDED, TRANSFORMS, Given, fault, on_device, wanted

PACKAGES = {"jax": jax_impl.transformed, "torch": torch_impl.transformed}
RECORD = Record.read(Path(__file__).parents[1] / "results" / "cpu-transforms.json")
# (framework, problem, variant) -> transform -> what became of it
RECORDED: dict[tuple[str, str, str], dict[str, dict[str, Any]]] = {
    (result.case.framework, result.case.problem, result.case.variant): result.details.get("outcomes", {})
    for result in RECORD.results
}
# of each framework one function and variant, and what is tried in the slow tier alone
SHOWN = [("jax", "smith_waterman", "fused"), ("torch", "smith_waterman", "fused")]
SLOW = [
    ("jax", "needleman_wunsch", "wavefront"),
    ("torch", "smith_waterman_affine", "wavefront"),
    ("torch", "needleman_wunsch", "vmap"),
    ("torch", "free_gap", "diagonal_loop"),
]
CASES = [
    pytest.param(*key, name, marks=[pytest.mark.slow] if key in SLOW or name == "bfloat16" else [])
    for key in SHOWN + SLOW
    for name in transforms_of(key[0])
]


@functools.cache
def case(problem: str) -> tuple[Given, dict[str, np.ndarray]]:
    """A ragged batch with poison in its padding and parameters per pair; and what the reference makes of it."""
    similarity, lengths, parameters, cotangent = ragged(2, 3, problem=problem)
    direction = np.random.default_rng(2).normal(size=similarity.shape)
    arguments = Given(similarity, lengths, parameters, cotangent, direction)
    return arguments, wanted(problem, arguments)


def transformed(framework: str, problem: str, variant: str, name: str) -> np.ndarray:
    backend = FRAMEWORKS[framework].backend
    with backend.precision("float64"):
        arguments = on_device(case(problem)[0], lambda array: backend.to_device(array, "cpu"))
        return backend.to_numpy(PACKAGES[framework].transformed(name, backend.function(problem, variant), arguments))


def assert_right(got: np.ndarray, gives: str, problem: str) -> None:
    right = case(problem)[1][gives]
    assert np.abs(right).max() > 1e-3  # so that zeros are no answer
    assert got.dtype == np.float64 or gives == ROUNDED
    assert fault(gives, got, right) is None


@pytest.fixture
def compiled_without_inductor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip inductor: whether a transform works is decided before it, by what traces."""
    monkeypatch.setattr(torch_impl.transformed, "BACKEND", "eager")
    torch._dynamo.reset()


@pytest.mark.parametrize(("framework", "problem", "variant", "name"), CASES)
def test_a_transform_does_what_is_recorded(framework, problem, variant, name, compiled_without_inductor):
    recorded = RECORDED[framework, problem, variant][name]
    if recorded["outcome"] == RIGHT:
        assert_right(transformed(framework, problem, variant, name), TRANSFORMS[name].gives, problem)
        return
    kind, _, text = recorded["text"].partition(": ")
    if kind == CannotDifferentiate.__name__:
        with pytest.raises(CannotDifferentiate, match=re.escape(text)):
            transformed(framework, problem, variant, name)
        return
    try:  # what a framework refuses another version of it may do, but then it must be right
        got = transformed(framework, problem, variant, name)
    except Exception:
        return
    assert_right(got, TRANSFORMS[name].gives, problem)


def test_the_record_has_every_transform_of_every_rung_in_the_tables_order():
    problems = (RECORD.settings.problem, *RECORD.settings.more_problems)
    usable = {(name, p, variant) for name in FRAMEWORKS for p in problems for variant in torch_impl.variants(p)}
    assert RECORDED.keys() == usable
    for (framework, *_), outcomes in RECORDED.items():
        assert list(outcomes) == transforms_of(framework) == list(PACKAGES[framework].TRANSFORMED)
        assert {outcome["outcome"] for outcome in outcomes.values()} <= {RIGHT, RAISES}


def test_a_wrong_result_is_seen():
    right = case("smith_waterman")[1]
    for gives, expected in right.items():
        assert fault(gives, expected, expected) is None
        assert "off by" in (fault(gives, expected + 0.1, expected) or "")
        assert "shape" in (fault(gives, expected[:1], expected) or "")
        assert "not finite" in (fault(gives, np.where(expected == expected.max(), np.nan, expected), expected) or "")


class Model(torch.nn.Module):
    """Marginals and a product of their derivative, with a learned gap."""

    def __init__(self, variant: str) -> None:
        super().__init__()
        self.function = functools.partial(torch_impl.smith_waterman, variant=variant)
        self.gap = torch.nn.Parameter(torch.tensor(-1.5, dtype=torch.float64))

    def forward(self, matrix: torch.Tensor, lengths: torch.Tensor, temperature: torch.Tensor) -> torch.Tensor:
        keywords = {"gap": self.gap, "temperature": temperature}
        marginals = torch_impl.marginals(self.function, matrix, lengths, **keywords)
        product = torch_impl.hessian_vector_product(self.function, matrix, 2 * marginals, lengths, **keywords)
        return torch.stack([marginals, product])


@pytest.mark.parametrize(
    ("variant", "strict"), [("fused", False), pytest.param("wavefront", True, marks=pytest.mark.slow)]
)
def test_torch_exports_derivatives_for_any_batch_size(variant, strict):
    similarity, lengths, parameters, *_ = case("smith_waterman")[0]
    whole = tuple(torch.tensor(array) for array in (similarity, lengths, parameters["temperature"]))
    model, batch = Model(variant), {0: torch.export.Dim("batch")}
    some = tuple(array[:2] for array in whole)
    program = torch.export.export(model, some, strict=strict, dynamic_shapes=(batch, batch, batch)).module()
    expected = model(*whole).detach()
    assert expected.abs().amax((1, 2, 3)).min() > 1e-3
    np.testing.assert_array_equal(program(*whole).detach(), expected)


def test_torch_says_what_to_export_instead_of_another_gradient():
    def closed(similarity: torch.Tensor, lengths: None = None) -> torch.Tensor:
        return torch_impl.smith_waterman(similarity, lengths)

    for gradient in (
        lambda s: torch_impl.marginals(closed, s),
        lambda s: torch_impl.hessian_vector_product(closed, s, s),
        torch.func.grad(lambda s: closed(s).sum()),
    ):
        module = torch.nn.Module()
        module.forward = gradient
        with pytest.raises(RuntimeError, match="export marginals or hessian_vector_product of a public function"):
            torch.export.export(module, (torch.ones(2, 3, 3),))
