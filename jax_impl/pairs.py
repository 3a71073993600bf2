"""Functions of a batch of pairs as an operation of JAX: under vmap with more batch axes, sharded with no communication.

JAX has to know of such a function only that its results have the batch axes of its arguments. It then need not look
inside: jax.vmap adds a batch axis, and where a batch is sharded over devices, each computes the pairs that it holds.
"""

import functools
import math
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
from jax._src import core, dispatch, mesh  # nothing public says what they say: see of_one_type and _lower
from jax._src.sharding_impls import GSPMDSharding
from jax.experimental.custom_partitioning import custom_partitioning
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir
from jax.sharding import PartitionSpec
from jaxlib.xla_client import OpSharding

Array = jax.Array
Arrays = tuple[Array, ...]
Types = Iterable[Any]  # that have shape and dtype

# as JAX's own operations do; JAX 0.10.0 has it under its former name
_vary_alike = getattr(core, "auto_insert_reshard", None) or getattr(core, "standard_insert_pvary")  # noqa: B009


def of_pairs(function: Callable[..., Iterable[Array]], results: Types, *arrays: Array) -> Arrays:
    """function(results, *arrays), of arrays (*batch, …), the first of them (*batch, rows, cols), where only batch axes
    are sharded.

    results: the types of the results, also (*batch, …). The function is called with those of the batch that it gets,
    which may have more axes, or fewer pairs.
    """
    axes = arrays[0].ndim - 2
    shapes = tuple((result.shape[axes:], jnp.dtype(result.dtype)) for result in results)
    return tuple(_pairs.bind(*of_one_type(*arrays), function=function, results=shapes))


def number_per_pair(similarity: Array) -> jax.ShapeDtypeStruct:
    """The type of a number (*batch) for each pair of similarity, in its dtype."""
    return jax.ShapeDtypeStruct(similarity.shape[:-2], similarity.dtype)


def of_one_type(*arrays: Array) -> tuple[Array, ...]:
    """The arrays, (*batch, …) each and the first (*batch, rows, cols), with batch axes of one type.

    That is where jax.shard_map checks along which axes of the mesh each may vary, and where shardings are explicit.
    """
    spec = jax.typeof(arrays[0]).sharding.spec
    if any(name is not None for array in arrays for name in jax.typeof(array).sharding.spec):
        lead, axes = spec[:-2], len(spec) - 2
        arrays = tuple(jax.sharding.reshard(a, PartitionSpec(*lead, *[None] * (a.ndim - axes))) for a in arrays)
    return tuple(_vary_alike(*arrays))


def mapped_first(arrays: Any, dims: Any) -> list[Array]:
    """Arrays of a rule for jax.vmap, each with the mapped axis in front, also if it has none (its dim is None)."""
    array, dim = next((array, dim) for array, dim in zip(arrays, dims, strict=True) if dim is not None)
    size, name = array.shape[dim], jax.typeof(array).sharding.spec[dim]

    def broadcast(own: Array) -> Array:
        spec = None if name is None else PartitionSpec(name, *jax.typeof(own).sharding.spec)
        return jnp.broadcast_to(own, (size, *own.shape), out_sharding=spec)

    pairs = zip(arrays, dims, strict=True)
    return [broadcast(array) if dim is None else jnp.moveaxis(array, dim, 0) for array, dim in pairs]


def _run(*arrays: Array, function: Callable[..., Arrays], results: Any) -> list[Array]:
    batch = arrays[0].shape[:-2]
    return list(function([jax.ShapeDtypeStruct((*batch, *shape), dtype) for shape, dtype in results], *arrays))


def _types(first: Any, *_: Any, function: Any, results: Any) -> list[Any]:
    axes = len(first.shape) - 2
    result_types = []
    for shape, dtype in results:
        spec = PartitionSpec(*first.sharding.spec[:axes], *[None] * len(shape))
        types = {"shape": (*first.shape[:axes], *shape), "dtype": dtype, "sharding": first.sharding.update(spec=spec)}
        result_types.append(first.update(weak_type=False, **types))
    return result_types


def _map(arrays: Any, dims: Any, *, function: Any, results: Any) -> tuple[Any, Any]:
    mapped_results = _pairs.bind(*of_one_type(*mapped_first(arrays, dims)), function=function, results=results)
    return mapped_results, [0] * len(mapped_results)


def _lower(ctx: Any, *values: Any, function: Any, results: Any) -> Any:
    axes = len(ctx.avals_in[0].shape) - 2

    def run(*arrays: Array) -> list[Array]:
        # within the function nothing is sharded or varies, or each of its steps would have to say how
        with mesh.use_abstract_mesh(mesh.empty_abstract_mesh):
            return _run(*arrays, function=function, results=results)

    def partition(mesh: Any, arguments: Any, found: Any) -> Any:
        of_arguments, of_results = (
            [_along_batch(arguments[0].sharding, axes, len(x.shape)) for x in whole] for whole in (arguments, found)
        )
        return mesh, run, of_results, tuple(of_arguments)

    # in the notation of einsum: batch axes go together, and every other axis has a name of its own
    inner = [*(len(aval.shape) - axes for aval in ctx.avals_in), *(len(shape) for shape, _ in results)]
    whole = [[f"axis{place}of{axis}" for axis in range(count)] for place, count in enumerate(inner)]
    terms = [" ".join([*(f"batch{axis}" for axis in range(axes)), *names]) for names in whole]
    arguments, result_terms = ", ".join(terms[: len(values)]), ", ".join(terms[len(values) :])
    sharded = custom_partitioning(run)
    sharded.def_partition(
        partition=partition,
        decode_shardings=False,  # to names of axes, of which there are none without a mesh
        sharding_rule=f"{arguments} -> {result_terms}",
        need_replication_factors=tuple(name for names in whole for name in names),
    )
    plain = [core.ShapedArray(aval.shape, aval.dtype) for aval in ctx.avals_in]
    return mlir.lower_fun(sharded, multiple_results=True)(ctx.replace(avals_in=plain), *values)


def _along_batch(sharding: Any, axes: int, ndim: int) -> Any:
    """A sharding of the first array's batch axes, for an array of ndim axes that has the same: no other is sharded."""
    whole = sharding._hlo_sharding
    if whole.is_replicated():
        return sharding
    sharding_proto = OpSharding()
    sharding_proto.type = OpSharding.Type.OTHER
    devices, batch = whole.tile_assignment_devices(), whole.tile_assignment_dimensions()[:axes]
    sharding_proto.tile_assignment_devices = devices
    sharding_proto.tile_assignment_dimensions = [*batch, *[1] * (ndim - axes), len(devices) // math.prod(batch)]
    sharding_proto.replicate_on_last_tile_dim = True
    return GSPMDSharding(sharding._device_assignment, sharding_proto)


_pairs = Primitive("pairs")
_pairs.multiple_results = True
_pairs.def_impl(functools.partial(dispatch.apply_primitive, _pairs))
_pairs.def_abstract_eval(_types)
batching.primitive_batchers[_pairs] = _map
mlir.register_lowering(_pairs, _lower)
dispatch.prim_requires_devices_during_lowering.add(_pairs)  # as custom_partitioning does
