"""What the transforms of JAX make of an alignment. The same names as in `torch_impl.transformed`, where both have them.

Each takes a public function f(similarity, lengths, **parameters) and a `Given` of arrays. total is the weighted sum of
the scores, sum(cotangent * scores), as a function of the similarity.
"""

from collections.abc import Callable

import jax
import jax.export
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec

from jax_impl.expected_alignment import marginals
from jax_impl.recurrences import Array
from shared.transforms import Given

Function = Callable[..., Array]
_BATCH = PartitionSpec("batch")
# XLA's compiler without its expensive passes: what composes does not depend on them
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
if jax.__version_info__ < (0, 11):  # half of the time; JAX 0.11 has no such option
    QUICK["xla_cpu_use_fusion_emitters"] = False


def transformed(name: str, f: Function, given: Given) -> Array:
    """Apply a transform to f, and return its result as an array; under jax.jit, but for an export."""
    transform = TRANSFORMED[name]
    if transform in _EXPORTS:
        return transform(f, given)
    return jax.jit(lambda own: transform(f, own), compiler_options=QUICK)(given)


def _scores(f: Function, given: Given) -> Array:
    return f(given.similarity, given.lengths, **given.parameters)


def _of_similarity(f: Function, given: Given) -> Function:
    return lambda similarity: f(similarity, given.lengths, **given.parameters)


def _total(f: Function, given: Given) -> Function:
    return lambda similarity: (given.cotangent * f(similarity, given.lengths, **given.parameters)).sum()


def _gradient(f: Function, given: Given) -> Array:
    return jax.grad(_total(f, given))(given.similarity)


def _marginals(f: Function, given: Given) -> Array:
    return marginals(f, given.similarity, given.lengths, **given.parameters)


def _along(derivative: Function, given: Given) -> Function:
    """A loss on a derivative."""
    return lambda similarity: (given.direction * derivative(similarity)).sum()


def _second(f: Function, given: Given) -> Function:
    return jax.grad(_along(jax.grad(_total(f, given)), given))


def _third(f: Function, given: Given) -> Array:
    return jax.grad(_along(_second(f, given), given))(given.similarity)


def _jvp(f: Function, given: Given) -> Array:
    return jax.jvp(f, (given.similarity,), (given.direction,))[1]


def _linearize(f: Function, given: Given) -> Array:
    return jax.linearize(_of_similarity(f, given), given.similarity)[1](given.direction)


def _jacobian(transform: Callable[[Function], Function], f: Function, given: Given) -> Array:
    return jnp.tensordot(given.cotangent, transform(_of_similarity(f, given))(given.similarity), 1)


def _hessian(transform: Callable[[Function], Function], f: Function, given: Given) -> Array:
    return jnp.tensordot(transform(_total(f, given))(given.similarity), given.direction, 3)


def _jacrev_twice(f: Function) -> Function:
    return jax.jacrev(jax.jacrev(f))


def _shard_map(asked: Callable[[Function, Given], Array]) -> Callable[[Function, Given], Array]:
    """Over the batch, on a mesh of one device."""

    def call(f: Function, given: Given) -> Array:
        mesh = Mesh(jax.devices()[:1], ("batch",))
        sharded = jax.shard_map(lambda own: asked(f, own), mesh=mesh, in_specs=_BATCH, out_specs=_BATCH)
        return jax.jit(sharded)(given)

    return call


def _export(asked: Callable[[Function, Given], Array]) -> Callable[[Function, Given], Array]:
    def call(f: Function, given: Given) -> Array:
        arguments = tuple(given)
        function = jax.jit(lambda *own: asked(f, Given(*own)))
        return jax.export.export(function)(*arguments).call(*arguments)

    return call


_EXPORTS = _export_score, _export_marginals = _export(_scores), _export(_marginals)
TRANSFORMED: dict[str, Callable[[Function, Given], Array]] = {
    "gradient": _gradient,
    "vmap": lambda f, given: jax.vmap(lambda own: _scores(f, own))(given),
    "vmap of gradient": lambda f, given: jax.vmap(lambda own: _gradient(f, own))(given),
    "second derivative": lambda f, given: _second(f, given)(given.similarity),
    "third derivative": _third,
    "forward mode": lambda f, given: _jvp(_of_similarity(f, given), given),
    "forward over reverse": lambda f, given: _jvp(jax.grad(_total(f, given)), given),
    "linearize": _linearize,
    "jacfwd": lambda f, given: _jacobian(jax.jacfwd, f, given),
    "jacrev": lambda f, given: _jacobian(jax.jacrev, f, given),
    "Hessian": lambda f, given: _hessian(jax.hessian, f, given),
    "Hessian by reverse mode": lambda f, given: _hessian(_jacrev_twice, f, given),
    "checkpoint": lambda f, given: _gradient(jax.checkpoint(f), given),
    "map": lambda f, given: jax.lax.map(lambda own: _scores(f, own), given),
    "bfloat16": lambda f, given: _scores(f, given._replace(similarity=given.similarity.astype(jnp.bfloat16))),
    "shard_map": _shard_map(_scores),
    "shard_map of gradient": _shard_map(_gradient),
    "export": _export_score,
    "export of marginals": _export_marginals,
    "compiled": lambda f, given: _scores(jax.jit(f), given),
    "gradient of compiled": lambda f, given: _gradient(jax.jit(f), given),
    "compiled marginals": lambda f, given: jax.jit(lambda own: _marginals(f, own))(given),
}
