"""Arguments of the public functions in JAX: what the host can see of them, and how they become clean arrays."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.dtypes import canonicalize_dtype

from jax_impl.pairs import of_one_type
from shared import checks
from shared.alignments import LAST_TURN, ROWS, Recurrence, axis_of
from shared.tolerances import LARGEST_GAP, LOWEST, TEMPERATURES


class Arguments(NamedTuple):
    """Checked and clean: temperatures positive, similarity 0 outside lengths."""

    similarity: jax.Array  # (*batch, rows, cols), at least 1 x 1; float32 or float64
    lengths: jax.Array  # (*batch, 2), int32, inside the matrix
    parameters: dict[str, jax.Array]  # each (*batch), or for a gap by position like similarity
    temperature_factor: jax.Array  # (*batch), 1, or NaN for a pair whose temperature is not positive and finite
    result_dtype: Any


def see(argument: Any) -> checks.Seen:
    """Describe an argument without waiting for a device; a tracer or an array on a device has no values."""
    if not isinstance(argument, jax.Array):
        return checks.see_host(argument)
    on_host = not isinstance(argument, Tracer) and all(d.platform == "cpu" for d in argument.devices())
    values = (lambda: np.asarray(argument).ravel().tolist()) if on_host else None
    return checks.Seen("jax.Array", argument.shape, str(argument.dtype), values)


def computed_dtype(dtype: Any) -> str:
    """Return the dtype of the computation: float64 for float64 in JAX's 64-bit mode, float32 for all else."""
    return str(canonicalize_dtype("float64")) if str(dtype) == "float64" else "float32"


def widened(similarity: jax.Array) -> jax.Array:
    """The similarity in the dtype that it is computed in."""
    return similarity.astype(computed_dtype(similarity.dtype))


def inside(lengths: jax.Array, rows: int, cols: int) -> jax.Array:
    """Mask (*batch, rows, cols) of the cells inside lengths (*batch, 2)."""
    axes = lengths.ndim - 1
    i = jax.lax.broadcasted_iota(lengths.dtype, (*[1] * axes, rows, 1), axes)
    j = jax.lax.broadcasted_iota(lengths.dtype, (*[1] * axes, 1, cols), axes + 1)
    return (i < lengths[..., 0, None, None]) & (j < lengths[..., 1, None, None])


def prepare(similarity: Any, lengths: Any, parameters: dict[str, Any], recurrence: Recurrence) -> Arguments:
    """Check, convert and clean. Raises TypeError or ValueError with the texts of shared.checks.

    Costs become similarities, and gaps that are free in the last row or column gaps by position.
    """
    checks.check_alignment(see, similarity, lengths, parameters, recurrence.matrix)
    shape = tuple(similarity.shape)
    checks.check_fixed_shape(shape)
    rows, cols = shape[-2:]
    batch = shape[:-2]
    s = jnp.asarray(similarity)
    result_dtype = s.dtype
    s = -widened(s) if recurrence.is_cost else widened(s)
    sizes = jnp.broadcast_to(_sizes(lengths, rows, cols), (*batch, 2))

    arrays_of_values = [
        jnp.asarray(value, s.dtype) if np.ndim(value) > 1 else jnp.broadcast_to(_parameter(name, value, s.dtype), batch)
        for name, value in parameters.items()
    ]
    s, sizes, *arrays_of_values = of_one_type(s, sizes, *arrays_of_values)  # first: what follows combines them

    # the inputs are selected, not only the results: a where on a result does not keep a NaN out of its gradient
    used = inside(sizes, rows, cols)
    s = _not_empty(jnp.maximum(jnp.where(used, s, 0.0), LOWEST))
    values = {
        name: _by_position(value, used) if value.ndim > len(batch) else value
        for name, value in zip(parameters, arrays_of_values, strict=True)
    }
    temperature = values.pop("temperature")
    if recurrence.is_by_axis:
        values = _free_at_the_end(recurrence, values, sizes, s)
    usable = (temperature > 0) & (temperature < jnp.inf)
    temperature_factor = jnp.where(usable, 1.0, jnp.nan).astype(s.dtype)
    values["temperature"] = jnp.where(usable, _limited(temperature, *TEMPERATURES), 1.0)
    return Arguments(s, sizes, values, temperature_factor, result_dtype)


def _free_at_the_end(
    recurrence: Recurrence, values: dict[str, jax.Array], sizes: jax.Array, like: jax.Array
) -> dict[str, jax.Array]:
    """The gaps by axis: (*batch), or, if free in the last row or column, by position with 0 there."""
    axes = sizes.ndim - 1
    for name in recurrence.by_position:
        axis = axis_of(name) or ROWS
        shape = [count if number == axes + axis else 1 for number, count in enumerate(like.shape)]
        is_last = jax.lax.broadcasted_iota(sizes.dtype, shape, axes + axis) == sizes[..., axis, None, None] - 1
        value = jnp.full_like(like, LOWEST)
        if name != LAST_TURN:
            value = jnp.broadcast_to(values[name][..., None, None], like.shape)
        values[name] = jnp.where(is_last, 0 * value, value)
    return {name: values[name] for name in recurrence.parameters}


def _sizes(lengths: Any, rows: int, cols: int) -> jax.Array:
    """Lengths clipped to the matrix, before a type that cannot hold them becomes int32; None: the whole matrix."""
    if lengths is None:
        return jnp.array([rows, cols], dtype=jnp.int32)
    sizes = jnp.asarray(lengths)
    most = np.minimum(np.array([rows, cols], np.uint64), jnp.iinfo(sizes.dtype).max).astype(sizes.dtype)
    most = np.expand_dims(most, tuple(range(sizes.ndim - 1)))
    return jnp.clip(sizes, np.zeros((), sizes.dtype), most).astype(jnp.int32)


def nan_factor(arguments: Arguments) -> jax.Array:
    """(*batch), 1, or NaN for a pair with NaN, or +inf as similarity, even where no alignment passes."""
    s, _, parameters, temperature_factor, _ = arguments
    matrices = [s, *(value for value in parameters.values() if value.ndim > temperature_factor.ndim)]
    finite = [jax.lax.stop_gradient(matrix).max((-2, -1)) < jnp.inf for matrix in matrices]
    return jnp.where(jnp.stack(finite).all(0), 1.0, jnp.nan).astype(s.dtype)


def _not_empty(matrix: jax.Array) -> jax.Array:
    """An empty matrix becomes one cell that lies outside lengths."""
    missing = [(0, max(0, 1 - size)) for size in matrix.shape[-2:]]
    return jnp.pad(matrix, [(0, 0)] * (matrix.ndim - 2) + missing)


def _by_position(gap: jax.Array, used: jax.Array) -> jax.Array:
    """A gap by position, clipped to the limits, with zeros outside lengths."""
    return _not_empty(_limited(jnp.where(used, gap, 0.0), LOWEST, LARGEST_GAP))


def _limited(value: jax.Array, least: float, most: float) -> jax.Array:
    """jnp.clip, but for the gradient where the value is the limit: that of the value, not half of it."""
    return jnp.where(value < least, least, jnp.where(value > most, most, value))


def _parameter(name: str, value: Any, dtype: Any) -> Any:
    """A parameter as an array, a gap clipped to the limits."""
    if isinstance(value, jax.Array):
        array = value.astype(dtype)  # first, because float16 has infinities for limits
        return array if name == "temperature" else _limited(array, LOWEST, LARGEST_GAP)
    exact = np.asarray(value, np.float64)  # before float32 would make an infinity of it
    return (exact if name == "temperature" else np.clip(exact, LOWEST, LARGEST_GAP)).astype(dtype)
