"""Every variant of both frameworks equals the reference: scores, and gradients through a random cotangent.

What is covered where, with each problem's options taken in turn over the sizes and float64 unless it says float32:

                         JAX, jit                                    PyTorch, eager
    cell_loop            sizes to (3, 4); float32 (3, 4)             all sizes, both dtypes
    diagonal_loop        sizes to (8, 5); float32 (5, 8)             all sizes, both dtypes
    scan_select          all sizes; float32 (5, 8) and (63, 17)      three sizes; float32 (5, 8) and (63, 17)
    scan_cond, vmap      four sizes; float32 (5, 8) and (63, 17)     the same
    batch_loop           the same                                    (17, 9); float32 (5, 8); both only traced
    each through inductor                                            one shape, float32
    bundled globins      auto and vmap                               auto, and vmap through inductor; float32

A size is a ragged batch with poisoned padding and parameters per pair; single pairs and shared parameters have tests
of their own. JAX's float64 cases are compiled with little optimisation, its float32 cases as users compile them.
PyTorch's batch_loop compiles its single pair, a scan_select, through inductor by itself: that is scan_select's shape,
and other cases of batch_loop run inside a compile that only traces.

Run with -s to see the worst errors, which stand beside the tolerances in shared/numerics.py.
"""

from collections.abc import Iterator

import numpy as np
import pytest
from frameworks import (
    AWKWARD_SIZES,
    DTYPES,
    FRAMEWORKS,
    PROBLEMS,
    Inputs,
    assert_parity,
    poison,
    ragged,
    reference_result,
    run,
    single,
    worst_errors,
)

from shared.sequences import GLOBINS, all_pairs, pair_batch, read_fasta, substitution_matrix
from shared.variants import variant_names

UNROLLED = ("cell_loop", "diagonal_loop")
SCANNING = ("scan_cond", "scan_select", "batch_loop", "vmap")
# XLA needs a second for 7 cells written out
FEW_CELLS = ((1, 1), (1, 7), (7, 1), (3, 4))
# PyTorch traces a scan anew for almost every size, in a second or more
TRACED = ((7, 1), (5, 8), (63, 17))


def how_to_run(framework: str, variant: str, dtype: str) -> str:
    """The cheapest way that is still the variant itself."""
    if framework == "jax":
        return "compiled" if dtype == "float32" else "quick"
    return "quick" if variant == "batch_loop" else "eager"


def cases() -> Iterator[tuple[str, str, str, tuple[int, int], str, dict]]:
    """(framework, problem, variant, size, dtype, options), as the table above says."""
    for problem, (_, options) in PROBLEMS.items():
        for framework, dtype in ((framework, dtype) for framework in FRAMEWORKS for dtype in DTYPES):
            for variant in variant_names(problem):
                sizes = AWKWARD_SIZES
                if framework == "jax" and variant == "cell_loop":
                    sizes = FEW_CELLS if dtype == "float64" else FEW_CELLS[-1:]
                elif dtype == "float32" and (framework == "jax" or variant in SCANNING):
                    sizes = ((5, 8),) if variant in UNROLLED else ((5, 8), (63, 17))
                elif framework == "jax" and variant == "diagonal_loop":
                    sizes = AWKWARD_SIZES[:-2]
                elif framework == "jax" and variant != "scan_select":
                    sizes = ((1, 1), (1, 7), (8, 5), (63, 17))
                if framework == "torch" and variant == "batch_loop":
                    sizes = sizes[-2:-1]
                elif framework == "torch" and variant in SCANNING and dtype == "float64":
                    sizes = TRACED
                for number, size in enumerate(sizes):
                    # some options need two rows and columns, and find nothing in less
                    turn = number % len(options) if min(size) > 1 else 0
                    yield framework, problem, variant, size, dtype, options[turn]


@pytest.fixture(scope="module", autouse=True)
def summary() -> Iterator[None]:
    """Print the worst errors of this module, which pytest shows with -s."""
    worst_errors.clear()
    yield
    for (dtype, what), error in sorted(worst_errors.items()):
        print(f"\nworst error, {dtype}, {what}: {error:.1e}", end="")


@pytest.mark.parametrize(("framework", "problem", "variant", "size", "dtype", "options"), list(cases()), ids=str)
def test_a_ragged_batch_equals_the_reference(framework, problem, variant, size, dtype, options):
    inputs = ragged(*size, problem=problem)
    result = run(framework, inputs, dtype, variant, how_to_run(framework, variant, dtype), problem, **options)
    expected = reference_result(inputs, problem, **options)
    assert_parity(result, expected, dtype, inputs.parameters["temperature"])


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("variant", SCANNING)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_single_pair_equals_the_reference(framework, variant, problem):
    inputs, options = single(5, 8, problem=problem), PROBLEMS[problem].options[0]
    result = run(framework, inputs, "float64", variant, how_to_run(framework, variant, "float64"), problem, **options)
    assert_parity(result, reference_result(inputs, problem, **options), "float64", inputs.parameters["temperature"])


@pytest.mark.parametrize("variant", ["auto", *UNROLLED])
@pytest.mark.parametrize("size", AWKWARD_SIZES)
def test_a_single_pair_equals_the_reference_in_torch(size, variant):
    for problem, (_, every) in PROBLEMS.items():
        for options in every:
            inputs = single(*size, problem=problem)
            result = run("torch", inputs, "float64", variant, problem=problem, **options)
            expected = reference_result(inputs, problem, **options)
            assert_parity(result, expected, "float64", inputs.parameters["temperature"])


@pytest.mark.parametrize("variant", ["diagonal_loop", "scan_select"])
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_parameters_shared_by_a_batch_equal_the_reference(framework, variant):
    for problem, (_, every) in PROBLEMS.items():
        inputs = ragged(5, 8, problem=problem, per_pair=False)
        how = how_to_run(framework, variant, "float64")
        result = run(framework, inputs, "float64", variant, how, problem, **every[0])
        assert result.gradients["temperature"].shape == ()
        assert_parity(
            result, reference_result(inputs, problem, **every[0]), "float64", inputs.parameters["temperature"]
        )


@pytest.mark.parametrize("variant", [*UNROLLED, "scan_cond", "batch_loop"])
def test_a_variant_compiled_by_inductor_equals_the_reference(variant):
    inputs = ragged(*{"cell_loop": (1, 2), "diagonal_loop": (2, 2)}.get(variant, (3, 4)))
    # batch_loop compiles its single pair by itself
    how = "eager" if variant == "batch_loop" else "compiled"
    result = run("torch", inputs, "float32", variant, how, end="any")
    assert_parity(result, reference_result(inputs, end="any"), "float32", inputs.parameters["temperature"])


@pytest.mark.parametrize(("variant", "how"), [("auto", "eager"), ("vmap", "compiled")])
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_globins_equal_the_reference(framework, variant, how, globins):
    inputs, expected = globins
    if (framework, how) == ("jax", "eager"):
        how = "compiled"  # of the same speed as its eager scan
    assert_parity(run(framework, inputs, "float32", variant, how, end="any"), expected, "float32", 1.0)


@pytest.fixture(scope="module")
def globins():
    records = read_fasta(GLOBINS)
    pairs = all_pairs(len(records))
    similarity, lengths = pair_batch(
        records, pairs[:1] + pairs[20:22] + pairs[-1:], substitution_matrix("BLOSUM62"), GLOBINS
    )
    parameters = {"gap": np.array(-4.0), "temperature": np.array(1.0)}
    cotangent = np.array([1.0, -0.5, 0.75, -1.25])
    inputs = Inputs(poison(similarity.astype(np.float64), lengths), lengths, parameters, cotangent)
    return inputs, reference_result(inputs, end="any")
