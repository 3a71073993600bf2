"""Functions that are right to first order only raise beyond it: PyTorch's variants that scan, and compiled functions.

A double backward, a derivative transform of torch.func and forward mode raise; none of them gives a wrong number.
"""

import functools
from collections.abc import Callable, Iterator

import pytest
import torch
from torch.autograd import forward_ad

import torch_impl
import torch_impl.sweeps
from shared.alignments import ALIGNMENTS
from shared.checks import CannotDifferentiate
from torch_impl.compiler import compiled
from torch_impl.sweeps import SCANNING

# A variant is traced anew for each choice of what requires a gradient, which takes seconds: these for one argument of a
# problem. The table of transforms has the others, and the similarity.
SCANS = [
    ("scan_cond", "needleman_wunsch", "gap", False),
    pytest.param("batch_loop", "free_gap", "temperature", False, marks=pytest.mark.slow),
    pytest.param("vmap", "needleman_wunsch", "similarity", True, marks=pytest.mark.slow),
]
COMPILED = [
    pytest.param("diagonal_loop", "smith_waterman_affine", "similarity", marks=pytest.mark.slow),
    ("wavefront", "free_gap", "temperature"),
    ("fused", "needleman_wunsch", "similarity"),
    pytest.param("vmap", "smith_waterman", "gap", marks=pytest.mark.slow),
]
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
    leaves = {"similarity": torch.ones(2, 2, 2)}
    leaves |= {name: torch.tensor(value) for name, value in ALIGNMENTS[problem].parameters.items()}
    leaves[wanted].requires_grad_()
    (gradient,) = torch.autograd.grad(score(**leaves).sum(), leaves[wanted], create_graph=True)
    assert gradient.isfinite().all()
    return gradient


@pytest.mark.parametrize(("variant", "problem", "wanted", "mapped"), SCANS)
def test_torch_variants_that_scan_raise_on_a_double_backward(variant, problem, wanted, mapped):
    score = score_of(variant, problem)
    by_user = lambda similarity, **_: torch.func.vmap(score)(similarity)  # noqa: E731
    gradient = first_derivative(by_user if mapped else score, problem, wanted)
    text = f"variant '{variant}' is right to first order only; for second derivatives {USE}"
    with pytest.raises(RuntimeError, match=text):
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


@pytest.mark.parametrize("variant", SCANNING)
def test_torch_func_and_forward_mode_of_a_scan_raise(variant):
    ones, score = torch.ones(3, 2, 2), score_of(variant, "needleman_wunsch")
    by_temperature = lambda value: score(ones, temperature=value).sum()  # noqa: E731
    total = lambda matrix: score(matrix).sum()  # noqa: E731

    def along_a_dual() -> None:
        with forward_ad.dual_level():
            score(forward_ad.make_dual(ones, ones))

    for derivative, kind in (
        (lambda: torch.func.grad(total)(ones), "by torch.func"),
        (lambda: torch.func.jvp(score, (ones,), (ones,)), "by torch.func"),
        (lambda: torch.func.vmap(torch.func.grad(score))(ones), "by torch.func"),
        (lambda: torch.func.grad(by_temperature)(torch.tensor(1.0)), "by torch.func"),
        (lambda: torch.func.linearize(score, ones), "in forward mode"),
        (along_a_dual, "in forward mode"),
    ):
        with pytest.raises(CannotDifferentiate, match=f"variant '{variant}' cannot be differentiated {kind}; {USE}"):
            derivative()


def test_only_a_scan_with_tangents_raises_in_forward_mode():
    single, matrices = score_of("scan_select", "free_gap"), torch.ones(3, 2, 2)
    mapped = torch.func.vmap(single)
    alone = mapped(matrices)
    with forward_ad.dual_level():
        torch.testing.assert_close(mapped(matrices), alone)
        torch.testing.assert_close(single(matrices[0]), alone[0])
        dual = forward_ad.make_dual(matrices, matrices)
        with pytest.raises(CannotDifferentiate, match=r"'scan_select' cannot be differentiated in forward mode"):
            mapped(dual)
