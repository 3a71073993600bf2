"""The adapter's part for several processes: how they join.

`torch_impl.process_group` has the same name with the same meaning.
"""

from typing import Any

import jax


def join(index: int, count: int, address: str, seconds: float) -> None:
    """Be process `index` of `count` that compute together; returns when all of them are there.

    address: HOST:PORT of process 0. seconds: how long to wait for the others. Call before anything is computed.
    """
    how: dict[str, Any] = {"cluster_detection_method": "deactivate", "initialization_timeout": round(seconds)}
    jax.distributed.initialize(address, count, index, **how)
    jax.devices()  # which all processes find out together
