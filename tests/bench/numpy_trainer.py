"""A trainer without a framework, which aligns better with each step, and with BLOSUM62 half of the true pairs.

The environment variable NUMPY_TRAINER, if set, is JSON: [framework, seed], the trainer that ends its process.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from shared.learning.batches import Batch
from shared.learning.job import Job

STEPS = 20  # after which every true pair is predicted


class Trainer:
    """The methods of `jax_impl.learning.Trainer` and `torch_impl.learning.Trainer`."""

    def __init__(self, job: Job, *, variant: str, device: str, dtype: str, compiled: bool) -> None:
        self.job, self._steps, self._is_blosum = job, 0, False
        if [sys.argv[1], job.seed] == json.loads(os.environ.get("NUMPY_TRAINER", "null")):
            os._exit(7)

    def step(self, batch: Batch) -> float:
        time.sleep(0.001)
        self._steps += 1
        return 1 / self._steps

    def predicted(self, batch: Batch) -> np.ndarray:
        has_partner = batch.partners >= 0
        share = 0.5 if self._is_blosum else min(1.0, self._steps / STEPS)
        shown = has_partner & (has_partner.cumsum(1) <= share * has_partner.sum(1, keepdims=True))
        return np.where(shown, batch.partners, -1)

    def weights(self) -> dict[str, np.ndarray]:
        return {"matrix": self._steps * np.eye(20), "gap_open": np.zeros(()), "gap_extend": np.zeros(())}

    def set_weights(self, weights: dict[str, np.ndarray]) -> None:
        self._steps, self._is_blosum = round(weights["matrix"][0, 0]), bool(weights["matrix"][0, 1])

    def alignment_call(self, batch: Batch) -> Callable[[], None]:
        return lambda: None

    def save(self, path: Path, state: dict[str, Any]) -> None:
        Path(path).write_text(json.dumps([self._steps, state]))

    def load(self, path: Path) -> dict[str, Any]:
        self._steps, state = json.loads(Path(path).read_text())
        return state
