"""The first two variants of smith_waterman, written out as plain code, equal the loops that read the table."""

import numpy as np
import pytest
from frameworks import FRAMEWORKS, ragged, run_function

import jax_impl.plain_loops
import jax_impl.sweeps
import torch_impl.plain_loops
import torch_impl.sweeps
from shared.alignments import recurrence_of

MODULES = {
    "jax": (jax_impl.sweeps, jax_impl.plain_loops),
    "torch": (torch_impl.sweeps, torch_impl.plain_loops),
}


@pytest.mark.parametrize("end", ["any", "match"])
@pytest.mark.parametrize("variant", ["cell_loop", "diagonal_loop"])
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_plain_loop_gives_what_the_table_gives(framework, variant, end):
    sweeps, plain_loops = MODULES[framework]
    plain, generic = plain_loops.PLAIN_LOOPS[variant], sweeps.SWEEPS[variant]
    assert sweeps.sweep_of("smith_waterman", variant) is plain is not generic
    inputs = ragged(3, 2)
    inputs = inputs._replace(similarity=np.nan_to_num(inputs.similarity, posinf=0, neginf=0))
    recurrence = recurrence_of("smith_waterman", {"end": end})

    def result_of(loop):
        score = lambda similarity, lengths, **parameters: loop(recurrence, parameters, similarity, lengths)  # noqa: E731
        return run_function(framework, score, inputs, "float64", "quick" if framework == "jax" else "eager")

    one, other = result_of(plain), result_of(generic)
    np.testing.assert_allclose(one.score, other.score, rtol=1e-12, atol=1e-12)
    for name, gradient in one.gradients.items():
        np.testing.assert_allclose(gradient, other.gradients[name], rtol=1e-12, atol=1e-12, err_msg=name)
