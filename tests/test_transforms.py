"""What users do: transforms of JAX and PyTorch around calls, closures, odd arrays, extreme numbers."""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch._dynamo
from frameworks import BY_HAND, FRAMEWORKS, PROBLEMS
from torch._dynamo.testing import CompileCounter
from torch.autograd import forward_ad

import jax_impl
import torch_impl
import torch_impl.sweeps
from shared import reference
from shared.alignments import ALIGNMENTS
from shared.checks import CannotDifferentiate
from shared.tolerances import LARGEST_GAP
from torch_impl.compiler import compiled
from torch_impl.sweeps import SCANNING

S = np.random.default_rng(1).normal(size=(3, 4, 5)).astype(np.float32)
LENGTHS = np.array([(4, 5), (2, 3), (0, 4)], dtype=np.int32)
SCORES = reference.smith_waterman(S, LENGTHS)
MARGINALS = reference.gradients("smith_waterman", S, LENGTHS)["similarity"]


def close(got: Any, wanted: np.ndarray) -> None:
    np.testing.assert_allclose(np.asarray(got), wanted, rtol=1e-5, atol=1e-5)


FRAMEWORK = pytest.mark.parametrize("framework", FRAMEWORKS)
BOTH_BY_HAND = pytest.mark.parametrize("variant", BY_HAND)
# those by hand, and of the sweeps the one that is nearest to the user
LOOP_AND_BY_HAND = pytest.mark.parametrize("variant", ["diagonal_loop", *BY_HAND])
MATRIX = np.random.default_rng(0).normal(size=(4, 5)).astype(np.float32)


def tensors() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.from_numpy(S), torch.from_numpy(LENGTHS)


@pytest.mark.parametrize("variant", ["vmap", "wavefront", "fused"])
@pytest.mark.parametrize("shape", ["b, 5, 6", "r, c"])
def test_an_export_for_any_shape_is_refused_in_words(variant: str, shape: str):
    score = functools.partial(jax_impl.smith_waterman, variant=variant)
    best = functools.partial(jax_impl.best_alignment, jax_impl.smith_waterman)
    similarity = jax.ShapeDtypeStruct(jax.export.symbolic_shape(shape), jnp.float32)
    text = rf"^the matrix must have a shape of numbers, got \({shape}\); export each shape by itself\b"
    for function in (score, best):
        with pytest.raises(TypeError, match=text):
            jax.export.export(jax.jit(function))(similarity)


@FRAMEWORK
@pytest.mark.parametrize(
    ("problem", "variant"),
    [("smith_waterman", "cell_loop"), ("needleman_wunsch", "wavefront"), ("smith_waterman_affine", "fused")],
)
def test_vmap_over_any_axis_repeats_what_it_does_not_map(problem, variant, framework):
    outer, lengths = np.stack([S, -S]), np.stack([LENGTHS, LENGTHS[::-1]])
    backend = FRAMEWORKS[framework].backend
    score = functools.partial(getattr(FRAMEWORKS[framework].package, problem), variant=variant)
    function = lambda s, lengths, temperature: score(s, lengths, temperature=temperature)  # noqa: E731
    vmap = {"jax": lambda *given: jax.jit(jax.vmap(*given)), "torch": torch.func.vmap}[framework]
    arguments = (np.ascontiguousarray(outer.transpose(1, 2, 3, 0)), lengths, np.ones(len(S), np.float32))
    got = vmap(function, (3, 0, None))(*(backend.to_device(array, "cpu") for array in arguments))
    close(got, np.stack([getattr(reference, problem)(*pair) for pair in zip(outer, lengths, strict=True)]))


@LOOP_AND_BY_HAND
def test_a_gradient_through_torch_func_vmap_is_that_of_the_batch(variant):
    score = functools.partial(torch_impl.smith_waterman_affine, variant=variant)
    similarity, lengths = tensors()
    cotangent = torch.linspace(-1, 2, len(similarity), dtype=similarity.dtype)

    def total(matrices: torch.Tensor, mapped: bool) -> torch.Tensor:
        return (cotangent * (torch.func.vmap(score) if mapped else score)(matrices, lengths)).sum()

    by_func, expected = (torch.func.grad(total)(similarity, mapped) for mapped in (True, False))
    leaf = similarity.clone().requires_grad_()
    (by_autograd,) = torch.autograd.grad(total(leaf, True), leaf)
    torch.testing.assert_close(by_func, expected)
    torch.testing.assert_close(by_autograd, expected)


@BOTH_BY_HAND
def test_torch_batches_gradients_by_the_older_vmap(variant):
    similarity, temperature, *gaps = torch.randn(4, 2, 2, 3, dtype=torch.float64)
    inputs = [tensor.detach().requires_grad_() for tensor in (similarity, temperature[:, 0, 0].exp(), *gaps)]
    function = functools.partial(torch_impl.smith_waterman_affine, variant=variant)

    def called(function: Callable[..., Any], *values: torch.Tensor) -> torch.Tensor:
        return function(values[0], **dict(zip(("temperature", "gap_open", "gap_extend"), values[1:], strict=True)))

    scores, marginals = functools.partial(called, function), functools.partial(torch_impl.marginals, function)
    assert torch.autograd.gradgradcheck(scores, inputs, check_batched_grad=True)
    assert torch.autograd.gradcheck(functools.partial(called, marginals), inputs, check_batched_grad=True)


@BOTH_BY_HAND
def test_torch_says_what_to_use_instead_of_functional_hvp(variant):
    similarity, _ = tensors()
    total = lambda s: torch_impl.smith_waterman(s, variant=variant).sum()  # noqa: E731
    with pytest.raises(RuntimeError, match="its vhp or hessian_vector_product"):
        torch.autograd.functional.hvp(total, similarity, similarity)
    _, product = torch.autograd.functional.vhp(total, similarity, similarity)
    expected = torch_impl.hessian_vector_product(torch_impl.smith_waterman, similarity, similarity, variant=variant)
    torch.testing.assert_close(product, expected)


@LOOP_AND_BY_HAND
def test_torch_marginals_inside_no_grad_require_no_grad(variant):
    similarity, lengths = tensors()
    leaf = similarity.clone().requires_grad_()
    for matrix in (similarity, leaf):
        with torch.no_grad():
            marginals = torch_impl.marginals(torch_impl.smith_waterman, matrix, lengths, variant=variant)
        assert not marginals.requires_grad
        close(marginals, MARGINALS)
    torch_impl.marginals(torch_impl.smith_waterman, leaf, variant=variant)
    assert leaf.grad is None


@pytest.mark.parametrize("variant", [pytest.param("vmap", marks=pytest.mark.slow), *BY_HAND])
def test_torch_marginals_of_a_compiled_function(variant):
    function = compiled(functools.partial(torch_impl.smith_waterman, variant=variant), backend="eager")
    close(torch_impl.marginals(function, *tensors()), MARGINALS)


@pytest.mark.parametrize("variant", ["auto", "wavefront"])
def test_torch_with_dynamic_shapes_compiles_once_for_all_sizes(variant):
    function, counter = functools.partial(torch_impl.smith_waterman, temperature=0.5, variant=variant), CompileCounter()
    torch._dynamo.reset()  # or what was compiled in other tests counts towards the limit
    dynamic = torch.compile(function, backend=counter, dynamic=True, fullgraph=True)
    for rows, cols in ((5, 8), (9, 4), (12, 13)):
        matrix = torch.randn(3, rows, cols, requires_grad=True)
        scores, expected = dynamic(matrix), function(matrix)
        torch.testing.assert_close(scores, expected)
        torch.testing.assert_close(*(torch.autograd.grad(result.sum(), matrix) for result in (scores, expected)))
    assert counter.frame_count == 1


@pytest.mark.parametrize("name", PROBLEMS["smith_waterman_affine"].parameters)
def test_torch_marginals_stay_connected_to_values_in_a_closure(name: str):
    function: Callable[..., torch.Tensor] = torch_impl.smith_waterman_affine
    similarity = torch.from_numpy(MATRIX)
    value = torch.tensor(0.7 if name == "temperature" else -0.7, requires_grad=True)
    closed = torch_impl.marginals(lambda s, lengths=None: function(s, lengths, **{name: value}), similarity)
    passed = torch_impl.marginals(function, similarity, **{name: value})
    by_closure, by_argument = (torch.autograd.grad(result.square().sum(), value)[0] for result in (closed, passed))
    assert by_closure == pytest.approx(by_argument) and by_argument != 0
    assert not torch_impl.marginals(function, similarity).requires_grad  # of plain tensors there is no graph


def test_torch_names_the_variants_that_can_be_mapped():
    with pytest.raises(RuntimeError, match=f"variant 'batch_loop' .* {USE}"):
        torch.func.vmap(lambda s: torch_impl.smith_waterman(s, variant="batch_loop"))(torch.ones(2, 3, 3))


@pytest.mark.filterwarnings("ignore:Explicitly requested dtype:UserWarning")
@pytest.mark.parametrize("variant", ["fused", "wavefront", pytest.param("scan_select", marks=pytest.mark.slow)])
def test_float64_outside_the_64_bit_mode_of_jax_is_computed_in_float32(variant: str):
    with jax.enable_x64(True):
        wide = jnp.asarray(MATRIX, jnp.float64)
    function = functools.partial(jax_impl.smith_waterman, variant=variant)
    assert jnp.array_equal(function(wide), function(MATRIX))
    assert jnp.array_equal(jax_impl.marginals(function, wide), jax_impl.marginals(function, MATRIX))
    product = jax_impl.hessian_vector_product(function, wide, wide)
    assert jnp.array_equal(product, jax_impl.hessian_vector_product(function, MATRIX, MATRIX))
    for result, expected in zip(*(jax_impl.best_alignment(jax_impl.free_gap, x) for x in (wide, MATRIX)), strict=True):
        assert jnp.array_equal(result, expected)


@FRAMEWORK
def test_a_function_linear_in_the_similarity_has_no_second_derivative(framework: str):
    package, backend = FRAMEWORKS[framework]
    matrix = backend.to_device(MATRIX, "cpu")
    stop = {"jax": jax.lax.stop_gradient, "torch": torch.Tensor.detach}[framework]
    for function, gradient in ((lambda s, lengths: stop(s).sum(), 0.0), (lambda s, lengths: s.sum(), 1.0)):
        assert np.all(np.asarray(package.marginals(function, matrix)) == gradient)
        assert np.all(np.asarray(package.hessian_vector_product(function, matrix, matrix)) == 0.0)


@FRAMEWORK
@pytest.mark.filterwarnings("error")
def test_arrays_that_run_backwards_and_cannot_be_written_are_accepted_without_a_warning(framework: str):
    matrix, lengths = MATRIX[::-1], np.array([5, 4])[::-1]
    for array in (matrix, lengths):
        array.setflags(write=False)
    got = FRAMEWORKS[framework].package.needleman_wunsch(matrix, lengths)
    assert float(got) == pytest.approx(float(reference.needleman_wunsch(matrix, lengths)), rel=1e-5)


# two matches on no diagonal, which only a gap could join; a similarity as low as can be forbids as -inf does
APART = [[-2, -3e38, -3e38], [-3e38, -np.inf, 1]]


@FRAMEWORK
@pytest.mark.parametrize(
    ("problem", "similarity", "gaps", "expected"),
    [
        ("smith_waterman", APART, {"gap": np.full((2, 3), -np.inf)}, 0.0),
        ("smith_waterman_affine", APART, {"gap_open": -1e39}, 0.0),
        ("needleman_wunsch", MATRIX, {"gap": -1e39}, -np.inf),
    ],
)
def test_an_alignment_that_needs_a_forbidden_gap_is_none(framework, problem, similarity, gaps, expected):
    package = FRAMEWORKS[framework].package
    function, matrix = getattr(package, problem), np.array(similarity, np.float32)
    options = {"end": "match"} if problem == "smith_waterman" else {}
    for variant in ("fused",) if framework == "jax" else ("fused", "wavefront", "diagonal_loop"):
        keywords = {**gaps, **options, "variant": variant}
        assert float(function(matrix, **keywords)) == expected
        assert not np.asarray(package.marginals(function, matrix, **keywords)).any()
        assert not np.asarray(package.hessian_vector_product(function, matrix, np.ones_like(matrix), **keywords)).any()
    score, matches = package.best_alignment(function, matrix, **gaps, **options)
    assert float(score) == expected and not np.asarray(matches).any()


@FRAMEWORK
def test_the_largest_gap_is_still_far_from_infinity(framework: str):
    # worth most: a match of the first cell, then as many gaps as there can be
    package, keywords = FRAMEWORKS[framework].package, {"gap": LARGEST_GAP}
    assert float(package.smith_waterman(MATRIX, **keywords)) == pytest.approx(7 * LARGEST_GAP)
    marginals = np.asarray(package.marginals(package.smith_waterman, MATRIX, **keywords))
    assert marginals[0, 0] == pytest.approx(1) and marginals.sum() == pytest.approx(1)


@pytest.mark.parametrize(("dtype", "rows", "inside"), [("uint8", 255, 255), ("int64", 2**40, 300), ("int8", -1, 0)])
def test_traced_lengths_of_any_type_are_clipped_to_the_matrix(dtype: str, rows: int, inside: int):
    matrix = np.random.default_rng(1).normal(size=(300, 4)).astype(np.float32)
    with jax.enable_x64(True):
        got = jax.jit(jax_impl.smith_waterman)(matrix, np.array([rows, 3], dtype))
    assert float(got) == pytest.approx(float(reference.smith_waterman(matrix, (inside, 3))), rel=1e-5)


# PyTorch's variants that scan and compiled functions are right to first order only: beyond it they raise

# a variant is traced anew for each choice of what requires a gradient, which takes seconds: each for one argument
SCANS = [
    ("scan_cond", "needleman_wunsch", "gap"),
    pytest.param("batch_loop", "free_gap", "temperature", marks=pytest.mark.slow),
]
COMPILED = [
    pytest.param("diagonal_loop", "smith_waterman_affine", "similarity", marks=pytest.mark.slow),
    ("wavefront", "free_gap", "temperature"),
    ("fused", "needleman_wunsch", "similarity"),
    pytest.param("vmap", "smith_waterman", "gap", marks=pytest.mark.slow),
]
USE = "use 'cell_loop', 'diagonal_loop', 'wavefront', 'fused' or 'auto'"


@pytest.fixture
def batch_loop_only_traces(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Skip inductor, on which the result does not depend here."""
    monkeypatch.setattr("torch_impl.sweeps.compiled", functools.partial(compiled, backend="eager"))
    torch_impl.sweeps.forget_compiled()
    yield
    torch_impl.sweeps.forget_compiled()


def score_of(variant: str, problem: str) -> Callable[..., torch.Tensor]:
    return functools.partial(getattr(torch_impl, problem), variant=variant)


def first_derivative(score: Callable[..., torch.Tensor], problem: str, wanted: str) -> torch.Tensor:
    """Differentiable gradient of a tiny batch for one argument; the others require no gradient."""
    leaves = {"similarity": torch.ones(2, 2, 2)}
    leaves |= {name: torch.tensor(value) for name, value in ALIGNMENTS[problem].parameters.items()}
    leaves[wanted].requires_grad_()
    (gradient,) = torch.autograd.grad(score(**leaves).sum(), leaves[wanted], create_graph=True)
    assert gradient.isfinite().all()
    return gradient


@pytest.mark.parametrize(("variant", "problem", "wanted"), SCANS)
def test_torch_variants_that_scan_raise_on_a_double_backward(variant, problem, wanted, batch_loop_only_traces):
    gradient = first_derivative(score_of(variant, problem), problem, wanted)
    with pytest.raises(RuntimeError, match=f"variant '{variant}' is right to first order only; for .* {USE}"):
        gradient.sum().backward()


@pytest.mark.slow
def test_torch_scans_mapped_by_their_user_raise_on_a_double_backward():
    mapped = torch.func.vmap(score_of("vmap", "needleman_wunsch"))
    with pytest.raises(RuntimeError, match=f"variant 'vmap' is right to first order only; for .* {USE}"):
        first_derivative(lambda similarity, **_: mapped(similarity), "needleman_wunsch", "similarity").sum().backward()


@pytest.mark.parametrize(("variant", "problem", "wanted"), COMPILED)
def test_torch_compiled_functions_raise_on_a_double_backward(variant, problem, wanted):
    function = compiled(score_of(variant, problem), backend="aot_eager")
    with pytest.raises(RuntimeError):  # noqa: PT012 - either step may be the one that raises
        gradient = first_derivative(function, problem, wanted)
        gradient.sum().backward()


@pytest.mark.parametrize("needs", [False, True])
@pytest.mark.parametrize("is_leaf", [True, False])
def test_torch_compiled_functions_raise_on_a_double_backward_for_what_they_capture(is_leaf, needs):
    raw = torch.tensor(-1.0, requires_grad=True)
    gap = raw if is_leaf else raw.mul(2)
    function = compiled(lambda matrix: torch_impl.smith_waterman(matrix, gap=gap).sum(), backend="aot_eager")
    similarity = torch.ones(2, 2, 2, requires_grad=needs)
    (slope,) = torch.autograd.grad(function(similarity), raw, create_graph=True)
    with pytest.raises(RuntimeError, match=r"right to first order only|does not currently support double backward"):
        torch.autograd.grad(slope * raw, raw)  # which has another term: none would be an error of PyTorch's


@pytest.mark.parametrize("variant", ["scan_select", "vmap"])
def test_torch_marginals_of_a_scan_inside_a_compiled_function_raise(variant):
    function = compiled(lambda matrix: torch_impl.marginals(torch_impl.smith_waterman, matrix, variant=variant))
    text = f"variant '{variant}' cannot be differentiated by torch.func; {USE}"
    with pytest.raises(CannotDifferentiate, match=text):
        function(torch.ones(2, 2, 3))


@pytest.mark.parametrize("variant", SCANNING)
def test_torch_func_and_forward_mode_of_a_scan_raise(variant, batch_loop_only_traces):
    ones, score = torch.ones(3, 2, 2), score_of(variant, "needleman_wunsch")
    by_temperature = lambda value: score(ones, temperature=value).sum()  # noqa: E731
    total = lambda matrix: score(matrix).sum()  # noqa: E731

    def along_a_dual() -> None:
        with forward_ad.dual_level():
            score(forward_ad.make_dual(ones, ones))

    for derivative, kind in (
        (lambda: torch.func.grad(total)(ones), "by torch.func"),
        (lambda: torch.func.jvp(score, (ones,), (ones,)), "by torch.func"),
        (lambda: torch.func.vmap(torch.func.grad(score))(ones), "by torch.func"),
        (lambda: torch.func.grad(by_temperature)(torch.tensor(1.0)), "by torch.func"),
        (lambda: torch.func.linearize(score, ones), "in forward mode"),
        (along_a_dual, "in forward mode"),
    ):
        with pytest.raises(CannotDifferentiate, match=f"variant '{variant}' cannot be differentiated {kind}; {USE}"):
            derivative()


def test_only_a_scan_with_tangents_raises_in_forward_mode():
    single, matrices = score_of("scan_select", "free_gap"), torch.ones(3, 2, 2)
    mapped = torch.func.vmap(single)
    alone = mapped(matrices)
    with forward_ad.dual_level():
        torch.testing.assert_close(mapped(matrices), alone)
        torch.testing.assert_close(single(matrices[0]), alone[0])
        dual = forward_ad.make_dual(matrices, matrices)
        with pytest.raises(CannotDifferentiate, match=r"'scan_select' cannot be differentiated in forward mode"):
            mapped(dual)


@pytest.mark.cuda
def test_torch_cpu_parameters_and_lengths_go_with_a_cuda_matrix():
    similarity, lengths = torch.from_numpy(S).cuda(), torch.from_numpy(LENGTHS)
    gap = torch.tensor(-1.0, requires_grad=True)
    scores = torch_impl.smith_waterman(similarity, lengths, gap=gap, temperature=torch.tensor(1.0))
    assert scores.device.type == "cuda"
    close(scores.detach().cpu(), SCORES)
    (slope,) = torch.autograd.grad(scores.sum(), gap)
    assert slope.device.type == "cpu"
