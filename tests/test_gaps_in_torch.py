"""Gaps by position under PyTorch's compiler and transforms, and on their way to the operators."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from frameworks import BY_HAND, Inputs, ragged
from torch.autograd import forward_ad

import torch_impl
from shared import reference
from shared.alignments import ALIGNMENTS, recurrence_of
from torch_impl import alignment, operator_calls
from torch_impl.kernels import plain_calls

Tensor = torch.Tensor
PROBLEM, NAMES, OPTIONS = "smith_waterman_affine", ("gap_extend",), {"restrict_turns": False, "penalize_turns": True}
ARGUMENTS = ("similarity", *ALIGNMENTS[PROBLEM].parameters)
VARIANT = pytest.mark.parametrize("variant", BY_HAND)


@pytest.fixture
def inputs() -> Inputs:
    return ragged(4, 5, problem=PROBLEM, by_position=NAMES)


@pytest.fixture
def tensors(inputs: Inputs) -> list[Tensor]:
    """similarity, gap_open, gap_extend, temperature."""
    return [torch.from_numpy(array) for array in (inputs.similarity, *inputs.parameters.values())]


@pytest.fixture
def slopes(inputs: Inputs) -> list[np.ndarray]:
    """The gradients of each pair's score."""
    found = reference.gradients(PROBLEM, inputs.similarity, inputs.lengths, **inputs.parameters, **OPTIONS)
    return [found[name] for name in ARGUMENTS]


def function(variant: str, lengths: Any) -> Callable[..., Tensor]:
    """The scores of similarity, gap_open, gap_extend and temperature."""

    def score(similarity: Tensor, *values: Tensor) -> Tensor:
        own = dict(zip(ARGUMENTS[1:], values, strict=True))
        return torch_impl.smith_waterman_affine(similarity, lengths, variant=variant, **own, **OPTIONS)

    return score


def equal(found: Any, wanted: Any, atol: float = 1e-12) -> None:
    for own, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(own.detach().numpy(), other, rtol=0, atol=atol)


def poisoned(tensors: list[Tensor], seed: int = 0) -> list[Tensor]:
    """A direction, with NaN in the padding."""
    random = np.random.default_rng(seed)
    padding = ~np.isfinite(tensors[0].numpy())
    own = [random.normal(size=tensor.shape) for tensor in tensors]
    return [torch.from_numpy(np.where(padding, np.nan, value) if value.ndim == 3 else value) for value in own]


def along(slopes: list[np.ndarray], direction: list[Tensor]) -> np.ndarray:
    """The tangents of the scores."""
    parts = zip(slopes, direction, strict=True)
    return np.sum([(slope * np.nan_to_num(own.numpy())).reshape(6, -1).sum(1) for slope, own in parts], axis=0)


# the compiler


@VARIANT
def test_scores_and_gradients_are_compiled(variant, inputs, tensors, slopes):
    score = torch.compile(function(variant, torch.from_numpy(inputs.lengths)), backend="aot_eager", fullgraph=True)
    wanted = reference.smith_waterman_affine(inputs.similarity, inputs.lengths, **inputs.parameters, **OPTIONS)
    equal([score(*tensors)], [wanted])
    leaves = [tensor.clone().requires_grad_() for tensor in tensors]
    equal(torch.autograd.grad(score(*leaves).sum(), leaves), slopes)
    tensors[2].requires_grad_()
    equal(torch.autograd.grad(score(*tensors).sum(), tensors[2]), slopes[2:3])


@VARIANT
def test_second_derivatives_are_compiled(variant, inputs, tensors):
    score = function(variant, torch.from_numpy(inputs.lengths))
    every = (0, 1, 2, 3)
    direction = [torch.nan_to_num(own) for own in poisoned(tensors)]

    def loss(*own: Tensor) -> Tensor:
        slopes = torch.func.grad(lambda *arguments: score(*arguments).sum(), argnums=every)(*own)
        return torch.stack([(a * b).sum() for a, b in zip(direction, slopes, strict=True)]).sum()

    product = torch.func.grad(loss, argnums=every)
    equal(torch.compile(product, backend="aot_eager", fullgraph=True)(*tensors), product(*tensors))


@VARIANT
@pytest.mark.parametrize("names", [(), NAMES, ALIGNMENTS[PROBLEM].gaps], ids=str)
def test_marginals_are_compiled_as_a_whole(variant, names):
    torch._dynamo.reset()  # it is compiled once more for each case, of which there may be eight
    given = ragged(4, 5, problem=PROBLEM, by_position=names)
    similarity, lengths = torch.from_numpy(given.similarity), torch.from_numpy(given.lengths)
    own = {name: torch.from_numpy(value) for name, value in given.parameters.items()}
    marginals = functools.partial(torch_impl.marginals, torch_impl.smith_waterman_affine, variant=variant, **OPTIONS)
    found = torch.compile(marginals, backend="aot_eager", fullgraph=True)(similarity, lengths, **own)
    wanted = reference.gradients(PROBLEM, given.similarity, given.lengths, **given.parameters, **OPTIONS)
    equal([found], [wanted["similarity"]])


@VARIANT
def test_pairs_are_mapped_inside_the_compiler(variant, inputs, tensors):
    mapped = torch.func.vmap(lambda lengths, *own: function(variant, lengths)(*own))
    lengths = torch.from_numpy(inputs.lengths)
    found = torch.compile(mapped, backend="aot_eager", fullgraph=True)(lengths, *tensors)
    equal([found], [function(variant, lengths)(*tensors)])


@VARIANT
def test_marginals_and_products_are_exported(variant, inputs, tensors, slopes):
    direction = poisoned(tensors)[0]

    class Both(torch.nn.Module):
        def forward(self, similarity: Tensor, lengths: Tensor, *values: Tensor) -> tuple[Tensor, Tensor]:
            own = dict(zip(ARGUMENTS[1:], values, strict=True)) | OPTIONS | {"variant": variant}
            align = torch_impl.smith_waterman_affine
            expected = torch_impl.marginals(align, similarity, lengths, **own)
            return expected, torch_impl.hessian_vector_product(align, similarity, direction, lengths, **own)

    given = tensors[0], torch.from_numpy(inputs.lengths), *tensors[1:]
    found = torch.export.export(Both(), given).module()(*given)
    equal(found, [slopes[0], Both()(*given)[1]])


# forward mode


@VARIANT
def test_tangents_are_right_whatever_their_padding_is(variant, inputs, tensors, slopes):
    score, direction = function(variant, torch.from_numpy(inputs.lengths)), poisoned(tensors)
    tangent = torch.func.jvp(score, tuple(tensors), tuple(direction))[1]
    equal([tangent], [along(slopes, direction)])


@VARIANT
def test_tangents_of_gradients_are_gradients_of_their_products(variant, inputs, tensors):
    score, direction = function(variant, torch.from_numpy(inputs.lengths)), poisoned(tensors)
    slopes_of = torch.func.grad(lambda *own: score(*own).sum(), argnums=(0, 1, 2, 3))
    tangents = torch.func.jvp(slopes_of, tuple(tensors), tuple(direction))[1]

    def loss(*own: Tensor) -> Tensor:
        pairs = zip(direction, slopes_of(*own), strict=True)
        return torch.stack([(torch.nan_to_num(a) * b).sum() for a, b in pairs]).sum()

    equal(tangents, torch.func.grad(loss, argnums=(0, 1, 2, 3))(*tensors), 1e-11)


@VARIANT
@pytest.mark.parametrize("number", range(4))
def test_what_autograd_records_and_what_has_a_tangent_may_differ(variant, number, inputs, tensors, slopes):
    score, direction = function(variant, torch.from_numpy(inputs.lengths)), poisoned(tensors)
    for recorded in range(4):
        own = [tensor.clone().requires_grad_(k == recorded) for k, tensor in enumerate(tensors)]
        with forward_ad.dual_level():
            own[number] = forward_ad.make_dual(own[number], direction[number])
            found = forward_ad.unpack_dual(score(*own)).tangent
        assert found is not None
        equal([found], [along(slopes[number : number + 1], direction[number : number + 1])])


# the operators


def test_the_wavefronts_operators_are_what_pytorch_expects():
    s, gap = torch.randn(2, 3, 4), -torch.rand(2, 3, 4)
    lengths, values = torch.tensor([[3, 4], [2, 2]]), torch.tensor([[-1.0, 0.0, 1.0]] * 2)
    last = recurrence_of(PROBLEM, OPTIONS, NAMES).name, False
    own = torch.ops.smooth_alignment
    for operator, arguments in (
        (own.wavefront_score.default, (s, lengths, values, [gap], *last)),
        (own.wavefront_gradients.default, (s, lengths, values, [gap], *last, True)),
        (own.wavefront_gradients.default, (s, lengths, values, [gap], *last, False)),
        (own.wavefront_tangents.default, (s, lengths, values, [gap], s, values, [gap], *last)),
    ):
        assert set(torch.library.opcheck(operator, arguments).values()) == {"SUCCESS"}


@VARIANT
def test_a_gap_may_have_any_strides(variant):
    s, wide = torch.randn(2, 3, 4, dtype=torch.float64), torch.randn(4, 6, 2, dtype=torch.float64)
    gap = wide.permute(2, 1, 0)[:, ::2]
    align = functools.partial(torch_impl.needleman_wunsch, variant=variant)
    equal([align(s, gap=gap)], [align(s, gap=gap.contiguous())])
    equal([align(s, gap=gap[:1].expand(2, 3, 4))], [align(s, gap=gap[:1].repeat(2, 1, 1))])


def test_an_ordinary_call_takes_tensors_by_the_short_way(monkeypatch):
    s, gap = torch.randn(2, 2, 3, 4)
    wanted = reference.smith_waterman(s.numpy(), None, gap=gap.numpy())
    monkeypatch.setattr(alignment, "_fused", None)
    np.testing.assert_allclose(torch_impl.smith_waterman(s, gap=gap, variant="fused").numpy(), wanted, rtol=1e-5)
    assert torch_impl.marginals(torch_impl.smith_waterman, s, gap=gap).shape == s.shape
    for other in (gap.double(), gap.numpy(), gap[0], torch.tensor(-1.0)):
        given = operator_calls.score, "smith_waterman", {"end": "any"}, s, None, {"gap": other, "temperature": 1.0}
        assert plain_calls.plain_call(*given, str) is None


def test_a_gap_by_position_is_recorded_by_the_short_way():
    s, gap = torch.randn(2, 2, 3, 4, dtype=torch.float64)
    gap.requires_grad_()
    (found,) = torch.autograd.grad(torch_impl.smith_waterman(s, gap=gap).sum(), gap)
    equal([found], [reference.gradients("smith_waterman", s, None, gap=gap.detach())["gap"]])
    (found,) = torch.autograd.grad((s * torch_impl.marginals(torch_impl.smith_waterman, s, gap=gap)).sum(), gap)
    wanted = reference.hessian_vector_product("smith_waterman", s, s, None, gap=gap.detach())["gap"]
    equal([found], [wanted], 1e-8)
