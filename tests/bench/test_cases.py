"""The cases of a run: which variants, on which framework and input, in which order, compiled or not."""

from typing import Any

from shared.bench.cases import Absence, Case, Settings
from shared.bench.questions import QUESTIONS
from shared.problems.problem import BATCH, SINGLE
from shared.variants import Abilities, variant_names
from tools.validate_protocol import Validation

PASSES = ("score", "marginals", "hvp")  # that every variant may have
LADDER = variant_names("smith_waterman")
AUTO = {"jax": "vmap", "torch": "diagonal_loop"}
# the ladder's two inputs: what is a batch by nature, what is made for either
ON_BATCH, ON_BOTH = {"batch_loop", "vmap"}, {"wavefront", "cuda_graph", "fused"}


def planned(
    question: Any = QUESTIONS["speed"],
    inputs: tuple[str, ...] = (BATCH,),
    lacks: dict[str, Any] | None = None,
    **asked: Any,
) -> tuple[list[Case], list[Absence]]:
    """JAX can do everything; lacks: what PyTorch cannot do."""
    abilities = {name: Abilities(auto, **((lacks or {}) if name == "torch" else {})) for name, auto in AUTO.items()}
    return question.cases(Settings(**asked), abilities, inputs)


def ladder(lacks: dict[str, Any] | None = None, **asked: Any) -> tuple[list[Case], list[Absence]]:
    return planned(QUESTIONS["ladder"], (SINGLE, BATCH), lacks, **asked)


def names(cases: list[Case]) -> list[tuple[str, str, str]]:
    return [(case.pass_name, case.variant, case.framework) for case in cases]


def test_the_default_is_a_few_variants_and_each_frameworks_choice():
    one_pass = [("diagonal_loop", "torch")]
    one_pass += [(variant, framework) for variant in ("vmap", "wavefront") for framework in AUTO]
    assert names(planned()[0]) == [(name, *rung) for name in ("score", "marginals") for rung in one_pass]
    on_gpu = [*one_pass, ("cuda_graph", "jax"), ("cuda_graph", "torch")]
    assert names(planned(device="cuda", passes=("score",))[0]) == [("score", *rung) for rung in on_gpu]


def test_auto_is_each_frameworks_choice_and_measured_once():
    expected = [("score", "diagonal_loop", "torch"), ("score", "vmap", "jax")]
    assert names(planned(variants=("auto",), passes=("score",))[0]) == expected
    assert names(planned(variants=("auto", "diagonal_loop"), passes=("score",))[0])[1:] == expected
    assert {case[1:] for case in names(ladder(variants=("auto",))[0])} == {case[1:] for case in expected}


def test_frameworks_are_side_by_side_in_the_order_of_passes_and_rungs():
    cases, _ = planned(inputs=("32x32", "64x48"), variants=("vmap", "scan_cond"), passes=PASSES)
    one = [(name, variant, framework) for name in PASSES for variant in ("scan_cond", "vmap") for framework in AUTO]
    assert names(cases) == one * 2
    assert [case.input for case in cases] == ["32x32"] * len(one) + ["64x48"] * len(one)
    once, twice = planned()[0], planned(Validation(0.05))[0]  # each label has cases of its own
    assert [(case.title, case.worker_key) for case in twice] == [
        (f"{case.title}, {label}", (case.framework, label)) for case in once for label in "AB"
    ]
    assert all(first.group == second.group for first, second in zip(twice[::2], twice[1::2], strict=True))


def test_quick_leaves_out_cases_that_take_long_to_compile():
    lacks = {"slow_compiler": "it takes a minute", "uncompiled_variants": {"wavefront": "one operator already"}}
    cases, absent = planned(lacks=lacks, passes=("score",), variants=("vmap", "wavefront"), quick=True)
    assert names(cases) == [("score", "vmap", "jax"), ("score", "wavefront", "jax"), ("score", "wavefront", "torch")]
    assert absent == [Absence("torch", "PyTorch vmap score", "it takes a minute")]


def test_a_case_that_a_framework_cannot_run_is_reported_once_if_it_was_asked_for():
    lacks = {"absent": {"vmap": "no batching rule", "scan_cond": "no gradient"}}
    cases, absent = planned(lacks=lacks, variants=("vmap",), passes=("score",))
    assert names(cases) == [("score", "vmap", "jax")]
    assert absent == [Absence("torch", "PyTorch vmap score", "no batching rule")]
    lacks = {"first_order": {"vmap": "wrong second derivatives"}, "uncompiled_passes": {"hvp": "no double backward"}}
    cases, absent = planned(lacks=lacks, variants=("diagonal_loop", "vmap"), passes=PASSES)
    assert len(cases) == 11 and absent == [Absence("torch", "PyTorch vmap hvp", "wrong second derivatives")]
    cases, absent = ladder(lacks, variants=("diagonal_loop",), passes=("hvp",))
    assert [(case.framework, case.compiled) for case in cases] == [("jax", False), ("jax", True), ("torch", False)]
    assert absent == [Absence("torch", "PyTorch diagonal_loop hvp", "no double backward")]


def test_best_alignments_are_those_of_the_native_kernels():
    cases, absent = planned(passes=("path",), lacks={"absent": {"fused": "no compiler"}})
    assert names(cases) == [("path", "fused", "jax")]
    assert absent == [Absence("torch", "PyTorch fused path", "no compiler")]
    cases, absent = planned(variants=("vmap", "fused"), passes=("path",))
    assert names(cases) == [("path", "fused", "jax"), ("path", "fused", "torch")]
    reason = "best alignments have one implementation, the native kernels of fused"
    assert absent == [Absence("jax", "JAX vmap path", reason), Absence("torch", "PyTorch vmap path", reason)]


def test_unrolled_loops_and_rungs_that_gain_nothing_are_compiled_only_on_the_ladder():
    lacks = {"uncompiled_variants": {"wavefront": "one operator already"}}
    plain = {(case.framework, case.variant) for case in planned(lacks=lacks, variants=LADDER)[0] if not case.compiled}
    unrolled = {(framework, variant) for framework in AUTO for variant in ("cell_loop", "diagonal_loop", "batch_loop")}
    assert plain == unrolled | {("torch", "wavefront")}
    rungs = {(case.framework, case.compiled) for case in ladder(lacks, variants=("wavefront",))[0]}
    assert rungs == {(framework, compiled) for framework in AUTO for compiled in (False, True)}


def test_the_ladder_measures_every_rung_in_both_modes_on_the_input_it_is_made_for():
    for device in ("cpu", "cuda"):
        cases, _ = ladder(passes=("score",), device=device)
        assert [(case.input, case.variant, case.framework, case.compiled) for case in cases] == [
            (name, variant, framework, compiled)
            for name, rungs in ((SINGLE, set(LADDER) - ON_BATCH), (BATCH, ON_BATCH | ON_BOTH))
            for variant in LADDER
            if variant in rungs and (device == "cuda" or variant != "cuda_graph")
            for framework in AUTO
            for compiled in (False, True)
        ]
