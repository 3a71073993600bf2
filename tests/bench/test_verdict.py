"""Comparisons: which framework is faster, by how much, whether that is decided, and which cases can still win."""

import math
from dataclasses import replace

import hand_made
import pytest
from hand_made import case, record, right, steady

from shared.bench.analysis.verdict import compare, verdicts
from shared.bench.cases import Settings
from shared.bench.estimates import Block, of_processes
from shared.bench.questions import QUESTIONS
from shared.bench.questions.speed import break_even_text, faster_by_process
from shared.bench.record import Result

ONE_PASS = Settings(passes=("score",))


def of(framework: str, seconds: list[list[float]], variant: str = "vmap") -> Result:
    """A case with rounds by worker."""
    made = [Block.of(w, r, [value]) for w, rounds in enumerate(seconds) for r, value in enumerate(rounds)]
    return right(case(framework, variant), blocks=made)


def pair(jax: float, torch: float) -> tuple[Result, Result]:
    return steady(case("jax", "vmap"), jax), steady(case("torch", "vmap"), torch)


@pytest.mark.parametrize(
    ("torch", "text", "sentence"),
    [
        (0.004, "JAX 4.00×\n(4.00 … 4.00)", "{0} was 4.00 times as fast as {1}; 95% interval 4.00 … 4.00."),
        (0.00102, "same\n(JAX 1.020 … 1.020)", "the same within ±3%: {0} was 1.020 times as fast as {1}; 95% interval "
         "1.020 … 1.020."),
    ],
)  # fmt: skip
def test_a_comparison_names_the_faster_framework_and_the_factor(torch: float, text: str, sentence: str):
    found = compare(pair(0.001, torch))
    names = "JAX (vmap, 1.00 ms per call)", f"PyTorch (vmap, {torch * 1000:.2f} ms per call)"
    assert (found.text, found.sentence) == (text, sentence.format(*names))


def test_an_interval_that_contains_1_decides_nothing():
    found = compare([of("jax", [[1.0] * 3] * 4), of("torch", [[0.96] * 3, [1.06] * 3] * 2)])
    assert found.text.startswith("not decided\n(JAX 0.9") and found.sentence.startswith("not decided: JAX (vmap, ")


@pytest.mark.parametrize("processes", [1, 2])
def test_fewer_than_three_processes_decide_nothing(processes: int):
    found = compare([of("jax", [[0.001] * 20] * processes), of("torch", [[0.004] * 20] * processes)])
    assert found.text == "not decided\n(JAX 4.00×,\n< 3 processes)"
    assert found.sentence == (
        "not decided: JAX (vmap, 1.00 ms per call) was 4.00 times as fast as PyTorch (vmap, 4.00 ms per call) in fewer "
        "than 3 processes; others may differ."
    )


@pytest.mark.parametrize(
    ("effect", "drift", "text"),
    [
        (1.2, 0.05, "JAX 1.20×\n(1.20 … 1.20)"),
        (1.2, 0.09, "JAX 1.20×\n(1.20 … 1.20)"),
        (1.2, -0.1, "not decided\n(JAX 1.20 … 1.20; drift -10%)"),  # more than half of the effect
        (3.0, 0.2, "not decided\n(JAX 3.00 … 3.00; drift +20%)"),  # cannot explain the effect, but is much
        (1.0, 0.05, "same\n(JAX 1.000 … 1.000)"),
        (1.0, 0.15, "not decided\n(JAX 1.000 … 1.000; drift +15%)"),
    ],
)
def test_a_ratio_that_drifts_by_more_than_half_of_its_effect_decides_nothing(effect: float, drift: float, text: str):
    found = compare([of("jax", [[1.0] * 3] * 4), of("torch", [[effect] * 3] * 4)])
    assert found.drift == 0.0
    assert found._replace(drift=drift).text == text


def test_the_quotient_of_the_medians_is_told_where_it_disagrees():
    # PyTorch had further rounds, slower ones, that JAX was not in
    found = compare([of("jax", [[1.0] * 2] * 4), of("torch", [[1.2] * 2 + [1.5] * 3] * 4)])
    assert found.text == "JAX 1.20×\n(1.20 … 1.20; of the medians 1.50)"
    assert found.sentence.endswith("95% interval 1.20 … 1.20; of the medians 1.50.")


def test_a_case_that_is_not_compiled_says_so_in_the_sentence():
    slower = steady(case("torch", "vmap", compiled=False), 0.2)
    assert "PyTorch (vmap, not compiled, 200 ms per call)" in compare([pair(0.1, 0.2)[0], slower]).sentence


def test_without_a_second_framework_there_is_its_time_or_nothing():
    found = compare(pair(0.1, 0.2)[1:])
    assert (found.ratio, found.text) == (None, "PyTorch only\n(200 ms)")
    assert found.sentence == "only PyTorch (vmap, 200 ms per call) was measured, so there is nothing to compare."
    assert (compare([]).text, compare([]).sentence) == ("–", "no case was measured.")


def test_the_rounds_that_both_were_in_decide_the_order():
    # JAX has the smaller median, thanks to rounds that PyTorch was not in
    jax, torch = of("jax", [[2.0, 2.0, 1.0, 1.0, 1.0]] * 3), of("torch", [[1.5, 1.5]] * 3)
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
    first_calls = [seconds and of_processes([seconds]) for seconds in cold]
    assert break_even_text(compare(pair(jax, torch)), first_calls) == text  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("jax", "torch", "text"),
    [
        ([0.001] * 3, [0.002] * 3, "JAX 2.00×\n(2.00 … 2.00)"),
        # a median is another mean than that of the ratios
        ([0.001, 0.004], [0.0024, 0.0024], "not decided\n(JAX 1.20×,\n< 3 processes)"),
    ],
)
def test_of_samples_of_processes_the_one_in_front_is_never_the_slower_one(
    jax: list[float], torch: list[float], text: str
):
    assert faster_by_process({"jax": jax, "torch": torch}) == text


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


def with_device_times(framework: str, seconds: float, *on_device: float) -> Result:
    blocks = [Block.of(worker, 0, [value]) for worker, value in enumerate(on_device)]
    return steady(case(framework, "fused"), seconds, on_device=blocks)


def test_an_input_that_keeps_an_accelerator_busy_is_decided_by_device_time_if_all_cases_have_one():
    inputs = {"batch": replace(hand_made.facts(), by_device_time=True)}
    jax, torch = with_device_times("jax", 0.3, *[0.001] * 3), with_device_times("torch", 0.1, *[0.002] * 3)
    made = record(jax, torch, settings=ONE_PASS, inputs=inputs)
    (found,) = verdicts(made).values()
    assert found.text.startswith("JAX 2.00×") and "1.00 ms of device time per call" in found.sentence
    assert QUESTIONS["speed"].contenders(made) == {jax.case, torch.case}
    ((_, wall, device, *_),) = (row for table in QUESTIONS["speed"].answer(made).tables[:1] for row in table.rows)
    assert wall.startswith("JAX 2.00×") and device.startswith("PyTorch 3.00×")  # the one that decides stands first
    made.results[1] = with_device_times("torch", 0.1)
    (found,) = verdicts(made).values()
    assert found.text.startswith("PyTorch 3.00×") and "device time" not in found.sentence
