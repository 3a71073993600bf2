"""Argument checks and every error text of the public functions, once for both frameworks.

A framework describes an argument as `Seen`: what can be known of it without fetching anything from a device or a
tracer. What is not known is not checked here; the kernels are safe on it by themselves.
"""

import functools
import math
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from shared.alignments import ALIGNMENTS, axis_of, of_axis
from shared.tolerances import LARGEST_GAP, TEMPERATURES

# the dtypes that both frameworks compute with, and Python's own numbers
_FLOATS = ("float32", "float64", "float16", "bfloat16")
_INTEGERS = ("int", *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)))
_NUMBERS = ((bool, "bool"), (int, "int"), (float, "float"), (complex, "complex"))


class Seen(NamedTuple):
    """The properties of an argument that the host can see. Plain Python, so that tracers can follow the checks."""

    type_name: str
    shape: tuple[int, ...] | None  # None: not an array
    dtype: str = ""  # bare name: "float32"; of another byte order, what an error says of it
    values: Callable[[], Sequence[Any]] | None = None  # gives them flat; None: traced, or on a device


def see_host(argument: Any) -> Seen:
    """Describe a Python number, a NumPy array, or anything else that is no framework's array."""
    if not isinstance(argument, np.generic):  # NumPy's float64 is a Python float too
        for kind, name in _NUMBERS:
            if isinstance(argument, kind):
                return Seen(name, (), name, lambda: (argument,))
    if isinstance(argument, (np.ndarray, np.generic)) and not isinstance(argument, np.ma.MaskedArray):
        array = np.asarray(argument)
        dtype = str(array.dtype)
        order = {"<": "little", ">": "big"}.get(array.dtype.byteorder)
        if order and not array.dtype.isnative:  # as FITS and netCDF have it; no framework computes with it
            dtype = f"{order}-endian {array.dtype.name}, expected this machine's byte order"
        return Seen("numpy.ndarray", array.shape, dtype, lambda: array.ravel().tolist())
    return Seen(_type_name(argument), None)


def _type_name(argument: Any) -> str:
    """The name of its type, with where it is from unless Python has it built in: "list", "torch.Tensor"."""
    kind = type(argument)
    module = kind.__module__.partition(".")[0]
    return kind.__name__ if module == "builtins" else f"{module}.{kind.__name__}"


class CannotDifferentiate(RuntimeError):
    """A derivative or another transform is not supported here; the text names an alternative where there is one."""


EXPORT_TEXT = (
    "torch.export cannot trace this gradient; export marginals or hessian_vector_product of a public function, "
    "its parameters as keyword arguments, with variant 'wavefront', 'fused' or 'auto'"
)


def check_function(value: Any) -> None:
    """Raise TypeError unless it can be called."""
    if not callable(value):
        raise TypeError(f"function must be an alignment function or one with its signature, got {_type_name(value)}")


BEST_GRADIENT_TEXT = (
    "best_alignment is not differentiable; use marginals of the smooth function, or, where matches are a target, "
    "detach all arguments (jax.lax.stop_gradient, Tensor.detach)"
)


def no_best_text(platform: str) -> str:
    """The error of best_alignment on a platform such as "rocm"."""
    return f"best_alignment runs on CPUs and CUDA devices only, not on {platform}"


def best_alignment_call(
    package: ModuleType, function: Any, keywords: dict[str, Any]
) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """The name, gaps and options of the alignment that best_alignment is asked for, by a package's function.

    Raises TypeError or ValueError for another function, and for keywords that are neither gaps nor options.
    """
    public, keywords_given = unbound(function, keywords)
    name = next((name for name in ALIGNMENTS if getattr(package, name) is public), None)
    if name is None:
        qualified = getattr(public, "__qualname__", None)
        function_title = f"{public.__module__}.{qualified}" if qualified else _type_name(function)
        raise TypeError(
            f"function must be one of {', '.join(ALIGNMENTS)} of this package, or functools.partial of one with "
            f"keywords only, got {function_title}"
        )
    if "temperature" in keywords_given:
        raise TypeError("best_alignment takes no temperature")
    if "lengths" in keywords_given:
        raise TypeError("best_alignment takes lengths by itself, not in functools.partial")
    alignment = ALIGNMENTS[name]
    gaps, options = {gap: alignment.parameters[gap] for gap in alignment.gaps}, alignment.options
    for keyword, value in keywords_given.items():
        if keyword in gaps:
            gaps[keyword] = value
        elif keyword in options:
            allowed = alignment.option_values[keyword]
            if isinstance(allowed[0], str):
                check_choice(keyword, value, allowed)
            else:
                check_flag(keyword, value)
            options[keyword] = value
        else:
            parameters = ", ".join([*gaps, *options]) or "no parameters"
            raise TypeError(f"best_alignment of {name} takes {parameters}, got {keyword}")
    return name, gaps, options


def unbound(function: Any, keywords: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The function inside functools.partial with keywords only, and all keywords of its call with these."""
    while isinstance(function, functools.partial) and not function.args:
        function, keywords = function.func, {**function.keywords, **keywords}
    return function, keywords


def check_alignment(
    see: Callable[[Any], Seen], similarity: Any, lengths: Any, parameters: dict[str, Any], matrix: str = "similarity"
) -> None:
    """Check the arguments of an alignment. see: the framework's way to look at one; matrix: the name of the first."""
    seen = see(similarity)
    check_similarity(seen, matrix)
    shape = tuple(similarity.shape)
    if lengths is not None:
        check_lengths(see(lengths), shape, matrix)
    for name, value in parameters.items():
        gap, axis = name[:-3], axis_of(name)
        is_one = axis is not None and parameters.get(of_axis(gap, 1 - axis)) is value  # for both axes
        check_parameter(name, see(value), shape, gap if is_one else name, matrix)


def check_similarity(seen: Seen, matrix: str = "similarity") -> None:
    """Raise unless it is a floating-point array of shape (rows, cols) or (batch, rows, cols)."""
    if seen.shape is None:
        raise TypeError(f"{matrix} must be a floating-point array of this framework or NumPy, got {seen.type_name}")
    if seen.dtype not in _FLOATS:
        raise TypeError(
            f"{matrix} must be float32 or float64 (float16 and bfloat16 are computed in float32), got {seen.dtype}"
        )
    if len(seen.shape) not in (2, 3):
        raise ValueError(f"{matrix} must have shape (rows, cols) or (batch, rows, cols), got {seen.shape}")


def check_fixed_shape(shape: tuple[Any, ...]) -> None:
    """Raise unless every size is a number, which those of jax.export.symbolic_shape are not."""
    if not all(isinstance(size, int) for size in shape):
        sizes = ", ".join(map(str, shape))
        raise TypeError(f"the matrix must have a shape of numbers, got ({sizes}); export each shape by itself")


def check_vector(seen: Seen, similarity_shape: tuple[int, ...]) -> None:
    """Raise unless it is a floating-point array of similarity's shape."""
    if seen.shape is None:
        raise TypeError(f"vector must be a floating-point array of this framework or NumPy, got {seen.type_name}")
    if seen.dtype not in (*_FLOATS, "float"):
        raise TypeError(f"vector must be {', '.join(_FLOATS)}, got {seen.dtype}")
    if seen.shape != similarity_shape:
        raise ValueError(f"vector must have similarity's shape {similarity_shape}, got {seen.shape}")


def check_lengths(seen: Seen, similarity_shape: tuple[int, ...], matrix: str) -> None:
    """Raise unless these are integers of shape (2,) or (batch, 2) between 0 and the matrix's rows and cols."""
    if seen.shape is None:
        raise TypeError(f"lengths must be an integer array of this framework or NumPy, got {seen.type_name}")
    if seen.dtype not in _INTEGERS:
        raise TypeError(f"lengths must be integers of 8 to 64 bits, got {seen.dtype}")
    expected = (*similarity_shape[:-2], 2)
    if seen.shape != expected:
        raise ValueError(
            f"lengths must have shape {expected} for {matrix} of shape {similarity_shape}, got {seen.shape}"
        )
    if seen.values is None:
        return
    rows, cols = similarity_shape[-2:]
    values = seen.values()
    heights, widths = values[0::2], values[1::2]
    # all at once: a look at every pair in Python takes as long as a small batch
    if not values or (min(values) >= 0 and max(heights) <= rows and max(widths) <= cols):
        return
    for pair, got in enumerate(zip(heights, widths, strict=True)):
        if not (0 <= got[0] <= rows and 0 <= got[1] <= cols):
            where = f" for pair {pair}" if len(expected) == 2 else ""
            raise ValueError(f"lengths must be between 0 and (rows, cols) = ({rows}, {cols}), got {got}{where}")


def check_parameter(
    name: str, seen: Seen, similarity_shape: tuple[int, ...], given_as: str = "", matrix: str = "similarity"
) -> None:
    """Raise unless it is a real number, or a real array of shape () or (batch,), in the range of its kind.

    A gap that is not by axis may also have similarity's shape; its values are then not looked at. given_as: its name in
    errors, if it is another; matrix: that of the similarity.
    """
    is_by_axis, is_temperature = axis_of(name) is not None, name == "temperature"
    name = given_as or name
    if seen.shape is None:
        pair = "" if axis_of(name) is not None or is_temperature else ", or a tuple (rows, cols) of two"
        raise TypeError(f"{name} must be a number or an array of this framework or NumPy{pair}, got {seen.type_name}")
    if seen.dtype not in (*_FLOATS, "float", *_INTEGERS):
        raise TypeError(f"{name} must be integers, {', '.join(_FLOATS)}, got {seen.dtype}")
    # a gap by axis, or with free end gaps, has no value for each cell
    allowed = ((),) if is_temperature or is_by_axis else ((), similarity_shape)
    batch = similarity_shape[:-2]
    allowed += (batch,) if batch else ()
    if seen.shape not in allowed:
        shapes = " or ".join(map(str, sorted(allowed, key=len)))
        is_matrix = is_by_axis and seen.shape == similarity_shape
        alone = "; gaps by position cannot be combined with gaps by axis or free end gaps" if is_matrix else ""
        raise ValueError(
            f"{name} must have shape {shapes} for {matrix} of shape {similarity_shape}, got {seen.shape}{alone}"
        )
    if seen.values is None or len(seen.shape) > 1:
        return
    least, most = TEMPERATURES if is_temperature else (-math.inf, LARGEST_GAP)
    for pair, value in enumerate(seen.values()):
        if not is_finite(value) or not least <= value <= most:
            expected = f"between {least:g} and {most:g}" if is_temperature else f"finite and at most {most:g}"
            where = f" for pair {pair}" if seen.shape else ""
            raise ValueError(f"{name} must be {expected}, got {_shown(value)}{where}")


def is_finite(value: Any) -> bool:
    """Whether a number is one that a float can hold."""
    return -sys.float_info.max <= value <= sys.float_info.max


def _shown(value: Any) -> str:
    try:
        return str(float(value))
    except OverflowError:
        return "a number too large for a float"


def check_choice(name: str, value: Any, allowed: tuple[str, ...]) -> None:
    """Raise unless value is one of the allowed strings; the text lists them."""
    if not isinstance(value, str) or value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r}")


def is_option(value: Any, allowed: tuple[Any, ...]) -> bool:
    """Whether an option may have this value: one of some strings, or a truth value."""
    return isinstance(value, str if isinstance(allowed[0], str) else (bool, np.bool_)) and value in allowed


def check_flag(name: str, value: Any) -> None:
    """Raise unless value is a Python or NumPy truth value; anything else that Python calls true is a mistake."""
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} must be True or False, got {_type_name(value)}")


def absent_variant_text(variant: str, reason: str, usable: tuple[str, ...]) -> str:
    """The error for a variant that this framework cannot run."""
    return f"variant {variant!r} is absent here: {reason}; usable: {', '.join(usable)}"


def second_order_text(variant: str, usable: tuple[str, ...], has_auto: bool = True) -> str:
    """The error for a double backward through a variant whose second derivatives would be wrong."""
    text = f"variant {variant!r} is right to first order only; for second derivatives use"
    return f"{text} {_alternatives(usable, has_auto)}"


# of PyTorch's errors for third derivatives: that function differentiates three times to give a second derivative
HVP_TEXT = "; for torch.autograd.functional.hvp, which takes three, its vhp or hessian_vector_product"


def third_order_text(variant: str, usable: tuple[str, ...]) -> str:
    """The error for a third derivative through a variant whose derivatives are written by hand."""
    alternatives = ", ".join(repr(name) for name in usable)
    return f"variant {variant!r} is right to second order only; for third derivatives use {alternatives}"


def transform_text(variant: str, done: str, usable: tuple[str, ...], has_auto: bool = True) -> str:
    """The error for a variant that a transform of functions cannot pass through.

    done: "differentiated by torch.func", "differentiated in forward mode", "mapped by torch.func" or "exported".
    """
    instead = ", or autograd" if done.startswith("differentiated") else ""
    return f"variant {variant!r} cannot be {done}; use {_alternatives(usable, has_auto)}{instead}"


def _alternatives(usable: tuple[str, ...], has_auto: bool) -> str:
    """has_auto: whether "auto" is a variant too."""
    return ", ".join(repr(name) for name in usable) + (" or 'auto'" if has_auto else "")
