"""The workers of the question `processes`: each computes a shard; process 0 of several starts and commands the others.

All execute the same command at the same time, and a call takes as long as in the slowest of them.
"""

import importlib
import math
import os
import socket
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from multiprocessing.connection import Client, Listener
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shared.bench.cases import Case, Settings
from shared.bench.measure.clock import timed
from shared.bench.record import Gate
from shared.bench.run.worker_handle import WORKER_COMMAND, Reply, Worker
from shared.bench.worker.commands import Commands
from shared.bench.worker.parity_gate import Wrong
from shared.learning.batches import Batch
from shared.learning.job import Job
from shared.learning.shards import divided
from shared.problems import Inputs
from shared.problems.learn_alignment import ALIGNMENT
from shared.problems.problem import BATCH, NotMeasurable

# the pass that is a step of training, and the input for steps that each process takes on its shard alone
STEP, ALONE = "step", "without communication"
# longest time until all processes have joined
_JOIN_SECONDS = 60.0
# so small that thousands of steps on one batch change neither the weights nor the speed noticeably
_RATE = 1e-6
# as many warm-up calls in every process, because they wait for each other; and how many losses are compared
_WARM_UP_CALLS, _COMPARED = 9, 3
# of a loss: sums over pairs are added in another order
_ALLOWED = {"float32": 1e-5, "float64": 1e-12}


@dataclass(frozen=True)
class StepInputs(Inputs):
    """A batch of the learning job."""

    batch: Batch

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        return self.batch._asdict()

    def arguments(self, pass_name: str) -> list[NDArray[Any] | None]:
        return list(self.batch)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.batch.first.shape

    @property
    def pairs(self) -> int:
        return len(self.batch.first)

    @property
    def work(self) -> int:
        return int(self.batch.lengths.astype(np.int64).prod(1).sum())


def shard_name(index: int, count: int) -> str:
    """The name of a process's part of the batch."""
    return BATCH if count == 1 else f"{BATCH} {index} of {count}"


class OnShard(Commands):
    """Commands of a process on its shard of the batch; of a single process, on all of it."""

    def __init__(self, index: str, count: str, address: str, meeting: str, *given: Any) -> None:
        super().__init__(*given)
        self.index, self.count = int(index), int(count)
        # the same draws in every process: a step waits for the others, so all must make as many calls
        self._random = np.random.default_rng(0)
        self._others = [Client(meeting)] if meeting else []
        self._is_awaited = False  # by the others, which begin a block's timed calls together
        if address:
            self.backend.join(self.index, self.count, address, _JOIN_SECONDS)

    def prepare(self, case: Case) -> dict[str, Any]:
        """Prepare a case to be timed: a pass on this process's shard, or a step of training."""
        if case.pass_name == STEP:
            self._prepared[case], details = _prepare_step(self, case)
            return details
        shard = replace(case, label=f"{case.label}, {case.input}", input=shard_name(self.index, self.count))
        details = super().prepare(shard)
        self._prepared[case] = self._prepared.pop(shard)
        return details

    def sample(self, case: Case, **plan: Any) -> dict[str, Any]:
        self._is_awaited = True
        try:
            return super().sample(case, **plan)
        finally:
            if self._is_awaited:  # it failed, but the others wait for it
                self.ready()

    def ready(self) -> None:
        """Wait until all processes are ready, so that all are timed at once."""
        self._is_awaited = False
        for other in self._others:
            other.send(None)
        for other in self._others:
            other.recv()


class Leader(OnShard):
    """Commands that process 0 executes together with the others."""

    def __init__(self, framework: str, *given: Any) -> None:
        *cores, backend, folder, send = given
        count = str(len(cores) + 1)
        with socket.create_server(("127.0.0.1", 0)) as server:
            address = f"127.0.0.1:{server.getsockname()[1]}"
        # the path of a socket has at most 104 characters
        place = tempfile.mkdtemp(dir=None if len(tempfile.gettempdir()) < 64 else "/tmp")
        listener = Listener(f"{place}/meeting", "AF_UNIX", len(cores))
        self._workers: list[Worker] = []
        for index, shard_cores in enumerate(cores, 1):
            special = (f"{__name__}:OnShard", shard_cores, str(index), count, address, str(listener.address))
            settings = Settings(threads=len(shard_cores.split(",")))
            worker = Worker(
                framework, (*WORKER_COMMAND, *special), settings, folder, lambda: None, memory_share=1.0, environment={}
            )
            self._workers.append(worker)
        super().__init__("0", count, address, "", backend, folder, send)
        self._others = [listener.accept() for _ in cores]
        listener.close()
        os.rmdir(place)
        for worker in self._workers:
            worker.wait_until_ready()
        self._threads = ThreadPoolExecutor(len(cores))

    def prepare(self, case: Case) -> dict[str, Any]:
        """The slowest process's time of a call, and the worst gate, with the pairs of all processes."""
        replies = self._together("prepare", case, super().prepare)
        details = replies[0] | {"call_seconds": max(reply["call_seconds"] for reply in replies)}
        if gates := [reply["gate"] for reply in replies if reply["gate"]]:
            worst = max(gates, key=lambda gate: math.inf if gate.error_of_allowed is None else gate.error_of_allowed)
            details["gate"] = replace(worst, pairs=sum(gate.pairs or 0 for gate in gates) or None)
        return details

    def sample(self, case: Case, **plan: Any) -> dict[str, Any]:
        """The block of the process that took longest."""
        return max(self._together("sample", case, super().sample, **plan), key=lambda block: sum(block["seconds"]))

    def _together(self, do: str, case: Case, here: Callable[..., Any], **arguments: Any) -> list[dict[str, Any]]:
        """The details of all processes. Raises what this process raises, or else the error of another one."""

        def ask(worker: Worker) -> Reply:
            reply = worker.ask(do, case, limit=math.inf, **arguments)
            if not worker.alive:  # a collective operation would wait for it for ever
                index = self._workers.index(worker) + 1
                print(f"process {index} of {self.count}: {reply.reason}", file=sys.stderr, flush=True)
                os._exit(1)
            return reply

        replies = [self._threads.submit(ask, worker) for worker in self._workers]
        try:
            details = [here(case, **arguments)]
        finally:
            wait(replies)
        for index, reply in enumerate((future.result() for future in replies), 1):
            if reply.status == "wrong":
                raise Wrong(reply.details["gate"])
            if reply.status != "ok":
                error = NotMeasurable if reply.status == "limit" else RuntimeError
                raise error(f"process {index} of {self.count}: {reply.reason}")
            details.append(dict(reply.details))
        return details


class _Steps:
    """Steps of a new trainer on one batch, as a case that is ready to be timed."""

    def __init__(self, runner: OnShard, case: Case, batch: Batch, data_parallel: bool) -> None:
        try:
            package = importlib.import_module(f"{case.framework}_impl.learning")
        except ImportError as error:
            raise NotMeasurable(f"cannot train here: {error}") from None
        how = {"variant": case.variant, "device": case.device, "dtype": case.dtype, "compiled": case.compiled}
        job = Job(seed=runner.gate.inputs(STEP).seed, learning_rate=_RATE)
        self._trainer = package.Trainer(job, **how, data_parallel=data_parallel)
        self._backend, self._batch = runner.backend, batch

    def place(self) -> None:
        """Nothing: a step moves its batch to the device itself."""

    release = place

    def __call__(self) -> float:
        return float(self._backend.to_numpy(self._backend.wait(self._trainer.step(self._batch))))


def _prepare_step(runner: OnShard, case: Case) -> tuple[Any, dict[str, Any]]:
    """The steps, and what the parent is told of their first calls. Raises NotMeasurable or Wrong."""
    inputs = runner.gate.inputs(STEP)
    assert isinstance(inputs, StepInputs)
    batch, is_parallel = inputs.batch, runner.count > 1 and case.input != ALONE
    if case.input == ALONE:  # the pairs that it would have of a data-parallel step
        batch = divided(batch, runner.count).shard(runner.index, runner.count)
    with runner.context(case):
        runner.build(replace(case, problem=ALIGNMENT), {})
        steps = _Steps(runner, case, batch, is_parallel)
        first, loss = timed(steps)
        runner.send("first_call", seconds=first)
        seconds, losses = zip(*(timed(steps) for _ in range(_WARM_UP_CALLS)), strict=True)
        gate = None
        if is_parallel:
            single = _Steps(runner, case, batch, data_parallel=False)
            gate = losses_gate([loss, *losses[: _COMPARED - 1]], [single() for _ in range(_COMPARED)], case.dtype)
    call_seconds = float(np.median(seconds[_WARM_UP_CALLS // 2 :]))
    return steps, {"warm": first, "gate": gate, "settled": None, "call_seconds": call_seconds}


def losses_gate(losses: list[float], expected: list[float], dtype: str) -> Gate:
    """Compare the losses of data-parallel steps with those of one process. Raises Wrong."""
    error = float(np.max(np.abs(np.subtract(losses, expected)) / np.abs(expected)))  # NaN if one is
    share = error / _ALLOWED[dtype]
    text = f"losses of {len(losses)} steps off by {error:.1e} of those of one process, allowed {_ALLOWED[dtype]:.0e}"
    gate = Gate(text, share if np.isfinite(share) else None, "one process, the same batch", None)
    if not share <= 1:
        raise Wrong(gate)
    return gate
