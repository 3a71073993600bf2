"""The record of a run so far, and its JSON form: written after every step, read to resume, report or compare."""

import dataclasses
import datetime
import hashlib
import json
import re
import reprlib
import types
import typing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from shared.bench.cases import Absence, Case, Settings
from shared.bench.estimates import Block, Count, Estimate, Seconds, mean_over_processes, median_time
from shared.checks import is_finite
from shared.file_writing import write_atomically
from shared.problems import Inputs

SCHEMA_VERSION = 6
STATUSES = ("ok", "wrong", "failed", "limit")  # limit: no time, memory, budget or support for it here
# suffix of the reasons for which a resumed run measures a case again
NO_ROOM = "the budget had no room for it"
# the types of JSON, as errors name them; _NUMBERS: a list of numbers in JSON
_FORMS: dict[type, str] = {dict: "an object", list: "a list", str: "a text", bool: "true or false",
                           int: "a whole number", float: "a finite number"}  # fmt: skip
_NUMBERS = re.compile(r"\[\n((?:[-+.,\dEe\s]|null|true|false)+)\]")


class UnreadableRecord(Exception):
    """A file is not a record that this version can read; the text says why."""


@dataclass(frozen=True)
class InputFacts:
    """An input without its arrays."""

    text: str
    shape: tuple[int, ...]  # of the largest array
    pairs: int | None  # None where it is one computation
    work: Count  # of one call
    parameters: dict[str, float]
    options: dict[str, Any]
    sha256: str  # of all arrays that the results depend on
    by_device_time: bool = False  # whether frameworks are compared by the accelerator's time, not by wall time

    @classmethod
    def of(cls, inputs: Inputs) -> "InputFacts":
        """Describe an input."""
        sha256 = hashlib.sha256(b"".join(array.tobytes() for array in inputs.hashed)).hexdigest()
        facts = inputs.title, inputs.shape, inputs.pairs, inputs.work, inputs.parameters, inputs.options
        return cls(*facts, sha256, inputs.by_device_time)


class FirstCall(NamedTuple):
    """A first call: tracing, compiling and running once. Seconds."""

    seconds: Seconds
    tracing: float | None = None  # where the framework reports it
    compiling: float | None = None


@dataclass(frozen=True)
class Gate:
    """Outcome of the parity gate."""

    text: str
    error_of_allowed: float | None  # error / what is allowed; None: not finite
    source: str  # of the expected result
    pairs: int | None  # compared; None: all
    summary: str | None = None  # the result in words, where a reader wants it


@dataclass(frozen=True)
class Repeat:
    """Fresh workers that have timed together, mostly one for each framework and label. Users read "process"."""

    number: int
    seconds: Seconds  # that its rounds took
    others: float | None  # CPU seconds that other programs used on the run's cores meanwhile


@dataclass
class Result:
    """A case and its outcome."""

    case: Case
    status: str = "ok"  # one of STATUSES
    reason: str | None = None
    gate: Gate | None = None
    build_seconds: float = 0.0
    cold: list[FirstCall] = field(default_factory=list)  # caches empty, in memory and on disk; one call per process
    early_seconds: Seconds | None = None  # of the calls right after the first: the provisional time
    # a list for each cold call after which new shapes were tried: seconds on the first, second, ... new shape
    new_shapes: list[list[Seconds]] = field(default_factory=list)
    new_shapes_note: str | None = None  # why there are none
    warm: list[Seconds] = field(default_factory=list)  # first calls of new processes that find the caches on disk
    # of each repeat, whether times had settled when its warm-up calls ended; None: too few calls to tell
    settled: list[bool | None] = field(default_factory=list)
    peak_bytes: int | None = None
    input_bytes: int | None = None
    output_bytes: int | None = None
    work: Count | None = None
    on_device: list[Block] = field(default_factory=list)  # seconds in which an accelerator worked, a block per call
    kernels: int | None = None  # that a call launches on an accelerator
    blocks: list[Block] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)  # of a question that measures in its own way: plain JSON

    @property
    def measured(self) -> bool:
        """Whether it is right and has times."""
        return self.status == "ok" and bool(self.blocks)

    @property
    def calls(self) -> int:
        """Number of timed calls after the first."""
        return sum(block.calls for block in self.blocks)

    @property
    def device_time(self) -> Estimate | None:
        """Time in which a call keeps an accelerator busy; None where it is not known."""
        return median_time(self.on_device) if self.on_device else None

    @property
    def time(self) -> Estimate:
        """Median of the calls after the first, with its interval; only of a measured case."""
        return median_time(self.blocks)

    @property
    def rate(self) -> float | None:
        """Work per second; None if it was not measured."""
        return self.work / self.time.value if self.measured and self.work else None

    @property
    def first_call(self) -> Estimate | None:
        """Time of a first call with empty caches."""
        return mean_over_processes([start.seconds for start in self.cold]) if self.cold else None

    @property
    def warm_call(self) -> Estimate | None:
        """Time of the first call of a new process that finds the caches on disk."""
        return mean_over_processes(self.warm) if self.warm else None

    def new_shape(self, number: int) -> Estimate | None:
        """Time of the first call on the first, second, ... new shape."""
        seconds = [shapes[number - 1] for shapes in self.new_shapes if len(shapes) >= number]
        return mean_over_processes(seconds) if seconds else None


@dataclass(frozen=True)
class ReferenceTime:
    """Seconds of each call of the NumPy reference."""

    input: str
    pass_name: str
    seconds: list[Seconds]


@dataclass
class Record:
    """Filled while a run goes on; can be printed or written at any time."""

    command: str
    settings: Settings
    started: str | None = None  # ISO 8601, UTC
    finished: str | None = None  # None: not yet, or interrupted
    inputs: dict[str, InputFacts] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)  # framework -> why it was not measured
    absent: list[Absence] = field(default_factory=list)
    auto: dict[str, str] = field(default_factory=dict)  # framework -> the variant that "auto" picks
    uncompiled: dict[str, dict[str, str]] = field(default_factory=dict)  # framework -> variant -> why not compiled
    code_lines: dict[str, dict[str, int]] = field(default_factory=dict)  # framework -> variant -> lines of code
    code: dict[str, dict[str, str]] = field(default_factory=dict)  # framework -> variant -> hash of its code
    kernel_lines: int = 0  # of the native kernels that both frameworks' `fused` calls
    results: list[Result] = field(default_factory=list)
    references: list[ReferenceTime] = field(default_factory=list)
    calibration_seconds: list[Seconds] = field(default_factory=list)  # of measure/machine.py, once a round
    gpu_state: dict[str, Any] = field(default_factory=dict)  # clocks and power during the run, see measure/gpu_state.py
    repeats: list[Repeat] = field(default_factory=list)  # those that are complete
    seconds: float = 0.0  # that the run has taken
    notes: list[str] = field(default_factory=list)
    resumed_by: list[str] = field(default_factory=list)  # commands

    @property
    def has_any(self) -> bool:
        """Whether anything has been measured, or is known not to work."""
        return any(r.cold or r.blocks or r.reason or r.details for r in self.results)

    def result(self, case: Case) -> Result:
        """The result of a case; begins one if there is none."""
        known_result = next((result for result in self.results if result.case == case), None)
        if known_result is None:
            self.results.append(known_result := Result(case))
        return known_result

    @property
    def next_repeat(self) -> int:
        """The number of the next repeat."""
        return 1 + max((block.repeat for result in self.results for block in result.blocks), default=-1)

    def note(self, text: str) -> None:
        """Add a note, once."""
        if text not in self.notes:
            self.notes.append(text)

    def results_of(self, pass_name: str, input_name: str) -> list[Result]:
        """Every result of a pass on an input."""
        return [r for r in self.results if (r.case.pass_name, r.case.input) == (pass_name, input_name)]

    @property
    def device_name(self) -> str:
        """The accelerator and the CPU, and how many of its cores were used."""
        gpus = dict.fromkeys(facts.get("gpu") for facts in self.environment.get("frameworks", {}).values())
        cores = f"{self.settings.threads} core{'s' * (self.settings.threads > 1)}"
        return ", ".join([*filter(None, gpus), str(self.environment.get("cpu", "")), cores])

    @property
    def cores_busy_with_others(self) -> float | None:
        """Cores that other programs kept busy on average while rounds were timed; None where
        repeats are too short: the system's CPU times have a resolution of 10 ms."""
        measured = [(entry.seconds, entry.others) for entry in self.repeats if entry.others is not None]
        seconds = sum(seconds for seconds, _ in measured)
        return sum(others for _, others in measured) / seconds if seconds > 0.2 * len(measured) else None

    def write(self, path: Path) -> None:
        """Write everything as a JSON file, a list of numbers on a line."""
        text = json.dumps({"schema_version": SCHEMA_VERSION} | asdict(self), indent=1)
        write_atomically(path, _NUMBERS.sub(lambda found: f"[{' '.join(found[1].split())}]", text) + "\n")

    @classmethod
    def read(cls, path: Path) -> "Record":
        """Read what `write` wrote. Raises UnreadableRecord."""
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
            version = stored.pop("schema_version", None) if isinstance(stored, dict) else None
            if version != SCHEMA_VERSION:
                raise ValueError(f"expected schema_version {SCHEMA_VERSION}, got {version!r}")
            record = of_type(cls, stored)
            cases = [result.case for result in record.results]
            if twice := next((case.title for case in cases if cases.count(case) > 1), None):
                raise ValueError(f"results must be of different cases, got two of {twice}")
            return record
        except OSError as error:
            raise UnreadableRecord(f"cannot read {path}: {error.strerror}") from None
        except (RecursionError, TypeError, ValueError) as error:
            raise UnreadableRecord(f"cannot read {path}: not a record that this version reads: {error}") from None


def of_type(kind: Any, value: Any, name: str = "") -> Any:
    """JSON as a value of a type: dataclasses, tuples, lists, dictionaries, unions of one type with None, and leaves.

    Raises ValueError for a value of another type, a number that is not finite, or not positive where it has to be.
    """
    origin: Any = typing.get_origin(kind)
    arguments = typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return None if value is None else of_type(arguments[0], value, name)
    if kind is Any:
        return value
    if origin is typing.Annotated:
        if not (number := of_type(arguments[0], value, name)) > 0:
            raise ValueError(f"{name} must be positive, got {number!r}")
        return number
    is_object = isinstance(kind, type) and dataclasses.is_dataclass(kind)
    length = len(getattr(kind, "_fields", ()))  # of a NamedTuple: a list of its fields in order
    form: Any = dict if is_object else list if origin is tuple or length else origin or kind
    fits = isinstance(value, (int, float) if form is float else form) and isinstance(value, bool) <= (form is bool)
    if not fits or (form in (int, float) and not is_finite(value)) or (length and len(value) != length):
        of = f" of {length}" if length else ""
        raise ValueError(f"{name} must be {_FORMS[form]}{of}, got {reprlib.repr(value)}")
    if is_object or length:
        hints = typing.get_type_hints(kind, include_extras=True)
        every = dataclasses.fields(kind) if is_object else ()
        needed = {field.name for field in every if field.default is field.default_factory is dataclasses.MISSING}
        if is_object and (wrong := (needed - value.keys()) or (value.keys() - hints.keys())):
            how = "lacks" if wrong <= needed else "has no field"
            raise ValueError(f"{name or 'it'} {how} {', '.join(sorted(wrong))}")
        fields = value.items() if is_object else zip(hints, value, strict=True)
        return kind(**{name: of_type(hints[name], entry, name) for name, entry in fields})
    if form is dict:
        return {key: of_type(arguments[1], entry, name) for key, entry in value.items()}
    if form is list:  # of any number of one type
        return origin(of_type(arguments[0], entry, name) for entry in value)
    return value


def now() -> str:
    """The time as records have it."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
