"""What a run has found so far, and its JSON form: written after every step, read to resume, report or compare."""

import dataclasses
import datetime
import hashlib
import json
import os
import types
import typing
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from shared.bench.analysis.estimates import Block, Estimate, all_seconds, median_time
from shared.bench.cases import FRAMEWORKS, Absence, Case, Settings
from shared.problems import PROBLEMS, Inputs

SCHEMA_VERSION = 4
STATUSES = ("ok", "wrong", "failed", "limit")


class UnreadableRecord(Exception):
    """A file is not a record that this version can read; the text says why."""


@dataclass(frozen=True)
class Facts:
    """An input without its arrays."""

    text: str
    shape: tuple[int, ...]  # of the largest array
    pairs: int | None  # None where it is one computation
    work: int  # of one call
    parameters: dict[str, float]
    options: dict[str, Any]
    sha256: str  # of all arrays that the results depend on

    @classmethod
    def of(cls, inputs: Inputs) -> "Facts":
        """Describe an input."""
        digest = hashlib.sha256()
        for array in inputs.hashed:
            digest.update(array.tobytes())
        described = (inputs.title, inputs.shape, inputs.pairs, inputs.work, inputs.parameters, inputs.options)
        return cls(*described, digest.hexdigest())


@dataclass(frozen=True)
class Compilation:
    """A first call: tracing, compiling and running once. Seconds."""

    seconds: float
    tracing: float | None = None  # where the framework reports it
    compiling: float | None = None


@dataclass(frozen=True)
class Gate:
    """Outcome of the parity gate."""

    text: str
    error_of_allowed: float | None  # None: not finite
    source: str  # of the expected result
    pairs: int | None  # compared; None: all
    told: str | None = None  # the result in words, where a reader wants it


@dataclass(frozen=True)
class WarmUp:
    """The calls between the first and the timed ones."""

    calls: int
    stable: bool | None  # whether times had settled when they ended; None: too few calls to tell


@dataclass(frozen=True)
class Generation:
    """A set of fresh workers that has timed all its rounds."""

    worker: int
    seconds: float  # that its rounds took
    others: float | None  # CPU seconds that other programs used on the run's cores meanwhile


@dataclass
class Result:
    """A case and its outcome."""

    case: Case
    status: str = "ok"  # one of STATUSES
    reason: str | None = None
    gate: Gate | None = None
    build_seconds: float = 0.0
    cold: Compilation | None = None  # caches empty, in memory and on disk
    early_seconds: float | None = None  # median of a few calls right after it, until there are blocks
    retrace: Compilation | None = None  # the same function on a new shape
    retrace_note: str | None = None  # why there is none
    warm: list[Compilation] = field(default_factory=list)  # new processes that find the caches on disk
    warm_up: list[WarmUp] = field(default_factory=list)
    peak_bytes: int | None = None
    input_bytes: int | None = None
    output_bytes: int | None = None
    work: int | None = None
    on_device: list[float] = field(default_factory=list)  # seconds on an accelerator itself, of some calls
    blocks: list[Block] = field(default_factory=list)

    @property
    def measured(self) -> bool:
        """Whether it is right and has times."""
        return self.status == "ok" and bool(self.blocks)

    @property
    def seconds(self) -> list[float]:
        """Every sample of the calls after the first."""
        return all_seconds(self.blocks)

    @property
    def device_seconds(self) -> float | None:
        """Median of the times on the accelerator; None where there are none."""
        return float(np.median(self.on_device)) if self.on_device else None

    @property
    def time(self) -> Estimate:
        """Median of the calls after the first, with its interval."""
        found = median_time(self.blocks)
        assert found is not None, "only a measured case has a time"
        return found

    @property
    def rate(self) -> float | None:
        """Work per second; None if it was not measured."""
        return self.work / self.time.value if self.measured and self.work else None

    @property
    def warm_seconds(self) -> float | None:
        """Median of the first calls of new processes."""
        return float(np.median([start.seconds for start in self.warm])) if self.warm else None


@dataclass(frozen=True)
class ReferenceTime:
    """Seconds of each call of the NumPy reference."""

    input: str
    pass_name: str
    seconds: list[float]


@dataclass
class Record:
    """Filled while a run goes on; can be printed or written at any time."""

    command: str
    settings: Settings | None = None
    started: str | None = None  # ISO 8601, UTC
    finished: str | None = None  # None: not yet, or interrupted
    inputs: dict[str, Facts] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)  # framework -> why it was not measured
    absent: list[Absence] = field(default_factory=list)
    auto: dict[str, str] = field(default_factory=dict)  # framework -> the variant that "auto" picks
    uncompiled: dict[str, dict[str, str]] = field(default_factory=dict)  # framework -> variant -> why not compiled
    code_lines: dict[str, dict[str, int]] = field(default_factory=dict)  # framework -> variant -> lines of code
    kernel_lines: int = 0  # of C++, which both frameworks' `fused` calls
    results: list[Result] = field(default_factory=list)
    references: list[ReferenceTime] = field(default_factory=list)
    speed: list[Block] = field(default_factory=list)  # of the calibration loop, once a round
    generations: list[Generation] = field(default_factory=list)  # those that are complete
    pictures: dict[str, dict[str, Any]] = field(
        default_factory=dict
    )  # input -> a result as matrices, and by which case
    seconds: float = 0.0  # that the run has taken
    notes: list[str] = field(default_factory=list)
    resumed_by: list[str] = field(default_factory=list)  # commands

    def result(self, case: Case) -> Result:
        """The result of a case; begins one if there is none."""
        for result in self.results:
            if result.case == case:
                return result
        self.results.append(Result(case))
        return self.results[-1]

    @property
    def cores_busy_with_others(self) -> float | None:
        """Cores that other programs kept busy on average while rounds were timed; None where it is not known, or
        where the rounds were too short to tell."""
        known = [(entry.seconds, entry.others) for entry in self.generations if entry.others is not None]
        seconds = sum(seconds for seconds, _ in known)
        return sum(others for _, others in known) / seconds if seconds > 1 else None

    @property
    def went_wrong(self) -> bool:
        """Whether a case failed, or was wrong."""
        return any(result.status in ("wrong", "failed") for result in self.results)

    def as_json(self) -> dict[str, Any]:
        """Everything, with all samples in seconds."""
        return {"schema_version": SCHEMA_VERSION} | asdict(self)

    @classmethod
    def from_json(cls, stored: Any) -> "Record":
        """Read what `as_json` made. Raises UnreadableRecord."""
        version = stored.get("schema_version") if isinstance(stored, dict) else None
        if version != SCHEMA_VERSION:
            raise UnreadableRecord(f"expected a record with schema_version {SCHEMA_VERSION}, got {version!r}")
        try:
            record = _of_type(cls, {name: value for name, value in stored.items() if name != "schema_version"})
            record.check()
        except (KeyError, TypeError, ValueError) as error:
            raise UnreadableRecord(f"expected a whole record, got one with a fault ({error!r})") from None
        return record

    def check(self) -> None:
        """Raise ValueError for what types cannot say: unknown names, impossible samples, pictures that do not fit."""
        from shared.bench.questions import QUESTIONS  # here: questions read records

        if self.settings is not None:
            _check_name("question", self.settings.question, tuple(QUESTIONS))
            _check_name("problem", self.settings.problem, tuple(PROBLEMS))
        for result in self.results:
            _check_name("status", result.status, STATUSES)
            _check_name("framework", result.case.framework, tuple(FRAMEWORKS))
        if not all(seconds > 0 for result in self.results for seconds in result.seconds):
            raise ValueError("a sample that is not positive")
        for picture in self.pictures.values():
            shapes = {np.asarray(picture[when], dtype=float).shape for when in ("before", "after")}
            if len(shapes) != 1 or len(shapes.pop()) != 2:
                raise ValueError("a picture whose parts do not fit")

    def write(self, path: Path) -> None:
        """Write the JSON file atomically."""
        write_atomically(path, json.dumps(self.as_json(), indent=1) + "\n")

    @classmethod
    def read(cls, path: Path) -> "Record":
        """Read a JSON file. Raises UnreadableRecord."""
        try:
            return cls.from_json(json.loads(path.read_text(encoding="utf-8")))
        except OSError as error:
            raise UnreadableRecord(f"cannot read {path}: {error.strerror}") from None
        except ValueError as error:  # not text, or not JSON
            raise UnreadableRecord(f"cannot read {path}: expected JSON ({error})") from None
        except UnreadableRecord as error:
            raise UnreadableRecord(f"cannot read {path}: {error}") from None


def _check_name(what: str, name: str, known: tuple[str, ...]) -> None:
    if name not in known:
        raise ValueError(f"unknown {what} {name!r}; known: {', '.join(known)}")


def _of_type(kind: Any, value: Any) -> Any:
    """JSON as a value of a type: dataclasses, tuples, lists, dictionaries and unions of one type with None."""
    if kind is Any:
        return value
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        return _of_type(next(each for each in arguments if each is not type(None)), value)
    form: Any = (int, float) if kind is float else (list, tuple) if origin in (list, tuple) else origin or kind
    if not isinstance(value, dict if dataclasses.is_dataclass(kind) else form):
        raise TypeError(f"expected {getattr(kind, '__name__', kind)}, got {value!r}")
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        missing = {entry.name for entry in fields(kind)} - value.keys()
        if missing:
            raise KeyError(*sorted(missing))
        return kind(**{name: _of_type(hints[name], each) for name, each in value.items()})  # TypeError for unknown ones
    if origin is tuple:
        kinds = arguments[:1] * len(value) if arguments[-1] is Ellipsis else arguments
        return tuple(_of_type(each, item) for each, item in zip(kinds, value, strict=True))
    if origin is list:
        return [_of_type(arguments[0], item) for item in value]
    if origin is dict:
        return {name: _of_type(arguments[1], item) for name, item in value.items()}
    return float(value) if kind is float else value


def write_atomically(path: Path, text: str) -> None:
    """Write a text file in one step: a reader never sees half of it."""
    temporary = path.with_name(f".compare-{os.getpid()}.part")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def now() -> str:
    """The time as records have it."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
