"""A problem of the user's own, in a Python file: a function in each framework, and the same in NumPy."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from shared.problems.own_file import OwnFile
from shared.problems.own_gate import Slopes, judge_slopes, slopes_of
from shared.problems.problem import (
    DATA,
    Inputs,
    Problem,
    Rate,
    Sizes,
    UnusableInput,
    Verdict,
    check_form,
    within,
)
from shared.variants import OWN_VARIANTS, Abilities, Variant

# how help and lists name a file
ANY_FILE = "FILE.py"
# of the largest number that is wanted; a gradient's are in own_gate
ALLOWED = {"float32": 1e-4, "float64": 1e-9}


@dataclass(frozen=True)
class OwnInputs(Inputs):
    """The arrays that `inputs(seed)` returned, floats in the run's dtype. Options: the file, a hash of its content."""

    given: tuple[np.ndarray, ...]
    cotangent: np.ndarray  # c of the loss sum(c * result), whose derivative is the pass gradient

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        return {str(place): array for place, array in enumerate(self.given)}

    def arguments(self, pass_name: str) -> list[np.ndarray | None]:
        return [*self.given, *([self.cotangent] if pass_name == "gradient" else [])]

    @property
    def floats(self) -> list[np.ndarray]:
        """The arrays that there is a gradient with respect to."""
        return [array for array in self.given if _is_float(array)]

    @property
    def gradient_shape(self) -> tuple[int, ...]:
        """That of the only floating-point array; several are raveled and concatenated."""
        floats = self.floats
        return floats[0].shape if len(floats) == 1 else (sum(array.size for array in floats),)

    @property
    def scales(self) -> np.ndarray:
        """The scale of each number of the floating-point arrays, flat: the median magnitude of its array."""
        return np.concatenate([np.full(array.size, _scale(array)) for array in self.floats])

    def moved(self, by: np.ndarray | None = None) -> list[np.ndarray]:
        """Copies of the arrays, the floating-point ones in float64 and moved by a flat vector."""
        copies = [array.astype(np.float64 if _is_float(array) else array.dtype) for array in self.given]
        if by is not None:
            moving = [array for array in copies if _is_float(array)]
            ends = np.cumsum([array.size for array in moving])
            for array, part in zip(moving, np.split(by, ends[:-1]), strict=True):
                array += part.reshape(array.shape)
        return copies

    @property
    def shape(self) -> tuple[int, ...]:
        return max(self.given, key=lambda array: array.size).shape

    @property
    def work(self) -> int:
        return 1


def _is_float(array: np.ndarray) -> bool:
    return array.dtype.kind == "f"


def _scale(array: np.ndarray) -> float:
    magnitudes = np.abs(array[np.isfinite(array) & (array != 0)])
    return float(np.median(magnitudes)) if magnitudes.size else 1.0


class Known(NamedTuple):
    """The reference results."""

    value: np.ndarray
    slopes: Slopes | None  # None where the pass gradient is not asked for


class OwnProblem(Problem[OwnInputs, Known]):
    """The file is read to measure it, never to show a record."""

    text = "functions of your own"
    passes = {  # noqa: RUF012
        "value": "what the function returns",
        "gradient": "the sum of what it returns times random numbers, differentiated by every floating-point input",
    }
    arguments = {}  # noqa: RUF012
    rate = Rate("call", "calls/s", 1.0)
    sizes = Sizes("as inputs(seed) makes it", "", (), "calls")
    takes = ()
    without_reference = ("gradient",)

    def __init__(self, path: str) -> None:
        self.path, self.name = path, Path(path).name

    @property
    def default_passes(self) -> tuple[str, ...]:
        return OwnFile(self.path).passes

    @property
    def variants(self) -> tuple[Variant, ...]:
        return OWN_VARIANTS

    def abilities(self, framework: str, known: Mapping[str, Abilities]) -> Abilities:
        function = f"{framework}_function"
        if not OwnFile(self.path).lacks(function):
            return known[ANY_FILE]
        return Abilities(None, dict.fromkeys(self.variant_names, f"{self.name} has no {function}"))

    def modes(self, variant: str, abilities: Abilities) -> Sequence[bool]:
        return [variant == "compiled"]

    def inputs(self, settings: Any) -> dict[str, OwnInputs]:
        file = OwnFile(self.path)
        returned = file.call("inputs", settings.seed)
        self._check(returned)
        dtypes = (settings.dtype if _is_float(array) else array.dtype.newbyteorder("=") for array in returned)
        arrays = tuple(array.astype(dtype) for array, dtype in zip(returned, dtypes, strict=True))
        text = f"inputs({settings.seed}): {', '.join(f'{array.dtype} {array.shape}' for array in arrays)}"
        options = {"file": self.path, "sha256": file.sha256}
        made = OwnInputs(text, arrays, np.empty(0), options=options, seed=settings.seed)
        drawn = np.random.default_rng([settings.seed, 1]).standard_normal(self._computed(made).shape)
        return {DATA: replace(made, cotangent=np.asarray(drawn, settings.dtype))}

    def _check(self, returned: Any) -> None:
        """Raise UnusableInput unless `inputs` returned a tuple of NumPy arrays, a floating-point one among them."""
        expected = f"{self.name}: inputs(seed) must return a tuple of NumPy arrays"
        if not isinstance(returned, tuple):
            raise UnusableInput(f"{expected}, got {type(returned).__name__}")
        kinds = [f"array of {item.dtype}" if isinstance(item, np.ndarray) else type(item).__name__ for item in returned]
        got = f"got ({', '.join(kinds)})"
        if not all(isinstance(item, np.ndarray) and item.dtype.kind in "biuf" for item in returned):
            raise UnusableInput(f"{expected} of real numbers, {got}")
        if not any(map(_is_float, returned)):
            raise UnusableInput(f"{expected}, at least one of them floating-point, {got}")

    def inputs_of_size(self, settings: Any, size: tuple[int, ...]) -> OwnInputs:
        raise UnusableInput(f"{self.name} has one size, {self.sizes.form}")

    def reference_results(self, inputs: OwnInputs, passes: Sequence[str]) -> Known:
        value, cotangent = self._computed(inputs), inputs.cotangent.astype(np.float64)
        if "gradient" not in passes:
            return Known(value, None)
        slopes = slopes_of(lambda by: float((self._computed(inputs, by) * cotangent).sum()), inputs.scales, inputs.seed)
        return Known(value, slopes)

    def _computed(self, inputs: OwnInputs, by: np.ndarray | None = None) -> np.ndarray:
        """Return the reference's result for the inputs, moved by a flat vector. Raises UnusableInput."""
        result = OwnFile(self.path).call("reference", *inputs.moved(by))
        if not isinstance(result, (np.ndarray, np.generic, float, int)):
            raise UnusableInput(f"{self.name}: reference must return one array or number, got {type(result).__name__}")
        value = np.asarray(result)
        if value.dtype.kind not in "biuf":
            raise UnusableInput(f"{self.name}: reference must return real numbers, got {value.dtype}")
        if not np.isfinite(value).all():
            where = "" if by is None else " next to inputs(seed), by which gradients are checked"
            raise UnusableInput(f"{self.name}: reference must return finite numbers, got others{where}")
        return value.astype(np.float64)

    def judge(self, pass_name: str, result: np.ndarray, expected: Known, inputs: OwnInputs, dtype: str) -> Verdict:
        shape = expected.value.shape if pass_name == "value" else inputs.gradient_shape
        if fault := check_form(pass_name, result, shape, dtype):
            if np.isfinite(result).all():  # it is the form
                raise UnusableInput(f"{self.name}: {fault.text}")
            return fault
        if pass_name == "value":
            largest = float(np.abs(expected.value).max(initial=np.finfo(np.float32).tiny))
            return within(pass_name, result, expected.value, ALLOWED[dtype] * largest)
        assert expected.slopes is not None, "the pass is among those asked for"
        return judge_slopes(result.ravel(), expected.slopes, inputs.scales, inputs.seed, dtype)

    def reference(self, pass_name: str, inputs: OwnInputs) -> None:
        self._computed(inputs)
