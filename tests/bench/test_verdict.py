"""Comparisons: which framework is faster, by how much, whether that is decided, and which cases can still win."""

import math
from dataclasses import replace

import hand_made
import pytest
from hand_made import case, record, right, steady

from shared.bench.analysis.estimates import Block
from shared.bench.analysis.verdict import compare, verdicts
from shared.bench.cases import Settings
from shared.bench.questions import QUESTIONS
from shared.bench.questions.speed import break_even_text
from shared.bench.record import Result

ONE_PASS = Settings(passes=("score",))


def of(framework: str, seconds: list[list[float]], variant: str = "vmap") -> Result:
    """A case with rounds by worker."""
    made = [Block(w, r, (value,)) for w, rounds in enumerate(seconds) for r, value in enumerate(rounds)]
    return right(case(framework, variant), blocks=made)


def pair(jax: float, torch: float) -> tuple[Result, Result]:
    return steady(case("jax", "vmap"), jax), steady(case("torch", "vmap"), torch)


@pytest.mark.parametrize(
    ("torch", "text", "sentence"),
    [
        (0.004, "JAX 4.00×\n(4.00 … 4.00)", "{0} was 4.00 times as fast as {1}; 95% interval 4.00 … 4.00."),
        (0.00102, "same\n(1.020 … 1.020)", "the same within ±3%: {0} was 1.020 times as fast as {1}; 95% interval "
         "1.020 … 1.020."),
    ],
)  # fmt: skip
def test_a_comparison_names_the_faster_framework_and_the_factor(torch: float, text: str, sentence: str):
    found = compare(pair(0.001, torch))
    names = "JAX (vmap, 1.00 ms per call)", f"PyTorch (vmap, {torch * 1000:.2f} ms per call)"
    assert (found.text, found.sentence) == (text, sentence.format(*names))


def test_an_interval_that_contains_1_decides_nothing():
    found = compare([of("jax", [[1.0] * 3] * 4), of("torch", [[0.96] * 3, [1.06] * 3] * 2)])
    assert found.text.startswith("not decided\n(0.9") and found.sentence.startswith("not decided: JAX (vmap, ")


def test_one_process_decides_nothing():
    found = compare([of("jax", [[0.001] * 20]), of("torch", [[0.004] * 20])])
    assert found.text == "not decided\n(JAX 4.00× in one process)"
    assert found.sentence == (
        "not decided: JAX (vmap, 1.00 ms per call) was 4.00 times as fast as PyTorch (vmap, 4.00 ms per call) in one "
        "process; other processes may differ."
    )


def test_without_a_second_framework_there_is_its_time_or_nothing():
    found = compare(pair(0.1, 0.2)[1:])
    assert (found.ratio, found.text) == (None, "PyTorch only\n(200 ms)")
    assert found.sentence == "only PyTorch (vmap, 200 ms per call) was measured, so there is nothing to compare."
    assert (compare([]).text, compare([]).sentence) == ("–", "no case was measured.")


def test_the_rounds_that_both_were_in_decide_the_order():
    # JAX has the smaller median, thanks to rounds that PyTorch was not in
    jax, torch = of("jax", [[2.0, 2.0, 1.0, 1.0, 1.0]] * 2), of("torch", [[1.5, 1.5]] * 2)
    assert jax.time.value < torch.time.value
    found = compare([jax, torch])
    assert found.results == (torch, jax) and found.text.startswith("PyTorch 1.33×")


def test_the_fastest_case_of_each_framework_is_compared_by_its_median():
    results = [
        of("jax", [[0.001, 0.009, 0.009, 0.009, 0.009]] * 4, "scan_select"),  # one lucky round
        steady(case("jax", "vmap"), 0.006),
        steady(case("torch", "vmap"), 0.0015),
        replace(steady(case("jax", "fused"), 1e-6), status="wrong"),
    ]
    assert compare(results).results == (results[2], results[1])


@pytest.mark.parametrize(("variants", "same"), [(("fused", "fused"), True), (("fused", "vmap"), False)])
def test_that_both_ran_the_same_kernel_is_told(variants: tuple[str, str], same: bool):
    results = [steady(case(framework, name), 0.1) for framework, name in zip(("jax", "torch"), variants, strict=True)]
    assert (compare(results).same_code is not None) is same


def test_there_is_a_verdict_for_each_pass_and_input():
    inputs = {"6x7": hand_made.facts(), "8x9": hand_made.facts()}
    found = verdicts(record(settings=Settings(passes=("score", "hvp")), inputs=inputs))
    assert list(found) == [("score", "6x7"), ("score", "8x9"), ("hvp", "6x7"), ("hvp", "8x9")]


@pytest.mark.parametrize(
    ("jax", "torch", "cold", "text"),
    [
        (0.25, 0.5, [1001.0, 1.0], "JAX from call 4,000"),  # 1000 s more, 0.25 s less each call
        (0.25, 0.5, [1.0, 2.0], "JAX from call 1"),
        (0.5, 0.501, [5.0, 1.0], "PyTorch from call 1"),  # the same: the first call decides
        (0.25, 0.5, [None, 1.0], "–"),
    ],
)
def test_the_break_even_is_the_call_from_which_a_case_takes_less_time_in_total(
    jax: float, torch: float, cold: list[float | None], text: str
):
    assert break_even_text(compare(pair(jax, torch)), cold) == text


# what a run still has to measure


def test_what_must_be_precise_is_the_ratio_or_with_one_framework_the_time():
    jax, torch = pair(0.1, 0.2)
    assert [estimate.value for estimate in QUESTIONS["speed"].deciding(record(jax, torch, settings=ONE_PASS))] == [
        pytest.approx(2.0)
    ]
    assert [estimate.value for estimate in QUESTIONS["speed"].deciding(record(jax, settings=ONE_PASS))] == [
        pytest.approx(0.1)
    ]
    one_worker = QUESTIONS["speed"].deciding(record(right(jax.case, 0.1), settings=ONE_PASS))
    assert math.isnan(one_worker[0].low)


def test_a_case_that_is_not_surely_slower_than_the_best_of_its_framework_can_still_win():
    best = of("jax", [[1.0] * 3] * 4, "fused")
    close = of("jax", [[0.98] * 3, [1.04] * 3] * 2, "wavefront")
    slower = of("jax", [[1.1] * 3, [1.12] * 3] * 2, "vmap")
    made = record(best, close, slower, steady(case("torch", "vmap"), 9.0), settings=ONE_PASS)
    assert {(found.framework, found.variant) for found in QUESTIONS["growth"].contenders(made)} == {
        ("jax", "wavefront"), ("jax", "fused"), ("torch", "vmap")
    }  # fmt: skip
