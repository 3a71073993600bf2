"""How several processes execute the commands of one worker: each on its shard, all at the same time."""

import math
import platform
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from shared.bench.cases import Case
from shared.bench.measure.machine import usable_cores
from shared.bench.questions.processes_group import Group, Place
from shared.bench.questions.processes_inputs import STEP, shard_name
from shared.bench.questions.processes_step import prepare_step
from shared.bench.record import Gate
from shared.bench.worker.commands import Commands, outcome
from shared.bench.worker.parity_gate import Wrong
from shared.problems.problem import NotMeasurable, UnusableInput

_COMMANDS = ("prepare", "sample", "host")  # all others are the last one


class OnShard(Commands):
    """Commands of a process on its shard of a case's input; of a process that measures by itself, on all of it."""

    def __init__(
        self, place: Place, group: Group | None, backend: Any, folder: Path, send: Callable[..., None]
    ) -> None:
        super().__init__(backend, folder, send)
        self.place, self.group = place, group
        # the same in every process: a step waits for the others, so all must make as many calls
        self._random = np.random.default_rng(0)

    def prepare(self, case: Case) -> dict[str, Any]:
        """As every worker does; a step of training in a way of its own."""
        if case.pass_name == STEP:
            self._prepared[case], found = prepare_step(self, case)
            return found
        own = self._own(case)
        found = super().prepare(own)
        self._prepared[case] = self._prepared.pop(own)
        return found

    def ready(self) -> None:
        """Wait for the others, so that all times are of the same time."""
        if self.group is not None:
            self.group.barrier()

    def host(self, case: Case) -> dict[str, Any]:
        """This process's cores, and a name of this computer that no other one has, however many containers it is."""
        path = Path("/proc/sys/kernel/random/boot_id")
        return {"host": path.read_text().strip() if path.exists() else platform.node(), "cores": usable_cores()}

    def _own(self, case: Case) -> Case:
        """Of a label that no other case has: several inputs may have the same shard."""
        label = f"{case.label}, {case.input}"
        return replace(case, label=label, input=shard_name(case.input, self.place.index, self.place.count))


class Leader(Commands):
    """Commands that process 0 executes together with the others. A call takes as long as in the slowest process."""

    def __init__(self, place: Place, group: Group, backend: Any, folder: Path, send: Callable[..., None]) -> None:
        super().__init__(backend, folder, send)
        self._group, self._own = group, OnShard(place, group, backend, folder, send)

    def prepare(self, case: Case) -> dict[str, Any]:
        """The longest time of a call is that of all."""
        first, *others = found = self._together("prepare", case)
        seconds = max(each["call_seconds"] for each in found)
        gates = [Gate(**each["gate"]) for each in others if each["gate"]]
        return first | {"call_seconds": seconds, "gate": first["gate"] and _worst([first["gate"], *gates])}

    def sample(self, case: Case, **plan: Any) -> dict[str, Any]:
        """The block of the process that took longest."""
        return max(self._together("sample", case, **plan), key=lambda each: sum(each["seconds"]))

    def hosts(self, case: Case) -> dict[str, Any]:
        """On how many computers the processes are, and whether any two have a core in common."""
        found = self._together("host", case)
        cores = [(each["host"], core) for each in found for core in each["cores"]]
        return {"hosts": len({each["host"] for each in found}), "share_cores": len(set(cores)) < len(cores)}

    def dismiss(self, case: Case, last: str) -> dict[str, Any]:
        """Give the others their last command."""
        self._group.broadcast([last, asdict(case), {}])
        self._group.leave()
        return {}

    def _together(self, do: str, case: Case, **arguments: Any) -> list[dict[str, Any]]:
        """The details of every process. Raises for the first one that has none."""
        self._group.broadcast([do, asdict(case), arguments])
        found = self._group.gather(outcome(self._own, do, case, arguments))
        for index, each in enumerate(found):
            if each["status"] != "ok":
                raise _error(each, self._group.place.title(index))
        return [each["details"] for each in found]


def follow(own: OnShard) -> dict[str, Any]:
    """Execute the commands of process 0 until the last one, and return that."""
    group = own.group
    assert group is not None, "a group is followed"
    while True:
        do, case_fields, arguments = group.broadcast()
        if do not in _COMMANDS:
            group.leave()
            return {"last": do}
        group.gather(outcome(own, do, Case(**case_fields), arguments))


def _worst(gates: list[Gate]) -> Gate:
    """The gate of all shards: that of the largest error, on the pairs of all."""
    worst = max(gates, key=lambda gate: math.inf if gate.error_of_allowed is None else gate.error_of_allowed)
    pairs = [gate.pairs for gate in gates if gate.pairs is not None]
    return replace(worst, pairs=sum(pairs) if pairs else None)


def _error(found: dict[str, Any], title: str) -> Exception:
    """That a process has met, with its name."""
    reason = f"{title}: {found['reason']}"
    if found["status"] == "wrong":
        gate = found["details"]["gate"]
        return Wrong(replace(gate if isinstance(gate, Gate) else Gate(**gate), text=reason))
    return NotMeasurable(reason) if found["status"] == "limit" else UnusableInput(reason)
