"""The cases of a run: which variants, on which framework, in which order, compiled or not."""

import itertools
import json
from dataclasses import replace
from typing import Any

import pytest
from shared.bench.plan import Absence, Case, Settings, absences, plan

from shared.problems.alignments import PASSES
from shared.problems.problem import BATCH, SINGLE
from shared.variants import Abilities, variant_names

AUTO = {"jax": "vmap", "torch": "diagonal_loop"}
LADDER = variant_names("smith_waterman")
UNCOMPILED = {"cell_loop", "diagonal_loop", "batch_loop"}
# the ladder's two inputs: what is a batch by nature, what is made for either
ON_BATCH, ON_BOTH = {"batch_loop", "vmap"}, {"wavefront", "cuda_graph", "fused"}


def abilities(auto: dict[str, str] = AUTO, **torch: Any) -> dict[str, Abilities]:
    """JAX can do everything; torch lacks what is given here, all of it for a reason."""
    everything: dict[str, Any] = {"absent": {}, "first_order": {}, "uncompiled": {}}
    return {name: Abilities(choice, **everything | (torch if name == "torch" else {})) for name, choice in auto.items()}


def inputs_of(settings: Settings) -> list[str]:
    """The names that the problem gives to the inputs of such a run."""
    if settings.sweep:
        return [f"{rows}x{cols}" for rows, cols in settings.sweep]
    return [SINGLE, BATCH] if settings.ladder else [BATCH]


def planned(auto: dict[str, str] = AUTO, lacks: dict[str, Any] | None = None, **settings: Any) -> list[Case]:
    asked = Settings(**settings)
    return plan(asked, abilities(auto, **lacks or {}), inputs_of(asked))


def left_out(lacks: dict[str, dict[str, str]], **settings: Any) -> list[Absence]:
    asked = Settings(**settings)
    return absences(asked, abilities(**lacks), inputs_of(asked))


def names(cases: list[Case]) -> list[tuple[str, str, str]]:
    return [(case.pass_name, case.variant, case.framework) for case in cases]


def test_the_default_is_a_few_variants_and_each_framework_s_own_choice():
    one_pass = [
        ("diagonal_loop", "torch"),
        ("vmap", "jax"),
        ("vmap", "torch"),
        ("wavefront", "jax"),
        ("wavefront", "torch"),
    ]
    assert names(planned()) == [(name, *rung) for name in ("score", "marginals") for rung in one_pass]


def test_on_a_gpu_the_graph_is_one_of_them():
    rungs = [(variant, framework) for _, variant, framework in names(planned(device="cuda", passes=("score",)))]
    graphs = [("cuda_graph", "jax"), ("cuda_graph", "torch")]
    assert rungs == [rung for rung in rungs if rung not in graphs] + graphs
    assert not set(graphs) & {rung[1:] for rung in names(planned())}


def test_the_memory_of_a_gpu_is_shared_among_the_processes_that_hold_cases():
    assert Settings().memory_share == pytest.approx(0.45)
    assert Settings(frameworks=("jax",)).memory_share == pytest.approx(0.9)
    assert Settings(frameworks=("jax",), sides=2).memory_share == pytest.approx(0.45)


@pytest.mark.parametrize("told", [{"size": (3, 4)}, {"batch": 2}, {"ladder": True}, {"sweep": ((3, 4),)}])
def test_a_gpu_has_inputs_of_its_own_where_nothing_is_said_of_them(told):
    assert Settings(device="cuda").is_default_on_gpu
    assert not Settings(device="cuda", **told).is_default_on_gpu
    assert not Settings().is_default_on_gpu


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
    assert {case.input for case in cases} == {BATCH}


def test_what_gains_nothing_from_the_compiler_is_compiled_on_the_ladder_only():
    lacks = {"ready": ("wavefront",)}
    plain = {case.framework: case.compiled for case in planned(lacks=lacks, variants=("wavefront",))}
    assert plain == {"jax": True, "torch": False}
    ladder = {(case.framework, case.compiled) for case in planned(lacks=lacks, variants=("wavefront",), ladder=True)}
    assert ladder == {(framework, compiled) for framework in AUTO for compiled in (False, True)}


def test_a_case_carries_the_settings():
    (case,) = planned(
        variants=("vmap",), passes=("score",), auto={"jax": "vmap"}, dtype="float64", device="cuda", unroll=4
    )
    assert (case.dtype, case.device, case.unroll) == ("float64", "cuda", 4)
    assert (case.problem, case.side, case.handicap) == ("smith_waterman", 0, 0.0)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_ladder_climbs_every_rung_compiled_and_not(device):
    cases = planned(ladder=True, passes=("score",), device=device)
    climbed = [(case.variant, case.framework, case.compiled) for case in cases]
    assert climbed == [
        (variant, framework, compiled)
        for rungs in (set(LADDER) - ON_BATCH, ON_BATCH | ON_BOTH)
        for variant in LADDER
        if variant in rungs and (device == "cuda" or variant != "cuda_graph")
        for framework in ("jax", "torch")
        for compiled in (False, True)
    ]


def test_the_ladder_measures_batch_rungs_on_the_batch_and_the_others_on_the_single_pair():
    cases = planned(ladder=True, device="cuda")
    on = {name: {case.variant for case in cases if case.input == name} for name in (SINGLE, BATCH)}
    assert on[BATCH] - ON_BOTH == ON_BATCH
    assert on[SINGLE] - ON_BOTH == set(LADDER) - ON_BATCH - ON_BOTH


def test_the_ladder_measures_what_is_made_for_either_on_both():
    for variant in ON_BOTH:
        cases = planned(ladder=True, variants=(variant,), passes=("score",), auto={"jax": "vmap"})
        ways = [(name, compiled) for name in (SINGLE, BATCH) for compiled in (False, True)]
        assert [(case.input, case.compiled) for case in cases] == ways


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


def test_a_sweep_measures_every_case_on_every_size():
    sizes = ((32, 32), (64, 48))
    one, both = planned(), planned(sweep=sizes)
    assert len(both) == 2 * len(one)
    for name in ("32x32", "64x48"):
        assert names([case for case in both if case.input == name]) == names(one)
    assert [case.input for case in both] == ["32x32"] * len(one) + ["64x48"] * len(one)


def test_a_case_against_itself_has_two_sides_next_to_each_other():
    once, twice = planned(), planned(sides=2)
    assert [replace(case, side=1) for case in once] == twice[::2]
    assert [replace(case, side=2) for case in once] == twice[1::2]


def test_the_second_side_alone_has_the_handicap():
    cases = planned(sides=2, handicap=0.05)
    assert {(case.side, case.handicap) for case in cases} == {(1, 0.0), (2, 0.05)}


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
    assert told == [("torch", "PyTorch diagonal_loop hvp, one pair", "no double backward")]


def test_a_case_is_named_for_people():
    compiled, plain = planned(variants=("vmap", "cell_loop"), passes=("marginals",), auto={"torch": "vmap"})[::-1]
    assert compiled.title == "PyTorch vmap marginals"
    assert plain.title == "PyTorch cell_loop marginals, not compiled"


def test_the_title_names_what_sets_cases_of_a_run_apart():
    (size, _) = planned(variants=("vmap",), passes=("score",), auto={"jax": "vmap"}, sweep=((6, 7), (8, 9)))
    assert size.title == "JAX vmap score, 6x7"
    sides = planned(variants=("vmap",), passes=("score",), auto={"jax": "vmap"}, sides=2, handicap=0.05)
    assert [case.title for case in sides] == ["JAX vmap score, side A", "JAX vmap score, side B"]
    for cases in (planned(sides=2, passes=PASSES), planned(sweep=((6, 7), (8, 9))), planned(ladder=True)):
        on_batch = [case for case in cases if case.input != SINGLE]
        assert len({case.title for case in on_batch}) == len(on_batch)


def test_cases_that_differ_in_the_framework_or_the_side_alone_match():
    for pair in itertools.combinations(planned(sides=2, sweep=((6, 7), (8, 9)), passes=PASSES), 2):
        same = len({(case.input, case.pass_name, case.variant) for case in pair}) == 1
        assert (pair[0].match == pair[1].match) == same


def test_every_framework_and_side_has_a_seat_of_its_own():
    assert {case.seat for case in planned(sides=2)} == {(framework, side) for framework in AUTO for side in (1, 2)}


def test_a_case_travels_as_json():
    for case in planned(sides=2, handicap=0.05, unroll=2, ladder=True):
        assert Case(**json.loads(json.dumps(case.as_json()))) == case
