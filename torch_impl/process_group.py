"""The adapter's part for several processes: how they join.

`jax_impl.process_group` has the same name with the same meaning.
"""

from datetime import timedelta

import torch.distributed as dist


def join(index: int, count: int, address: str, seconds: float) -> None:
    """Be process `index` of `count` that compute together; returns when all of them are there.

    address: HOST:PORT of process 0. seconds: how long to wait for the others. Call before anything is computed.
    """
    limit = timedelta(seconds=seconds)
    dist.init_process_group("gloo", f"tcp://{address}", limit, rank=index, world_size=count)
