"""Functions that are right to first order only raise beyond it: PyTorch's variants that scan, and compiled functions.

A double backward, a derivative transform of torch.func and forward mode raise; none of them gives a wrong number.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import torch_impl
import torch_impl.sweeps
from shared.checks import CannotDifferentiate
from torch_impl.compiler import compiled
from torch_impl.sweeps import SCANNING

# A variant is traced anew for each choice of what requires a gradient, which takes seconds: these for one argument of a
# problem. The table of transforms has the others, and the similarity.
EACH_ONCE = [("scan_cond", "needleman_wunsch", "gap"), ("batch_loop", "free_gap", "temperature")]
COMPILED = [
    ("diagonal_loop", "smith_waterman_affine", "similarity"),
    ("wavefront", "free_gap", "temperature"),
    ("fused", "needleman_wunsch", "similarity"),
    ("scan_cond", "free_gap", "similarity"),
    ("vmap", "smith_waterman", "gap"),
]
PARAMETERS = {
    "smith_waterman": {"gap": -1.0, "temperature": 1.0},
    "smith_waterman_affine": {"gap_open": -2.0, "gap_extend": -1.0, "temperature": 1.0},
    "free_gap": {"temperature": 1.0},
    "needleman_wunsch": {"gap": -1.0, "temperature": 1.0},
}
# how an error ends
USE = "use 'cell_loop', 'diagonal_loop', 'wavefront', 'fused' or 'auto'"


@pytest.fixture(autouse=True)
def batch_loop_only_traces(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Without inductor, which the result does not depend on here."""
    monkeypatch.setattr("torch_impl.sweeps.compiled", functools.partial(compiled, backend="eager"))
    torch_impl.sweeps.forget_compiled()
    yield
    torch_impl.sweeps.forget_compiled()


def score_of(variant: str, problem: str) -> Callable[..., torch.Tensor]:
    return functools.partial(getattr(torch_impl, problem), variant=variant)


def first_derivative(score: Callable[..., torch.Tensor], problem: str, wanted: str) -> torch.Tensor:
    """Differentiable gradient of a tiny batch for one argument; the others require no gradient."""
    parameters = {name: torch.tensor(value) for name, value in PARAMETERS[problem].items()}
    leaves = {"similarity": torch.ones(2, 2, 2), **parameters}
    leaves[wanted].requires_grad_()
    (gradient,) = torch.autograd.grad(score(**leaves).sum(), leaves[wanted], create_graph=True)
    assert gradient.isfinite().all()
    return gradient


def text_of(variant: str) -> str:
    return f"variant '{variant}' is right to first order only; for second derivatives {USE}"


@pytest.mark.parametrize(("variant", "problem", "wanted"), EACH_ONCE)
def test_torch_variants_that_scan_raise_on_a_double_backward(variant, problem, wanted):
    gradient = first_derivative(score_of(variant, problem), problem, wanted)
    with pytest.raises(RuntimeError, match=text_of(variant)):
        gradient.sum().backward()


@pytest.mark.parametrize(("variant", "problem"), [("vmap", "needleman_wunsch")])
def test_torch_scans_mapped_by_their_user_raise_on_a_double_backward(variant, problem):
    mapped = torch.func.vmap(score_of(variant, problem))
    similarity = torch.ones(2, 2, 2, requires_grad=True)
    with pytest.raises(RuntimeError, match=text_of(variant)):  # noqa: PT012 - either step may be the one that raises
        (gradient,) = torch.autograd.grad(mapped(similarity).sum(), similarity, create_graph=True)
        gradient.sum().backward()


@pytest.mark.parametrize(("variant", "problem", "wanted"), COMPILED)
def test_torch_compiled_functions_raise_on_a_double_backward(variant, problem, wanted):
    function = compiled(score_of(variant, problem), backend="aot_eager")
    with pytest.raises(RuntimeError):  # noqa: PT012 - either step may be the one that raises
        gradient = first_derivative(function, problem, wanted)
        gradient.sum().backward()


@pytest.mark.parametrize("needs", [False, True])
@pytest.mark.parametrize("is_leaf", [True, False])
def test_torch_compiled_functions_raise_on_a_double_backward_for_what_they_capture(is_leaf, needs):
    raw = torch.tensor(-1.0, requires_grad=True)
    gap = raw if is_leaf else raw.mul(2)
    function = compiled(lambda matrix: torch_impl.smith_waterman(matrix, gap=gap).sum(), backend="aot_eager")
    similarity = torch.ones(2, 2, 2, requires_grad=needs)
    (slope,) = torch.autograd.grad(function(similarity), raw, create_graph=True)
    with pytest.raises(RuntimeError, match=r"right to first order only|does not currently support double backward"):
        torch.autograd.grad(slope * raw, raw)  # which has another term: none would be an error of PyTorch's


@pytest.mark.parametrize("variant", ["scan_select", "vmap"])
def test_torch_marginals_of_a_scan_inside_a_compiled_function_raise(variant):
    function = compiled(lambda matrix: torch_impl.marginals(torch_impl.smith_waterman, matrix, variant=variant))
    text = f"variant '{variant}' cannot be differentiated by torch.func; {USE}"
    with pytest.raises(CannotDifferentiate, match=text):
        function(torch.ones(2, 2, 3))


@pytest.mark.parametrize("problem", PARAMETERS)
@pytest.mark.parametrize("variant", SCANNING)
def test_torch_func_derivatives_of_a_scan_raise(variant, problem):
    score = score_of(variant, problem)
    text = f"variant '{variant}' cannot be differentiated by torch.func; {USE}"
    with pytest.raises(RuntimeError, match=text):
        torch.func.grad(score)(torch.ones(2, 2))
    with pytest.raises(RuntimeError, match=text):
        torch.func.jvp(score, (torch.ones(2, 2),), (torch.ones(2, 2),))
    with pytest.raises(RuntimeError, match=text):
        torch.func.vmap(torch.func.grad(score))(torch.ones(3, 2, 2))
    of_temperature: Any = lambda value: score(torch.ones(2, 2), temperature=value)  # noqa: E731
    with pytest.raises(RuntimeError, match=text):
        torch.func.grad(of_temperature)(torch.tensor(1.0))


@pytest.mark.parametrize(("variant", "problem"), [("scan_cond", "needleman_wunsch"), ("vmap", "smith_waterman")])
def test_torch_forward_mode_of_a_scan_raises(variant, problem):
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(torch.ones(2, 2), torch.ones(2, 2))
        with pytest.raises(CannotDifferentiate, match=f"'{variant}' cannot be differentiated in forward mode"):
            score_of(variant, problem)(dual)
        assert score_of(variant, problem)(torch.ones(2, 2)).isfinite()  # what has no tangent is computed


def test_torch_func_linearize_of_a_scan_raises():
    text = f"variant 'scan_select' cannot be differentiated in forward mode; {USE}"
    with pytest.raises(CannotDifferentiate, match=text):
        torch.func.linearize(score_of("scan_select", "free_gap"), torch.ones(2, 2))


def test_forward_mode_of_a_mapped_scan_raises_and_a_map_without_tangents_works_beside_it():
    score = torch.func.vmap(score_of("scan_select", "free_gap"))
    matrices = torch.ones(3, 2, 2)
    alone = score(matrices)
    with torch.autograd.forward_ad.dual_level():
        torch.testing.assert_close(score(matrices), alone)
        dual = torch.autograd.forward_ad.make_dual(matrices, matrices)
        with pytest.raises(CannotDifferentiate, match=r"'scan_select' cannot be differentiated in forward mode"):
            score(dual)
