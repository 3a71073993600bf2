"""The variants on a GPU. Deselected by default; `pytest -m cuda` (or `make cuda-check-tests`) runs it."""

import functools
import importlib
import itertools
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest
import torch
from frameworks import (
    BY_HAND,
    DTYPES,
    FRAMEWORKS,
    PROBLEMS,
    assert_parity,
    poison,
    ragged,
    reference_result,
    run_function,
)

import torch_impl
from shared import reference
from shared.alignments import ALIGNMENTS, has_free_ends
from shared.bench.cases import Settings
from shared.problems import PROBLEMS as BENCHMARK
from shared.problems.alignment_inputs import AlignmentInputs
from shared.problems.alignment_reference import CELLS, reference_results
from shared.variants import fastest_variant, variant_names
from torch_impl import cuda_graph
from torch_impl.sweeps import SCANNING

pytestmark = pytest.mark.cuda
DEVICE = "cuda"
SIZE = 9, 7
QUICK = (*BY_HAND, "cuda_graph")
COMPILED = (*SCANNING, "wavefront")
BOTH = pytest.mark.parametrize("framework", FRAMEWORKS)
EVERY = pytest.mark.parametrize("problem", PROBLEMS)


def cases() -> Iterator[tuple[str, str, str, str, str, int]]:
    """All of what is fast to compile; of the other rungs enough to see each walk on a GPU. The last is the options'
    number: with those that are not usual, "auto" alone in float32."""
    for (framework, (_, backend)), problem in itertools.product(FRAMEWORKS.items(), PROBLEMS):
        absent = backend.absent_on(DEVICE)
        for variant in variant_names(problem):
            passes, dtypes, numbers = BENCHMARK[problem].passes, DTYPES, [0]
            if variant not in QUICK:
                passes, dtypes = ("marginals",), ("float32",)
            elif variant == fastest_variant(absent):
                numbers = range(len(PROBLEMS[problem].options))
            if variant in absent or not (variant in (*QUICK, "vmap") or problem == "smith_waterman"):
                continue
            for pass_name, dtype, number in itertools.product(passes, dtypes, numbers):
                if number == 0 or dtype == "float32":
                    yield framework, problem, variant, pass_name, dtype, number


@pytest.mark.parametrize(("framework", "problem", "variant", "pass_name", "dtype", "number"), list(cases()))
def test_a_gpu_gives_the_reference(framework, problem, variant, pass_name, dtype, number):
    # each cell is a launch of many kernels
    rows, cols = (4, 3) if variant == "cell_loop" else SIZE
    drawn = ragged(rows, cols, problem=problem, per_pair=False)
    parameters = {name: float(value) for name, value in drawn.parameters.items()}
    inputs = inputs_of(problem, drawn.similarity.astype(dtype), drawn.lengths, parameters, number)
    assert_right(framework, problem, variant, (pass_name,), inputs)


def inputs_of(
    problem: str, similarity: np.ndarray, lengths: np.ndarray | None, parameters: dict[str, float], number: int = 0
) -> AlignmentInputs:
    """The input of the comparison with a problem's options of this number."""
    options = PROBLEMS[problem].options[number]
    return AlignmentInputs("random", similarity, lengths, parameters=parameters, options=options)


def assert_right(
    framework: str, problem: str, variant: str, passes: tuple[str, ...], inputs: AlignmentInputs, cells: int = CELLS
) -> None:
    """Judge results by the comparison's gate. cells: that the reference walks at most; larger pairs are cut."""
    expected = reference_results(problem, inputs, passes, cells, whole=cells)
    for pass_name in passes:
        result = computed(framework, problem, variant, pass_name, inputs)
        verdict = BENCHMARK[problem].judge(pass_name, result, expected, inputs, inputs.similarity.dtype.name)
        assert verdict.passed, (inputs.options, verdict.text)


def computed(framework: str, problem: str, variant: str, pass_name: str, inputs: AlignmentInputs) -> np.ndarray:
    """A pass of a problem on the GPU. JAX traces an eager scan anew at every call."""
    backend = FRAMEWORKS[framework].backend
    with backend.precision(inputs.similarity.dtype.name):
        score = backend.function(problem, variant, inputs.options)
        function = backend.pass_function(pass_name, score, compiled=framework == "jax" and variant in COMPILED)
        similarity = backend.to_device(inputs.similarity, DEVICE)
        weights = [backend.to_device(inputs.weights, DEVICE)] if pass_name == "hvp" else []
        return backend.to_numpy(backend.wait(function(similarity, inputs.lengths, *weights, **inputs.parameters)))


@BOTH
@EVERY
@pytest.mark.parametrize("by_position", [False, True])
def test_best_alignments_of_whole_numbers_are_the_references(framework, problem, by_position):
    names = ALIGNMENTS[problem].gaps
    drawn = ragged(*SIZE, problem=problem, by_position=names if by_position else ())
    gaps = {name: np.rint(drawn.parameters[name]) for name in names}
    for options in PROBLEMS[problem].options:
        if by_position and has_free_ends(options):
            continue
        expected = reference.best_alignment(problem, np.rint(drawn.similarity), drawn.lengths, **gaps, **options)
        assert_best(framework, problem, np.rint(drawn.similarity), drawn.lengths, expected, gaps, options)


def assert_best(
    framework: str, problem: str, similarity: Any, lengths: Any, wanted: Any, gaps: Any = (), options: Any = ()
) -> None:
    """Check scores and matches of the best alignments."""
    package, backend = FRAMEWORKS[framework]
    on_gpu, *values = (
        backend.to_device(array.astype(np.float32), DEVICE) for array in (similarity, *dict(gaps).values())
    )
    keywords = {**dict(zip(gaps, values, strict=True)), **dict(options)}
    best = package.best_alignment(getattr(package, problem), on_gpu, lengths, **keywords)
    for result, exact in zip(best, wanted, strict=True):
        np.testing.assert_array_equal(backend.to_numpy(result), exact)


def batch(shape: tuple[int, int, int], problem: str, dtype: str, is_ragged: bool = True) -> AlignmentInputs:
    """A random batch; if it is ragged, the first pair is full, the last one empty, and the padding is poisoned."""
    random, (pairs, rows, cols) = np.random.default_rng(shape), shape
    similarity, lengths = random.normal(size=shape).astype(np.float32) * 2, None
    if is_ragged:
        lengths = random.integers(0, (rows + 1, cols + 1), size=(pairs, 2)).astype(np.int32)
        lengths[0], lengths[-1] = (rows, cols), (0, cols)
        similarity = poison(similarity, lengths)
    return inputs_of(problem, similarity.astype(dtype), lengths, dict(ALIGNMENTS[problem].parameters))


# all layouts; float64 has the exact kernels alone, where it is slow to compile
LARGE = [
    ((600, 150, 33), "float32", True),
    ((64, 100, 150), "float32", True),
    ((2, 600, 130), "float32", True),
    ((2, 600, 130), "float64", True),
    ((1, 2100, 30), "float32", False),
    ((2, 30, 2100), "float32", False),
    ((1, 1100, 100), "float32", False),
]


@BOTH
@EVERY
@pytest.mark.parametrize(("shape", "dtype", "is_ragged"), LARGE)
def test_large_pairs_are_right(framework, problem, shape, dtype, is_ragged):
    """Best alignments are those on the CPU, of whole numbers."""
    inputs = batch(shape, problem, dtype, is_ragged)
    passes = ("score", "marginals", "hvp") if is_ragged else ("marginals",)
    assert_right(framework, problem, "fused", passes, inputs, cells=max(20_000, 2 * shape[1] * shape[2]))
    if is_ragged and dtype == "float32":
        whole = np.rint(inputs.similarity)
        expected = torch_impl.best_alignment(getattr(torch_impl, problem), torch.from_numpy(whole), inputs.lengths)
        assert_best(framework, problem, whole, inputs.lengths, expected)


@BOTH
@pytest.mark.parametrize("dtype", DTYPES)
def test_powers_of_two_are_exact(framework, dtype):
    """The kernels scale by them, in long chains. Numbers that are not normal may be flushed to 0."""
    backend, calls = FRAMEWORKS[framework].backend, importlib.import_module(f"{framework}_impl.kernels.triton_binding")
    limits = np.finfo(dtype)
    exponents = np.resize(np.arange(limits.minexp, limits.maxexp), 2048)
    with backend.precision(dtype):
        powers = calls.exponentials(backend.to_device(-exponents.astype(dtype), DEVICE), 1, each=1)
        np.testing.assert_array_equal(backend.to_numpy(powers), np.ldexp(np.ones((), dtype), exponents))


@BOTH
@pytest.mark.parametrize("problem", [problem for problem, alignment in ALIGNMENTS.items() if alignment.gaps])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [SIZE[0], 150])  # one strip and two, of several warps
def test_gaps_by_position_are_right(framework, problem, dtype, rows):
    package, backend = FRAMEWORKS[framework]
    inputs = ragged(rows, SIZE[1], problem=problem, by_position=ALIGNMENTS[problem].gaps)
    score = functools.partial(getattr(package, problem), variant="fused")
    result = run_function(framework, score, inputs, dtype, device=DEVICE)
    assert_parity(result, reference_result(inputs, problem), dtype, inputs.parameters["temperature"])
    vector = np.random.default_rng(0).normal(size=inputs.similarity.shape)
    expected = reference.hessian_vector_product(problem, inputs.similarity, vector, inputs.lengths, **inputs.parameters)
    with backend.precision(dtype):
        s, v, *values = (
            backend.to_device(array.astype(dtype), DEVICE)
            for array in (inputs.similarity, vector, *inputs.parameters.values())
        )
        values_by_name = dict(zip(inputs.parameters, values, strict=True))
        product = backend.to_numpy(package.hessian_vector_product(score, s, v, inputs.lengths, **values_by_name))
    np.testing.assert_allclose(product, expected["similarity"], rtol=0, atol=1e-7 if dtype == "float64" else 1e-4)


@EVERY
def test_both_frameworks_run_the_same_code(problem):
    inputs = batch((70, 45, 33), problem, "float32")
    for pass_name in ("score", "marginals", "hvp"):
        one, other = (computed(name, problem, "fused", pass_name, inputs) for name in FRAMEWORKS)
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-30)


@EVERY
@BOTH
def test_a_result_stays_on_the_gpu_and_bad_values_there_are_safe(framework, problem):
    package, backend = FRAMEWORKS[framework]
    function = getattr(package, problem)
    similarity = backend.to_device(np.ones((3, 4, 4), np.float32), DEVICE)
    lengths = backend.to_device(np.array([[9, 9], [-1, 2], [4, 4]], np.int32), DEVICE)
    temperature = backend.to_device(np.array([1.0, -1.0, 0.0], np.float32), DEVICE)
    scores, full = function(similarity, lengths, temperature=temperature), function(similarity)
    assert "cpu" not in str(scores.device).lower()
    assert backend.to_numpy(scores)[0] == pytest.approx(backend.to_numpy(full)[0])
    assert np.isnan(backend.to_numpy(scores)[1:]).all()


@EVERY
def test_numbers_arrays_and_lengths_of_the_host_go_with_a_matrix_on_the_gpu(problem):
    function, backend = getattr(torch_impl, problem), FRAMEWORKS["torch"].backend
    values = {name: np.array(low) for name, (low, _) in PROBLEMS[problem].parameters.items()}
    matrix, lengths = np.ones((2, 4, 4), np.float32), np.array([[4, 3], [0, 2]])
    expected = backend.to_numpy(function(matrix, lengths, **values))
    host = {name: backend.to_device(value, "cpu") for name, value in values.items()}
    for parameters in ({name: float(value) for name, value in values.items()}, values, host):
        scores = function(backend.to_device(matrix, DEVICE), lengths, **parameters)
        assert backend.to_numpy(scores) == pytest.approx(expected, rel=1e-5)


@EVERY
def test_torch_compile_takes_fused_as_a_part(problem):
    s = torch.randn(3, 9, 7, device=DEVICE)
    function = functools.partial(getattr(torch_impl, problem), variant="fused")
    compiled = torch.compile(lambda s: function(s * 2).sum() + 1, fullgraph=True)
    torch.testing.assert_close(compiled(s), function(s * 2).sum() + 1)


@EVERY
@BOTH
def test_fused_is_mapped_and_differentiated(framework, problem):
    package, backend = FRAMEWORKS[framework]
    s = backend.to_device(np.random.default_rng(0).normal(size=(3, *SIZE)).astype(np.float32), DEVICE)
    function = functools.partial(getattr(package, problem), variant="fused")
    mapped = jax.jit(jax.vmap(jax.grad(function))) if framework == "jax" else torch.func.vmap(torch.func.grad(function))
    results = [backend.to_numpy(result) for result in (mapped(s), package.marginals(function, s))]
    np.testing.assert_allclose(*results, rtol=1e-6, atol=1e-6)


def test_a_graph_is_replayed_on_what_is_given_and_follows_the_stream():
    cuda_graph.forget()
    matrices = [torch.randn(4, 12, 9, device=DEVICE) for _ in range(3)]
    expected = [torch_impl.smith_waterman(s, variant="wavefront") for s in matrices]
    replayed = [torch_impl.smith_waterman(s, variant="cuda_graph") for s in matrices]
    torch.testing.assert_close(replayed, expected)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        beside = [torch_impl.smith_waterman(s, variant="cuda_graph") for s in matrices]
    stream.synchronize()
    torch.testing.assert_close(beside, expected)
    assert len(cuda_graph._graphs) == 2
    assert "cuda_graph" in torch_impl.variants("smith_waterman")


def test_a_graph_goes_into_a_graph_of_the_caller_s():
    s = torch.randn(4, 12, 9, device=DEVICE)
    expected = torch_impl.smith_waterman(s, variant="cuda_graph")
    lengths = torch.tensor([[12, 9]] * 4, device=DEVICE)
    values = torch.tensor([[-1.0, 1.0]] * 4, device=DEVICE)
    score = functools.partial(torch.ops.smooth_alignment.wavefront_score, recurrence="smith_waterman(end=any)")
    score(s, lengths, values, [], graph=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = score(s, lengths, values, [], graph=True)
    graph.replay()
    torch.testing.assert_close(result, expected)


@BOTH
@pytest.mark.parametrize(
    ("problem", "described"),
    [("linear_regression", {"size": (50,), "arguments": {"epochs": 230}}), ("stencil", {"size": (9, 5)})],
)
def test_the_other_problems_are_right_on_a_gpu(framework, problem, described):
    backend, bench = FRAMEWORKS[framework].backend, BENCHMARK[problem]
    (inputs,) = bench.inputs(Settings(problem=problem, device=DEVICE, input="random", **described)).values()
    absent = backend.abilities(problem, DEVICE).absent
    for variant, pass_name in itertools.product(variant_names(problem), bench.default_passes):
        if variant not in absent:
            call = backend.call_of(problem, variant, pass_name, inputs.options, compiled=False)
            arrays = (None if one is None else backend.to_device(one, DEVICE) for one in inputs.arguments(pass_name))
            result = backend.to_numpy(backend.wait(call(*arrays, **inputs.parameters)))
            verdict = bench.judge(pass_name, result, bench.reference_results(inputs, [pass_name]), inputs, "float32")
            assert verdict.passed, (variant, verdict.text)


@BOTH
def test_the_device_s_clock_caches_and_memory(framework):
    backend = FRAMEWORKS[framework].backend
    array = backend.to_device(np.ones(2**22, np.float32), DEVICE)
    copied = jax.jit(backend.copy) if framework == "jax" else backend.copy
    assert array.nbytes <= (backend.peak_bytes(copied, [array], {}, DEVICE) or 0) <= 2 * array.nbytes
    backend.flush(DEVICE)
    for launch in (lambda: backend.copy(array), lambda: backend.exponentials(array, 1)):
        backend.wait(launch())
        work = backend.device_work(launch, DEVICE)
        assert work is not None and work.kernels and 1e-6 < work.seconds < 1  # others may use the GPU as well
    with pytest.raises(Exception) as caught:  # noqa: PT011 - which one is the framework's
        backend.wait(backend.repeated(array, 2**15))  # half a TB
    assert backend.is_out_of_memory(caught.value)
