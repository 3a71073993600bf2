"""Training a model with Adam on the robust cross-entropy of the true pairs.

    loss of a pair of sequences = mean over its true pairs (i, j) of -log(0.99 P(i,j) + 0.01), P: the marginals

as if one of a hundred true pairs were annotated wrongly. `torch_impl.learning.trainer` has the same names with the same
meaning. Here a step is one compiled function of weights and optimizer, for each shape of a batch.

Data-parallel, each device has a shard of the batch, and the loss is

    loss = Σ weight · loss of a pair / Σ weight, both sums over the pairs of all shards

Each device has the gradients of its own sum, by the Σ weight of all. One psum then adds up loss and gradients.
"""

import contextlib
import functools
import io
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh, PartitionSpec
from numpy.typing import NDArray

from jax_impl import best_alignment, marginals, smith_waterman_affine
from jax_impl.learning.models import Matrix, weights_of, with_weights
from jax_impl.learning.processes import PAIRS, REPLICATED, SHARDED, Processes
from shared.checks import check_choice
from shared.file_writing import atomic_file
from shared.learning.batches import Batch
from shared.learning.checkpoints import header, reading, state_of
from shared.learning.job import DOUBT, Job
from shared.learning.shards import divided
from shared.learning.weights import Weights, initial_weights

Array = jax.Array


class Trained(NamedTuple):
    """The state that a training step changes."""

    model: Any
    optimizer: Any


class Trainer:
    """One model with its optimizer, on a device, or on those of all processes."""

    def __init__(
        self, job: Job, *, variant: str = "auto", device: str = "cpu", dtype: str = "float32", compiled: bool = True,
        data_parallel: bool = False,
    ) -> None:  # fmt: skip
        """A model with the job's initial weights.

        Args:
            variant: of smith_waterman_affine; one that has second derivatives.
            device: "cpu" or "cuda".
            dtype: "float32" or "float64", of weights and alignments.
            compiled: whether a step is compiled as a whole.
            data_parallel: whether batches are divided over all devices of all processes of jax.distributed. Every
                process then makes the same calls with the same arguments, gets the results that a single process
                would get, and has the same weights; process 0 alone reads and writes checkpoints.

        Raises:
            ValueError: dtype is not as described.
        """
        check_choice("dtype", dtype, ("float32", "float64"))
        self.job, self.dtype = job, dtype
        self._variant, self._device, self._compiled = variant, jax.local_devices(backend=device)[0], compiled
        self._processes = Processes(device) if data_parallel else None
        self.set_weights(initial_weights(job.model, job.seed))

    @property
    def process(self) -> int:
        """The number of this process among those that train together."""
        return 0 if self._processes is None else self._processes.index

    def step(self, batch: Batch) -> Array:
        """One step of Adam; returns the loss () before it, without waiting for the device.

        Raises what the variant raises where it has no second derivatives.
        """
        how = {"rate": self.job.rate, "variant": self._variant}
        with self._settings():
            if self._processes is None:
                step = _compiled(_step) if self._compiled else _step
                self._trained, loss = step(self._trained, batch, **how)
            else:
                shards = divided(batch, self._processes.shards).batch
                shards = shards._replace(weights=shards.weights / np.sum(shards.weights, dtype=self.dtype))
                step = _over_devices(_step, self._processes.mesh, REPLICATED, self._compiled, axis=PAIRS, **how)
                self._trained, loss = step(self._trained, self._processes.placed(shards, SHARDED))
        return loss

    def predicted(self, batch: Batch, exact: bool = False) -> NDArray[np.int32]:
        """The predicted partner of each residue of the first sequences, or -1: (pairs, length).

        By marginals above 1/2 (at most one in a row or column) or, if exact, by the best alignment.
        """
        return self._of_each_pair(_predicted, batch, exact=exact)

    def marginals(self, batch: Batch) -> NDArray[Any]:
        """The probability of each pair of residues, (pairs, length, length)."""
        return self._of_each_pair(_expected, batch)

    def weights(self) -> Weights:
        """Copies of the weights."""
        with self._settings():
            return weights_of(self._trained.model)

    def set_weights(self, weights: Weights) -> None:
        """Continue with these weights and a new optimizer. Raises ValueError if they are another model's."""
        with self._settings():
            model = with_weights(self.job.model, weights, self.dtype)
            self._trained = self._replicated(Trained(model, optax.adam(self.job.rate).init(model)))

    @property
    def matrix(self) -> NDArray[np.float64]:
        """The similarity of each residue with each, (20, 20). Raises ValueError if the model is no matrix."""
        model = self._trained.model
        if not isinstance(model, Matrix):
            raise ValueError(f"the model must be a matrix, got {self.job.model!r}")
        with self._settings():
            return np.asarray(model.symmetric(), np.float64)

    @property
    def gaps(self) -> tuple[float, float]:
        """The scores of opening and of extending a gap."""
        with self._settings():
            gap_open, gap_extend = self._trained.model.gaps()
        return float(gap_open), float(gap_extend)

    def alignment_call(self, batch: Batch) -> Callable[[], Any]:
        """A call of the alignment's part of a step alone, without waiting: the marginals, and their backward to
        similarity and gaps, from the loss's gradient."""
        with self._settings():
            arguments = _alignment_arguments(self._trained.model, batch, self._variant)

        def call() -> Any:
            with self._settings():
                return _alignment(arguments, self._variant)

        return call

    def save(self, path: str | Path, state: dict[str, Any]) -> None:
        """Write a checkpoint: weights, optimizer, and a state of the caller's, which JSON can hold.

        An error or interruption leaves the file at path as it was.
        """
        head = header("jax", self.job.model, self.dtype, state)

        def write() -> None:
            with atomic_file(path) as file:
                file.write((json.dumps(head) + "\n").encode())
                eqx.tree_serialise_leaves(file, self._trained)

        with self._settings():
            self._by_first(write)

    def load(self, path: str | Path) -> dict[str, Any]:
        """Continue from a checkpoint; returns its state. Raises ValueError if it is not of this kind of trainer."""
        with self._settings():
            file = io.BytesIO(self._by_first(Path(path).read_bytes))
            try:
                head = json.loads(file.readline())
            except ValueError:
                head = None
            state = state_of(path, head, header("jax", self.job.model, self.dtype, {}))
            with reading(path):
                self._trained = self._replicated(eqx.tree_deserialise_leaves(file, self._trained))
        return state

    def _of_each_pair(self, function: Callable[..., Array], batch: Batch, **how: Any) -> NDArray[Any]:
        """function(model, batch, variant=…, **how), (pairs, …)."""
        how["variant"] = self._variant
        with self._settings():
            if self._processes is None:
                return np.asarray(_compiled(function)(self._trained.model, batch, **how))
            shards, places = divided(batch, self._processes.shards)
            call = _over_devices(function, self._processes.mesh, SHARDED, True, **how)
            result = call(self._trained.model, self._processes.placed(shards, SHARDED))
            return self._processes.gathered(result)[places]

    def _by_first(self, call: Callable[[], Any]) -> Any:
        return call() if self._processes is None else self._processes.from_first(call)

    def _replicated(self, trained: Trained) -> Trained:
        return trained if self._processes is None else self._processes.placed(trained, REPLICATED)

    @contextlib.contextmanager
    def _settings(self) -> Iterator[None]:
        """JAX has float64 only in its 64-bit mode, and puts NumPy's arrays on its default device."""
        with jax.enable_x64(self.dtype == "float64"), jax.default_device(self._device):
            yield


def _expected(model: Any, batch: Batch, variant: str) -> Array:
    similarity = model.similarity(batch.first, batch.second, batch.lengths)
    return _alignment_marginals(similarity, batch.lengths, model.gaps(), variant)


def _alignment_marginals(similarity: Array, lengths: Any, gaps: Sequence[Array], variant: str) -> Array:
    function = functools.partial(smith_waterman_affine, variant=variant)
    return marginals(function, similarity, lengths, gap_open=gaps[0], gap_extend=gaps[1])


def _cross_entropy(expected: Array, batch: Batch, weight: Any) -> Array:
    """weight: by which the sum over the batch is divided."""
    paired = batch.partners >= 0
    at = jnp.where(paired, batch.partners, 0)[:, :, None]
    true = jnp.take_along_axis(expected, at, axis=2)[:, :, 0]
    losses = jnp.where(paired, -jnp.log((1 - DOUBT) * true + DOUBT), 0).sum(1) / jnp.maximum(paired.sum(1), 1)
    return (batch.weights * losses).sum() / weight


def _loss(model: Any, batch: Batch, variant: str, weight: Any) -> Array:
    return _cross_entropy(_expected(model, batch, variant), batch, weight)


def _step(trained: Trained, batch: Batch, rate: float, variant: str, axis: str | None = None) -> tuple[Trained, Array]:
    """axis: over whose shards the sum goes, where the batch is a shard; their weights then add up to 1."""
    if axis is None:
        loss, gradients = eqx.filter_value_and_grad(_loss)(trained.model, batch, variant, batch.weights.sum())
    else:
        varying = jax.tree.map(lambda weights: jax.lax.pcast(weights, axis, to="varying"), trained.model)
        flat, as_they_were = ravel_pytree(eqx.filter_value_and_grad(_loss)(varying, batch, variant, 1))
        loss, gradients = as_they_were(jax.lax.psum(flat, axis))  # one collective: the processes wait in each
    updates, optimizer = optax.adam(rate).update(gradients, trained.optimizer)
    return Trained(eqx.apply_updates(trained.model, updates), optimizer), loss


def _predicted(model: Any, batch: Batch, variant: str, exact: bool) -> Array:
    if exact:
        similarity = model.similarity(batch.first, batch.second, batch.lengths)
        gap_open, gap_extend = model.gaps()
        parameters = {"gap_open": gap_open, "gap_extend": gap_extend}
        _, matches = best_alignment(smith_waterman_affine, similarity, batch.lengths, **parameters)
    else:
        matches = _expected(model, batch, variant) > 0.5
    return jnp.where(matches.any(2), matches.argmax(2), -1).astype(jnp.int32)


# The weights are not donated: they are small, and an interruption would leave a trainer without any.
_compiled: Callable[..., Any] = functools.cache(eqx.filter_jit)


@functools.cache
def _over_devices(
    function: Callable[..., Any], mesh: Mesh, results: PartitionSpec, compiled: bool, **how: Any
) -> Callable[..., Any]:
    """function(…, batch, **how) on every device of the mesh, with its shard of the batch and all of the others."""

    def call(trained: Any, batch: Batch) -> Any:
        return function(trained, batch, **how)

    mapped = jax.shard_map(call, mesh=mesh, in_specs=(REPLICATED, SHARDED), out_specs=results)
    return jax.jit(mapped) if compiled else mapped


@eqx.filter_jit
def _alignment_arguments(model: Any, batch: Batch, variant: str) -> tuple[Any, ...]:
    similarity = model.similarity(batch.first, batch.second, batch.lengths)
    gaps = model.gaps()
    expected = _alignment_marginals(similarity, batch.lengths, gaps, variant)
    return jax.grad(_cross_entropy)(expected, batch, batch.weights.sum()), similarity, batch.lengths, gaps


@eqx.filter_jit
def _alignment(arguments: tuple[Any, ...], variant: str) -> Any:
    cotangent, similarity, lengths, gaps = arguments

    def expected(similarity: Array, gaps: tuple[Array, Array]) -> Array:
        return _alignment_marginals(similarity, lengths, gaps, variant)

    result, pull = jax.vjp(expected, similarity, gaps)
    return result, pull(cotangent)
