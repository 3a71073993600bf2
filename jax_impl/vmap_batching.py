"""Batching rules: a function of one batch for single pairs, under jax.vmap, and in chunks that fit a CPU's cache."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp

from jax_impl.recurrences import Array

Arrays = tuple[Array, ...]
# on a CPU, of one array of numbers for every cell of the pairs that are computed together, 20 of 100 x 150 in float32
TABLE_BYTES = 2**21


def of_any_batch(function: Callable[..., Arrays], table_bytes: int | None = TABLE_BYTES) -> Callable[..., Arrays]:
    """A function of arrays with one batch axis, the first of them (batch, rows, cols), for none, one, or more by vmap.

    table_bytes: how large its tables may become on a CPU; None: the batch is never split.

    vmap's axes are merged into the batch, where they cost least; mapping a loop over its length would copy its tables.
    """

    @jax.custom_batching.custom_vmap
    def folded(*arrays: Array) -> Arrays:
        if arrays[0].ndim == 2:
            return tuple(result[0] for result in function(*(array[None] for array in arrays)))
        if not len(arrays[0]):
            return _of_nothing(function, *arrays)
        chunks = 1 if table_bytes is None else _chunks(table_bytes, arrays[0])
        if chunks == 1:
            return function(*arrays)
        chunked = functools.partial(_in_chunks, function, chunks)  # traced beside `function`, whatever the platform
        return jax.lax.platform_dependent(*arrays, cpu=chunked, default=function)

    @folded.def_vmap
    def _(size: int, mapped: list[bool], *arrays: Array) -> tuple[Arrays, tuple[bool, ...]]:
        whole = [
            a if is_mapped else jnp.broadcast_to(a, (size, *a.shape))
            for a, is_mapped in zip(arrays, mapped, strict=True)
        ]
        if whole[0].ndim == 3:
            results = folded(*whole)
        else:
            pairs = whole[0].shape[1]
            flat = folded(*(array.reshape(size * pairs, *array.shape[2:]) for array in whole))
            results = tuple(result.reshape(size, pairs, *result.shape[1:]) for result in flat)
        return results, (True,) * len(results)

    return folded


def _of_nothing(function: Callable[..., Arrays], *arrays: Array) -> Arrays:
    """The results for an empty batch."""
    one = (jax.ShapeDtypeStruct((1, *array.shape[1:]), array.dtype) for array in arrays)
    return tuple(jnp.zeros((0, *result.shape[1:]), result.dtype) for result in jax.eval_shape(function, *one))


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
