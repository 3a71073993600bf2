"""Gaps by position in the native kernels, by themselves: what no framework shows."""

import numpy as np
import pytest
from frameworks import poison
from gaps_by_position import CASES
from native_calls import PAIRS, ROWS, Given, assert_same_bits

from shared import reference
from shared.alignments import ALIGNMENTS
from shared.kernels import cpp

pytestmark = pytest.mark.skipif(cpp.why_absent() is not None, reason=f"no native kernels: {cpp.why_absent()}")


def many(problem, names, dtype, pairs=20, rows=21, cols=37):
    """Ragged pairs with poison around them; some gaps are so dear that nobody takes them, or forbidden."""
    random = np.random.default_rng([5, rows, cols])
    lengths = random.integers(0, (rows + 1, cols + 1), size=(pairs, 2))
    lengths[:3] = (rows, cols), (0, cols), (rows, 0)
    shape = pairs, rows, cols
    parameters = {"temperature": random.uniform(0.5, 2, pairs).astype(dtype)}
    for name in ALIGNMENTS[problem].gaps:
        if name in names:
            gap = random.uniform(-3, 0.5, shape)
            gap[random.random(shape) < 0.05] = -1e9
            gap[random.random(shape) < 0.05] = -np.inf
            parameters[name] = poison(gap, lengths).astype(dtype)
        else:
            parameters[name] = random.uniform(-3, 0.5, pairs).astype(dtype)
    return poison(random.normal(size=shape) * 2, lengths).astype(dtype), lengths, parameters


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@CASES
def test_layouts_and_threads_give_the_same_bits(problem, options, names, dtype):
    inputs = many(problem, names, dtype)
    by_pairs = Given(problem, *inputs, options, layout=PAIRS).results()
    assert_same_bits(by_pairs, Given(problem, *inputs, options, layout=ROWS).results())
    by_one, by_two = (Given(problem, *inputs, options, threads=threads).results() for threads in (1, 2))
    assert_same_bits(by_one, by_two)


@CASES
def test_derivatives_are_those_of_the_reference(problem, options, names):
    similarity, lengths, parameters = many(problem, names, "float64", pairs=5, rows=11, cols=13)
    given = Given(problem, similarity, lengths, parameters, options)
    scores, _, d_similarity, d_values, t_scores, t_d_similarity, t_d_values, *_ = results = given.results()
    d_costs, t_d_costs = np.reshape(results[10:], (2, len(names), *similarity.shape))
    assert np.all((np.sum(d_costs, axis=0) == 0) | np.isfinite(similarity))

    def reference_of(step):
        moved = {name: value + step * tangents[name] for name, value in parameters.items()}
        inputs = similarity + step * t_similarity, lengths
        gradients = reference.gradients(problem, *inputs, **moved, **options)
        return {"score": getattr(reference, problem)(*inputs, **moved, **options), **gradients}

    t_similarity, t_values, t_costs = given.direction()
    order = list(ALIGNMENTS[problem].parameters)
    tangents = {name: t_costs.get(name, t_values[:, number]) for number, name in enumerate(order)}
    exact, ahead, behind = (reference_of(step) for step in (0, 1e-5, -1e-5))
    for found, wanted, atol in (
        ((scores, d_similarity, d_values, d_costs), exact, 1e-12),
        (
            (t_scores, t_d_similarity, t_d_values, t_d_costs),
            {name: (ahead[name] - behind[name]) / 2e-5 for name in ahead},
            1e-7,
        ),
    ):
        np.testing.assert_allclose(found[0], wanted["score"], rtol=1e-9, atol=atol)
        np.testing.assert_allclose(found[1], wanted["similarity"], rtol=0, atol=atol)
        for number, name in enumerate(order):
            by_position = name in names
            own = found[3][names.index(name)] if by_position else found[2][:, number]
            np.testing.assert_allclose(own, wanted[name], rtol=1e-8, atol=atol)
            assert not by_position or not found[2][:, number].any()


@pytest.mark.parametrize("layout", [PAIRS, ROWS])
@pytest.mark.parametrize(
    ("problem", "names"), [("smith_waterman", ("gap",)), ("smith_waterman_affine", ("gap_extend",))]
)
def test_a_gap_that_is_no_number_spoils_its_own_pair_alone(problem, names, layout):
    similarity, lengths, parameters = many(problem, names, "float32")
    clean = Given(problem, similarity, lengths, parameters, layout=layout).results()
    parameters[names[0]][0, 20, 36] = np.nan
    spoiled = Given(problem, similarity, lengths, parameters, layout=layout).results()
    for number, (before, after) in enumerate(zip(clean, spoiled, strict=True)):
        values = number in (3, 6)  # the derivative of the gap's own value is always 0
        assert np.isnan(after[0]).sum() == (len(after[0]) - 1 if values else after[0].size)
        assert before[1:].tobytes() == after[1:].tobytes()


def test_a_library_refuses_gaps_that_it_does_not_know():
    similarity, score = np.zeros((1, 3, 3), np.float32), np.empty(1, np.float32)
    values = np.ones((1, 3), np.float32)
    gaps = np.frombuffer(cpp.pack_gaps(*(similarity.ctypes.data, 9, 0, 0, 0) * 2), np.uint8)
    for kind, options, by_position, given, known in (
        (0, cpp.OPEN_BY_POSITION, False, True, False),
        (0, cpp.OPEN_BY_POSITION, True, True, True),
        (0, cpp.OPEN_BY_POSITION, True, False, False),
        (0, cpp.EXTEND_BY_POSITION, True, True, False),
        (2, cpp.EXTEND_BY_POSITION, True, True, True),
        (4, cpp.OPEN_BY_POSITION, True, True, False),
    ):
        numbers = kind, options, 1, 0, 1, 3, 3, similarity.ctypes.data, 9, 0, values.ctypes.data, 0
        call = cpp.pack_call(*numbers, gaps.ctypes.data if given else 0)
        assert (cpp.kernel("float32", kind, by_position).score(call, score.ctypes.data) == 0) == known
