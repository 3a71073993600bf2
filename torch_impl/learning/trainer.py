"""Training a model with Adam on the robust cross-entropy of the true pairs.

    loss of a pair of sequences = mean over its true pairs (i, j) of -log(0.99 P(i,j) + 0.01), P: the marginals

as if one of a hundred true pairs were annotated wrongly. `jax_impl.learning.trainer` has the same names with the same
meaning. Here a step runs operator by operator and changes weights and optimizer in place.

Data-parallel, each process has a shard of the batch, and the loss is

    loss = Σ weight · loss of a pair / Σ weight, both sums over the pairs of all shards

DistributedDataParallel averages the gradients of n processes, so each one differentiates n · its own sum / Σ weight.
"""

import functools
import io
import json
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.parallel import DistributedDataParallel

from shared.checks import check_choice
from shared.file_writing import atomic_file
from shared.learning.batches import Batch
from shared.learning.checkpoints import header, reading, state_of
from shared.learning.job import DOUBT, Job
from shared.learning.shards import divided
from shared.learning.weights import Weights, initial_weights
from torch_impl import best_alignment, marginals, smith_waterman_affine
from torch_impl.learning.models import Matrix, weights_of, with_weights
from torch_impl.learning.processes import Processes

Tensor = torch.Tensor


class Trained(NamedTuple):
    """The state that a training step changes."""

    model: Any
    optimizer: torch.optim.Optimizer


class Trainer:
    """One model with its optimizer, on a device, or on those of all processes."""

    def __init__(
        self, job: Job, *, variant: str = "auto", device: str = "cpu", dtype: str = "float32", compiled: bool = False,
        data_parallel: bool = False,
    ) -> None:  # fmt: skip
        """A model with the job's initial weights.

        Args:
            variant: of smith_waterman_affine; one that has second derivatives.
            device: "cpu" or "cuda".
            dtype: "float32" or "float64", of weights and alignments.
            compiled: must be False: torch.compile takes longer than the whole training (docs/questions.md).
            data_parallel: whether batches are divided over all processes of torch.distributed's default group. Every
                process then makes the same calls with the same arguments, gets the results that a single process
                would get, and has the same weights; process 0 alone reads and writes checkpoints.

        Raises:
            ValueError: dtype or compiled is not as described.
            RuntimeError: data_parallel, and there is no process group.
        """
        check_choice("dtype", dtype, ("float32", "float64"))
        if compiled:
            raise ValueError("compiled must be False here: torch.compile takes longer than the whole training")
        self.job, self.dtype = job, dtype
        self._variant, self._device = variant, torch.device(device)
        self._processes = Processes(self._device) if data_parallel else None
        self.set_weights(initial_weights(job.model, job.seed))

    @property
    def process(self) -> int:
        """The number of this process among those that train together."""
        return 0 if self._processes is None else self._processes.index

    def step(self, batch: Batch) -> Tensor:
        """One step of Adam; returns the loss () before it, without waiting for the device.

        Raises what the variant raises where it has no second derivatives.
        """
        processes, weight = self._processes, float(batch.weights.sum())
        if processes is not None:
            batch = divided(batch, processes.shards).shard(processes.index, processes.shards)
            weight /= processes.shards  # DistributedDataParallel takes the mean
        loss = self._loss(_on_device(batch, self._device), weight)
        # waited for at the end, with the gradients: alone it would cost another synchronization
        mean = loss.detach if processes is None else processes.mean(loss.detach())
        self._trained.optimizer.zero_grad()
        loss.backward()
        self._trained.optimizer.step()
        return mean()

    @torch.no_grad()
    def predicted(self, batch: Batch, exact: bool = False) -> NDArray[np.int32]:
        """The predicted partner of each residue of the first sequences, or -1: (pairs, length).

        By marginals above 1/2 (at most one in a row or column) or, if exact, by the best alignment.
        """
        return self._of_each_pair(_predicted, batch, exact=exact)

    @torch.no_grad()
    def marginals(self, batch: Batch) -> NDArray[Any]:
        """The probability of each pair of residues, (pairs, length, length)."""
        return self._of_each_pair(_expected, batch)

    def weights(self) -> Weights:
        """Copies of the weights."""
        return weights_of(self._trained.model)

    def set_weights(self, weights: Weights) -> None:
        """Continue with these weights and a new optimizer. Raises ValueError if they are another model's."""
        model = with_weights(self.job.model, weights, getattr(torch, self.dtype)).to(self._device)
        self._trained = Trained(model, torch.optim.Adam(model.parameters(), self.job.rate))
        self._loss = _Loss(model, self._variant)
        if self._processes is not None:
            self._loss = DistributedDataParallel(self._loss)

    @property
    @torch.no_grad()
    def matrix(self) -> NDArray[np.float64]:
        """The similarity of each residue with each, (20, 20). Raises ValueError if the model is no matrix."""
        model = self._trained.model
        if not isinstance(model, Matrix):
            raise ValueError(f"the model must be a matrix, got {self.job.model!r}")
        return model.symmetric().double().cpu().numpy()

    @property
    @torch.no_grad()
    def gaps(self) -> tuple[float, float]:
        """The scores of opening and of extending a gap."""
        gap_open, gap_extend = self._trained.model.gaps()
        return float(gap_open), float(gap_extend)

    def alignment_call(self, batch: Batch) -> Callable[[], Any]:
        """A call of the alignment's part of a step alone, without waiting: the marginals, and their backward to
        similarity and gaps, from the loss's gradient."""
        moved, model = _on_device(batch, self._device), self._trained.model
        similarity = model.similarity(moved.first, moved.second, moved.lengths)
        leaves = [value.detach().requires_grad_() for value in (similarity, *model.gaps())]
        expected = _alignment_marginals(leaves[0], moved.lengths, leaves[1:], self._variant).detach().requires_grad_()
        (cotangent,) = torch.autograd.grad(_cross_entropy(expected, moved, float(batch.weights.sum())), expected)

        def call() -> Any:
            result = _alignment_marginals(leaves[0], moved.lengths, leaves[1:], self._variant)
            return result, torch.autograd.grad(result, leaves, cotangent)

        return call

    def save(self, path: str | Path, state: dict[str, Any]) -> None:
        """Write a checkpoint: weights, optimizer, and a state of the caller's, which JSON can hold.

        An error or interruption leaves the file at path as it was.
        """
        head = header("torch", self.job.model, self.dtype, state)

        def write() -> None:
            model, optimizer = (part.state_dict() for part in self._trained)
            with atomic_file(path) as file:
                torch.save({"header": json.dumps(head), "model": model, "optimizer": optimizer}, file)

        self._by_first(write)

    def load(self, path: str | Path) -> dict[str, Any]:
        """Continue from a checkpoint; returns its state. Raises ValueError if it is not of this kind of trainer."""
        file = io.BytesIO(self._by_first(Path(path).read_bytes))
        with reading(path):
            is_ours = zipfile.is_zipfile(file)
            file.seek(0)
            saved = torch.load(file, map_location=self._device, weights_only=True) if is_ours else {}
            head = json.loads(saved.get("header", "null"))
        state = state_of(path, head, header("torch", self.job.model, self.dtype, {}))
        with reading(path):
            for part, name in zip(self._trained, ("model", "optimizer"), strict=True):
                part.load_state_dict(saved[name])
        return state

    def _of_each_pair(self, function: Callable[..., Tensor], batch: Batch, **how: Any) -> NDArray[Any]:
        """function(model, batch, variant=…, **how), (pairs, …)."""
        how["variant"] = self._variant
        processes, model = self._processes, self._trained.model
        if processes is None:
            return function(model, _on_device(batch, self._device), **how).cpu().numpy()
        shards = divided(batch, processes.shards)
        shard = shards.shard(processes.index, processes.shards)
        return processes.gathered(function(model, _on_device(shard, self._device), **how))[shards.places]

    def _by_first(self, call: Callable[[], Any]) -> Any:
        return call() if self._processes is None else self._processes.from_first(call)


class _Loss(torch.nn.Module):
    """The loss as a module, whose gradients DistributedDataParallel averages."""

    def __init__(self, model: Any, variant: str) -> None:
        super().__init__()
        self.model, self._variant = model, variant

    def forward(self, batch: Any, weight: float) -> Tensor:
        return _cross_entropy(_expected(self.model, batch, self._variant), batch, weight)


def _on_device(batch: Batch, device: torch.device) -> Any:
    """The batch as tensors; numbers that are used as indices as int64."""
    first, second, lengths, partners, weights = (torch.from_numpy(array).to(device) for array in batch)
    return Batch(first.long(), second.long(), lengths, partners.long(), weights)  # pyright: ignore


def _expected(model: Any, batch: Any, variant: str) -> Tensor:
    similarity = model.similarity(batch.first, batch.second, batch.lengths)
    return _alignment_marginals(similarity, batch.lengths, model.gaps(), variant)


def _alignment_marginals(similarity: Tensor, lengths: Any, gaps: Sequence[Tensor], variant: str) -> Tensor:
    function = functools.partial(smith_waterman_affine, variant=variant)
    return marginals(function, similarity, lengths, gap_open=gaps[0], gap_extend=gaps[1])


def _cross_entropy(expected: Tensor, batch: Any, weight: float) -> Tensor:
    """weight: by which the sum over the batch is divided."""
    paired = batch.partners >= 0
    true = expected.gather(2, batch.partners.clamp(min=0)[:, :, None])[:, :, 0]
    losses = torch.where(paired, -torch.log((1 - DOUBT) * true + DOUBT), 0.0).sum(1) / paired.sum(1).clamp(min=1)
    return (batch.weights * losses).sum() / weight


def _predicted(model: Any, batch: Any, variant: str, exact: bool) -> Tensor:
    if exact:
        similarity = model.similarity(batch.first, batch.second, batch.lengths)
        gap_open, gap_extend = model.gaps()
        parameters = {"gap_open": gap_open, "gap_extend": gap_extend}
        _, matches = best_alignment(smith_waterman_affine, similarity, batch.lengths, **parameters)
    else:
        matches = _expected(model, batch, variant) > 0.5
    return torch.where(matches.any(2), matches.byte().argmax(2), -1).int()
