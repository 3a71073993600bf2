"""The cases of a run: which variants, on which framework, in which order, compiled or not."""

import json
from typing import Any

import pytest

from shared.bench.plan import PASSES, Absence, Case, Settings, absences, plan
from shared.variants import Abilities, variant_names

AUTO = {"jax": "vmap", "torch": "diagonal_loop"}
LADDER = variant_names("smith_waterman")
UNCOMPILED = {"cell_loop", "diagonal_loop", "batch_loop"}


def abilities(auto: dict[str, str] = AUTO, **torch: Any) -> dict[str, Abilities]:
    """JAX can do everything; torch lacks what is given here, all of it for a reason."""
    everything: dict[str, Any] = {"absent": {}, "first_order": {}, "uncompiled": {}}
    return {name: Abilities(choice, **everything | (torch if name == "torch" else {})) for name, choice in auto.items()}


def planned(auto: dict[str, str] = AUTO, lacks: dict[str, dict[str, str]] | None = None, **settings: Any) -> list[Case]:
    return plan(Settings(**settings), abilities(auto, **lacks or {}))


def left_out(lacks: dict[str, dict[str, str]], **settings: Any) -> list[Absence]:
    return absences(Settings(**settings), abilities(**lacks))


def names(cases: list[Case]) -> list[tuple[str, str, str]]:
    return [(case.pass_name, case.variant, case.framework) for case in cases]


def test_the_default_is_a_few_variants_and_each_framework_s_own_choice():
    one_pass = [
        ("diagonal_loop", "torch"),
        ("scan_select", "jax"),
        ("scan_select", "torch"),
        ("vmap", "jax"),
        ("vmap", "torch"),
        ("wavefront", "jax"),
        ("wavefront", "torch"),
    ]
    assert names(planned()) == [(name, *rung) for name in ("score", "marginals") for rung in one_pass]


def test_frameworks_stand_side_by_side_in_every_pass():
    cases = planned(variants=("vmap", "scan_cond"), passes=PASSES)
    assert names(cases) == [
        (name, variant, framework)
        for name in PASSES
        for variant in ("scan_cond", "vmap")
        for framework in ("jax", "torch")
    ]


def test_auto_is_each_framework_s_own_choice():
    assert names(planned(variants=("auto",), passes=("score",))) == [
        ("score", "diagonal_loop", "torch"),
        ("score", "vmap", "jax"),
    ]


def test_auto_beside_its_own_name_is_measured_once():
    assert names(planned(variants=("auto", "vmap"), passes=("score",), auto={"jax": "vmap"})) == [
        ("score", "vmap", "jax")
    ]


def test_only_frameworks_that_can_be_measured_have_cases():
    assert {case.framework for case in planned(auto={"torch": "vmap"})} == {"torch"}


def test_an_absent_variant_has_no_case_in_its_framework_only():
    lacks = {"absent": {"vmap": "no batching rule"}}
    cases = planned(lacks=lacks, variants=("vmap",), passes=("score",))
    assert names(cases) == [("score", "vmap", "jax")]


def test_a_variant_without_second_derivatives_has_no_case_in_the_pass_that_needs_them():
    lacks = {"first_order": {"vmap": "wrong second derivatives"}}
    cases = planned(lacks=lacks, variants=("vmap",), passes=PASSES)
    assert names(cases) == [
        *((name, "vmap", framework) for name in ("score", "marginals") for framework in AUTO),
        ("hvp", "vmap", "jax"),
    ]


def test_a_pass_that_cannot_be_compiled_is_climbed_without_the_compiler():
    lacks = {"uncompiled": {"hvp": "no double backward"}}
    cases = planned(lacks=lacks, variants=("diagonal_loop",), passes=("hvp",), ladder=True)
    assert [(case.framework, case.compiled) for case in cases] == [("jax", False), ("jax", True), ("torch", False)]


@pytest.mark.parametrize("variant", LADDER)
def test_an_unrolled_loop_is_not_compiled(variant: str):
    cases = planned(variants=(variant,))
    assert {case.compiled for case in cases} == {variant not in UNCOMPILED}
    assert not any(case.single for case in cases)


def test_a_case_carries_the_settings():
    (case,) = planned(
        variants=("vmap",), passes=("score",), auto={"jax": "vmap"}, dtype="float64", device="cuda", repeats=7, unroll=4
    )
    assert (case.dtype, case.device, case.repeats, case.unroll) == ("float64", "cuda", 7, 4)
    assert case.warm_up and case.problem == "smith_waterman"


def test_the_ladder_climbs_every_rung_compiled_and_not():
    cases = planned(ladder=True, passes=("score",))
    climbed = [(case.variant, case.framework, case.compiled) for case in cases]
    assert climbed == [
        (variant, framework, compiled)
        for variant in LADDER
        for framework in ("jax", "torch")
        for compiled in (False, True)
    ]


def test_the_ladder_measures_batch_rungs_on_the_batch_and_the_others_on_the_single_pair():
    on_batch = {case.variant for case in planned(ladder=True) if not case.single}
    assert on_batch == {"batch_loop", "vmap"}
    assert {case.variant for case in planned(ladder=True) if case.single} == set(LADDER) - on_batch


def test_the_ladder_times_the_first_call_and_the_one_right_after_it():
    assert {(case.repeats, case.warm_up) for case in planned(ladder=True, repeats=7)} == {(1, False)}


def test_the_ladder_narrows_to_the_variants_that_are_asked_for():
    cases = planned(ladder=True, variants=("vmap", "cell_loop"), passes=("score",), auto={"jax": "vmap"})
    assert [(case.variant, case.compiled) for case in cases] == [
        ("cell_loop", False),
        ("cell_loop", True),
        ("vmap", False),
        ("vmap", True),
    ]


def test_the_ladder_knows_auto():
    climbed = {(case.framework, case.variant) for case in planned(ladder=True, variants=("auto",))}
    assert climbed == {("jax", "vmap"), ("torch", "diagonal_loop")}


def test_absences_are_told_with_framework_and_reason():
    lacks = {"absent": {"scan_cond": "no gradient of cond in scan", "vmap": "no batching rule"}}
    told = left_out(lacks, variants=LADDER, passes=("score",))
    assert told == [
        ("torch", "PyTorch scan_cond score", "no gradient of cond in scan"),
        ("torch", "PyTorch vmap score", "no batching rule"),
    ]


def test_absences_of_variants_that_nobody_asked_for_are_not_told():
    lacks = {"absent": {"vmap": "never", "scan_cond": "no gradient"}}
    told = left_out(lacks, variants=("vmap", "auto"), passes=("score",))
    assert told == [("torch", "PyTorch vmap score", "never")]


def test_what_the_pass_hvp_leaves_out_is_told():
    lacks = {"first_order": {"vmap": "wrong second derivatives"}, "uncompiled": {"hvp": "no double backward"}}
    told = left_out(lacks, variants=("diagonal_loop", "vmap"), passes=PASSES)
    assert told == [("torch", "PyTorch vmap hvp", "wrong second derivatives")]
    told = left_out(lacks, variants=("diagonal_loop",), passes=("hvp",), ladder=True)
    assert told == [("torch", "PyTorch diagonal_loop hvp", "no double backward")]


def test_a_case_is_named_for_people():
    compiled, plain = planned(variants=("vmap", "cell_loop"), passes=("marginals",), auto={"torch": "vmap"})[::-1]
    assert compiled.title == "PyTorch vmap marginals"
    assert plain.title == "PyTorch cell_loop marginals, not compiled"


def test_a_case_travels_as_json():
    for case in planned():
        assert Case(**json.loads(json.dumps(case.as_json()))) == case
