"""A batch that is sharded over devices: each computes its own pairs, with the results of one device."""

import functools
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import jax_impl

PAIRS, ROWS, COLS = 6, 5, 7
BATCH = P("devices")
COLLECTIVES = r"all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter"
AUTO, EXPLICIT = AxisType.Auto, AxisType.Explicit

Call = Callable[..., Any]


def slowly(*cases: tuple[Any, ...]) -> list[Any]:
    return [pytest.param(*case, marks=pytest.mark.slow) for case in cases]


def arrays(axes: tuple[int, ...] = (PAIRS,), rows: int = ROWS, cols: int = COLS) -> list[np.ndarray]:
    """Similarity, vector, lengths."""
    random = np.random.default_rng(0)
    matrices = [random.normal(size=(*axes, rows, cols)).astype(np.float32) for _ in range(2)]
    return [*matrices, random.integers(1, (rows + 1, cols + 1), (*axes, 2), np.int32)]


def call_of(asked: str, name: str = "smith_waterman", variant: str = "fused") -> Call:
    """A function of similarity, vector, lengths and parameters."""
    public = getattr(jax_impl, name)
    function, product = functools.partial(public, variant=variant), jax_impl.hessian_vector_product
    return {
        "score": lambda s, vector, lengths, **own: function(s, lengths, **own),
        "marginals": lambda s, vector, lengths, **own: jax_impl.marginals(function, s, lengths, **own),
        "product": lambda s, vector, lengths, **own: product(function, s, vector, lengths, **own),
        "best": lambda s, vector, lengths: jax_impl.best_alignment(public, s, lengths)[1],
    }[asked]


def mesh(kind: AxisType) -> jax.sharding.Mesh:
    return jax.make_mesh((2,), ("devices",), axis_types=(kind,))


def sharded(kind: AxisType, given: list[np.ndarray]) -> list[jax.Array]:
    return [jax.device_put(array, NamedSharding(mesh(kind), BATCH)) for array in given]


def close(result: Any, expected: Any, tolerance: float = 1e-5) -> None:
    np.testing.assert_allclose(result, expected, rtol=tolerance, atol=tolerance)


def same(result: jax.Array, call: Call, given: list[np.ndarray]) -> None:
    """Equal to what one device computes, and each device has its half."""
    expected = np.asarray(jax.jit(call)(*given))
    close(result, expected)
    assert [shard.data.shape[0] for shard in result.addressable_shards] == [len(expected) // 2] * 2


# each pass by fused; and in the slow tier the other alignments, and the wavefront, of which XLA compiles one in seconds
CASES = [(function, "smith_waterman", "fused") for function in ("score", "marginals", "product", "best")]
CASES += slowly(("marginals", "smith_waterman", "wavefront"), ("product", "smith_waterman", "wavefront"))
CASES += slowly(
    *((function, name, "fused") for name in ("smith_waterman_affine", "soft_dtw") for function in ("product", "best"))
)


@pytest.mark.parametrize(("asked", "name", "variant"), CASES)
def test_nothing_is_gathered_under_jit_and_shard_map(asked: str, name: str, variant: str):
    call, of_all = call_of(asked, name, variant), f"[{PAIRS},{ROWS},{COLS}]"
    is_fused = variant == "fused"  # of the wavefront XLA compiles each in seconds
    for kind in (AUTO, EXPLICIT) if is_fused else (AUTO,):
        sharded_arrays = sharded(kind, arrays())
        with jax.set_mesh(mesh(kind)):
            compiled = jax.jit(call).lower(*sharded_arrays).compile()
            same(compiled(*sharded_arrays), call, arrays())
        text = compiled.as_text() or ""
        assert not re.findall(COLLECTIVES, text)
        assert f"[{PAIRS // 2},{ROWS},{COLS}]" in text and of_all not in text
    for check in (True, False) if is_fused else (True,):
        mapped = jax.shard_map(call, mesh=mesh(AUTO), in_specs=BATCH, out_specs=BATCH, check_vma=check)
        same(jax.jit(mapped)(*sharded(AUTO, arrays())), call, arrays())


@pytest.mark.parametrize(("variant", "check"), [("fused", True), *slowly(("fused", False), ("wavefront", True))])
def test_under_shard_map_each_device_has_its_own_gradients_of_one_similarity(variant: str, check: bool):
    (s, vector, _), (_, vectors, _), gaps = arrays(()), arrays((2,)), np.array([-1, -2], np.float32)
    function = functools.partial(jax_impl.smith_waterman, variant=variant)
    mapped = functools.partial(jax.shard_map, mesh=mesh(AUTO), in_specs=(P(), BATCH), out_specs=BATCH, check_vma=check)

    def by_gap(s: Any, gap: Any) -> Any:
        marginals = jax_impl.marginals(function, s, gap=gap[0])
        return jnp.stack([marginals, jax_impl.hessian_vector_product(function, s, s, gap=gap[0])])[None]

    def by_vector(s: Any, vector: Any) -> Any:
        return jax_impl.hessian_vector_product(function, s, vector[0])[None]

    def loss(call: Call, s: Any, given: Any) -> Any:
        return (vector * call(s, given) ** 2).sum()

    for call, arguments in ((by_gap, gaps), (by_vector, vectors)):
        close(jax.jit(mapped(call))(s, arguments), jnp.concatenate([call(s, arguments[:1]), call(s, arguments[1:])]))
    # a gradient through them is still summed over devices
    of_gap = lambda s, gap: jax_impl.marginals(function, s, gap=gap)  # noqa: E731
    of_each = [jax.grad(functools.partial(loss, of_gap))(s, gap) for gap in gaps]
    of_both = functools.partial(loss, mapped(lambda s, gap: of_gap(s, gap[0])[None]))
    close(jax.jit(jax.grad(of_both))(s, gaps), sum(of_each), 1e-4)


@pytest.mark.parametrize(("asked", "axes", "kind"), [("marginals", (PAIRS,), AUTO), ("product", (4, 3), EXPLICIT)])
def test_under_vmap_over_the_sharded_axis(asked: str, axes: tuple[int, ...], kind: AxisType):
    call = jax.vmap(call_of(asked))
    with jax.set_mesh(mesh(kind)):
        result = jax.jit(call)(*sharded(kind, arrays(axes)))
    same(result, call, arrays(axes))


# of similarity, lengths, gap and temperature
SPECS = [(P("a", "b"), P(), P("a"), P("b")), (P(None, "a", "b"), P("a"), P(("b", "a")), P())]
SPECS += [(P(("b", "a")), P("b"), P("a"), P(("b", "a"))), (P(), P(("a", "b")), P("b"), P("a"))]
SPECS += [(P("a"), P("b", "a"), P("b"), P(("b", "a")))]


@pytest.mark.parametrize(
    ("kind", "asked", "variant"),
    [
        (AUTO, "marginals", "fused"),
        (EXPLICIT, "product", "fused"),
        *slowly((AUTO, "score", "wavefront"), (EXPLICIT, "marginals", "wavefront")),
    ],
)
def test_arguments_sharded_in_other_ways_are_gathered(kind: AxisType, asked: str, variant: str):
    function, (s, vector, lengths) = call_of(asked, variant=variant), arrays((8,), 4, 6)
    gap, temperature = (np.random.default_rng(0).uniform(0.5, 2, (2, 8)) * [[-1], [1]]).astype(np.float32)
    arguments = s, vector, lengths, gap, temperature

    def call(s: Any, vector: Any, lengths: Any, gap: Any, temperature: Any) -> Any:
        return function(s, vector, lengths, gap=gap, temperature=temperature)

    two_axes = jax.make_mesh((2, 2), ("a", "b"), axis_types=(kind, kind))
    for similarity, *other_specs in SPECS if variant == "fused" else SPECS[:2]:
        shardings = [NamedSharding(two_axes, spec) for spec in (similarity, similarity, *other_specs)]
        with jax.set_mesh(two_axes):
            result = jax.jit(call)(*map(jax.device_put, arguments, shardings))
        close(result, call(*arguments))


@pytest.mark.parametrize("variant", ["fused", *slowly(("wavefront",))])
def test_a_batch_that_does_not_divide_evenly(variant: str):
    arguments, call = arrays((PAIRS - 1,)), call_of("marginals", variant=variant)
    uneven = functools.partial(jax.lax.with_sharding_constraint, shardings=NamedSharding(mesh(AUTO), BATCH))
    close(jax.jit(lambda *own: call(*uneven(own)))(*arguments), call(*arguments))


def test_parameters_of_the_whole_batch_and_their_gradients():
    similarity, _, lengths = sharded(AUTO, arrays())

    def total(similarity: Any, gap: Any) -> Any:
        return jax_impl.smith_waterman(similarity, lengths, gap=gap).sum()

    both = jax.jit(jax.grad(total, argnums=(0, 1)))
    results, expected = both(similarity, np.float32(-1.5)), both(arrays()[0], np.float32(-1.5))
    for result, other in zip(results, expected, strict=True):
        close(result, other)
