"""The workers of the question `processes`: each computes a shard; process 0 of several starts and commands the others.

All execute the same command at the same time, and a call takes as long as in the slowest of them.
"""

import functools
import importlib
import math
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shared.bench.cases import FRAMEWORKS, Case
from shared.bench.measure.clock import timed
from shared.bench.record import Gate
from shared.bench.worker.commands import Commands
from shared.bench.worker.parity_gate import Wrong
from shared.learning.batches import Batch
from shared.learning.job import Job
from shared.learning.shards import divided
from shared.problems import Inputs
from shared.problems.learn_alignment import ALIGNMENT
from shared.problems.problem import BATCH, NotMeasurable, UnusableInput

# the pass that is a step of training, and the input with which every process takes its shard of a step by itself
STEP, ALONE = "step", "without communication"
# longest time until all processes have joined
_JOIN_SECONDS = 60.0
# so small that thousands of steps on one batch leave the weights where they are, and the alignments as fast
_RATE = 1e-6
# the same number in every process, because they wait for each other; of the first ones the losses are compared
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

    def resized(self, step: int) -> "StepInputs":
        raise NotMeasurable("a batch has the pairs that it has")


def shard_name(index: int, count: int) -> str:
    """The name of a process's part of the batch."""
    return BATCH if count == 1 else f"{BATCH} {index} of {count}"


class OnShard(Commands):
    """Commands of a process on its shard of the batch; of a single process, on all of it."""

    def __init__(self, index: str, count: str, address: str, *given: Any) -> None:
        super().__init__(*given)
        self.index, self.count = int(index), int(count)
        # the same in every process: a step waits for the others, so all must make as many calls
        self._random = np.random.default_rng(0)
        self._parent = Connection(int(sys.argv[-1]))  # as `serve` has it
        if address:
            self.backend.join(self.index, self.count, address, _JOIN_SECONDS)

    def prepare(self, case: Case) -> dict[str, Any]:
        """Prepare a case to be timed: a pass on this process's shard, or a step of training."""
        if case.pass_name == STEP:
            self._prepared[case], found = _prepare_step(self, case)
            return found
        shard = replace(case, label=f"{case.label}, {case.input}", input=shard_name(self.index, self.count))
        found = super().prepare(shard)
        self._prepared[case] = self._prepared.pop(shard)
        return found

    def ready(self) -> None:
        """Wait until all processes are ready, so that their times are of the same time."""
        if self.index:
            self.send("ready")
            self._parent.recv()


class Leader(OnShard):
    """Commands that process 0 executes together with the others."""

    def __init__(self, *given: Any) -> None:
        *cores, backend, folder, send = given
        with socket.create_server(("127.0.0.1", 0)) as server:
            address = f"127.0.0.1:{server.getsockname()[1]}"
        self._others = [_Other(index, own, len(cores) + 1, address, folder) for index, own in enumerate(cores, 1)]
        super().__init__("0", str(len(cores) + 1), address, backend, folder, send)

    def prepare(self, case: Case) -> dict[str, Any]:
        """The longest time of a call is that of all, and the worst gate."""
        found = self._together("prepare", case, super().prepare)
        gates = [each["gate"] for each in found if each["gate"]]
        seconds = max(each["call_seconds"] for each in found)
        return found[0] | {"call_seconds": seconds, "gate": _worst(gates) if gates else None}

    def sample(self, case: Case, **plan: Any) -> dict[str, Any]:
        """The block of the process that took longest."""
        return max(self._together("sample", case, super().sample, **plan), key=lambda each: sum(each["seconds"]))

    def ready(self) -> None:
        for other in self._others:
            other.wait()
        for other in self._others:
            other.go()

    def _together(self, do: str, case: Case, own: Callable[..., Any], **arguments: Any) -> list[dict[str, Any]]:
        """The details of every process. Raises what this one raises, or for the first of the others that has none."""
        for other in self._others:
            other.send((do, case, arguments))
        try:
            found = [own(case, **arguments)]
        finally:
            replies = [other.outcome() for other in self._others]
        for other, reply in zip(self._others, replies, strict=True):
            if reply["status"] != "ok":
                raise _error(reply, f"{FRAMEWORKS[case.framework]} {other.title}")
            found.append(reply["details"])
        return found


class _Other:
    """Process 0's handle of another process."""

    def __init__(self, index: int, cores: str, count: int, address: str, folder: Path) -> None:
        self.title, self._last = f"process {index} of {count}", {"event": ""}  # its last event
        self._connection, child = Pipe()
        self._log = folder / f"{os.getpid()}-{index}.log"
        start, usual = sys.orig_argv[: sys.orig_argv.index("-m") + 2], sys.argv[-6:-1]
        special = [f"{__name__}:OnShard", cores, index, count, address]
        with child, self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*start, *map(str, special), *usual, str(child.fileno())],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=[child.fileno()],
            )  # fmt: skip
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()

    def send(self, message: Any) -> None:
        with self._connected():
            self._connection.send(message)

    def wait(self) -> None:
        """Wait until it is ready to time its calls, or done."""
        while self._last["event"] not in ("ready", "done"):
            with self._connected():
                self._last = self._connection.recv()

    def go(self) -> None:
        """Have it time its calls if it is ready."""
        if self._last["event"] == "ready":
            self._last = {"event": ""}
            self.send("go")

    def outcome(self) -> dict[str, Any]:
        """Status, reason and details of its command."""
        self.wait()
        self.go()  # where process 0 has failed before that
        self.wait()
        reply, self._last = self._last, {"event": ""}
        return reply

    @contextmanager
    def _connected(self) -> Iterator[None]:
        """Leave a connection that breaks to the watcher, which ends this process with the other one's name."""
        try:
            yield
        except (EOFError, OSError):
            self._watcher.join()

    def _watch(self) -> None:
        """End this process with a word if the other one ends: a collective operation would wait for it for ever."""
        code = self._process.wait()
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        printed = [line.strip() for line in self._log.read_text(errors="replace").splitlines() if line.strip()]
        last = f": {printed[-1][:200]}" if code >= 0 and printed else ""
        print(f"{self.title} {how}{last}", file=sys.stderr, flush=True)
        os._exit(1)


class _Steps:
    """Steps of a trainer on one batch, as a case that is ready to be timed."""

    def __init__(self, backend: Any, trainer: Any, batch: Batch) -> None:
        self._backend, self._trainer, self._batch = backend, trainer, batch

    def place(self) -> None:
        """Nothing: a step moves its batch to the device itself."""

    release = place

    def __call__(self) -> Any:
        return self._backend.wait(self._trainer.step(self._batch))


def _prepare_step(runner: OnShard, case: Case) -> tuple[Any, dict[str, Any]]:
    """The steps, and what the parent is told of their first calls. Raises NotMeasurable or Wrong."""
    backend, inputs = runner.backend, runner.gate.inputs(STEP)
    assert isinstance(inputs, StepInputs)
    is_parallel, batch = runner.count > 1 and case.input != ALONE, inputs.batch
    if case.input == ALONE:  # the pairs that it would have of a data-parallel step
        batch = divided(batch, runner.count).shard(runner.index, runner.count)
    with runner.context(case):
        runner.build(replace(case, problem=ALIGNMENT), {})
        make = functools.partial(_trainer, case, inputs)
        steps = _Steps(backend, make(data_parallel=is_parallel), batch)
        first, loss = timed(steps)
        runner.send("first_call", seconds=first)
        calls = [timed(steps) for _ in range(_WARM_UP_CALLS)]
        losses = [_number(backend, each) for each in (loss, *(each for _, each in calls[: _COMPARED - 1]))]
        gate = None
        if is_parallel:
            single = _Steps(backend, make(data_parallel=False), batch)
            gate = compared(losses, [_number(backend, single()) for _ in losses], case.dtype)
    seconds = float(np.median([seconds for seconds, _ in calls[_WARM_UP_CALLS // 2 :]]))
    return steps, {"warm": first, "gate": gate, "settled": None, "call_seconds": seconds}


def compared(losses: list[float], expected: list[float], dtype: str) -> Gate:
    """Compare the losses of data-parallel steps with those of one process. Raises Wrong."""
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


def _worst(gates: list[Gate]) -> Gate:
    """The gate of all shards: that of the largest error, on the pairs of all."""
    worst = max(gates, key=lambda gate: math.inf if gate.error_of_allowed is None else gate.error_of_allowed)
    pairs = [gate.pairs for gate in gates if gate.pairs is not None]
    return replace(worst, pairs=sum(pairs) if pairs else None)


def _error(reply: dict[str, Any], title: str) -> Exception:
    """The error that a process has met, with its name."""
    reason = f"{title}: {reply['reason']}"
    if reply["status"] == "wrong":
        return Wrong(replace(reply["details"]["gate"], text=reason))
    return NotMeasurable(reason) if reply["status"] == "limit" else UnusableInput(reason)
