"""Learning to align in PyTorch: a substitution matrix and a gap score, by gradient descent through the marginals.

`jax_impl.learn_alignment` has the same names with the same meaning.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch

import torch_impl
from shared import workload_checks as checks
from shared.checks import check_parameter
from shared.reference.learning import START_GAP, Learned, start_matrix
from shared.variants import Abilities, fastest_variant
from torch_impl.alignment import absent_on
from torch_impl.arguments import inside, see
from torch_impl.sweeps import SCANNING

Tensor = torch.Tensor


def learn(
    first: Any,
    second: Any,
    truth: Any,
    lengths: Any,
    *,
    steps: int = 100,
    learning_rate: float = 20.0,
    temperature: float = 1.0,
    variant: str = "auto",
    compiled: bool = False,
) -> Learned:
    """Learn from true alignments, by full-batch gradient descent on sum((marginals - truth)^2) / sum(truth).

    Args:
        first, second: sequences as numbers of letters from 0 to 19, (pairs, rows) and (pairs, cols).
        truth: 1 where two letters match, else 0, of shape (pairs, rows, cols), float32 or float64; somewhere not 0.
            Nothing outside lengths has any influence.
        lengths: of each pair, (pairs, 2).
        steps, learning_rate: of the descent.
        temperature, variant: of smith_waterman.
        compiled: must be False: torch.compile has no second derivatives.

    Returns:
        The losses (steps,), each before its update; the matrix (20, 20) and the gap (), of truth's dtype.

    Raises:
        TypeError, ValueError: an argument is not as described, or compiled is True.
        RuntimeError: the variant has no second derivatives.
    """
    if compiled:
        raise ValueError("compiled must be False here: torch.compile has no second derivatives")
    checks.check_pairs(see, first, second, truth, lengths)
    checks.check_count("steps", steps, least=1)
    checks.check_learning_rate(see(learning_rate))
    check_parameter("temperature", see(temperature), ())
    first, second, truth = (torch.as_tensor(array) for array in (first, second, truth))
    sizes = torch.as_tensor(lengths, device=truth.device)
    truth = torch.where(inside(sizes, *truth.shape[1:]), truth, 0.0)
    at = first.long()[:, :, None], second.long()[:, None, :]
    function = functools.partial(torch_impl.smith_waterman, variant=variant)
    matrix = torch.as_tensor(start_matrix()).to(truth)
    gap = truth.new_tensor(START_GAP)
    total = truth.sum()
    losses = []
    with torch.enable_grad():
        for _ in range(steps):
            matrix, gap = (value.detach().requires_grad_() for value in (matrix, gap))
            expected = torch_impl.marginals(function, matrix[at], lengths, gap=gap, temperature=temperature)
            loss = ((expected - truth) ** 2).sum() / total
            d_matrix, d_gap = torch.autograd.grad(loss, (matrix, gap))
            losses.append(loss.detach())
            matrix, gap = matrix.detach() - learning_rate * d_matrix, gap.detach() - learning_rate * d_gap
    return Learned(torch.stack(losses), matrix, gap)  # pyright: ignore[reportArgumentType]


def abilities(device: str) -> Abilities:
    """Which variants the benchmark may ask for."""
    absent = absent_on(device) | dict.fromkeys(SCANNING, "PyTorch's scan operator has wrong second derivatives")
    reason = "it is one operator already, around which torch.compile has nothing to fuse"
    return Abilities(fastest_variant(absent), absent, uncompiled_variants=dict.fromkeys(("wavefront", "fused"), reason))


def call_of(variant: str, pass_name: str, options: dict[str, Any], compiled: bool) -> Callable[..., Tensor]:
    """The function that the benchmark times: all results of `learn`, as one vector."""

    def call(*arrays: Any, **parameters: Any) -> Tensor:
        learned = learn(*arrays, variant=variant, compiled=compiled, **options, **parameters)
        return torch.cat([torch.as_tensor(part).reshape(-1) for part in learned])

    return call
