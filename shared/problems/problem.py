"""The interface between the benchmark and a problem: its inputs, variants, reference results and gate."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import psutil

from shared.problems.argument_types import size_text
from shared.variants import VARIANTS, Abilities, Variant

# The names of inputs: the one pair, the batch, and what a problem with one kind of input has. `growth` names each of
# its own by its size.
SINGLE, BATCH, DATA = "single", "batch", "data"


class NotMeasurable(Exception):
    """A number that cannot be had although nothing is wrong; the text says why, and stands in its place."""


@dataclass(frozen=True)
class Inputs(ABC):
    """One call's arguments, as NumPy arrays and numbers. Its fields are the arrays, beside those that are here."""

    text: str  # one line for the table's head
    parameters: dict[str, float] = field(default_factory=dict, kw_only=True)  # a call's keyword arguments
    options: dict[str, Any] = field(default_factory=dict, kw_only=True)  # known when a function is made
    seed: int = field(default=0, kw_only=True)
    # so often are the arrays repeated on the device, along their first axis: a large batch of a few pairs
    copies: int = field(default=1, kw_only=True)
    # whether a call keeps an accelerator busy: frameworks are then compared by its time, else by wall time
    by_device_time: bool = field(default=False, kw_only=True)
    notes: tuple[str, ...] = field(default=(), kw_only=True)  # lines on how it was made, for the reader of a result

    @property
    def title(self) -> str:
        """The text, and how often the arrays are repeated."""
        return self.text if self.copies == 1 else f"{self.text}, each {self.copies} times"

    @property
    @abstractmethod
    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays by field. With the other fields, all that a worker needs."""

    @abstractmethod
    def arguments(self, pass_name: str) -> list[np.ndarray | None]:
        """The positional arguments of a call of a pass."""

    @property
    def hashed(self) -> Iterable[np.ndarray]:
        """All that numbers depend on, parameters and options apart."""
        return self.arrays.values()

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """The shape of the largest array."""

    @property
    @abstractmethod
    def work(self) -> int:
        """The work of one call, in the units of the problem's rate."""

    @property
    def pairs(self) -> int | None:
        """The number of pairs in one call, each computed by itself; None where the input has no pairs."""
        return None

    def resized(self, step: int) -> "Inputs":
        """An input of another shape, new to the compiler: another shape for each step from 1.

        Raises NotMeasurable where there is none.
        """
        raise NotMeasurable("this input has one shape")


class Rate(NamedTuple):
    """The unit of the work of a call, and of its rate."""

    work: str  # "cells"
    unit: str  # "GCUPS"
    per: float  # of the work in a unit

    def text(self, per_second: float) -> str:
        """Format a rate in the unit, without the unit's name."""
        value = per_second / self.per
        return f"{value:,.0f}" if value >= 999.5 else f"{value:.3g}"  # never 1e+03


class Argument(NamedTuple):
    """A number or choice of a problem that the command line may set."""

    default: Any
    parse: Callable[[str], Any] | None  # None: a flag that changes the default, True or False
    help: str
    metavar: str | None = None


class Sizes(NamedTuple):
    """The form in which a size is written, and the default sizes."""

    form: str  # "ROWSxCOLS"
    example: str
    growth: tuple[tuple[int, ...], ...]
    axis: str  # what grows with it
    growth_form: str | None = None  # the other form in which growth takes a size


class Loop(NamedTuple):
    """The counts of a call that a model of its cost uses."""

    steps: int  # trips of the sequential loop: each needs the result of the one before
    cells: float  # elementary results that all of its steps compute
    repeats: int = 1  # how often these are the same cells, as in training


class Verdict(NamedTuple):
    """The gate's, on one case."""

    passed: bool
    text: str  # "worst error 2.1e-07, allowed 1.0e-05"
    error: float | None  # as a fraction of what is allowed, over all that was compared; None if it is not finite
    summary: str | None = None  # the result in words, where a reader wants to know


class UnusableInput(Exception):
    """Raised if the requested input cannot be computed; the text says why."""


def check_memory(needed_bytes: int, what: str) -> None:
    """Raise UnusableInput if so many bytes are more than the memory that is free. what: what was asked for, in plural.

    A system may promise more all the same, and kill who takes it.
    """
    if needed_bytes > psutil.virtual_memory().available:
        raise UnusableInput(f"{what} do not fit into memory: take fewer, or smaller ones")


GivenInputs = TypeVar("GivenInputs", bound=Inputs)
GivenReference = TypeVar("GivenReference")

# a pass, inputs in float64, a call's arguments by position -> its result by the framework's own choice of a variant
RunFloat64 = Callable[[str, Inputs, Sequence[np.ndarray | None]], np.ndarray]


class Problem(ABC, Generic[GivenInputs, GivenReference]):
    """A computation that both frameworks can do: inputs, passes, variants, and the gate that a result must pass."""

    name: str
    text: str  # one line
    passes: Mapping[str, str]  # what may be asked of it, and what that is
    default_passes: tuple[str, ...]
    arguments: dict[str, Argument]
    rate: Rate
    sizes: Sizes
    loop_text = "The cells of a size are the product of its numbers"  # what `loop` counts
    question: str | None = None  # the only one that it is for, which measures it by its own means
    has_auto = False  # whether a framework picks a variant by itself
    # command-line options that only some problems take, beside its arguments
    takes: tuple[str, ...] = ("size", "sizes")
    without_reference: tuple[str, ...] = ()  # passes that nobody has written in NumPy

    @property
    def variants(self) -> tuple[Variant, ...]:
        """The variants, from naive to fast."""
        return VARIANTS[self.name]

    @property
    def variant_names(self) -> tuple[str, ...]:
        """The variants' names, in the ladder's order."""
        return tuple(variant.name for variant in self.variants)

    def abilities(self, framework: str, known: Mapping[str, Abilities]) -> Abilities:
        """A framework's abilities for this problem. known: its backend's, by problem. Raises UnusableInput."""
        return known[self.name]

    def argument_values(self, settings: Any) -> dict[str, Any]:
        """All arguments, those that were given and the others' defaults."""
        return {name: settings.arguments.get(name, argument.default) for name, argument in self.arguments.items()}

    def check_size(self, size: Sequence[int], in_growth: bool) -> None:
        """Raise UnusableInput if a size has too many numbers, or too few."""
        forms, example = [self.sizes.form], self.sizes.example
        if in_growth and self.sizes.growth_form:
            forms, example = [self.sizes.growth_form, *forms], size_text(self.sizes.growth[-1])
        if len(size) not in [form.count("x") + 1 for form in forms]:
            expected = f"{' or '.join(forms)}, such as {example}"
            raise UnusableInput(f"a size of {self.name} is {expected}, got {size_text(size)!r}")

    @abstractmethod
    def inputs(self, settings: Any) -> dict[str, GivenInputs]:
        """The inputs that the settings ask for, by name. Raises UnusableInput."""

    @abstractmethod
    def inputs_of_size(self, settings: Any, size: tuple[int, ...]) -> GivenInputs:
        """One input of a size, all of it work: its time over size shows no padding. Raises UnusableInput."""

    def ladder_inputs(self, settings: Any) -> dict[str, GivenInputs]:
        """The inputs that the variants are made for, by name."""
        return self.inputs(settings)

    def extent(self, shape: tuple[int, ...], work: int) -> int:
        """The extent of an input on the axis of `sizes`. shape, work: the input's own."""
        return work

    def loop(self, settings: Any, variant: str, size: tuple[int, ...]) -> Loop:
        """The loop of a variant's call on an input of a size."""
        return Loop(0, math.prod(size))

    def steps(self, variant: str, pass_name: str, shape: tuple[int, ...]) -> int | None:
        """Trips of the sequential loops of a call on an input of a shape; None where nobody counted."""
        return None

    def extent_of_size(self, settings: Any, size: tuple[int, ...]) -> int:
        """The extent of an input of a size, on the axis of `sizes`."""
        return math.prod(size)

    def growing_size(self, settings: Any, n: int) -> tuple[int, ...]:
        """The size number n of those along which the frameworks are compared."""
        return (*self.sizes.growth[-1][:-1], n)

    def modes(self, variant: str, abilities: Abilities) -> Sequence[bool]:
        """Whether a variant runs compiled, not compiled, both, or neither."""
        return [variant not in abilities.uncompiled_variants]

    def growth_modes(self, variant: str, abilities: Abilities) -> Sequence[bool]:
        """The modes, compiled or not, in which `growth` measures a variant."""
        return self.modes(variant, abilities)

    def ladder_modes(self, variant: str, input_name: str, abilities: Abilities, settings: Any) -> Sequence[bool]:
        """The modes, compiled or not, in which `ladder` measures a variant."""
        return self.modes(variant, abilities)

    def is_default(self, variant: str, abilities: Abilities, settings: Any) -> bool:
        """Whether a variant is measured where none is named."""
        return True

    def special_functions(self, pass_name: str, dtype: str) -> float | None:
        """Calls of an accelerator's special function unit for a unit of work, at least; None where nobody counted."""
        return None

    @abstractmethod
    def reference_results(self, inputs: GivenInputs, passes: Collection[str]) -> GivenReference:
        """The results that others are compared with: a named tuple. By NumPy, in float64.

        Raises UnusableInput.
        """

    def confirmed(self, expected: GivenReference, inputs: GivenInputs, run: RunFloat64) -> tuple[GivenReference, str]:
        """The reference results to compare with, and their source; {auto} in it stands for the variant of "auto".

        run: a float64 run, for what NumPy is too slow for.
        """
        return expected, "NumPy"

    def covered(self, expected: GivenReference) -> int | None:
        """The number of pairs that have a reference result; None where the input has no pairs."""
        return None

    @abstractmethod
    def judge(
        self, pass_name: str, result: np.ndarray, expected: GivenReference, inputs: GivenInputs, dtype: str
    ) -> Verdict:
        """The gate: whether a result is right. No time is shown of one that is not."""

    @abstractmethod
    def reference(self, pass_name: str, inputs: GivenInputs) -> None:
        """Compute a pass in NumPy, to time it."""


def other_length(array: np.ndarray, axis: int, step: int) -> np.ndarray:
    """An array with `step` entries less along an axis; where there are not so many, with as many more."""
    size = array.shape[axis]
    return np.take(array, np.arange(size - step if size > step else size + step) % size, axis)


def check_form(pass_name: str, result: np.ndarray, shape: tuple[int, ...], dtype: str) -> Verdict | None:
    """A verdict on a result of another shape or type, or with values that are not finite; None if it has neither."""
    if result.shape != shape or result.dtype != dtype:
        text = f"{pass_name} is {result.dtype} of shape {result.shape}, expected {dtype} of shape {shape}"
        return Verdict(False, text, None)
    if not np.isfinite(result).all():
        return Verdict(False, f"{pass_name} has values that are not finite", None)
    return None


def within(
    pass_name: str, result: np.ndarray, wanted: np.ndarray, allowed: float, summary: str | None = None
) -> Verdict:
    """A verdict on a result by its largest error."""
    error = float(np.abs(result.astype(np.float64) - wanted).max(initial=0.0))
    return Verdict(error <= allowed, f"{pass_name} off by {error:.1e}, allowed {allowed:.1e}", error / allowed, summary)
