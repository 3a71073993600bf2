"""Types of command-line arguments; an error says what was expected and what came."""

import argparse
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path


def join_numbers(arguments: Sequence[str]) -> list[str]:
    """`--gap -1e1` as `--gap=-1e1`: argparse takes a negative number with an exponent for an option."""
    joined: list[str] = []
    for argument in arguments:
        previous = joined[-1] if joined else ""
        if previous.startswith("--") and "=" not in previous and argument.startswith("-") and _is_number(argument):
            joined[-1] = f"{previous}={argument}"
        else:
            joined.append(argument)
    return joined


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def names(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise argparse.ArgumentTypeError("expected at least one name, got none")
    return names


def file(text: str) -> Path:
    path = os.path.expanduser(text)  # of --json=~/run.json the shell has not done it
    if path in ("", "~") or path.startswith("~/"):  # where no home is known
        raise argparse.ArgumentTypeError(f"expected the name of a file, got {text!r}")
    return Path(path)


def one_of(what: str, known: Sequence[str] | dict) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in known:
            raise argparse.ArgumentTypeError(f"unknown {what} {text!r}; known: {', '.join(known)}")
        return text

    return parse


def some_of(what: str, known: Sequence[str] | dict) -> Callable[[str], tuple[str, ...]]:
    one = one_of(what, known)
    return lambda text: tuple(one(name) for name in names(text))


def whole(what: str, least: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if not least <= value < 2**32:
            raise argparse.ArgumentTypeError(f"{what} must be a whole number from {least} to 2^32 - 1, got {text!r}")
        return value

    return parse


def real(what: str, least: float = -math.inf, most: float = math.inf, positive: bool = False) -> Callable[[str], float]:
    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value) or (positive and value <= 0) or not least <= value <= most:
            expected = "a positive finite number" if positive else "a finite number"
            if math.isfinite(least):
                expected = f"a number between {least:g} and {most:g}"
            elif math.isfinite(most):
                expected += f" of at most {most:g}"
            raise argparse.ArgumentTypeError(f"{what} must be {expected}, got {text!r}")
        return value

    return parse


def memory(text: str) -> int:
    """Bytes, of a number with its unit."""
    units = {"MB": 10**6, "GB": 10**9, "TB": 10**12, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}
    unit = next((unit for unit in units if text.upper().endswith(unit)), "")
    try:
        value = float(text[: -len(unit)]) * units[unit]
    except (KeyError, ValueError):
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(
            f"memory must be a number with MB, GB, TB, MiB, GiB or TiB, such as 2GB, got {text!r}"
        )
    return int(value)


def size(text: str) -> tuple[int, ...]:
    """Numbers with an x between them; how many there must be, the problem knows."""
    parts = text.lower().split("x")
    if not all(part.isascii() and part.isdecimal() and int(part) for part in parts):
        raise argparse.ArgumentTypeError(f"size must be whole numbers from 1, such as 100x150, got {text!r}")
    return tuple(map(int, parts))


def sizes(text: str) -> tuple[tuple[int, ...], ...]:
    """Several sizes, each once."""
    return tuple(dict.fromkeys(size(part) for part in names(text)))


def size_text(numbers: Sequence[int]) -> str:
    """A size as it is written."""
    return "x".join(map(str, numbers))
