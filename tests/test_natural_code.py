"""A loss on the marginals, written the ordinary way, runs each native kernel once and nothing beside it.

Counted, not timed: by kernels that note how they are called, by passes over a matrix in PyTorch's profile, and by page
faults. What XLA makes of the same code is in test_fused.py.
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
from torch_impl import hessian_vector_product, marginals

pytestmark = pytest.mark.skipif(cpp.why_absent() is not None, reason=f"no native kernels: {cpp.why_absent()}")

S = torch.randn((3, 9, 7), generator=torch.Generator().manual_seed(0))
V = torch.randn((3, 9, 7), generator=torch.Generator().manual_seed(1))
LENGTHS = torch.tensor([[9, 7], [5, 6], [0, 3]])
Function = Callable[..., torch.Tensor]


def score_gradient(function: Function, s: torch.Tensor, *lengths: Any, **parameters: Any) -> torch.Tensor:
    return torch.autograd.grad(function(s, *lengths, **parameters).sum(), s, create_graph=True)[0]


def score_and_marginals(function: Function, s: torch.Tensor, vector: Any, lengths: Any, parameters: Any) -> None:
    score = function(s, lengths, **parameters)
    (expected,) = torch.autograd.grad(score.sum(), s, create_graph=True)
    (score.sum() + (expected * vector).sum()).backward()


# what is computed of a function and learned similarities, a vector, lengths and learned parameters, and by which calls
CODE = {
    "a score": (lambda f, s, v, n, p: f(s, n).sum().backward(), ["marginals"]),
    "a loss on marginals": (lambda f, s, v, n, p: (marginals(f, s, n) * v).sum().backward(), ["marginals", "product"]),
    "on a gradient": (lambda f, s, v, n, p: (score_gradient(f, s, n) * v).sum().backward(), ["marginals", "product"]),
    # forwards the parameters' gradients are not needed
    "learned": (
        lambda f, s, v, n, p: (marginals(f, s.detach(), n, **p) * v).sum().backward(),
        ["marginals", "tangents"],
    ),
    "a score and its marginals": (score_and_marginals, ["gradients", "tangents"]),
    "a Hessian product": (lambda f, s, v, n, p: hessian_vector_product(f, s.detach(), v, n), ["product"]),
    "one in a graph": (lambda f, s, v, n, p: hessian_vector_product(f, s, v, n, **p), ["product"]),
    "one without": (torch.no_grad()(lambda f, s, v, n, p: hessian_vector_product(f, s, v, n, **p)), ["product"]),
}


# two parameters and three, a batch and one pair: the calls differ in nothing else
@pytest.mark.parametrize(("problem", "batch"), [("smith_waterman", slice(3)), ("smith_waterman_affine", 1)], ids=str)
@pytest.mark.parametrize("code", CODE)
def test_natural_code_makes_each_native_call_once(code, problem, batch, monkeypatch):
    run, calls = CODE[code]
    defaults = ALIGNMENTS[problem].parameters
    parameters = {name: torch.tensor(value, requires_grad=True) for name, value in defaults.items()}
    called = noted_calls(monkeypatch)
    run(getattr(torch_impl, problem), S[batch].clone().requires_grad_(), V[batch], LENGTHS[batch], parameters)
    assert called == calls


@pytest.mark.parametrize("spelling", [marginals, score_gradient])
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
    env = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_TUNABLES"))}
    lost, less = (
        int(subprocess.run([sys.executable, "-c", _STEPS, mode], env=env, check=True, capture_output=True).stdout)
        for mode in ("lose", "keep")
    )
    assert less < 100 < 1000 < lost
