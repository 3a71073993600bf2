"""The same parity on a GPU. Deselected by default; `pytest -m cuda` (or `make cuda-check`) runs it."""

import numpy as np
import pytest
from frameworks import DTYPES, FRAMEWORKS, ragged

from shared.bench.answers import answer
from shared.bench.gate import judge
from shared.problems import Inputs
from shared.variants import variant_names

pytestmark = pytest.mark.cuda
CASES = [
    (framework, variant, pass_name)
    for framework, (package, _) in FRAMEWORKS.items()
    for variant in variant_names("smith_waterman")
    for pass_name in ("score", "marginals")
    if variant in package.variants("smith_waterman")
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("framework", "variant", "pass_name"), CASES)
def test_a_gpu_gives_the_reference(framework: str, variant: str, pass_name: str, dtype: str) -> None:
    backend = FRAMEWORKS[framework].backend
    drawn = ragged(9, 7, per_pair=False)
    parameters = {name: float(value) for name, value in drawn.parameters.items()}
    inputs = Inputs("a ragged batch", drawn.similarity.astype(dtype), drawn.lengths, parameters, {"end": "any"})
    with backend.precision(dtype):
        score = backend.function("smith_waterman", variant, inputs.options)
        function = backend.pass_function(pass_name, score, compiled=False)
        similarity = backend.to_device(inputs.similarity, "cuda")
        result = backend.to_numpy(backend.wait(function(similarity, inputs.lengths, **parameters)))
    wanted = answer("smith_waterman", inputs, seed=0)
    verdict = judge(pass_name, result, wanted, dtype, parameters["temperature"], inputs.similarity.shape)
    assert verdict.passed, verdict.text


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_result_stays_on_the_gpu_and_bad_values_there_are_safe(framework: str) -> None:
    package, backend = FRAMEWORKS[framework]
    similarity = backend.to_device(np.ones((2, 4, 4), np.float32), "cuda")
    lengths = backend.to_device(np.array([[9, 9], [-1, 2]], np.int32), "cuda")
    temperature = backend.to_device(np.array([1.0, -1.0], np.float32), "cuda")
    scores = package.smith_waterman(similarity, lengths, temperature=temperature)
    full = package.smith_waterman(similarity)
    assert "cpu" not in str(scores.device).lower()
    assert backend.to_numpy(scores)[0] == pytest.approx(backend.to_numpy(full)[0])
    assert np.isnan(backend.to_numpy(scores)[1])
