"""Comparisons: which framework is faster, by how much, whether that is decided, and which cases can still win."""

from dataclasses import replace

import hand_made
import pytest
from hand_made import case, record, right, steady

from shared.bench.analysis.verdict import compare, verdicts
from shared.bench.cases import FRAMEWORKS, Settings
from shared.bench.estimates import Block, of_processes
from shared.bench.questions import QUESTIONS
from shared.bench.questions.speed import break_even_text, faster_by_process
from shared.bench.record import Result
from shared.bench.units import duration

ONE_PASS = Settings(passes=("score",))


def of(framework: str, seconds: list[list[float]], variant: str = "vmap") -> Result:
    """A case with rounds by worker."""
    made = [Block.of(w, r, [value]) for w, rounds in enumerate(seconds) for r, value in enumerate(rounds)]
    return right(case(framework, variant), blocks=made)


def pair(jax: float, torch: float) -> tuple[Result, Result]:
    return steady(case("jax", "vmap"), jax), steady(case("torch", "vmap"), torch)


# each process's ratio of PyTorch's time to JAX's in 20 rounds, the cell, and the sentence
ANSWERS = [
    ([4.0, 3.98, 4.02], "JAX 4.00×\n(3.95 … 4.05)", "{0} is 4.00 times as fast as {1}; 95% interval 3.95 … 4.05."),
    ([0.25, 0.25], "PyTorch 4.00×\n(3.93 … 4.07; 2 processes)", "{1} is 4.00 times as fast as {0}; 95% interval "
     "3.93 … 4.07 (2 processes)."),
    ([1.0, 1.01, 1.0], "same\n(within 1.7%)", "{0} and {1} take the same time, within 1.7%."),
    ([1.02, 1.05, 0.99], "JAX or same\n(at most 1.07×)", "{0} is as fast as {1} or faster, at most 1.07 times as "
     "fast."),
    ([0.9, 1.2, 1.0], "no clear winner\n(within 1.30×)", "no clear winner between {0} and {1}: neither is more than "
     "1.30 times as fast as the other."),
]  # fmt: skip


@pytest.mark.parametrize(("ratios", "text", "sentence"), ANSWERS)
def test_every_comparison_says_what_a_reader_can_act_on(ratios: list[float], text: str, sentence: str):
    found = compare([of("jax", [[1.0] * 20] * len(ratios)), of("torch", [[ratio] * 20 for ratio in ratios])])
    names = [f"{FRAMEWORKS[name]} (vmap, {duration(found.time(result).value)} per call)"
             for name in FRAMEWORKS for result in found.results if result.case.framework == name]  # fmt: skip
    assert (found.text, found.sentence) == (text, sentence.format(*names))


def test_one_round_of_one_process_says_about_how_much():
    found = compare([of("jax", [[1.0]]), of("torch", [[29.2]])])
    assert found.text == "JAX about 29×\n(1 process)"
    assert found.sentence == (
        "JAX (vmap, 1.00 s per call) is about 29 times as fast as PyTorch (vmap, 29.2 s per call) (1 process)."
    )
    near = compare([of("jax", [[1.0]]), of("torch", [[1.2]])])
    assert near.text == "no clear winner\n(within 2.15×; 1 process)"


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
    ("ratios", "cold", "text"),
    [
        ([0.99, 1.01, 1.04], [1.0, 7.0], "JAX from call 1"),  # JAX or same
        ([0.99, 1.01, 1.04], [7.0, 1.0], "PyTorch up to call 110"),  # then JAX may have made up for it, if it is faster
        ([0.9, 1.2, 1.0], [1.0, 7.0], "JAX up to call 26"),
    ],
)
def test_where_calls_may_take_the_same_the_cheaper_first_call_pays_for_so_long(
    ratios: list[float], cold: list[float], text: str
):
    found = compare([of("jax", [[1.0] * 20] * 3), of("torch", [[ratio] * 20 for ratio in ratios])])
    assert break_even_text(found, [of_processes([seconds]) for seconds in cold]) == text


@pytest.mark.parametrize(
    ("jax", "torch", "text"),
    [
        ([0.001] * 3, [0.002] * 3, "JAX 2.00×\n(1.72 … 2.33)"),
        # a median is another mean than that of the ratios
        ([0.001, 0.004], [0.0024, 0.0024], "no clear winner\n(within 10.9×; 2 processes)"),
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
    assert not one_worker[0].is_measured


def test_a_case_that_is_not_surely_slower_than_the_best_of_its_framework_can_still_win():
    best = of("jax", [[1.0] * 3] * 4, "fused")
    close = of("jax", [[0.98] * 3, [1.04] * 3] * 2, "wavefront")
    slower = of("jax", [[1.1] * 3, [1.12] * 3] * 2, "vmap")
    made = record(best, close, slower, steady(case("torch", "vmap"), 9.0), settings=ONE_PASS)
    assert {(found.framework, found.variant) for found in QUESTIONS["growth"].contenders(made)} == {
        ("jax", "wavefront"), ("jax", "fused"), ("torch", "vmap")
    }  # fmt: skip


def test_a_case_without_times_is_no_contender():
    made = record(steady(case("jax", "fused"), 1.0), Result(case("jax", "vmap")), Result(case("torch", "fused")))
    assert QUESTIONS["growth"].contenders(made) == {case("jax", "fused")}


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
