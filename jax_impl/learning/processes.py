"""The processes that train together: those of jax.distributed, started by the user, with all their devices.

One process with several devices needs no jax.distributed. `torch_impl.learning.processes` is the
counterpart. Here each device has a shard of a batch, and a process may have several devices.
"""

import functools
import pickle
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from numpy.typing import NDArray

from shared.learning.outcomes import outcome_of

Array = jax.Array

PAIRS = "pairs"  # the axis of the mesh, over which batches are sharded
SHARDED, REPLICATED = PartitionSpec(PAIRS), PartitionSpec()


class Processes:
    """All devices of one kind of all processes."""

    def __init__(self, device: str) -> None:
        """device: "cpu" or "cuda"."""
        self.mesh = Mesh(np.array(jax.devices(device)), (PAIRS,))
        self.index = jax.process_index(device)
        self.shards = self.mesh.size

    def from_first(self, call: Callable[[], Any]) -> Any:
        """Call in process 0 alone, and return the result, or raise the error, in every process."""
        outcome = pickle.dumps(outcome_of(call)) if self.index == 0 else b""
        length = int(multihost_utils.broadcast_one_to_all(np.int32(len(outcome))))
        padded = np.frombuffer(outcome.ljust(length, b"\0"), np.uint8)
        return pickle.loads(multihost_utils.broadcast_one_to_all(padded).tobytes()).result()

    def gathered(self, array: Array) -> NDArray[Any]:
        """An array that is sharded over its first axis, as a whole in every process."""
        return np.asarray(_replicate(NamedSharding(self.mesh, REPLICATED))(array))

    def placed(self, tree: Any, spec: PartitionSpec) -> Any:
        """Arrays that each process has as a whole, as arrays on all devices. spec: SHARDED or REPLICATED."""
        sharding = NamedSharding(self.mesh, spec)

        def place(array: Any) -> Array:
            whole = np.asarray(array)
            return jax.make_array_from_callback(whole.shape, sharding, lambda index: whole[index])

        return jax.tree.map(place, tree)


@functools.cache
def _replicate(sharding: NamedSharding) -> Callable[[Array], Array]:
    return jax.jit(lambda array: array, out_shardings=sharding)
