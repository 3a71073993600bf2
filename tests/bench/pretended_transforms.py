"""What `attempt` may do in a worker, without a framework: a fate for each of some transforms."""

import os
import time
from typing import Any

import numpy as np

FATES = ("gradient", "vmap", "second derivative", "third derivative", "forward mode", "export", "compiled")


def attempt(runner: Any, case: Any, transform: str, expected_result: np.ndarray) -> dict[str, Any]:
    """Pretend, in the order of FATES: right, the worker ends, two errors, too slow, wrong in JAX; else right."""
    assert expected_result.size
    if transform == "vmap":
        os._exit(7)
    if transform == "second derivative":
        return {"outcome": "raises", "text": f"CannotDifferentiate: variant '{case.variant}' cannot"}
    if transform == "third derivative":
        return {"outcome": "raises", "text": "InternalError: please report"}
    if transform == "forward mode":
        time.sleep(60)
    if transform == "export" and case.framework == "jax":
        return {"outcome": "wrong", "text": "off by 1.0e+00, allowed 1.0e-05"}
    return {"outcome": "right", "text": None}
