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
from shared.alignments import ALIGNMENTS

PAIRS, ROWS, COLS = 6, 5, 7
BATCH = P("devices")
COLLECTIVES = r"all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter"

Call = Callable[..., Any]


def arrays(axes: tuple[int, ...] = (PAIRS,)) -> list[np.ndarray]:
    """Similarity, vector, lengths."""
    random = np.random.default_rng(0)
    matrices = [random.normal(size=(*axes, ROWS, COLS)).astype(np.float32) for _ in range(2)]
    return [*matrices, random.integers(1, (ROWS + 1, COLS + 1), (*axes, 2), np.int32)]


def score(function: Call, similarity: Any, vector: Any, lengths: Any) -> Any:
    return function(similarity, lengths)


def marginals(function: Call, similarity: Any, vector: Any, lengths: Any) -> Any:
    return jax_impl.marginals(function, similarity, lengths)


def product(function: Call, similarity: Any, vector: Any, lengths: Any) -> Any:
    return jax_impl.hessian_vector_product(function, similarity, vector, lengths)


def best(function: Call, similarity: Any, vector: Any, lengths: Any) -> Any:
    return jax_impl.best_alignment(getattr(jax_impl, function.func.__name__), similarity, lengths)[1]


CASES = [
    pytest.param(functools.partial(asked, functools.partial(getattr(jax_impl, name), variant=variant)),
                 id=f"{name}-{variant}-{asked.__name__}")
    for name in ALIGNMENTS
    for variant in ("fused", *(["wavefront"] if name == "smith_waterman" else []))  # of others minutes for XLA
    for asked in (score, marginals, product, *([best] if variant == "fused" else []))
]  # fmt: skip
FEW = [case for case in CASES if str(case.id).startswith("smith_waterman-")]
AUTO, EXPLICIT = AxisType.Auto, AxisType.Explicit


def kinds(kind: Any, cases: list[Any]) -> list[Any]:
    """The cases, each with what they are tried under."""
    return [pytest.param(kind, *case.values, id=f"{kind}-{case.id}") for case in cases]


def mesh(kind: AxisType) -> jax.sharding.Mesh:
    return jax.make_mesh((2,), ("devices",), axis_types=(kind,))


def sharded(kind: AxisType, given: list[np.ndarray]) -> list[jax.Array]:
    return [jax.device_put(array, NamedSharding(mesh(kind), BATCH)) for array in given]


def same(found: jax.Array, call: Call, given: list[np.ndarray]) -> None:
    """Equal to what one device computes, and each device has its half."""
    expected = np.asarray(jax.jit(call)(*given))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    assert [shard.data.shape[0] for shard in found.addressable_shards] == [len(expected) // 2] * 2


@pytest.mark.parametrize(("kind", "call"), [*kinds(AUTO, CASES), *kinds(EXPLICIT, FEW)])
def test_under_jit_nothing_is_gathered(kind: AxisType, call: Call):
    given = sharded(kind, arrays())
    with jax.set_mesh(mesh(kind)):
        compiled = jax.jit(call).lower(*given).compile()
        same(compiled(*given), call, arrays())
    text = compiled.as_text() or ""
    assert not re.findall(COLLECTIVES, text)
    assert f"[{PAIRS // 2},{ROWS},{COLS}]" in text and f"[{PAIRS},{ROWS},{COLS}]" not in text


@pytest.mark.parametrize(("check", "call"), [*kinds(True, CASES), *kinds(False, FEW)])
def test_under_shard_map(check: bool, call: Call):
    own = jax.shard_map(call, mesh=mesh(AUTO), in_specs=BATCH, out_specs=BATCH, check_vma=check)
    same(jax.jit(own)(*sharded(AUTO, arrays())), call, arrays())


@pytest.mark.parametrize(("variant", "check"), [("fused", True), ("fused", False), ("wavefront", True)])
def test_under_shard_map_each_device_has_its_own_gradients_of_one_similarity(variant: str, check: bool):
    (s, vector, _), (_, vectors, _), gaps = arrays(()), arrays((2,)), np.array([-1, -2], np.float32)
    function = functools.partial(jax_impl.smith_waterman, variant=variant)

    def by_gap(s: Any, gap: Any) -> Any:
        return jnp.stack(
            [jax_impl.marginals(function, s, gap=gap[0]), jax_impl.hessian_vector_product(function, s, s, gap=gap[0])]
        )[None]

    def by_vector(s: Any, vector: Any) -> Any:
        return jax_impl.hessian_vector_product(function, s, vector[0])[None]

    def loss(call: Call, s: Any, given: Any) -> Any:
        return (vector * call(s, given) ** 2).sum()

    for call, given in ((by_gap, gaps), (by_vector, vectors)):
        own = jax.shard_map(call, mesh=mesh(AUTO), in_specs=(P(), BATCH), out_specs=BATCH, check_vma=check)
        both = jnp.concatenate([call(s, given[:1]), call(s, given[1:])])
        np.testing.assert_allclose(jax.jit(own)(s, given), both, rtol=1e-5, atol=1e-5)
    # what goes on through them is still summed
    own = jax.shard_map(
        lambda s, gap: jax_impl.marginals(function, s, gap=gap[0])[None],
        mesh=mesh(AUTO), in_specs=(P(), BATCH), out_specs=BATCH, check_vma=check,
    )  # fmt: skip
    of_one = [jax.grad(functools.partial(loss, functools.partial(_of_gap, function)))(s, gap) for gap in gaps]
    found = jax.jit(jax.grad(functools.partial(loss, own)))(s, gaps)
    np.testing.assert_allclose(found, sum(of_one), rtol=1e-4, atol=1e-5)


def _of_gap(function: Call, s: Any, gap: Any) -> Any:
    return jax_impl.marginals(function, s, gap=gap)


@pytest.mark.parametrize("kind", [AUTO, EXPLICIT], ids=["auto", "explicit"])
@pytest.mark.parametrize("axes", [(PAIRS,), (4, 3)], ids=["of pairs", "of batches"])
@pytest.mark.parametrize("asked", [score, marginals, product])
def test_under_vmap_over_the_sharded_axis(asked: Call, axes: tuple[int, ...], kind: AxisType):
    call = jax.vmap(functools.partial(asked, functools.partial(jax_impl.smith_waterman, variant="fused")))
    with jax.set_mesh(mesh(kind)):
        found = jax.jit(call)(*sharded(kind, arrays(axes)))
    same(found, call, arrays(axes))


@pytest.mark.parametrize("kind", [AUTO, EXPLICIT], ids=["auto", "explicit"])
@pytest.mark.parametrize(("variant", "asked"), [("fused", marginals), ("fused", product), ("wavefront", marginals)])
@pytest.mark.parametrize(
    ("of_similarity", "of_lengths"),
    [
        (P("a", "b"), P()),
        (P(None, "a", "b"), P("a")),
        (P(("b", "a")), P("b")),
        (P(), P(("a", "b"))),
        (P("a"), P("b", "a")),
    ],
)
def test_rows_columns_and_arguments_sharded_in_other_ways(
    variant: str, of_similarity: P, of_lengths: P, asked: Call, kind: AxisType
):
    """They are gathered where the kernels need them whole; silently wrong without."""
    random = np.random.default_rng(0)
    similarity, vector = random.normal(size=(2, 8, 4, 6)).astype(np.float32)
    lengths = random.integers(1, 5, (8, 2), np.int32)
    call = functools.partial(asked, functools.partial(jax_impl.smith_waterman, variant=variant))
    two_axes = jax.make_mesh((2, 2), ("a", "b"), axis_types=(kind, kind))
    specs = (of_similarity, of_similarity, of_lengths)
    given = [
        jax.device_put(array, NamedSharding(two_axes, spec))
        for array, spec in zip((similarity, vector, lengths), specs, strict=True)
    ]
    with jax.set_mesh(two_axes):
        found = jax.jit(call)(*given)
    np.testing.assert_allclose(found, call(similarity, vector, lengths), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", [AUTO, EXPLICIT], ids=["auto", "explicit"])
@pytest.mark.parametrize("variant", ["fused", "wavefront"])
def test_parameters_sharded_in_other_ways(variant: str, kind: AxisType):
    random = np.random.default_rng(0)
    similarity = random.normal(size=(8, 4, 6)).astype(np.float32)
    gap, temperature = (random.uniform(0.5, 2, (2, 8)) * [[-1], [1]]).astype(np.float32)
    two_axes = jax.make_mesh((2, 2), ("a", "b"), axis_types=(kind, kind))

    def scores(similarity: Any, gap: Any, temperature: Any) -> Any:
        return jax_impl.smith_waterman(similarity, gap=gap, temperature=temperature, variant=variant)

    whole = similarity, gap, temperature
    given = [
        jax.device_put(array, NamedSharding(two_axes, spec))
        for array, spec in zip(whole, (P("a"), P("b"), P(("b", "a"))), strict=True)
    ]
    with jax.set_mesh(two_axes):
        found = jax.jit(scores)(*given)
    np.testing.assert_allclose(found, scores(*whole), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("variant", ["fused", "wavefront"])
def test_a_batch_that_does_not_divide_evenly(variant: str):
    similarity, _, lengths = arrays((PAIRS - 1,))
    function = functools.partial(jax_impl.smith_waterman, variant=variant)
    expected = jax_impl.marginals(function, similarity, lengths)

    def call(similarity: Any, lengths: Any) -> Any:
        both = jax.lax.with_sharding_constraint((similarity, lengths), NamedSharding(mesh(AUTO), BATCH))
        return jax_impl.marginals(function, *both)

    np.testing.assert_allclose(jax.jit(call)(similarity, lengths), expected, atol=1e-5)


def test_parameters_of_the_whole_batch_and_their_gradients():
    similarity, _, lengths = sharded(AUTO, arrays())

    def total(similarity: Any, gap: Any) -> Any:
        return jax_impl.smith_waterman(similarity, lengths, gap=gap).sum()

    both = jax.jit(jax.grad(total, argnums=(0, 1)))
    found, expected = both(similarity, np.float32(-1.5)), both(arrays()[0], np.float32(-1.5))
    for own, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-5, atol=1e-5)
