"""A step of training as a case of `processes`: data-parallel, by one process, or without communication."""

import functools
import importlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from shared.bench.cases import Case
from shared.bench.measure.clock import timed
from shared.bench.questions.processes_inputs import ALONE, STEP, StepInputs, copies_of, repeated
from shared.bench.record import Gate
from shared.bench.worker.parity_gate import Wrong
from shared.learning.batches import Batch
from shared.learning.job import Job
from shared.learning.shards import divided
from shared.problems.learn_alignment import ALIGNMENT
from shared.problems.problem import NotMeasurable

if TYPE_CHECKING:
    from shared.bench.questions.processes_runner import OnShard

# so small that thousands of steps on one batch leave the weights where they are, and the alignments as fast
_RATE = 1e-6
# the same number in every process, because they wait for each other; of the first ones the losses are compared
_WARM_UP_CALLS, _COMPARED = 9, 3
# of a loss: sums over pairs are added in another order
_ALLOWED = {"float32": 1e-5, "float64": 1e-12}


class _Steps:
    """Steps of a trainer on one batch, as a case that is ready to be timed."""

    def __init__(self, backend: Any, trainer: Any, batch: Batch) -> None:
        self._backend, self._trainer, self._batch = backend, trainer, batch

    def place(self) -> None:
        """Nothing: a step moves its batch to the device itself."""

    release = place

    def __call__(self) -> Any:
        return self._backend.wait(self._trainer.step(self._batch))


def prepare_step(runner: "OnShard", case: Case) -> tuple[Any, dict[str, Any]]:
    """The steps, and what the parent is told of their first calls. Raises NotMeasurable or Wrong."""
    place, backend, inputs = runner.place, runner.backend, runner.gate.inputs(STEP)
    assert isinstance(inputs, StepInputs)
    batch = repeated(inputs.batch, copies_of(case.input))
    with runner.context(case):
        runner.build(replace(case, problem=ALIGNMENT), {})
        make = functools.partial(_trainer, case, inputs)
        is_parallel = place.count > 1 and case.input != ALONE
        # by itself every process has the pairs that it would have of a data-parallel step
        is_shard = place.count > 1 and not is_parallel
        own = divided(batch, place.count).shard(place.index, place.count) if is_shard else batch
        steps = _Steps(backend, make(data_parallel=is_parallel), own)
        with backend.compile_times():
            first, loss = timed(steps)
        runner.send("first_call", seconds=first)
        calls = [timed(steps) for _ in range(_WARM_UP_CALLS)]
        losses = [_number(backend, each) for each in (loss, *(each for _, each in calls[: _COMPARED - 1]))]
        gate = None
        if is_parallel:
            single = _Steps(backend, make(data_parallel=False), own)
            gate = compared(losses, [_number(backend, single()) for _ in losses], case.dtype)
    seconds = float(np.median([seconds for seconds, _ in calls[_WARM_UP_CALLS // 2 :]]))
    warm = first
    return steps, {"warm": warm, "gate": gate, "settled": None, "call_seconds": seconds}


def compared(losses: list[float], expected: list[float], dtype: str) -> Gate:
    """The outcome of comparing the losses of data-parallel steps with those of one process. Raises Wrong."""
    error = float(np.max(np.abs(np.subtract(losses, expected)) / np.abs(expected)))  # NaN if one is
    share = error / _ALLOWED[dtype]
    text = f"losses of {len(losses)} steps off by {error:.1e} of those of one process, allowed {_ALLOWED[dtype]:.0e}"
    gate = Gate(text, share if np.isfinite(share) else None, "one process, the same batch", None)
    if not share <= 1:
        raise Wrong(gate)
    return gate


def _trainer(case: Case, inputs: StepInputs, data_parallel: bool) -> Any:
    try:
        package = importlib.import_module(f"{case.framework}_impl.learning")
    except ImportError as error:
        raise NotMeasurable(f"cannot train here: {error}") from None
    how = {"variant": case.variant, "device": case.device, "dtype": case.dtype, "compiled": case.compiled}
    return package.Trainer(Job(seed=inputs.seed, learning_rate=_RATE), **how, data_parallel=data_parallel)


def _number(backend: Any, loss: Any) -> float:
    return float(backend.to_numpy(loss))
