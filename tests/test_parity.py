"""Every variant of both frameworks equals the reference: scores, and gradients through a random cotangent.

A case is a ragged batch with poisoned padding and parameters per pair. The variants whose derivatives are written by
hand are shown every problem and option, in PyTorch at every awkward size; XLA compiles them anew for every size.
The others compute all problems by the same code, so that SWEEPS lists a few sizes, and a float type or both, for each:
smith_waterman by every variant, and each problem by some. A problem's options take turns over the sizes.

Single pairs, shared parameters, the bundled globins and PyTorch's compiler have tests of their own. JAX's float64 cases
are compiled with little optimisation, its float32 cases of smith_waterman and fused as users compile them; PyTorch runs
eagerly. PyTorch's batch_loop compiles its single pair through inductor by itself: that is done for one shape, and its
other cases run inside a compile that only traces, on three pairs.

Run with -s to see the worst errors, which stand beside the tolerances in shared/tolerances.py.
"""

import functools
import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from frameworks import (
    AWKWARD_SIZES,
    BY_HAND,
    DTYPES,
    FRAMEWORKS,
    PROBLEMS,
    Inputs,
    Result,
    assert_parity,
    of_pairs,
    poison,
    ragged,
    reference_result,
    run,
    single,
    worst_errors,
)

from shared.sequences import GLOBINS, pair_batch, read_fasta, substitution_matrix
from shared.variants import FOR_GPUS, variant_names

Sizes = tuple[tuple[int, int], ...]
# (framework, variant, problem, sizes in float64, sizes in float32). XLA takes a second for every seven cells written
# out, and PyTorch a second or more to trace a scan of a new size
SWEEPS: list[tuple[str, str, str, Sizes, Sizes]] = [
    ("jax", "cell_loop", "smith_waterman", ((3, 2),), ((1, 3),)),
    ("jax", "cell_loop", "smith_waterman_affine", ((2, 2),), ()),
    ("jax", "cell_loop", "free_gap", (), ((2, 2),)),
    ("jax", "cell_loop", "needleman_wunsch", ((2, 3),), ()),
    ("jax", "diagonal_loop", "smith_waterman", ((1, 4),), ((3, 4),)),
    ("jax", "diagonal_loop", "smith_waterman_affine", ((2, 3),), ()),
    ("jax", "diagonal_loop", "free_gap", (), ((2, 3),)),
    ("jax", "diagonal_loop", "needleman_wunsch", ((3, 2),), ()),
    ("jax", "scan_cond", "smith_waterman", ((8, 5),), ((1, 7),)),
    ("jax", "scan_cond", "smith_waterman_affine", ((3, 4),), ()),
    ("jax", "scan_cond", "needleman_wunsch", ((3, 4),), ()),
    ("jax", "scan_select", "smith_waterman", ((1, 1), (7, 1), (63, 17)), ((5, 8),)),
    ("jax", "scan_select", "smith_waterman_affine", ((3, 4), (4, 3), (5, 8), (8, 5)), ()),
    ("jax", "scan_select", "free_gap", ((8, 5),), ()),
    ("jax", "scan_select", "needleman_wunsch", ((5, 8), (17, 9)), ()),
    ("jax", "batch_loop", "smith_waterman", (), ((4, 3),)),
    ("jax", "batch_loop", "needleman_wunsch", ((3, 4),), ()),
    ("jax", "vmap", "smith_waterman", ((7, 1), (17, 9)), ((5, 8),)),
    ("jax", "vmap", "smith_waterman_affine", (), ((5, 8),)),
    ("jax", "vmap", "free_gap", (), ((5, 8),)),
    ("jax", "vmap", "needleman_wunsch", (), ((8, 5),)),
    *(("torch", "cell_loop", problem, AWKWARD_SIZES[:-1], ((5, 8),)) for problem in PROBLEMS),
    *(("torch", "diagonal_loop", problem, AWKWARD_SIZES, AWKWARD_SIZES) for problem in PROBLEMS),
    ("torch", "scan_cond", "smith_waterman", (), ((5, 8),)),
    ("torch", "scan_cond", "needleman_wunsch", ((3, 4),), ()),
    ("torch", "scan_select", "smith_waterman", ((7, 1),), ((5, 8),)),
    ("torch", "scan_select", "free_gap", (), ((3, 4),)),
    ("torch", "batch_loop", "smith_waterman", ((3, 4),), ()),
    ("torch", "vmap", "smith_waterman", (), ((5, 8),)),
    ("torch", "vmap", "smith_waterman_affine", ((3, 4),), ()),
]
WAVEFRONT = [
    ("jax", "wavefront", "smith_waterman", ((1, 1), (1, 7), (8, 5), (63, 17)), ((5, 8),)),
    ("jax", "wavefront", "smith_waterman_affine", ((5, 8), (8, 5), (17, 9), (3, 4)), ((5, 8),)),
    ("jax", "wavefront", "free_gap", ((8, 5),), ((1, 7),)),
    ("jax", "wavefront", "needleman_wunsch", ((1, 7), (17, 9)), ((8, 5),)),
    *(("torch", "wavefront", problem, AWKWARD_SIZES, AWKWARD_SIZES) for problem in PROBLEMS),
]
FUSED = [
    *(("jax", "fused", problem, ((1, 1), (7, 1), (5, 8), (63, 17)), ((1, 7), (8, 5))) for problem in PROBLEMS),
    *(("torch", "fused", problem, AWKWARD_SIZES, AWKWARD_SIZES) for problem in PROBLEMS),
]
# pairs of a ragged batch for PyTorch's batch_loop, which traces each by itself
EMPTY_AND_PARTIAL = (1, 4, 5)
SCANNING = ("scan_cond", "scan_select", "batch_loop", "vmap")


def how_to_run(framework: str, variant: str, dtype: str, problem: str = "smith_waterman") -> str:
    """The cheapest way that is still the variant itself."""
    if framework == "jax":
        optimised = dtype == "float32" and (problem == "smith_waterman" or variant == "fused")
        return "compiled" if optimised else "quick"
    return "quick" if variant == "batch_loop" else "eager"


def cases() -> Iterator[tuple[str, str, str, tuple[int, int], str, dict]]:
    """(framework, problem, variant, size, dtype, options)."""
    for framework, variant, problem, *by_dtype in (*SWEEPS, *WAVEFRONT, *FUSED):
        options = PROBLEMS[problem].options
        for first, (dtype, sizes) in enumerate(zip(("float64", "float32"), by_dtype, strict=True)):
            for number, size in enumerate(sizes, first):
                # some options need two rows and columns, and find nothing in less
                turn = number % len(options) if min(size) > 1 else 0
                for chosen in options if variant == "fused" else [options[turn]]:
                    yield framework, problem, variant, size, dtype, chosen


@pytest.fixture(scope="module", autouse=True)
def _report() -> Iterator[None]:
    """Print the worst errors of this module, which pytest shows with -s."""
    worst_errors.clear()
    yield
    for (dtype, what), error in sorted(worst_errors.items()):
        print(f"\nworst error, {dtype}, {what}: {error:.1e}", end="")


@pytest.mark.parametrize(("framework", "problem", "variant", "size", "dtype", "options"), list(cases()), ids=str)
def test_a_ragged_batch_equals_the_reference(framework, problem, variant, size, dtype, options):
    inputs = ragged(*size, problem=problem)
    if (framework, variant) == ("torch", "batch_loop"):
        inputs = of_pairs(inputs, EMPTY_AND_PARTIAL)
    result = run(framework, inputs, dtype, variant, how_to_run(framework, variant, dtype, problem), problem, **options)
    expected = reference_result(inputs, problem, **options)
    assert_parity(result, expected, dtype, inputs.parameters["temperature"])


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_cases_cover_every_variant_problem_and_option(framework):
    own = [
        (problem, variant, dtype, options) for name, problem, variant, _, dtype, options in cases() if name == framework
    ]
    for problem, (_, every) in PROBLEMS.items():
        seen = [(variant, dtype, options) for name, variant, dtype, options in own if name == problem]
        assert any(variant in SCANNING for variant, _, _ in seen)
        assert {(variant, dtype) for variant, dtype, _ in seen} >= set(itertools.product(BY_HAND, DTYPES))
        for variant in (*BY_HAND, "scan_select" if framework == "jax" else "diagonal_loop"):
            assert all(options in [options for name, _, options in seen if name == variant] for options in every)
    variants = {name for name in variant_names("smith_waterman") if name not in FOR_GPUS}
    assert {variant for problem, variant, _, _ in own if problem == "smith_waterman"} == variants


# those that treat a single pair differently from a batch
SINGLE = [
    *((framework, variant, "smith_waterman") for framework in FRAMEWORKS for variant in ("batch_loop", "vmap")),
    ("jax", "wavefront", "smith_waterman"),
    ("jax", "wavefront", "needleman_wunsch"),
]
# where a size costs nothing but its cells
ANY_SIZE = [("jax", "fused"), *(("torch", variant) for variant in ("cell_loop", "diagonal_loop", *BY_HAND))]


@pytest.mark.parametrize(("framework", "variant", "problem"), SINGLE)
def test_a_single_pair_equals_the_reference(framework, variant, problem):
    inputs, options = single(5, 8, problem=problem), PROBLEMS[problem].options[0]
    result = run(framework, inputs, "float64", variant, how_to_run(framework, variant, "float64"), problem, **options)
    assert_parity(result, reference_result(inputs, problem, **options), "float64", inputs.parameters["temperature"])


@pytest.mark.parametrize(("framework", "variant"), ANY_SIZE)
@pytest.mark.parametrize("size", [(1, 1), (1, 7), (8, 5)])
def test_a_single_pair_of_any_size_equals_the_reference(size, framework, variant):
    for problem, (_, every) in PROBLEMS.items():
        for options in every:
            inputs = single(*size, problem=problem)
            result = run(
                framework, inputs, "float64", variant, how_to_run(framework, variant, "float64"), problem, **options
            )
            expected = reference_result(inputs, problem, **options)
            assert_parity(result, expected, "float64", inputs.parameters["temperature"])


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("variant", BY_HAND)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_parameters_shared_by_a_batch_equal_the_reference(framework, variant, problem):
    inputs, options = ragged(5, 8, problem=problem, per_pair=False), PROBLEMS[problem].options[-1]
    result = run(framework, inputs, "float64", variant, how_to_run(framework, variant, "float64"), problem, **options)
    assert all(result.gradients[name].shape == () for name in inputs.parameters)
    assert_parity(result, reference_result(inputs, problem, **options), "float64", inputs.parameters["temperature"])


@pytest.mark.parametrize(("framework", "variant"), [("jax", "scan_select"), ("torch", "diagonal_loop")])
def test_parameters_shared_by_a_batch_equal_the_reference_in_a_sweep(framework, variant):
    inputs = ragged(5, 8, per_pair=False)
    how = how_to_run(framework, variant, "float64")
    result = run(framework, inputs, "float64", variant, how, end="any")
    assert_parity(result, reference_result(inputs, end="any"), "float64", inputs.parameters["temperature"])


@pytest.mark.parametrize(
    ("variant", "problem", "size"),
    [
        ("scan_cond", "free_gap", (2, 3)),
        ("batch_loop", "needleman_wunsch", (3, 4)),
        ("wavefront", "smith_waterman_affine", (3, 4)),
        ("fused", "smith_waterman_affine", (3, 4)),
    ],
)
def test_a_variant_compiled_by_inductor_equals_the_reference(variant, problem, size):
    inputs, options, how = ragged(*size, problem=problem), PROBLEMS[problem].options[0], "compiled"
    if variant == "batch_loop":  # which compiles its single pair by itself
        inputs, how = of_pairs(inputs, EMPTY_AND_PARTIAL), "eager"
    result = run("torch", inputs, "float32", variant, how, problem, **options)
    assert_parity(result, reference_result(inputs, problem, **options), "float32", inputs.parameters["temperature"])


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("variant", BY_HAND)
def test_what_torch_captures_of_a_variant_by_hand_equals_the_reference(variant, problem):
    inputs, options = ragged(5, 8, problem=problem), PROBLEMS[problem].options[-1]
    result = run("torch", inputs, "float64", variant, "quick", problem, **options)
    assert_parity(result, reference_result(inputs, problem, **options), "float64", inputs.parameters["temperature"])


ON_GLOBINS = [("jax", "vmap", "smith_waterman"), ("torch", "diagonal_loop", "smith_waterman")]
ON_GLOBINS += [("jax", "wavefront", "smith_waterman_affine")]  # one: XLA takes seconds for each problem
ON_GLOBINS += itertools.product(FRAMEWORKS, ["fused"], PROBLEMS)
ON_GLOBINS += itertools.product(["torch"], ["wavefront"], PROBLEMS)


@pytest.mark.parametrize(("framework", "variant", "problem"), ON_GLOBINS)
def test_globins_equal_the_reference(framework, variant, problem):
    inputs, expected = globins(problem)
    how = "compiled" if framework == "jax" else "eager"
    result = run(framework, inputs, "float32", variant, how, problem, **PROBLEMS[problem].options[0])
    assert_parity(result, expected, "float32", 1.0)


@functools.cache
def globins(problem: str) -> tuple[Inputs, Result]:
    """Three pairs, the longest and the shortest among them, and their results by the reference."""
    records = read_fasta(GLOBINS)
    order = sorted(
        itertools.combinations(range(len(records)), 2),
        key=lambda pair: len(records[pair[0]].letters) * len(records[pair[1]].letters),
    )
    pairs = [order[0], order[len(order) // 2], order[-1]]
    similarity, lengths, _ = pair_batch(records, pairs, substitution_matrix("BLOSUM62"), GLOBINS)
    usual = {"gap": -4.0, "gap_open": -11.0, "gap_extend": -1.0, "temperature": 1.0}
    parameters = {name: np.array(usual[name]) for name in PROBLEMS[problem].parameters}
    poisoned = poison(similarity.astype(np.float64), lengths)
    inputs = Inputs(poisoned, lengths, parameters, np.array([1.0, -0.5, 0.75]))
    return inputs, reference_result(inputs, problem, **PROBLEMS[problem].options[0])
