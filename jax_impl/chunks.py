"""A function of one batch for any number of batch axes, and in chunks that fit a CPU's cache."""

import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp

from jax_impl.pairs import Array, Arrays, Types, of_pairs

# on a CPU, of one array of numbers for every cell of the pairs that are computed together, 20 of 100 x 150 in float32
TABLE_BYTES = 2**21


def of_any_batch(
    function: Callable[..., Arrays], results: Types, *arrays: Array, table_bytes: int | None = TABLE_BYTES
) -> Arrays:
    """function(*arrays), of arrays with one batch axis, for none, one, or more: as of_pairs, which has the arguments.

    table_bytes: how large its tables may become on a CPU; None: the batch is never split.

    Batch axes are merged into one: jax.vmap of a loop, the number of steps mapped too, would copy its tables.
    """
    return of_pairs(functools.partial(_merged, function, table_bytes), results, *arrays)


def _merged(function: Callable[..., Arrays], table_bytes: int | None, results: Types, *arrays: Array) -> Arrays:
    batch = arrays[0].shape[:-2]
    pairs = math.prod(batch)
    if not pairs:
        return tuple(jnp.zeros(result.shape, result.dtype) for result in results)
    flat = [array.reshape(pairs, *array.shape[len(batch) :]) for array in arrays]
    flat_results = _in_any_chunks(function, table_bytes, *flat)
    return tuple(flat.reshape(result.shape) for flat, result in zip(flat_results, results, strict=True))


def _in_any_chunks(function: Callable[..., Arrays], table_bytes: int | None, *arrays: Array) -> Arrays:
    chunks = 1 if table_bytes is None else _chunks(table_bytes, arrays[0])
    if chunks == 1:
        return function(*arrays)
    chunked = functools.partial(_in_chunks, function, chunks)  # traced beside `function`, whatever the platform
    return jax.lax.platform_dependent(*arrays, cpu=chunked, default=function)


def _chunks(table_bytes: int, matrices: Array) -> int:
    """Into how many chunks a batch is split so that a table of each has at most so many bytes, or is of one pair."""
    batch, rows, cols = matrices.shape
    of_pair = (rows + cols) * min(rows, cols) * matrices.dtype.itemsize
    return -(-batch // max(1, table_bytes // of_pair))


def _in_chunks(function: Callable[..., Arrays], chunks: int, *arrays: Array) -> Arrays:
    """The function applied to some pairs at a time, whose tables stay in the cache, and in memory that is reused.

    Large arrays are newly allocated in every call, and the first write to each page costs more than the passes.
    """
    batch = len(arrays[0])
    size = -(-batch // chunks)
    missing = chunks * size - batch  # padded with copies of the last pair
    padded = (
        [jnp.concatenate([a, jnp.broadcast_to(a[-1], (missing, *a.shape[1:]))]) for a in arrays] if missing else arrays
    )
    split = tuple(array.reshape(chunks, size, *array.shape[1:]) for array in padded)
    results = jax.lax.map(lambda own: function(*own), split)
    return tuple(result.reshape(-1, *result.shape[2:])[:batch] for result in results)
