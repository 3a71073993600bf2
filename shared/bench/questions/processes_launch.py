"""Processes that the user's launcher has started: which of them this one is.

PyTorch's are those of torchrun (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT). JAX's are told what
`jax.distributed.initialize` takes: JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES, JAX_PROCESS_ID. LOCAL_RANK and
LOCAL_WORLD_SIZE, which torchrun sets, say which share of a host's cores a process has; without them it has all.
"""

import os
from argparse import ArgumentTypeError
from collections.abc import Mapping
from typing import NamedTuple

from shared.bench.cases import FRAMEWORKS, Settings
from shared.bench.questions.processes_group import Place
from shared.problems.argument_types import names, whole
from shared.problems.problem import UnusableInput

_TORCH = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_JAX = ("JAX_PROCESS_ID", "JAX_NUM_PROCESSES", "JAX_COORDINATOR_ADDRESS")


def counts(text: str) -> tuple[int, ...]:
    """Numbers of processes from the command line, and 1, in order. Raises ArgumentTypeError."""
    found = sorted({1, *(whole("processes", 1)(part) for part in names(text))})
    if len(found) < 2:
        raise ArgumentTypeError(f"processes must have a number above 1, such as 2 or 1,2,4, got {text!r}")
    return tuple(found)


class Launch(NamedTuple):
    """Where this process stands among those of a launcher."""

    index: int
    count: int
    address: str
    local_index: int  # among those on this host
    local_count: int

    def cores(self, settings: Settings) -> int:
        """Of each process."""
        return settings.threads // self.local_count

    def place(self, settings: Settings, name: str) -> Place:
        """Of this process in a group."""
        first = self.local_index * self.cores(settings)
        return Place(settings.frameworks[0], self.index, self.count, self.address, name, first, is_launched=True)


def launch_of(settings: Settings, environment: Mapping[str, str] = os.environ) -> Launch | None:
    """None if no launcher has started this process with others. Raises UnusableInput where that cannot be measured."""
    found: dict[str, tuple[str, ...]] = {}
    for framework, wanted in (("torch", _TORCH), ("jax", _JAX)):
        missing = [name for name in wanted if name not in environment]
        given = [name for name in wanted if name in environment]
        if not missing:
            found[framework] = wanted
        elif given and not given[0].startswith("MASTER_"):  # which say nothing of this process
            raise UnusableInput(f"{', '.join(given)} in the environment goes with {', '.join(missing)}")
    if not found:
        return None
    own = next((wanted for framework, wanted in found.items() if settings.frameworks == (framework,)), None)
    if own is None:
        known = " or ".join(f"--framework {name}" for name in found)
        got = " and ".join(FRAMEWORKS[name] for name in settings.frameworks)
        raise UnusableInput(f"a launcher has started this process: expected {known}, got {got}")
    rank, count, *address = own
    total, locals_ = (_number(environment, name, 1) for name in (count, "LOCAL_WORLD_SIZE"))
    if total < 2:
        return None
    index, local = _index(environment, rank, total), _index(environment, "LOCAL_RANK", locals_)
    launch = Launch(index, total, ":".join(environment[name] for name in address), local, locals_)
    if not launch.address.rpartition(":")[0] or not launch.address.rpartition(":")[2].isdecimal():
        raise UnusableInput(f"{' and '.join(address)} must be HOST:PORT, got {launch.address!r}")
    if settings.processes is not None:
        raise UnusableInput(f"--processes goes without a launcher, which has started {total} processes")
    if not launch.cores(settings):
        raise UnusableInput(f"{locals_} processes on this host need a core each, got {settings.threads}")
    return launch


def _number(environment: Mapping[str, str], name: str, default: int) -> int:
    text = environment.get(name, str(default))
    if not text.isdecimal():
        raise UnusableInput(f"{name} in the environment must be a whole number, got {text!r}")
    return int(text)


def _index(environment: Mapping[str, str], name: str, count: int) -> int:
    index = _number(environment, name, 0)
    if index >= count:
        raise UnusableInput(f"{name} in the environment must be below {count}, the number of processes, got {index}")
    return index
