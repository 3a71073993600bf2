"""The question of JAX's kernels called from PyTorch: its cases, what follows from their times, and a whole run."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hand_made import case, ended, facts, record, steady
from in_process import assert_refused, run_here
from rendered import html_report

from shared.bench.cases import Case, Settings
from shared.bench.estimates import Block
from shared.bench.questions import QUESTIONS
from shared.bench.questions.bridge_answer import CROSSING, SMALL, crossings
from shared.bench.record import Record, Result
from shared.bench.report.tables import Answer
from shared.variants import Abilities

BRIDGE = QUESTIONS["bridge"]
SETTINGS = Settings("bridge", passes=("score",))
ADDED, CHOICE = 5, 6  # columns


def through(variant: str = "fused", **others: Any) -> Case:
    return case("torch", variant, label=CROSSING, **others)


def three(jax: float, torch: float, crossing: float, variant: str = "fused", **others: Any) -> list[Result]:
    cases = (case("jax", variant, **others), case("torch", variant, **others), through(variant, **others))
    return [steady(own, seconds) for own, seconds in zip(cases, (jax, torch, crossing), strict=True)]


def made(*results: Result) -> Record:
    return record(*results, settings=SETTINGS, inputs={"batch": facts(), SMALL: facts("a small one")})


def answer(*results: Result) -> Answer:
    return BRIDGE.answer(made(*results))


def test_the_crossing_is_what_a_call_from_pytorch_adds_to_one_in_jax():
    (table,) = answer(*three(1e-3, 3e-3, 1.25e-3)).tables
    (row,) = table.rows
    assert row[:ADDED] == ("score", "fused", "3.00 ms", "1.00 ms", "1.25 ms")
    assert row[ADDED:] == ("250 µs, 20%\n(250 … 250 µs)", "JAX 2.40×\n(2.40 … 2.40)")


def test_a_crossing_that_cannot_be_told_from_nothing_is_below_the_end_of_its_interval():
    own, torch, crossing = three(1e-3, 1e-3, 1e-3)
    crossing.blocks = [Block.of(b.worker, b.round, [1e-3 * (0.9, 1.0, 1.1, 1.0)[b.worker]]) for b in crossing.blocks]
    found = answer(own, torch, crossing)
    cell = found.tables[0].rows[0][ADDED]
    assert re.fullmatch(r"< 1\d\d µs", cell), cell
    assert dict(found.statements)["If your model is in PyTorch"] == "not decided: fused score."
    faster = answer(*three(1e-3, 1e-3, 0.9e-3)).tables[0].rows[0]
    assert faster[ADDED] == "nothing"


def test_nothing_is_decided_by_two_processes():
    results = three(1e-3, 2e-3, 1.25e-3)
    for result in results:
        result.blocks = [block for block in result.blocks if block.worker < 2]
    found = answer(*results)
    assert found.tables[0].rows[0][ADDED] == "not decided\n(250 µs, < 3 processes)"
    assert dict(found.statements)["If your model is in PyTorch"] == "not decided: fused score."


def test_a_sentence_says_what_to_call():
    results = [
        *three(0.1, 0.2, 0.101, "vmap"),
        *three(1e-3, 1e-3, 2e-3, "wavefront"),
        *three(0.1, 0.101, 0.101, "fused"),
        *three(20e-6, 30e-6, 60e-6, input=SMALL),
    ]
    told = dict(answer(*results).statements)
    assert told["If your model is in PyTorch"] == (
        "call JAX's through the bridge for vmap score (1.98 times as fast); "
        "keep PyTorch's own for wavefront score (2.00 times as fast); the same: fused score."
    )
    assert told["The shortest time in PyTorch"] == "score PyTorch's own wavefront (1.00 ms)."
    assert told["What the crossing adds to a small call"] == "score 40.0 µs, 67% (40.0 … 40.0 µs)."


def test_a_row_has_what_was_measured_and_the_reason_for_the_rest_is_below():
    failed = ended(through(), "failed", "the worker ended")
    table = answer(steady(case("jax", "fused"), 1e-3), steady(case("torch", "fused"), 1e-3), failed).tables[0]
    assert table.rows[0][4:6] == ("–", "–")
    assert table.below[-1] == "No PyTorch fused score, JAX's kernel: the worker ended."
    assert answer(failed).tables == []


def test_those_are_timed_further_that_are_not_precise():
    decided, small = three(0.1, 0.3, 0.2, "vmap"), three(20e-6, 30e-6, 60e-6, input=SMALL)
    restless = three(0.1, 0.3, 0.1, "wavefront")
    restless[2].blocks = [Block.of(worker, 0, [0.09 + 0.01 * worker]) for worker in range(3)]
    kept = BRIDGE.contenders(made(*decided, *restless, *small))
    assert {(own.variant, own.input) for own in kept} == {("wavefront", "batch")}
    assert len(BRIDGE.deciding(made(*decided))) == len(next(crossings(made(*decided))).ratios) == 2


def test_the_plan_has_three_cases_side_by_side_with_the_abilities_of_jax_through_the_bridge():
    able = {
        "jax": Abilities("fused", absent={"cuda_graph": "no"}),
        "torch": Abilities(
            "fused", absent={"cuda_graph": "no"}, uncompiled_variants=dict.fromkeys(("wavefront", "fused"), "no")
        ),
    }
    cases, absent = BRIDGE.cases(SETTINGS, able, ["batch", SMALL])
    fused = [own for own in cases if (own.variant, own.input) == ("fused", "batch")]
    assert [(own.framework, own.label, own.compiled) for own in fused] == [
        ("jax", "", True), ("torch", CROSSING, True), ("torch", "", False)
    ]  # fmt: skip
    assert {own.variant for own in cases if own.input == SMALL} == {"fused"} and absent == []
    quick = able | {"torch": able["torch"]._replace(slow_compiler="takes too long")}
    cases, absent = BRIDGE.cases(replace(SETTINGS, quick=True), quick, ["batch"])
    assert [(own.framework, own.label) for own in cases if own.variant == "vmap"] == [("jax", ""), ("torch", CROSSING)]
    assert [row.case for row in absent] == ["PyTorch vmap score"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--problem", "stencil"), "bridge goes with alignments, not with stencil"),
        (("--framework", "jax"), "bridge needs both frameworks, got --framework jax"),
        (("--python", "jax=python3"), "bridge needs both frameworks in the interpreter that runs it"),
    ],
)
def test_what_the_bridge_cannot_answer_is_refused(arguments: tuple[str, ...], text: str):
    assert_refused(run_here("bridge", *arguments), text)


def test_a_run_measures_through_the_bridge_and_tries_copies_and_transforms(tmp_path: Path):
    path = tmp_path / "run.json"
    few = ("--variant", "fused", "--pass", "marginals", "--size", "6x7", "--batch", "3", "--workers", "1")
    ended = run_here("bridge", *few, "--rounds", "2", "--json", str(path))
    assert ended.code == 0, ended.err
    found = Record.read(path)
    assert [(r.case.framework, r.case.label, r.case.input, r.measured) for r in found.results] == [
        (framework, label, name, True)
        for name in ("batch", SMALL)
        for framework, label in (("jax", ""), ("torch", CROSSING), ("torch", ""))
    ]
    tried = next(result.details for result in found.results if result.details)
    assert tried["tensors"] == {
        "contiguous": ["shared", "shared"],
        "a slice that begins 4 bytes later": ["copied", "copied"],
        "transposed": ["copied", "copied"],
        "every second column": ["copied", "copied"],
        "a result, a gradient": ["–", "shared"],
    }
    outcomes = tried["transforms"]
    works = [name for name, outcome in outcomes.items() if outcome == "yes"]
    assert works == [
        "autograd", "autograd, create_graph=True", "torch.no_grad", "torch.utils.checkpoint",
        "torch.compile, with a graph break", "jax.vmap, jax.grad before from_jax",
    ]  # fmt: skip
    assert all(outcome.startswith("raises: ") for name, outcome in outcomes.items() if name not in works)
    assert "compiler_start_seconds" not in found.environment["frameworks"]["torch"]  # the bridge's is JAX's
    assert "Which tensors share their memory" in ended.out and "torch.func.vmap" in ended.out
    assert html_report([found]).count("<figure>") == 2
