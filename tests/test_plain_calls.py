"""PyTorch's short way to the native kernels: the same numbers as the general way, and for ordinary arguments only."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from frameworks import PROBLEMS
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad

import torch_impl
import torch_impl.alignment
from shared.kernels import cpp
from torch_impl import operator_calls
from torch_impl.kernels import plain_calls

pytestmark = pytest.mark.skipif(cpp.why_absent() is not None, reason=f"no native kernels: {cpp.why_absent()}")

S = torch.from_numpy(np.random.default_rng(0).normal(size=(3, 9, 7)).astype(np.float32))
LENGTHS = torch.tensor([[9, 7], [5, 6], [0, 3]], dtype=torch.int32)


class Own(torch.Tensor):
    pass


def short(s: Any = S, lengths: Any = LENGTHS, gap: Any = -1.0, temperature: Any = 1.0) -> torch.Tensor | None:
    parameters = {"gap": gap, "temperature": temperature}
    return plain_calls.plain_call(operator_calls.score, "smith_waterman", {"end": "any"}, s, lengths, parameters, str)


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
        first = torch_impl.smith_waterman(S, LENGTHS, gap=-1.25)
    assert not torch.equal(first, torch_impl.smith_waterman(S, LENGTHS, gap=-1.5))
    assert torch.equal(first, torch_impl.smith_waterman(S, LENGTHS, gap=-1.25))
    assert not torch.equal(
        torch_impl.smith_waterman(S, gap=-2, temperature=3), torch_impl.smith_waterman(S, gap=3, temperature=2)
    )
    leaf = S.clone().requires_grad_()
    torch_impl.smith_waterman(leaf, LENGTHS, gap=-1.25).sum().backward()
    assert leaf.grad is not None
    assert torch.equal(leaf.grad, torch_impl.marginals(torch_impl.smith_waterman, S, LENGTHS, gap=-1.25))
    monkeypatch.setattr(plain_calls, "_MOST_PAIRS", 2)  # and more pairs than are kept are computed
    for pairs in (2, 3):
        assert torch.equal(torch_impl.smith_waterman(S[:pairs], LENGTHS[:pairs], gap=-1.25), first[:pairs])
