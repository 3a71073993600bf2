"""The processes that train together: those of torch.distributed's default group, started by the user.

`jax_impl.learning.processes` is the counterpart. Here each process has a shard of a batch, and
one device.
"""

from collections.abc import Callable
from typing import Any

import torch
from numpy.typing import NDArray
from torch import distributed

from shared.learning.outcomes import Outcome, outcome_of

Tensor = torch.Tensor


class Processes:
    """All processes of the default group."""

    def __init__(self, device: torch.device) -> None:
        """device: that of this process. Raises RuntimeError if there is no group."""
        if not (distributed.is_available() and distributed.is_initialized()):
            raise RuntimeError("data_parallel needs a process group: call torch.distributed.init_process_group first")
        self.device = device
        self.index = distributed.get_rank()
        self.shards = distributed.get_world_size()

    def from_first(self, call: Callable[[], Any]) -> Any:
        """Call in process 0 alone, and return the result, or raise the error, in every process."""
        outcomes = [outcome_of(call) if self.index == 0 else Outcome(None, None)]
        distributed.broadcast_object_list(outcomes, src=0, device=self.device)
        return outcomes[0].result()

    def mean(self, value: Tensor) -> Callable[[], Tensor]:
        """The mean of a scalar over all processes: starts the all-reduce, and returns a function that waits for it."""
        total = value.clone()
        work = distributed.all_reduce(total, async_op=True)

        def wait() -> Tensor:
            work.wait()  # pyright: ignore
            return total / self.shards

        return wait

    def gathered(self, tensor: Tensor) -> NDArray[Any]:
        """The tensors of all processes, of one shape, one after the other along their first axis."""
        parts = [torch.empty_like(tensor) for _ in range(self.shards)]
        distributed.all_gather(parts, tensor.contiguous())
        return torch.cat(parts).cpu().numpy()
