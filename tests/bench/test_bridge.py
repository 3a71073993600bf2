"""The question of JAX's kernels called from PyTorch: its cases, what follows from their times, and a whole run."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hand_made import blocks_of_workers, case, facts, record, steady
from in_process import finished

from shared.bench.cases import Settings
from shared.bench.questions import QUESTIONS
from shared.bench.questions.bridge import FROM_PYTORCH, IN_JAX, SMALL
from shared.bench.record import Record, Result
from shared.variants import Abilities

BRIDGE = QUESTIONS["bridge"]
SETTINGS = Settings("bridge", passes=("score",))
WAYS = (("jax", IN_JAX), ("jax", FROM_PYTORCH), ("torch", FROM_PYTORCH))


def three(jax: float, crossing: float, torch: float, variant: str = "fused", **others: Any) -> list[Result]:
    cases = [case(framework, variant, label=label, **others) for framework, label in WAYS]
    return [steady(*timed) for timed in zip(cases, (jax, crossing, torch), strict=True)]


def made(*results: Result) -> Record:
    return record(*results, settings=SETTINGS, inputs={"batch": facts(), SMALL: facts("a small one")})


def test_cases_of_rows_that_are_not_precise_are_timed_further():
    decided, small = three(0.1, 0.2, 0.3, "vmap"), three(20e-6, 60e-6, 30e-6, input=SMALL)
    restless = three(0.1, 0.1, 0.3, "wavefront")
    restless[1].blocks = blocks_of_workers(0.09, 0.1, 0.11, rounds=1)
    contenders = BRIDGE.contenders(made(*decided, *restless, *small))
    assert {(case.variant, case.input) for case in contenders} == {("wavefront", "batch")}
    assert len(BRIDGE.deciding(made(*decided))) == 2  # the crossing, and the choice in PyTorch


def test_the_plan_has_three_cases_side_by_side():
    torch = Abilities("fused", uncompiled_variants=dict.fromkeys(("wavefront", "fused"), "no"))
    able = {"jax": Abilities("fused"), "torch": torch}
    cases, absent = BRIDGE.cases(SETTINGS, able, ["batch", SMALL])
    fused = [(c.framework, c.label, c.compiled) for c in cases if (c.variant, c.input) == ("fused", "batch")]
    assert fused == [("jax", IN_JAX, True), ("jax", FROM_PYTORCH, True), ("torch", FROM_PYTORCH, False)]
    assert {c.variant for c in cases if c.input == SMALL} == {"fused"} and absent == []
    able["torch"] = torch._replace(slow_compiler="takes too long")
    cases, absent = BRIDGE.cases(replace(SETTINGS, quick=True), able, ["batch"])
    assert [(c.framework, c.label) for c in cases if c.variant == "vmap"] == list(WAYS[:2])
    assert "PyTorch vmap score" in [row.title for row in absent]
    cases, (row,) = BRIDGE.cases(SETTINGS, {"jax": able["jax"]}, ["batch"])
    assert (cases, row.reason) == ([], "PyTorch is missing")


@pytest.mark.slow
def test_a_run_measures_through_the_bridge(tmp_path: Path):
    few = ("--variant", "fused", "--pass", "marginals", "--size", "6x7", "--batch", "3", "--workers", "1")
    _, made = finished(tmp_path, "bridge", *few, "--rounds", "2")
    ways = [(r.case.framework, r.case.label, r.case.input) for r in made.results if r.measured]
    assert ways == [(*way, name) for name in ("batch", SMALL) for way in WAYS]
    assert "compiler_start_seconds" not in made.environment["frameworks"]["torch"]  # the bridge's is JAX's
