"""The adapter's part for several processes: how they join, and a store in which they tell each other something.

`torch_impl.process_group` has the same names with the same meaning.
"""

from typing import Any

import jax
from jax._src import distributed  # nothing public has its store


def join(index: int, count: int, address: str, name: str, seconds: float) -> None:
    """Be process `index` of `count` that compute together; returns when all of them are there.

    address: HOST:PORT, where process 0 keeps what `put` says. name: of this meeting, one of several at an address: each
    has a store of its own anyway. seconds: how long to wait for the others. Call before anything is computed.
    """
    limit = round(seconds)
    jax.distributed.initialize(
        address, count, index, cluster_detection_method="deactivate", initialization_timeout=limit
    )
    jax.devices()  # which all processes find out together


def leave() -> None:
    """End what `join` began."""
    jax.distributed.shutdown()


def _store() -> Any:
    return distributed.global_state.client


def put(key: str, text: str) -> None:
    """Say something to the processes that have joined."""
    _store().key_value_set(key, text, allow_overwrite=True)


def get(key: str, seconds: float) -> str | None:
    """What a process has said, or will say within these seconds; None if it does not."""
    try:
        return _store().blocking_key_value_get(key, round(1000 * seconds))
    except jax.errors.JaxRuntimeError as error:
        if "DEADLINE_EXCEEDED" not in str(error):
            raise
        return None
