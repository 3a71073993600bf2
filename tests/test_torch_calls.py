"""PyTorch: the short way to the native kernels, and gaps by position under its compiler and autograd."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from frameworks import PROBLEMS, ragged
from gaps_by_position import VARIANT, directions_of
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad

import torch_impl
import torch_impl.alignment
from shared import reference
from shared.alignments import ALIGNMENTS
from shared.kernels import cpp
from torch_impl import alignment, derivatives
from torch_impl.kernels import fused

Tensor = torch.Tensor
PROBLEM, NAMES, OPTIONS = "smith_waterman_affine", ("gap_extend",), {"restrict_turns": False, "penalize_turns": True}
ARGUMENTS = ("similarity", *ALIGNMENTS[PROBLEM].parameters)
ALL = tuple(range(len(ARGUMENTS)))
slow = pytest.mark.slow
compiled = functools.partial(torch.compile, backend="aot_eager", fullgraph=True)


@pytest.fixture(autouse=True)
def no_compiled_code() -> None:
    """Forget what other tests have compiled: a function may be compiled eight times."""
    torch._dynamo.reset()


def given() -> tuple[tuple[Tensor, ...], Tensor, tuple[Tensor, ...], np.ndarray, list[np.ndarray]]:
    """A ragged batch with poisoned padding, and its lengths; a direction; what the reference makes of it.

    That is the scores, and the gradients of each pair's score for each of ARGUMENTS.
    """
    inputs = ragged(4, 5, problem=PROBLEM, by_position=NAMES)
    arguments = inputs.similarity, inputs.lengths
    scores = reference.smith_waterman_affine(*arguments, **inputs.parameters, **OPTIONS)
    slopes = reference.gradients(PROBLEM, *arguments, **inputs.parameters, **OPTIONS)
    direction = directions_of(inputs, NAMES)[0]
    return (
        tuple(map(torch.from_numpy, (inputs.similarity, *inputs.parameters.values()))),
        torch.from_numpy(inputs.lengths),
        tuple(torch.from_numpy(np.asarray(direction[name])) for name in ARGUMENTS),
        scores,
        [slopes[name] for name in ARGUMENTS],
    )


def score(variant: str, lengths: Tensor, similarity: Tensor, *values: Tensor) -> Tensor:
    parameters = dict(zip(ARGUMENTS[1:], values, strict=True))
    return torch_impl.smith_waterman_affine(similarity, lengths, variant=variant, **parameters, **OPTIONS)


def equal(results: Any, expected: Any, atol: float = 1e-12) -> None:
    for result, exact in zip(results, expected, strict=True):
        np.testing.assert_allclose(result.detach().numpy(), exact, rtol=0, atol=atol)


@pytest.mark.parametrize("variant", [pytest.param("wavefront", marks=slow), "fused"])
def test_torch_compiles_first_derivatives_with_gaps_by_position(variant):
    tensors, lengths, _, scores, slopes = given()
    function = compiled(functools.partial(score, variant, lengths))
    equal([function(*tensors)], [scores])
    leaves = [tensor.clone().requires_grad_() for tensor in tensors]
    equal(torch.autograd.grad(function(*leaves).sum(), leaves), slopes)
    parameters = dict(zip(ARGUMENTS[1:], tensors[1:], strict=True))
    marginals = functools.partial(torch_impl.marginals, torch_impl.smith_waterman_affine, variant=variant, **OPTIONS)
    equal([compiled(marginals)(tensors[0], lengths, **parameters)], slopes[:1])
    tensors[2].requires_grad_()
    equal(torch.autograd.grad(function(*tensors).sum(), tensors[2]), slopes[2:3])


@pytest.mark.parametrize("variant", [pytest.param("wavefront", marks=slow), "fused"])
def test_torch_compiles_second_derivatives_and_maps_with_gaps_by_position(variant):
    tensors, lengths, direction, scores, _ = given()

    def loss(*values: Tensor) -> Tensor:
        slopes = torch.func.grad(lambda s, *others: score(variant, lengths, s, *others).sum(), argnums=ALL)(*values)
        return torch.stack([(torch.nan_to_num(a) * b).sum() for a, b in zip(direction, slopes, strict=True)]).sum()

    product = torch.func.grad(loss, argnums=ALL)
    equal(compiled(product)(*tensors), product(*tensors))
    mapped = torch.func.vmap(functools.partial(score, variant))
    equal([compiled(mapped)(lengths, *tensors)], [scores])


@VARIANT
@pytest.mark.parametrize("number", ALL)
def test_one_argument_may_have_a_tangent_while_autograd_records_another(variant, number):
    tensors, lengths, direction, _, slopes = given()
    along = (slopes[number] * np.nan_to_num(direction[number].numpy())).reshape(6, -1).sum(1)
    for recorded in ALL:
        leaves = [tensor.clone().requires_grad_(k == recorded) for k, tensor in enumerate(tensors)]
        with forward_ad.dual_level():
            leaves[number] = forward_ad.make_dual(leaves[number], direction[number])
            equal([forward_ad.unpack_dual(score(variant, lengths, *leaves)).tangent], [along])


@VARIANT
def test_a_gap_by_position_may_have_any_strides(variant):
    s, wide = torch.randn(2, 3, 4, dtype=torch.float64), torch.randn(4, 6, 2, dtype=torch.float64)
    gap = wide.permute(2, 1, 0)[:, ::2]
    align = functools.partial(torch_impl.needleman_wunsch, variant=variant)
    equal([align(s, gap=gap)], [align(s, gap=gap.contiguous())])
    equal([align(s, gap=gap[:1].expand(2, 3, 4))], [align(s, gap=gap[:1].repeat(2, 1, 1))])


def test_a_plain_call_takes_a_gap_by_position_by_the_short_way(monkeypatch):
    s, gap = torch.randn(2, 2, 3, 4)
    expected = reference.smith_waterman(s.numpy(), None, gap=gap.numpy(), end="match")
    monkeypatch.setattr(alignment, "fused", None)
    scores = torch_impl.smith_waterman(s, gap=gap, end="match", variant="fused")
    np.testing.assert_allclose(scores.numpy(), expected, rtol=1e-5)
    for other in (gap.double(), gap.numpy(), gap[0], torch.tensor(-1.0)):
        assert short(s, None, gap=other) is None


def test_the_short_way_records_a_gap_by_position():
    s, gap = torch.randn(2, 2, 3, 4, dtype=torch.float64)
    gap.requires_grad_()
    align, numbers = functools.partial(torch_impl.smith_waterman, end="match"), {"gap": gap.detach(), "end": "match"}
    (slope,) = torch.autograd.grad(align(s, gap=gap).sum(), gap)
    equal([slope], [reference.gradients("smith_waterman", s, None, **numbers)["gap"]])
    (slope,) = torch.autograd.grad((s * torch_impl.marginals(align, s, gap=gap)).sum(), gap)
    expected = reference.hessian_vector_product("smith_waterman", s, s, None, **numbers)["gap"]
    equal([slope], [expected], 1e-8)


pytestmark = pytest.mark.skipif(cpp.why_absent() is not None, reason=f"no native kernels: {cpp.why_absent()}")

S = torch.from_numpy(np.random.default_rng(0).normal(size=(3, 9, 7)).astype(np.float32))
LENGTHS = torch.tensor([[9, 7], [5, 6], [0, 3]], dtype=torch.int32)


class Own(torch.Tensor):
    pass


def short(s: Any = S, lengths: Any = LENGTHS, gap: Any = -1.0, temperature: Any = 1.0) -> torch.Tensor | None:
    if not fused.is_plain_call(s):
        return None
    parameters = {"gap": gap, "temperature": temperature}
    return fused.plain_call(derivatives.score, "smith_waterman", {"end": "any"}, s, lengths, parameters)


def results(function: Callable[..., torch.Tensor], s: torch.Tensor, lengths: Any) -> list[torch.Tensor]:
    vector = torch.linspace(-1, 1, s.numel(), dtype=s.dtype).view(s.shape)
    return [
        function(s, lengths),
        torch_impl.marginals(function, s, lengths),
        torch_impl.hessian_vector_product(function, s, vector, lengths),
    ]


@pytest.mark.parametrize(
    ("problem", "dtype"),
    [*((problem, torch.float32) for problem in PROBLEMS), ("smith_waterman_affine", torch.float64)],
)
def test_both_ways_give_the_same_bits(problem, dtype, monkeypatch):
    options = PROBLEMS[problem].options[-1]
    function = functools.partial(getattr(torch_impl, problem), temperature=0.7, **options)
    s = S.to(dtype)
    cases = [(s, LENGTHS), (s, LENGTHS.long()), (s, None), (s[0], None), (s[1], LENGTHS[1]), (s.mT, LENGTHS.flip(1))]
    cases += [(s[:1].expand(3, 9, 7), LENGTHS), (s[:0], LENGTHS[:0]), (s[:, :0], None)]
    by_short = [results(function, *case) for case in cases]
    monkeypatch.setattr(torch_impl.alignment, "plain_call", lambda *_: None)
    for case, got in zip(cases, by_short, strict=True):
        for one, other in zip(got, results(function, *case), strict=True):
            assert one.dtype == other.dtype
            assert torch.equal(one, other)


@pytest.mark.parametrize("name", ["auto", "fused"])
def test_ordinary_arguments_go_the_short_way(name, monkeypatch):
    def refuse(*_: Any) -> str:
        raise AssertionError("the general way")

    monkeypatch.setattr(torch_impl.alignment, "choose_variant", refuse)
    function = functools.partial(torch_impl.smith_waterman, variant=name)
    results(function, S, LENGTHS)
    with torch.inference_mode():
        results(function, S * 1, LENGTHS)
    leaf = S.clone().requires_grad_()
    results(function, leaf, LENGTHS)
    with torch.no_grad():
        function(leaf, LENGTHS)
    with pytest.raises(AssertionError, match="the general way"):
        torch_impl.smith_waterman(S, variant="wavefront")


OUTSIDE = [1, 0], [0, 1], [-1, 0], [0, -4]
UNUSUAL = [
    *(("s", s) for s in (torch.nn.Parameter(S), S.as_subclass(Own), S.to_sparse(), S.half(), S.int(), S[0, 0])),
    *(("s", s) for s in (S.numpy(), S.to("meta"))),
    *(("lengths", lengths) for lengths in (LENGTHS.numpy(), LENGTHS.tolist(), LENGTHS.float(), LENGTHS[:2])),
    *(("lengths", lengths) for lengths in (LENGTHS.to(torch.uint8), LENGTHS.long() + 2**32)),
    # outside the matrix
    *(
        ("lengths", (LENGTHS + torch.tensor(more)).to(dtype))
        for more in OUTSIDE
        for dtype in (torch.int32, torch.int64)
    ),
    *(("gap", gap) for gap in (torch.tensor(-1.0), np.float64(-1.0), True, float("nan"))),
    *(("temperature", temperature) for temperature in (0.0, None)),
]


def test_unusual_arguments_go_the_general_way():
    assert short() is not None
    assert short(lengths=LENGTHS.long()) is not None
    for name, value in UNUSUAL:
        assert short(**{name: value}) is None, (name, value)


def test_nothing_that_is_traced_or_mapped_goes_the_short_way():
    seen = []

    def look(s: torch.Tensor, *_: Any) -> torch.Tensor:
        seen.append(short(S))  # what is mapped or traced need not be the similarity
        seen.append(short(s))
        return s.sum()

    torch.func.vmap(look)(S)
    torch.func.grad(look)(S)
    torch.func.jvp(look, (S,), (S,))
    with forward_ad.dual_level():
        look(forward_ad.make_dual(S, S))
    with FakeTensorMode() as mode:
        look(mode.from_tensor(S))
    torch.jit.trace(look, S, check_trace=False)
    assert seen == [None] * 12


def test_values_kept_between_calls_are_not_mixed_up(monkeypatch):
    with torch.inference_mode():  # what is made here must not be of this mode alone
        first, lengths, gaps = torch_impl.smith_waterman(S, LENGTHS, gap=-1.25), LENGTHS * 1, torch.full_like(S, -1.25)
    assert not torch.equal(first, torch_impl.smith_waterman(S, LENGTHS, gap=-1.5))
    assert torch.equal(first, torch_impl.smith_waterman(S, LENGTHS, gap=-1.25))
    assert not torch.equal(
        torch_impl.smith_waterman(S, gap=-2, temperature=3), torch_impl.smith_waterman(S, gap=3, temperature=2)
    )
    expected = torch_impl.marginals(torch_impl.smith_waterman, S, LENGTHS, gap=-1.25)
    for gap, tolerance in ((-1.25, 0.0), (gaps, 1e-6)):
        leaf = S.clone().requires_grad_()
        torch_impl.smith_waterman(leaf, lengths, gap=gap).sum().backward()
        torch.testing.assert_close(leaf.grad, expected, rtol=0, atol=tolerance)
    monkeypatch.setattr(fused, "_MOST_PAIRS", 2)  # and more pairs than are kept are computed
    for pairs in (2, 3):
        assert torch.equal(torch_impl.smith_waterman(S[:pairs], LENGTHS[:pairs], gap=-1.25), first[:pairs])
