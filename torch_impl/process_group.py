"""The adapter's part for several processes: how they join, and a store in which they tell each other something.

`jax_impl.process_group` has the same names with the same meaning.
"""

from datetime import timedelta
from typing import Any

import torch.distributed as dist

from shared.backends import environment_of

# of the processes that have joined
_store: Any = None


def join(index: int, count: int, address: str, name: str, seconds: float) -> None:
    """Be process `index` of `count` that compute together; returns when all of them are there.

    address: HOST:PORT, where process 0 keeps what `put` says. name: of this meeting, one of several at an address.
    seconds: how long to wait for the others. Call before anything is computed.
    """
    # here: some builds of PyTorch do not have them
    from torch.distributed.distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous

    global _store
    limit = timedelta(seconds=seconds)
    host, _, port = address.rpartition(":")
    place = {"RANK": str(index), "WORLD_SIZE": str(count), "MASTER_ADDR": host, "MASTER_PORT": port}
    with environment_of(**place):
        store, _, _ = next(rendezvous("env://", timeout=limit))
    _store = PrefixStore(name, store)
    dist.init_process_group("gloo", store=_store, rank=index, world_size=count, timeout=limit)


def leave() -> None:
    """End what `join` began."""
    dist.destroy_process_group()


def put(key: str, text: str) -> None:
    """Say something to the processes that have joined."""
    _store.set(key, text)


def get(key: str, seconds: float) -> str | None:
    """What a process has said, or will say within these seconds; None if it does not."""
    try:
        _store.wait([key], timedelta(seconds=seconds))
    except dist.DistStoreError:
        return None
    return _store.get(key).decode()
