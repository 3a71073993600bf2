"""Comparisons: which framework is faster, by how much, whether that is decided, and which cases can still win."""

import math
from dataclasses import replace

import hand_made
import pytest
from hand_made import case, record, right, steady

from shared.bench.analysis.estimates import Block
from shared.bench.analysis.verdict import (
    Comparison,
    Verdict,
    break_even_text,
    contenders,
    deciding,
    verdicts,
)
from shared.bench.cases import Settings
from shared.bench.record import Result
from shared.bench.units import ratio_interval

ONE_PASS = Settings(passes=("score",))


def verdict(*results: Result, settings: Settings = ONE_PASS) -> Verdict:
    (only,) = verdicts(record(*results, settings=settings))
    return only


def of(framework: str, seconds: list[list[float]], variant: str = "vmap") -> Result:
    """A case with rounds by worker."""
    made = [Block(w, r, (value,)) for w, rounds in enumerate(seconds) for r, value in enumerate(rounds)]
    return right(case(framework, variant), blocks=made)


def pair(jax: float, torch: float, variant: str = "vmap") -> tuple[Result, Result]:
    return steady(case("jax", variant), jax), steady(case("torch", variant), torch)


# two cases


@pytest.mark.parametrize(
    ("torch", "outcome"),
    [
        ((4.0, 4.0), "faster"),
        ((1.025, 1.035), "faster"),  # the interval goes beyond 3 %
        ((1.002, 1.002), "same"),  # a difference, but one within 3 %
        ((0.998, 1.002), "same"),
        ((0.96, 1.06), "not decided"),
    ],
)  # fmt: skip
def test_a_comparison_is_faster_same_or_not_decided(torch: tuple[float, ...], outcome: str):
    found = Comparison.of(of("jax", [[1.0] * 3] * 4), of("torch", [[seconds] * 3 for seconds in torch * 2]))
    assert found.ratio is not None and found.outcome == outcome
    told = f"JAX {found.ratio.value:.2f}×" if outcome == "faster" else outcome
    assert found.text.startswith(told) and found.text.endswith(f" ({ratio_interval(found.ratio)})")


def test_the_rounds_that_both_were_in_decide_the_order():
    # JAX has the smaller median, thanks to rounds that PyTorch was not in
    jax, torch = of("jax", [[2.0, 2.0, 1.0, 1.0, 1.0]] * 2), of("torch", [[1.5, 1.5]] * 2)
    assert jax.time.value < torch.time.value
    found = Comparison.of(jax, torch)
    assert (found.faster, found.outcome) == (torch, "faster")
    assert found.ratio is not None and found.ratio.value == pytest.approx(2.0 / 1.5)


def test_one_process_decides_nothing():
    found = verdict(of("jax", [[0.001] * 20]), of("torch", [[0.004] * 20]))
    assert found.comparison is not None and found.comparison.outcome == "not decided"
    assert found.comparison.text == "JAX 4.00× in one process"
    assert found.sentence == (
        "not decided: JAX (vmap, 1.00 ms per call) was 4.00 times as fast as PyTorch (vmap, 4.00 ms per call) in one "
        "process; other processes may differ."
    )


def test_cases_that_share_no_round_are_not_compared():
    found = verdict(of("jax", [[1.0, 1.0]]), of("torch", [[], [2.0, 2.0]]))
    assert found.comparison is not None and found.comparison.text == "never in the same round"
    assert found.sentence.endswith("were never timed in the same round, so they cannot be compared.")


@pytest.mark.parametrize(
    ("jax", "torch", "cold", "text"),
    [
        (0.25, 0.5, (1001.0, 1.0), "JAX from call 4,000"),  # 1000 s more, 0.25 s less each call
        (0.25, 0.5, (1.0, 2.0), "JAX from call 1"),
        (0.5, 0.501, (5.0, 1.0), "PyTorch from call 1"),  # the same: the first call decides
        (0.25, 0.5, (None, 1.0), "–"),
    ],
)
def test_the_break_even_is_the_call_from_which_a_case_takes_less_time_in_total(
    jax: float, torch: float, cold: tuple[float | None, float], text: str
):
    assert break_even_text(Comparison.of(*pair(jax, torch)), cold) == text


# the verdict of a pass


def test_the_fastest_case_of_each_framework_is_compared_by_its_median():
    results = [
        steady(case("jax", "cell_loop"), 0.5),
        of("jax", [[0.001, 0.009, 0.009, 0.009, 0.009]] * 4, "scan_select"),  # one lucky round
        steady(case("jax", "vmap"), 0.006),
        steady(case("torch", "vmap"), 0.0015),
    ]
    found = verdict(*results)
    assert found.best == (results[3], results[2]) and found.others == tuple(results)
    assert found.sentence == (
        "PyTorch (vmap, 1.50 ms per call) was 4.00 times as fast as JAX (vmap, 6.00 ms per call); "
        "95% interval 4.00 … 4.00."
    )


@pytest.mark.parametrize(
    ("status", "words"), [("wrong", "was wrong"), ("failed", "failed"), ("limit", "was not completed")]
)
def test_a_bad_case_does_not_win_and_is_named(status: str, words: str):
    bad = replace(steady(case("jax", "fused"), 1e-6), status=status, reason="because")
    found = verdict(bad, steady(case("torch", "vmap"), 100.0))
    assert found.sentence == "only PyTorch (vmap, 100 s per call) was measured, so there is nothing to compare."
    assert found.details == [f"Left out: JAX fused {words} (because)."]


@pytest.mark.parametrize(
    ("variants", "told"), [(("fused", "fused"), True), (("vmap", "vmap"), False), (("fused", "vmap"), False)]
)
def test_that_both_ran_the_same_kernel_is_told(variants: tuple[str, str], told: bool):
    results = [steady(case(framework, name), 0.1) for framework, name in zip(("jax", "torch"), variants, strict=True)]
    assert any("same native kernel" in line for line in verdict(*results).details) is told


def test_there_is_a_verdict_for_each_pass_and_input():
    made = record(
        settings=Settings(passes=("score", "hvp")), inputs={"6x7": hand_made.facts(), "8x9": hand_made.facts()}
    )
    assert [(one.pass_name, one.input, one.sentence) for one in verdicts(made)] == [
        (pass_name, name, "no case was measured.") for pass_name in ("score", "hvp") for name in ("6x7", "8x9")
    ]


# what a run still has to measure


def test_what_must_be_precise_is_the_ratio_or_with_one_framework_the_time():
    jax, torch = pair(0.1, 0.2)
    assert [estimate.value for estimate in deciding(record(jax, torch, settings=ONE_PASS))] == [pytest.approx(2.0)]
    assert [estimate.value for estimate in deciding(record(jax, settings=ONE_PASS))] == [pytest.approx(0.1)]
    one_worker = deciding(record(right(jax.case, 0.1), settings=ONE_PASS))
    assert math.isnan(one_worker[0].low)


def test_a_case_that_is_not_surely_slower_than_the_best_of_its_framework_can_still_win():
    best = of("jax", [[1.0] * 3] * 4, "fused")
    close = of("jax", [[0.98] * 3, [1.04] * 3] * 2, "wavefront")
    slower = of("jax", [[1.1] * 3, [1.12] * 3] * 2, "vmap")
    made = record(best, close, slower, steady(case("torch", "vmap"), 9.0), settings=ONE_PASS)
    assert {(found.framework, found.variant) for found in contenders(made)} == {
        ("jax", "wavefront"), ("jax", "fused"), ("torch", "vmap")
    }  # fmt: skip
