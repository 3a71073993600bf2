"""Processes on gloo: modules that are wrapped by DDP and FSDP2, and DTensors, give what one process gives.

A process: python test_torch_processes.py RANK FILE ALIGNMENT …. It also computes the whole batch by itself, in float64,
and compares. The loss is a mean over all pairs, of which the processes have unequal shares, padded to their own
longest; the last has none.
"""

import datetime
import functools
import itertools
import os
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from side_by_side_processes import run_together
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.experimental import local_map
from torch.nn.parallel import DistributedDataParallel

import torch_impl
from shared.alignments import ALIGNMENTS
from torch_impl import best_alignment, hessian_vector_product, marginals, needleman_wunsch_affine, smith_waterman

PAIRS, ROWS, COLS, FEATURES = 4, 6, 7, 3
SHARES = (3, 1, 0)  # of DTensors, which PyTorch splits, (2, 2, 0)
VARIANTS = ("fused", "wavefront")
BATCH, SAME = (Shard(0),), (Replicate(),)


def test_processes_give_what_one_gives(tmp_path: Path, pytestconfig: pytest.Config):
    names = ["smith_waterman"] if "not slow" in (pytestconfig.getoption("markexpr") or "") else [*ALIGNMENTS]
    script = [sys.executable, "-W", "ignore", __file__]
    commands = [[*script, str(rank), str(tmp_path / "store"), *names] for rank in range(len(SHARES))]
    assert all("all checked" in output for output in run_together(commands, tmp_path))


def random(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def whole_batch() -> list[Tensor]:
    """Features of the two sequences, and lengths."""
    draws = torch.Generator().manual_seed(2)
    lengths = torch.stack([torch.randint(2, most + 1, (PAIRS,), generator=draws) for most in (ROWS, COLS)], dim=1)
    return [random(0, PAIRS, ROWS, FEATURES), random(1, PAIRS, COLS, FEATURES), lengths]


def own_part() -> list[Tensor]:
    """The pairs of this process, padded to the longest of them."""
    begin = sum(SHARES[: dist.get_rank()])
    one, other, sizes = (tensor[begin : begin + SHARES[dist.get_rank()]] for tensor in whole_batch())
    rows, cols = sizes.max(0).values.tolist() if len(sizes) else (1, 1)
    return [one[:, :rows], other[:, :cols], sizes]


class Model(nn.Module):
    """A loss of each pair, on its score or its marginals, with gaps that are learnt."""

    def __init__(self, name: str, variant: str, asked: str):
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Linear(FEATURES, 4, dtype=torch.float64)
        # FSDP2 shards the first dimension of each parameter and refuses those that have none
        gaps = {gap: nn.Parameter(torch.tensor([-1.5], dtype=torch.float64)) for gap in ALIGNMENTS[name].gaps}
        self.gaps = nn.ParameterDict(gaps)
        self.function, self.variant, self.asked = getattr(torch_impl, name), variant, asked

    def forward(self, one: Tensor, other: Tensor, sizes: Tensor) -> Tensor:
        similarity = self.embedding(one) @ self.embedding(other).mT
        keywords = {name: gap.reshape(()) for name, gap in self.gaps.items()} | {"variant": self.variant}
        if self.asked == "score":
            return self.function(similarity, sizes, **keywords).square()
        return marginals(self.function, similarity, sizes, **keywords).square().sum((1, 2))


def full(value: Any) -> Any:
    return value.full_tensor() if isinstance(value, DTensor) else value


def same(result: Any, expected: Any) -> None:
    torch.testing.assert_close(full(result).detach(), expected.detach(), rtol=1e-12, atol=1e-12)


def trained(wrap: Callable[[Model], Any], *case: str, splits: int = 1) -> None:
    """Gradients of a module that is wrapped are those of one process."""
    alone = Model(*case)
    alone(*whole_batch()).sum().div(PAIRS).backward()
    model = Model(*case)
    wrapped = wrap(model)
    parts = list(zip(*(tensor.tensor_split(splits) for tensor in own_part()), strict=True))
    for part in parts:
        if isinstance(wrapped, DistributedDataParallel):
            wrapped.require_backward_grad_sync = part is parts[-1]  # as `no_sync` does
        # the mean over the processes, which both wrappers take, of what is a sum over all pairs
        loss = wrapped(*part).sum() * dist.get_world_size() / PAIRS
        loss.backward()
    for (name, parameter), expected in zip(model.named_parameters(), alone.parameters(), strict=True):
        assert parameter.grad is not None and expected.grad is not None and expected.grad.any(), name
        same(parameter.grad, expected.grad)


def mesh() -> DeviceMesh:
    return init_device_mesh("cpu", (dist.get_world_size(),))


def check_ddp_and_fsdp(names: Sequence[str]) -> None:
    for name, variant in itertools.product(names, VARIANTS):
        trained(DistributedDataParallel, name, variant, "score")
        trained(DistributedDataParallel, name, variant, "marginals")
        trained(lambda model: fully_shard(model, mesh=mesh()), name, variant, "marginals")
    trained(DistributedDataParallel, "smith_waterman", "auto", "marginals", splits=2)
    for option in ("find_unused_parameters", "static_graph"):
        options: dict[str, Any] = {option: True}
        trained(functools.partial(DistributedDataParallel, **options), "smith_waterman", "auto", "marginals")
    if len(names) > 1:  # Dynamo takes most of the time, and Inductor's C++ compiler, which sees no processes, would
        compiled: Any = functools.partial(torch.compile, backend="aot_eager")
        trained(lambda model: compiled(DistributedDataParallel(model)), "smith_waterman", "auto", "marginals")


def given() -> tuple[list[Any], list[Any]]:
    """Arguments on one process, and as DTensors: sharded over the pairs, but replicated gap and temperatures."""
    alone = [random(3, PAIRS, ROWS, COLS), random(4, PAIRS, ROWS, COLS), whole_batch()[2]]
    alone += [torch.tensor(-1.5, dtype=torch.float64), random(5, PAIRS).abs() + 1]
    placements = [BATCH] * 3 + [SAME] * 2
    sharded = [distribute_tensor(tensor, mesh(), placed) for tensor, placed in zip(alone, placements, strict=True)]
    for leaf in (*leaves(alone), *leaves(sharded)):
        leaf.requires_grad_()
    return alone, sharded


def leaves(arguments: Sequence[Tensor]) -> list[Tensor]:
    return [arguments[0], *arguments[3:]]


def equal(loss: Callable[..., Tensor], of_sharded: Callable[..., Tensor]) -> None:
    """A loss of both, and its gradients with respect to similarity, gap and temperatures."""
    alone, sharded = given()
    expected, result = loss(*alone), of_sharded(*sharded)
    same(result, expected)
    gradients = torch.autograd.grad(full(result), leaves(sharded))
    assert isinstance(gradients[0], DTensor) and gradients[0].placements == BATCH
    for one, other in zip(gradients, torch.autograd.grad(expected, leaves(alone)), strict=True):
        same(one, other)


def asked(name: str, variant: str, s: Tensor, vector: Tensor, sizes: Tensor, _: Any, temperatures: Tensor) -> Any:
    """Score, marginals, Hessian product and best alignment."""
    call = functools.partial(getattr(torch_impl, name), temperature=temperatures, variant=variant)
    products = hessian_vector_product(call, s, vector, sizes)
    return call(s, sizes), marginals(call, s, sizes), products, *best_alignment(call.func, s.detach(), sizes)


def check_dtensors(names: Sequence[str]) -> None:
    alone, sharded = given()
    for name, variant in itertools.product(names, VARIANTS):
        results = asked(name, variant, *sharded), asked(name, variant, *alone)
        for result, expected in zip(*results, strict=True):
            assert result.placements == BATCH and result.shape == expected.shape
            same(result, expected)


def of_scores(variant: str, s: Tensor, _: Any, sizes: Tensor, gap: Tensor, temperatures: Tensor) -> Tensor:
    return (temperatures * smith_waterman(s, sizes, gap=gap, temperature=temperatures, variant=variant)).sum()


def of_marginals(variant: str, s: Tensor, vector: Tensor, sizes: Tensor, gap: Tensor, temperatures: Tensor) -> Tensor:
    keywords = {"gap": gap, "temperature": temperatures, "variant": variant}
    return (vector * marginals(smith_waterman, s, sizes, **keywords)).sum()


def of_axes(variant: str, s: Tensor, vector: Tensor, sizes: Tensor, gap: Tensor, temperatures: Tensor) -> Tensor:
    keywords = {"gap_open": (2 * gap, -2.0), "gap_extend": gap, "temperature": temperatures, "end_gaps": "free_rows"}
    call = functools.partial(needleman_wunsch_affine, variant=variant, **keywords)
    return (temperatures * call(s, sizes)).sum() + (vector * marginals(call, s, sizes)).sum()


def of_gradient(variant: str, *arguments: Tensor) -> Tensor:
    """The gradient of a loss that is not linear in the pairs of all processes."""
    (gradient,) = torch.autograd.grad((of_scores(variant, *arguments) / 10) ** 2, arguments[0], create_graph=True)
    return (gradient**3).sum()


def check_derivatives_of_dtensors(_: Any) -> None:
    for variant, loss in itertools.product(VARIANTS, (of_scores, of_marginals, of_axes, of_gradient)):
        equal(functools.partial(loss, variant), functools.partial(loss, variant))


def check_local_map(_: Any) -> None:
    loss, of_all = functools.partial(of_scores, "auto"), (Partial(),)
    before, after = (BATCH, BATCH, BATCH, SAME, BATCH), (BATCH, BATCH, BATCH, of_all, BATCH)
    mapped: Any = local_map(loss, list(of_all), before, after, mesh(), redistribute_inputs=True)
    equal(loss, mapped)


def check_bad_dtensors(_: Any) -> None:
    (plain, _, plain_sizes, plain_gap, _), (s, vector, sizes, gap, _) = given()
    partial = DTensor.from_local(plain_gap.detach(), mesh(), [Partial()], run_check=False)
    rows: Any = s.detach().redistribute(placements=[Shard(1)])
    single = distribute_tensor(plain[0].detach(), mesh(), BATCH)
    of_batch = re.escape("must have the placements Shard(0) of a batch, or Replicate(), got (Shard(dim=")
    both = "beside a similarity that is .*; make DTensors of all tensors, or of none"
    for error, text, call in (
        (ValueError, f"similarity {of_batch}1", lambda: smith_waterman(rows, sizes)),
        (ValueError, f"similarity {of_batch}1", lambda: best_alignment(smith_waterman, rows, sizes)),
        (ValueError, f"similarity {of_batch}0.* of a single pair", lambda: smith_waterman(single)),
        (ValueError, "gap must have placements Replicate", lambda: smith_waterman(s, sizes, gap=partial)),
        (ValueError, "lengths must have similarity's", lambda: smith_waterman(s.redistribute(placements=SAME), sizes)),
        (TypeError, f"lengths .*torch.Tensor {both}", lambda: smith_waterman(s, plain_sizes)),
        (TypeError, f"gap .*DTensor {both}", lambda: smith_waterman(plain, plain_sizes, gap=gap)),
        (TypeError, f"vector .*DTensor {both}", lambda: hessian_vector_product(smith_waterman, plain, vector)),
        (RuntimeError, "", lambda: torch.func.grad(lambda own: smith_waterman(own).sum())(s)),
    ):
        with pytest.raises(error, match=text):
            call()


def main(rank: int, file: str, names: Sequence[str]) -> None:
    torch.set_num_threads(1)
    count, patience = len(SHARES), datetime.timedelta(seconds=60)
    dist.init_process_group("gloo", f"file://{file}", patience, world_size=count, rank=rank)
    for check in [value for name, value in globals().items() if name.startswith("check_")]:
        check(names)
    print("all checked", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    try:
        main(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)  # at the end of Python, DDP would wait for the other processes
