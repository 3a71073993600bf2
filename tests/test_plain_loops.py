"""The first two rungs of smith_waterman, written out, give what the table gives and what the reference gives."""

import numpy as np
import pytest
from frameworks import AWKWARD_SIZES, FRAMEWORKS, Inputs, Result, assert_parity, ragged, reference_result, run, single

import jax_impl.plain_loops
import jax_impl.sweeps
import torch_impl.plain_loops
import torch_impl.sweeps

PLAIN = {
    "jax": (jax_impl.sweeps, jax_impl.plain_loops.PLAIN_LOOPS),
    "torch": (torch_impl.sweeps, torch_impl.plain_loops.PLAIN_LOOPS),
}
# a small matrix shows all: JAX takes seconds for each loop that is written out
INPUTS = [ragged(4, 5), *(single(*size) for size in AWKWARD_SIZES if 1 in size)]


@pytest.mark.parametrize("inputs", INPUTS, ids=lambda inputs: "x".join(map(str, inputs.similarity.shape)))
@pytest.mark.parametrize("end", ["any", "match"])
@pytest.mark.parametrize("variant", ["cell_loop", "diagonal_loop"])
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_plain_loop_gives_what_the_table_gives(framework, variant, end, inputs: Inputs, monkeypatch):
    sweeps, plain = PLAIN[framework]
    assert sweeps.sweep_of("smith_waterman", variant) is plain[variant]
    expected = reference_result(inputs, end=end)
    by_hand = run(framework, inputs, "float64", variant, "eager", end=end)
    assert_parity(by_hand, expected, "float64", inputs.parameters["temperature"])
    monkeypatch.delitem(plain, variant)
    assert sweeps.sweep_of("smith_waterman", variant) is sweeps.SWEEPS[variant]
    generic = run(framework, inputs, "float64", variant, "eager", end=end)
    assert_close(by_hand, generic)


def assert_close(one: Result, other: Result) -> None:
    for a, b in [(one.score, other.score), *((one.gradients[name], other.gradients[name]) for name in one.gradients)]:
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)
