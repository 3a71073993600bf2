"""A loss on the marginals, written the ordinary way, runs each native kernel once and nothing beside it.

Counted, not timed: by kernels that note how they are called, by the nodes of autograd's graph, by passes over a matrix
in PyTorch's profile, and by page faults. What XLA makes of the same code is in test_fused.py.
"""

import os
import platform
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from native_calls import noted_calls
from torch.profiler import ProfilerActivity, profile

import torch_impl
from shared.alignments import ALIGNMENTS
from shared.kernels import cpp

pytestmark = pytest.mark.skipif(cpp.why_absent() is not None, reason=f"no native kernels: {cpp.why_absent()}")

# two parameters and three, a batch and one pair: the calls differ in nothing else
CALLS = pytest.mark.parametrize(("problem", "batched"), [("smith_waterman", True), ("smith_waterman_affine", False)])
S = torch.randn((3, 9, 7), generator=torch.Generator().manual_seed(0))
V = torch.randn((3, 9, 7), generator=torch.Generator().manual_seed(1))
LENGTHS = torch.tensor([[9, 7], [5, 6], [0, 3]])
Function = Callable[..., torch.Tensor]


def marginals(function: Function, s: torch.Tensor, *lengths: Any, **parameters: Any) -> torch.Tensor:
    return torch_impl.marginals(function, s, *lengths, **parameters)


def gradient_of_the_score(function: Function, s: torch.Tensor, *lengths: Any, **parameters: Any) -> torch.Tensor:
    score = function(s, *lengths, **parameters)
    return torch.autograd.grad(score.sum(), s, create_graph=True)[0]


SPELLED = pytest.mark.parametrize("spelling", [marginals, gradient_of_the_score])


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    return noted_calls(monkeypatch)


def arguments(batched: bool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Similarity, vector, lengths."""
    return (S.clone(), V, LENGTHS) if batched else (S[1].clone(), V[1], LENGTHS[1])


def leaves(problem: str) -> dict[str, torch.Tensor]:
    return {name: torch.tensor(value, requires_grad=True) for name, value in ALIGNMENTS[problem].parameters.items()}


@SPELLED
@CALLS
def test_a_loss_on_the_marginals_runs_one_gradients_and_one_product(problem, batched, spelling, called):
    s, vector, lengths = arguments(batched)
    function = getattr(torch_impl, problem)
    loss = (spelling(function, s.requires_grad_(), lengths) * vector).sum()
    assert called == ["marginals"]
    loss.backward()
    assert called == ["marginals", "product"]
    assert s.grad is not None
    expected = torch_impl.hessian_vector_product(function, s.detach(), vector, lengths)
    assert torch.equal(s.grad, expected)


@CALLS
def test_a_loss_on_the_marginals_with_learned_parameters_runs_one_of_tangents(problem, batched, called):
    s, vector, lengths = arguments(batched)
    parameters = leaves(problem)
    loss = (torch_impl.marginals(getattr(torch_impl, problem), s, lengths, **parameters) * vector).sum()
    assert called == ["marginals"]  # of the score with respect to the similarity: nobody has asked for more
    loss.backward()
    assert called == ["marginals", "tangents"]
    assert all(parameter.grad is not None for parameter in parameters.values())


@CALLS
def test_a_score_and_its_marginals_in_one_loss_share_their_calls(problem, batched, called):
    s, vector, lengths = arguments(batched)
    score = getattr(torch_impl, problem)(s.requires_grad_(), lengths, **leaves(problem))
    (expected,) = torch.autograd.grad(score.sum(), s, create_graph=True)
    (score.sum() + (expected * vector).sum()).backward()
    assert called == ["gradients", "tangents"]


@CALLS
def test_the_score_and_its_gradient_are_one_call(problem, batched, called):
    s, _, lengths = arguments(batched)
    getattr(torch_impl, problem)(s.requires_grad_(), lengths).sum().backward()
    assert called == ["marginals"]


@pytest.mark.parametrize("learned", [False, True])
@CALLS
def test_a_hessian_product_is_one_call_with_and_without_a_graph(problem, learned, batched, called):
    s, vector, lengths = arguments(batched)
    torch_impl.hessian_vector_product(
        getattr(torch_impl, problem), s.requires_grad_(learned), vector, lengths, **(leaves(problem) if learned else {})
    )
    assert called == ["product"]


def test_marginals_are_one_node_of_the_graph():
    s = S.clone().requires_grad_()
    expected = torch_impl.marginals(torch_impl.smith_waterman, s, LENGTHS)  # which keeps its node
    assert expected.grad_fn is not None
    (below,) = (following for following, _ in expected.grad_fn.next_functions if following is not None)
    assert getattr(below, "variable", None) is s


@SPELLED
def test_only_the_loss_passes_over_a_matrix(spelling):
    s = S.clone().requires_grad_()
    torch_impl.smith_waterman(S)  # compiled by now
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as seen:
        (spelling(torch_impl.smith_waterman, s, LENGTHS) * V).sum().backward()
    passes = [event.name for event in seen.events() or () if list(S.shape) in (event.input_shapes or [])]
    ours = [name for name in passes if name.startswith("aten::") and name not in ("aten::detach", "aten::view_as")]
    # the loss forwards, and backwards
    assert [name for name in ours if name in ("aten::mul", "aten::sum")] == ["aten::mul", "aten::sum", "aten::mul"]
    assert not {"aten::copy_", "aten::clone", "aten::add", "aten::zeros_like", "aten::where"} & set(ours)


_STEPS = """
import resource, sys
from shared.kernels.heap import keep_freed_memory

def step():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [b"1" * 6_000_000 for _ in range(3)]
    del blocks
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

if "keep" in sys.argv:
    keep_freed_memory()
print([step() for _ in range(4)][-1])
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the threshold is one of glibc")
def test_a_step_reuses_the_memory_of_the_last_one():
    own = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_TUNABLES"))}
    lost, kept = (
        int(subprocess.run([sys.executable, "-c", _STEPS, mode], env=own, check=True, capture_output=True).stdout)
        for mode in ("lose", "keep")
    )
    assert kept < 100 < 1000 < lost
