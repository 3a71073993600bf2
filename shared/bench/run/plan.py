"""The plan of a run: what is measured and how. A question makes it; a run knows nothing else of the question."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

from shared.bench.cases import Absence, Case
from shared.bench.estimates import Estimate
from shared.bench.record import Record
from shared.problems import Inputs
from shared.variants import Abilities


class WorkerStart(NamedTuple):
    """The start of a label's worker processes, where it differs from the default."""

    threads: int | None = None  # None: those of the run
    command: Sequence[str] | None = None  # another program than the usual worker, without its arguments
    environment: Mapping[str, str] = MappingProxyType({})  # variables beside those of all workers
    about: str = ""  # a line about them for the report


@dataclass(frozen=True)
class Plan:
    """The cases of a run, its inputs, how its workers start, and when it has measured enough."""

    starts: Mapping[tuple[str, str], WorkerStart]  # by framework and label
    inputs: Mapping[str, Inputs]
    # from the abilities of each usable framework: the cases, and those that a framework cannot run
    cases: Callable[[Mapping[str, Abilities]], tuple[list[Case], list[Absence]]]
    measure: Callable[[Any, list[Case], dict[str, Inputs]], None]  # by a Run, into its record
    deciding: Callable[[Record], list[Estimate]]  # what must be precise before the run may end
    contenders: Callable[[Record], set[Case]]  # the cases that must be timed further
    times_rounds: bool  # this and the others: as in Question, which has their defaults
    times_reference: bool
    tries_new_shape: bool
    drops_dominated: bool
