"""The same parity on a GPU. Deselected by default; `pytest -m cuda` (or `make cuda-check`) runs it."""

import numpy as np
import pytest
from frameworks import DTYPES, FRAMEWORKS, PROBLEMS, ragged

from shared.problems import PROBLEMS as BENCHMARK
from shared.problems.alignment_inputs import AlignmentInputs
from shared.variants import fastest_variant, variant_names
from torch_impl.sweeps import SCANNING

pytestmark = pytest.mark.cuda
DEVICE = "cuda"
COMPILED = (*SCANNING, "wavefront")
CASES = [
    (framework, problem, variant, pass_name)
    for framework, (package, backend) in FRAMEWORKS.items()
    for problem in PROBLEMS
    for variant in variant_names(problem)
    for pass_name in BENCHMARK[problem].passes
    if variant not in backend.absent_on(DEVICE) and not (pass_name == "hvp" and variant in backend.first_order)
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("framework", "problem", "variant", "pass_name"), CASES)
def test_a_gpu_gives_the_reference(framework: str, problem: str, variant: str, pass_name: str, dtype: str) -> None:
    # each cell is a launch of many kernels
    rows, cols = (4, 3) if variant == "cell_loop" else (9, 7)
    drawn = ragged(rows, cols, problem=problem, per_pair=False)
    parameters = {name: float(value) for name, value in drawn.parameters.items()}
    every = PROBLEMS[problem].options
    for options in every if variant == fastest_variant(FRAMEWORKS[framework].backend.absent_on(DEVICE)) else every[:1]:
        inputs = AlignmentInputs(
            "a ragged batch",
            drawn.similarity.astype(dtype),
            drawn.lengths,
            parameters=parameters,
            options=options,
        )
        result = computed(framework, problem, variant, pass_name, dtype, inputs)
        answer = BENCHMARK[problem].answer(inputs, [pass_name])
        verdict = BENCHMARK[problem].judge(pass_name, result, answer, inputs, dtype)
        assert verdict.passed, (options, verdict.text)


def computed(
    framework: str, problem: str, variant: str, pass_name: str, dtype: str, inputs: AlignmentInputs
) -> np.ndarray:
    """A pass of a problem on the GPU. JAX traces an eager scan anew at every call."""
    backend = FRAMEWORKS[framework].backend
    with backend.precision(dtype):
        score = backend.function(problem, variant, inputs.options)
        function = backend.pass_function(pass_name, score, compiled=framework == "jax" and variant in COMPILED)
        similarity = backend.to_device(inputs.similarity, DEVICE)
        weights = [backend.to_device(inputs.weights, DEVICE)] if pass_name == "hvp" else []
        return backend.to_numpy(backend.wait(function(similarity, inputs.lengths, *weights, **inputs.parameters)))


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_result_stays_on_the_gpu_and_bad_values_there_are_safe(framework: str, problem: str) -> None:
    package, backend = FRAMEWORKS[framework]
    function = getattr(package, problem)
    similarity = backend.to_device(np.ones((3, 4, 4), np.float32), DEVICE)
    lengths = backend.to_device(np.array([[9, 9], [-1, 2], [4, 4]], np.int32), DEVICE)
    temperature = backend.to_device(np.array([1.0, -1.0, 0.0], np.float32), DEVICE)
    scores = function(similarity, lengths, temperature=temperature)
    full = function(similarity)
    assert "cpu" not in str(scores.device).lower()
    assert backend.to_numpy(scores)[0] == pytest.approx(backend.to_numpy(full)[0])
    assert np.isnan(backend.to_numpy(scores)[1:]).all()


@pytest.mark.parametrize("problem", PROBLEMS)
def test_numbers_arrays_and_lengths_of_the_host_go_with_a_matrix_on_the_gpu(problem: str) -> None:
    package, backend = FRAMEWORKS["torch"]
    values = {name: np.array(low) for name, (low, _) in PROBLEMS[problem].parameters.items()}
    matrix, lengths = np.ones((2, 4, 4), np.float32), np.array([[4, 3], [0, 2]])
    wanted = backend.to_numpy(getattr(package, problem)(matrix, lengths, **values))
    host = {name: backend.to_device(value, "cpu") for name, value in values.items()}
    for given in ({name: float(value) for name, value in values.items()}, values, host):
        scores = getattr(package, problem)(backend.to_device(matrix, DEVICE), lengths, **given)
        assert backend.to_numpy(scores) == pytest.approx(wanted, rel=1e-5)
