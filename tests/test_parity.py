"""Every variant of both frameworks equals the reference: scores, and gradients through a random cotangent.

SIZES says which sizes each rung is shown, by problem, framework and dtype; each problem's options take turns over them.
smith_waterman climbs the ladder in breadth. The other problems run through the same sweeps, so for them every rung has
a size in float64, and more where they are cheap or show every option: JAX's scan_select and vmap, PyTorch's
diagonal_loop. The variants whose derivatives are written by hand are shown all sizes with every problem, and fused
every option at each of them; of JAX's, which compiles every size anew, the other problems have four sizes in float64.

A size is a ragged batch with poisoned padding and parameters per pair; single pairs, shared parameters, the bundled
globins and PyTorch's compiler, which each rung meets with one problem, have tests of their own. JAX's float64 cases are
compiled with little optimisation, its float32 cases of smith_waterman, scan_select and fused as users compile them;
PyTorch, and smith_waterman by JAX's fused in float64, run eagerly. PyTorch's batch_loop compiles its single pair, a
scan_select, through inductor by itself: that is done for one shape, and its other cases run inside a compile that only
traces, on three pairs.

Run with -s to see the worst errors, which stand beside the tolerances in shared/tolerances.py.
"""

import functools
import itertools
from collections.abc import Iterator, Sequence

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
    poison,
    ragged,
    reference_result,
    run,
    single,
    worst_errors,
)

from shared.sequences import GLOBINS, all_pairs, pair_batch, read_fasta, substitution_matrix
from shared.variants import FOR_GPUS, variant_names

SCANNING = ("scan_cond", "scan_select", "batch_loop", "vmap")
ONE, TWO, FOUR = ((5, 8),), ((5, 8), (63, 17)), ((1, 1), (1, 7), (8, 5), (63, 17))
FEW = ((3, 4),)
# XLA needs a second for 7 cells written out, and compiles every size anew
FEW_CELLS = ((1, 1), (1, 7), (7, 1), (3, 4))
# PyTorch traces a scan anew for almost every size, in a second or more
TRACED = ((7, 1), (5, 8), (63, 17))
# as many as the affine problem has options, none of them too small for a turn
FOUR_TURNS = ((3, 4), (4, 3), (5, 8), (8, 5))
# in which every option has a turn where it finds something; what is too small for one gets the first
AFFINE_TURNS = ((5, 8), (8, 5), (17, 9), (63, 17), (1, 7))

# framework -> variant -> sizes in float64, sizes in float32
Sizes = tuple[tuple[int, int], ...]
SMITH_WATERMAN: dict[str, dict[str, tuple[Sizes, Sizes]]] = {
    "jax": {
        "cell_loop": (FEW_CELLS, FEW),
        "diagonal_loop": (AWKWARD_SIZES[:-3], ONE),
        "scan_cond": (FOUR, ONE),
        "scan_select": (AWKWARD_SIZES, TWO),
        "batch_loop": (FOUR[:-1], ONE),
        "vmap": (FOUR, ONE),
        "wavefront": (AWKWARD_SIZES, TWO),
        "fused": (AWKWARD_SIZES, AWKWARD_SIZES),
    },
    "torch": {
        "cell_loop": (AWKWARD_SIZES, AWKWARD_SIZES),
        "diagonal_loop": (AWKWARD_SIZES, AWKWARD_SIZES),
        "scan_cond": (TRACED[:-1], ONE),
        "scan_select": (TRACED, TWO),
        "batch_loop": (((17, 9),), ONE),
        "vmap": (TRACED, ONE),
        "wavefront": (AWKWARD_SIZES, AWKWARD_SIZES),
        "fused": (AWKWARD_SIZES, AWKWARD_SIZES),
    },
}
OTHERS: dict[str, dict[str, tuple[Sizes, Sizes]]] = {
    "jax": {
        "cell_loop": (((2, 3),), ((3, 2),)),
        "diagonal_loop": (FEW, ()),
        "scan_cond": (FEW, ()),
        "scan_select": (FOUR_TURNS, ONE),
        "batch_loop": (FEW, ()),
        "vmap": (ONE, ONE),
        "wavefront": (FOUR, ONE),
        "fused": (FOUR, TWO),
    },
    "torch": {
        "cell_loop": (ONE, ONE),
        "diagonal_loop": (AWKWARD_SIZES, TWO),
        "scan_cond": (FEW, ()),
        "scan_select": (FEW, ()),
        "batch_loop": (FEW, ()),
        "vmap": (FEW, ()),
        "wavefront": (AWKWARD_SIZES, AWKWARD_SIZES),
        "fused": (AWKWARD_SIZES, AWKWARD_SIZES),
    },
}
# of the other problems, whose sweeps smith_waterman shows in both
OF_ONE_DTYPE = {"jax": ("diagonal_loop", "scan_cond", "batch_loop"), "torch": SCANNING}
AFFINE = OTHERS | {"jax": OTHERS["jax"] | {"vmap": (FOUR_TURNS, ONE), "wavefront": (AFFINE_TURNS, ONE)}}
SIZES = dict.fromkeys(PROBLEMS, OTHERS) | {"smith_waterman": SMITH_WATERMAN, "smith_waterman_affine": AFFINE}


def how_to_run(framework: str, variant: str, dtype: str, problem: str = "smith_waterman") -> str:
    """The cheapest way that is still the variant itself."""
    if framework == "jax" and (variant, dtype, problem) != ("fused", "float64", "smith_waterman"):
        optimised = dtype == "float32" and (problem == "smith_waterman" or variant in ("scan_select", "fused"))
        return "compiled" if optimised else "quick"
    return "quick" if variant == "batch_loop" else "eager"


def cases() -> Iterator[tuple[str, str, str, tuple[int, int], str, dict]]:
    """(framework, problem, variant, size, dtype, options), as SIZES says."""
    for problem, (_, options) in PROBLEMS.items():
        for framework, variants in SIZES[problem].items():
            for variant, by_dtype in variants.items():
                for first, (dtype, sizes) in enumerate(zip(("float64", "float32"), by_dtype, strict=True)):
                    for number, size in enumerate(sizes, first):
                        # some options need two rows and columns, and find nothing in less
                        turn = number % len(options) if min(size) > 1 else 0
                        for chosen in options if variant == "fused" else [options[turn]]:
                            yield framework, problem, variant, size, dtype, chosen


def of_pairs(inputs: Inputs, chosen: Sequence[int]) -> Inputs:
    """A batch of some pairs of a batch whose parameters are per pair."""
    assert inputs.lengths is not None
    pairs = list(chosen)
    parameters = {name: value[pairs] for name, value in inputs.parameters.items()}
    return Inputs(inputs.similarity[pairs], inputs.lengths[pairs], parameters, inputs.cotangent[pairs])


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
        inputs = of_pairs(inputs, (1, 4, 5))  # without rows, and partial ones: each is traced by itself
    result = run(framework, inputs, dtype, variant, how_to_run(framework, variant, dtype, problem), problem, **options)
    expected = reference_result(inputs, problem, **options)
    assert_parity(result, expected, dtype, inputs.parameters["temperature"])


@pytest.mark.parametrize("problem", PROBLEMS)
def test_the_cases_cover_every_rung_and_every_option(problem):
    own = [case for case in cases() if case[1] == problem]
    for framework in FRAMEWORKS:
        rungs = {(variant, dtype) for where, _, variant, _, dtype, _ in own if where == framework}
        in_one = OF_ONE_DTYPE[framework] if problem != "smith_waterman" else ()
        assert rungs == {
            (variant, dtype)
            for variant in variant_names(problem)
            if variant not in FOR_GPUS
            for dtype in (("float64",) if variant in in_one else DTYPES)
        }
    by_hand = [(framework, variant) for framework in FRAMEWORKS for variant in BY_HAND]
    for framework, variant in (("jax", "scan_select"), ("jax", "vmap"), ("torch", "diagonal_loop"), *by_hand):
        seen = [case for case in own if (case[0], case[2]) == (framework, variant)]
        assert all(options in [case[5] for case in seen] for options in PROBLEMS[problem].options)
        if (problem == "smith_waterman" and variant != "vmap") or framework == "torch":
            assert {size for _, _, _, size, dtype, _ in seen if dtype == "float64"} == set(AWKWARD_SIZES)


SINGLE = [
    *((framework, variant, "smith_waterman") for framework in FRAMEWORKS for variant in SCANNING),
    *(("jax", "vmap", problem) for problem in PROBLEMS if problem != "smith_waterman"),
    *(("jax", "wavefront", problem) for problem in PROBLEMS),
]
# where a size costs nothing but its cells
ANY_SIZE = [("jax", "fused"), *(("torch", variant) for variant in ("cell_loop", "diagonal_loop", *BY_HAND))]


@pytest.mark.parametrize(("framework", "variant", "problem"), SINGLE)
def test_a_single_pair_equals_the_reference(framework, variant, problem):
    inputs, options = single(5, 8, problem=problem), PROBLEMS[problem].options[0]
    result = run(framework, inputs, "float64", variant, how_to_run(framework, variant, "float64"), problem, **options)
    assert_parity(result, reference_result(inputs, problem, **options), "float64", inputs.parameters["temperature"])


@pytest.mark.parametrize(("framework", "variant"), ANY_SIZE)
@pytest.mark.parametrize("size", AWKWARD_SIZES)
def test_a_single_pair_of_any_size_equals_the_reference(size, framework, variant):
    for problem, (_, every) in PROBLEMS.items():
        # a long loop over cells shows nothing that a short one does not
        for options in every if variant != "cell_loop" or max(size) < 9 else every[:1]:
            inputs = single(*size, problem=problem)
            result = run(framework, inputs, "float64", variant, problem=problem, **options)
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


@pytest.mark.parametrize(
    ("framework", "variant"), [("jax", "scan_select"), ("torch", "scan_select"), ("torch", "diagonal_loop")]
)
def test_parameters_shared_by_a_batch_equal_the_reference_in_a_sweep(framework, variant):
    inputs = ragged(5, 8, per_pair=False)
    how = how_to_run(framework, variant, "float64")
    result = run(framework, inputs, "float64", variant, how, end="any")
    assert_parity(result, reference_result(inputs, end="any"), "float64", inputs.parameters["temperature"])


@pytest.mark.parametrize(
    ("variant", "problem", "size"),
    [
        ("cell_loop", "free_gap", (1, 2)),
        ("diagonal_loop", "smith_waterman", (2, 2)),
        ("scan_cond", "smith_waterman", (3, 4)),
        ("batch_loop", "needleman_wunsch", (3, 4)),
        ("vmap", "smith_waterman_affine", (3, 4)),
        ("wavefront", "smith_waterman_affine", (3, 4)),
        ("fused", "smith_waterman_affine", (3, 4)),
    ],
)
def test_a_variant_compiled_by_inductor_equals_the_reference(variant, problem, size):
    inputs, options = ragged(*size, problem=problem), PROBLEMS[problem].options[0]
    # batch_loop compiles its single pair by itself
    how = "eager" if variant == "batch_loop" else "compiled"
    result = run("torch", inputs, "float32", variant, how, problem, **options)
    assert_parity(result, reference_result(inputs, problem, **options), "float32", inputs.parameters["temperature"])


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("variant", BY_HAND)
def test_what_torch_captures_of_a_variant_by_hand_equals_the_reference(variant, problem):
    inputs, options = ragged(5, 8, problem=problem), PROBLEMS[problem].options[-1]
    result = run("torch", inputs, "float64", variant, "quick", problem, **options)
    assert_parity(result, reference_result(inputs, problem, **options), "float64", inputs.parameters["temperature"])


ON_GLOBINS = [("jax", "vmap"), ("torch", "diagonal_loop"), *itertools.product(FRAMEWORKS, BY_HAND)]


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize(("framework", "variant"), ON_GLOBINS)
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
        all_pairs(len(records)), key=lambda pair: len(records[pair[0]].letters) * len(records[pair[1]].letters)
    )
    pairs = [order[0], order[len(order) // 2], order[-1]]
    similarity, lengths = pair_batch(records, pairs, substitution_matrix("BLOSUM62"), GLOBINS)
    usual = {"gap": -4.0, "gap_open": -11.0, "gap_extend": -1.0, "temperature": 1.0}
    parameters = {name: np.array(usual[name]) for name in PROBLEMS[problem].parameters}
    poisoned = poison(similarity.astype(np.float64), lengths)
    inputs = Inputs(poisoned, lengths, parameters, np.array([1.0, -0.5, 0.75]))
    return inputs, reference_result(inputs, problem, **PROBLEMS[problem].options[0])
