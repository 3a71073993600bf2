"""What a report says, as plain strings: every format shows the same tables, notes and facts."""

import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np

from shared.bench.growth import Power, growths, sizes
from shared.bench.plan import FRAMEWORKS
from shared.bench.record import Record
from shared.bench.text import duration
from shared.problems import PROBLEMS

NOTHING = "–"
# a line in logarithms through points that are not further from it is called straight
_STRAIGHT = 1.25
# characters that turn the direction of text: a name with one could pose as another
_TURNS = {*map(chr, range(0x202A, 0x202F)), *map(chr, range(0x2066, 0x206A))}


class Table(NamedTuple):
    """Strings in columns."""

    title: str
    headers: tuple[str, ...]
    rows: list[tuple[str, ...]]
    aligns: tuple[str, ...]  # "left" or "right"


def printable(text: str) -> str:
    """The text without characters that no format can hold or that show as something else; lines stay lines."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return "".join(
        "\N{REPLACEMENT CHARACTER}"
        if character in _TURNS or (unicodedata.category(character) in ("Cc", "Cs") and character not in "\n\t")
        else character
        for character in text
    )


def title(records: Sequence[Record]) -> str:
    """Of the whole report."""
    names = list(dict.fromkeys(_name(record) for record in records if record.settings))
    return "JAX and PyTorch compared" + (f": {', '.join(names)}" if names else "")


def headings(records: Sequence[Record]) -> list[str]:
    """Which record is which."""
    names = [_name(record) for record in records]
    return [
        f"{name} ({names[: at + 1].count(name)})" if names.count(name) > 1 else name for at, name in enumerate(names)
    ]


def _name(record: Record) -> str:
    return f"{record.settings.problem} on {record.settings.device}" if record.settings else "a run that did not begin"


def summary(record: Record) -> Iterator[str]:
    """The problem, the machine, the inputs and the versions, a line each."""
    settings, where = record.settings, record.environment
    if settings:
        problem = PROBLEMS.get(settings.problem)
        arguments = next((facts.parameters | facts.options for facts in record.inputs.values()), {})
        given = "".join(f", {name} {_value(value)}" for name, value in arguments.items())
        yield f"{problem.text if problem else settings.problem}; {settings.dtype}{given}"
    work = _work(record)
    for facts in list(record.inputs.values())[:2]:
        yield f"{facts.text}; {facts.work:,} {work}"
    if len(record.inputs) > 2:
        yield f"and {len(record.inputs) - 2} more sizes"
    frameworks = {name: facts for name, facts in _frameworks(record).items() if isinstance(facts, Mapping)}
    gpus = dict.fromkeys(str(facts["gpu"]) for facts in frameworks.values() if facts.get("gpu"))
    cores = f", {settings.threads} core{'s' if settings.threads > 1 else ''}" if settings else ""
    if gpus or "cpu" in where:
        yield f"{', '.join([*gpus, str(where.get('cpu', ''))])}{cores}"
    versions = [f"{FRAMEWORKS.get(name, name)} {facts[name]}" for name, facts in frameworks.items() if name in facts]
    if versions:
        yield ", ".join(versions)
    for name, facts in frameworks.items():
        if facts.get("compiler_start_seconds"):
            start = duration(facts["compiler_start_seconds"])
            yield f"starting {FRAMEWORKS.get(name, name)}'s compiler took {start}, once, not counted below"


def _work(record: Record) -> str:
    problem = PROBLEMS.get(record.settings.problem) if record.settings else None
    return problem.rate.work if problem else "work"


def _frameworks(record: Record) -> Mapping[str, Any]:
    found = record.environment.get("frameworks")
    return found if isinstance(found, Mapping) else {}


def when(record: Record) -> str:
    """When it ran, and for how long."""
    started = f"Started {record.started}" if record.started else "Not started"
    finished = f"finished {record.finished}" if record.finished else "not finished"
    took = f"; it took {duration(record.seconds)}" if record.seconds else ""
    return f"{started}; {finished}{took}."


def commands(record: Record) -> str:
    """What was typed, and what it was gone on with, a line each."""
    return "\n".join([record.command, *record.resumed_by])


def reference_table(record: Record) -> Table:
    """How long NumPy takes, which everything is proved against."""
    rows = [
        (pass_name, name, ", ".join(duration(value) for value in seconds))
        for (name, pass_name), seconds in record.references.items()
    ]
    return Table("The NumPy reference", ("pass", "input", "each call"), rows, ("left", "left", "right"))


def growth_table(record: Record) -> Table:
    """The exponents of a sweep."""
    rows = [
        (
            growth.case.pass_name,
            FRAMEWORKS[growth.case.framework],
            f"{growth.case.variant}{growth.case.side_text}",
            "yes" if growth.case.compiled else "no",
            *(_power(power) for power in (growth.first_call, growth.compiling, growth.call)),
        )
        for growth in growths(record)
    ]
    low, high = sizes(record) if rows else (0, 0)
    axis = PROBLEMS[record.settings.problem].sizes.axis if rows and record.settings else "size"
    title = f"Growth: p of n^p for n {axis}, fitted from {low:,} to {high:,}"
    headers = ("pass", "framework", "variant", "compiled", "first call", "tracing and compiling", "a call")
    return Table(title, headers, rows, ("left",) * 4 + ("right",) * 3)


def _power(power: Power | None) -> str:
    """The exponent, and how far a time is off the line if it is no straight one."""
    if power is None:
        return NOTHING
    off = f" (off by up to {power.largest_factor:.2g} times)" if power.largest_factor > _STRAIGHT else ""
    return f"{round(power.exponent, 2) + 0.0:.2f}{off}"  # never -0.00


def input_table(record: Record) -> Table:
    """What every number was measured on."""
    rows = [
        (
            name,
            facts.text,
            " × ".join(map(str, facts.shape)),
            NOTHING if facts.pairs is None else f"{facts.pairs:,}",
            f"{facts.work:,}",
            facts.sha256,
        )
        for name, facts in record.inputs.items()
    ]
    headers = ("input", "what it is", "shape", "pairs", _work(record), "SHA-256")
    return Table("Inputs", headers, rows, ("left", "left", "right", "right", "right", "left"))


def speed_table(record: Record) -> Table:
    """The fixed work, for each worker."""
    workers: dict[int, list[float]] = {}
    for block in record.speed:
        workers.setdefault(block.worker, []).extend(block.seconds)
    rows = [
        (str(worker), str(len(times)), *(duration(value) for value in np.percentile(times, [0, 50, 100])))
        for worker, times in workers.items()
        if times
    ]
    headers = ("worker", "times", "fastest", "median", "slowest")
    return Table("How steady the machine was: the same plain Python work in each round", headers, rows, ("right",) * 5)


def environment_table(record: Record) -> Table:
    """The machine, the system and the versions."""
    return Table("Environment", ("name", "value"), list(_flat(record.environment)), ("left", "left"))


def settings_table(record: Record) -> Table:
    """Everything that was asked for, defaults included."""
    settings = record.settings
    # what only the trial of the protocol asks for is shown where it was
    hidden = () if settings is None or settings.sides > 1 else ("sides", "handicap")
    given = [entry.name for entry in fields(settings) if entry.name not in hidden] if settings else []
    named = {name: getattr(settings, name) for name in given}
    return Table("Settings", ("name", "value"), list(_flat(named)), ("left", "left"))


def _flat(values: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{above}{name} / ")
        else:
            yield f"{above}{name}", _value(value)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}" if abs(value) < 1e6 else f"{value:.4g}"
    if isinstance(value, list | tuple):
        sized = all(isinstance(entry, list | tuple) for entry in value)
        return ", ".join(" × ".join(map(str, entry)) if sized else _value(entry) for entry in value) or NOTHING
    return NOTHING if value is None or value == {} else str(value)
