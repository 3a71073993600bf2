"""The cases of a run: which variants, on which framework, in which order, compiled or not."""

import json
from typing import Any

import pytest

from shared.bench.plan import PASSES, Case, Settings, absences, plan
from shared.variants import variant_names

NOTHING_ABSENT: dict[str, dict[str, str]] = {"jax": {}, "torch": {}}
AUTO = {"jax": "vmap", "torch": "diagonal_loop"}
LADDER = variant_names("smith_waterman")
UNCOMPILED = {"cell_loop", "diagonal_loop", "batch_loop"}


def planned(
    absent: dict[str, dict[str, str]] = NOTHING_ABSENT, auto: dict[str, str] = AUTO, **settings: Any
) -> list[Case]:
    return plan(Settings(**settings), absent, auto)


def names(cases: list[Case]) -> list[tuple[str, str, str]]:
    return [(case.pass_name, case.variant, case.framework) for case in cases]


def test_the_default_is_a_few_variants_and_each_framework_s_own_choice():
    one_pass = [
        ("diagonal_loop", "torch"),
        ("scan_select", "jax"),
        ("scan_select", "torch"),
        ("vmap", "jax"),
        ("vmap", "torch"),
    ]
    assert names(planned()) == [(name, *rung) for name in PASSES for rung in one_pass]


def test_frameworks_stand_side_by_side_in_every_pass():
    cases = planned(variants=("vmap", "scan_cond"))
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
    absent = {"jax": {}, "torch": {"vmap": "no batching rule"}}
    cases = planned(absent, variants=("vmap",), passes=("score",))
    assert names(cases) == [("score", "vmap", "jax")]


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
    absent = {"jax": {}, "torch": {"scan_cond": "no gradient of cond in scan", "vmap": "no batching rule"}}
    told = absences(Settings(), absent)
    assert told == [("torch", "scan_cond", "no gradient of cond in scan"), ("torch", "vmap", "no batching rule")]


def test_absences_of_variants_that_nobody_asked_for_are_not_told():
    absent = {"jax": {"vmap": "never"}, "torch": {"scan_cond": "no gradient"}}
    assert absences(Settings(variants=("vmap", "auto")), absent) == [("jax", "vmap", "never")]


def test_a_case_is_named_for_people():
    compiled, plain = planned(variants=("vmap", "cell_loop"), passes=("marginals",), auto={"torch": "vmap"})[::-1]
    assert compiled.title == "PyTorch vmap marginals"
    assert plain.title == "PyTorch cell_loop marginals, not compiled"


def test_a_case_travels_as_json():
    for case in planned():
        assert Case(**json.loads(json.dumps(case.as_json()))) == case
