"""The default question and the verdicts of all: cells and sentences from records made by hand."""

from dataclasses import replace

import hand_made
import pytest
from hand_made import blocks, blocks_of_workers, case, ended, record, right, steady

from shared.bench.analysis.verdict import compare, verdicts
from shared.bench.cases import FRAMEWORKS, Settings
from shared.bench.estimates import Block, mean_over_processes
from shared.bench.questions import QUESTIONS
from shared.bench.questions.speed import break_even_text
from shared.bench.record import Repeat, Result
from shared.bench.report.tables import Answer, Table
from shared.bench.units import duration

SPEED = QUESTIONS["speed"]
ONE_PASS = Settings(input="random", passes=("score",))


def of(framework: str, seconds: list[list[float]], variant: str = "vmap") -> Result:
    """A case with rounds by worker."""
    made = [Block.of(w, r, [value]) for w, rounds in enumerate(seconds) for r, value in enumerate(rounds)]
    return right(case(framework, variant), blocks=made)


# each process's ratio of PyTorch's time to JAX's in 20 rounds, the cell, and the sentence
ANSWERS = [
    ([4.0, 3.98, 4.02], "JAX 4.00×\n(3.95 … 4.05)", "{0} against {1}: JAX 4.00× (3.95 … 4.05)."),
    ([0.25, 0.25], "PyTorch 4.00×\n(3.93 … 4.07; 2 processes)",
     "{1} against {0}: PyTorch 4.00× (3.93 … 4.07; 2 processes)."),
    ([1.0, 1.01, 1.0], "same\n(within 1.7%)", "{0} against {1}: same (within 1.7%)."),
    ([1.02, 1.05, 0.99], "JAX or same\n(at most 1.07×)", "{0} against {1}: JAX or same (at most 1.07×)."),
    ([0.9, 1.2, 1.0], "no clear winner\n(within 1.30×)", "{0} against {1}: no clear winner (within 1.30×)."),
]  # fmt: skip


@pytest.mark.parametrize(("ratios", "text", "sentence"), ANSWERS)
def test_a_comparison_names_the_faster_one_or_says_why_not(ratios: list[float], text: str, sentence: str):
    comparison = compare([of("jax", [[1.0] * 20] * len(ratios)), of("torch", [[ratio] * 20 for ratio in ratios])])
    names = [f"{FRAMEWORKS[name]} (vmap, {duration(comparison.time(result).value)} per call)"
             for name in FRAMEWORKS for result in comparison.results if result.case.framework == name]  # fmt: skip
    assert (comparison.text, comparison.sentence) == (text, sentence.format(*names))


def test_a_single_framework_shows_its_time_or_nothing():
    only = compare([steady(case("torch", "vmap", compiled=False), 0.2)])
    assert (only.ratio, only.text) == (None, "PyTorch 200 ms\n(JAX –)")
    assert only.sentence.startswith("only PyTorch (vmap, not compiled, 200 ms per call) was measured, so there is")
    assert (compare([]).text, compare([]).sentence) == ("–", "no case was measured.")


def test_the_fastest_by_median_are_compared_and_shared_rounds_decide_the_order():
    results = [
        of("jax", [[0.001, 0.009, 0.009, 0.009, 0.009]] * 4, "scan_select"),  # one lucky round
        steady(case("jax", "vmap"), 0.006),
        steady(case("torch", "vmap"), 0.0015),
        replace(steady(case("jax", "fused"), 1e-6), status="wrong"),
    ]
    assert compare(results).results == (results[2], results[1])
    # JAX has the smaller median, thanks to rounds that PyTorch was not in
    jax, torch = of("jax", [[2.0, 2.0, 1.0, 1.0, 1.0]] * 3), of("torch", [[1.5, 1.5]] * 3)
    assert jax.time.value < torch.time.value
    comparison = compare([jax, torch])
    assert comparison.results == (torch, jax) and comparison.text.startswith("PyTorch 1.33×")


@pytest.mark.parametrize(
    ("ratios", "cold", "text"),
    [
        ([2.0] * 3, [1001.0, 1.0], "JAX from call 1,000"),  # 1000 s more, 1 s less each call
        ([2.0] * 3, [1.0, 2.0], "JAX from call 1"),
        ([1.002] * 3, [5.0, 1.0], "PyTorch from call 1"),  # the same: the first call decides
        ([2.0] * 3, [None, 1.0], "–"),
        ([0.99, 1.01, 1.04], [1.0, 7.0], "JAX from call 1"),  # JAX or same
        ([0.99, 1.01, 1.04], [7.0, 1.0], "PyTorch up to call 110"),  # then JAX may have made up for it, if it is faster
        ([0.9, 1.2, 1.0], [1.0, 7.0], "JAX up to call 26"),
    ],
)
def test_the_break_even_is_told_as_far_as_it_is_known(ratios: list[float], cold: list[float | None], text: str):
    comparison = compare([of("jax", [[1.0] * 20] * 3), of("torch", [[ratio] * 20 for ratio in ratios])])
    assert break_even_text(comparison, [seconds and mean_over_processes([seconds]) for seconds in cold]) == text  # pyright: ignore[reportArgumentType]


def test_a_case_that_is_not_surely_slower_than_its_frameworks_best_can_still_win():
    best = of("jax", [[1.0] * 3] * 4, "fused")
    close = of("jax", [[0.98] * 3, [1.04] * 3] * 2, "wavefront")
    slower = of("jax", [[1.1] * 3, [1.12] * 3] * 2, "vmap")
    made = record(best, close, slower, steady(case("torch", "vmap"), 9.0), Result(case("torch", "fused")),
                  settings=ONE_PASS)  # fmt: skip
    assert {(contender.framework, contender.variant) for contender in QUESTIONS["growth"].contenders(made)} == {
        ("jax", "wavefront"), ("jax", "fused"), ("torch", "vmap")
    }  # fmt: skip


def with_device_times(framework: str, seconds: float, *on_device: float) -> Result:
    return steady(case(framework, "fused"), seconds, on_device=[Block.of(w, 0, [s]) for w, s in enumerate(on_device)])


def test_device_time_decides_an_input_that_keeps_an_accelerator_busy():
    inputs = {"batch": replace(hand_made.facts(), by_device_time=True)}
    jax, torch = with_device_times("jax", 0.3, *[0.001] * 3), with_device_times("torch", 0.1, *[0.002] * 3)
    made = record(jax, torch, settings=ONE_PASS, inputs=inputs)
    (comparison,) = verdicts(made).values()
    assert comparison.text.startswith("JAX 2.00×") and "1.00 ms of device time per call" in comparison.sentence
    assert SPEED.contenders(made) == {jax.case, torch.case}
    ((_, wall, device, *_),) = (row for table in SPEED.answer(made).tables[:1] for row in table.rows)
    assert wall.startswith("JAX 2.00×") and device.startswith("PyTorch 3.00×")  # the one that decides stands first
    made.results[1] = with_device_times("torch", 0.1)
    (comparison,) = verdicts(made).values()
    assert comparison.text.startswith("PyTorch 3.00×") and "device time" not in comparison.sentence


def answer(*results: Result, settings: Settings = ONE_PASS, **others) -> Answer:
    return SPEED.answer(record(*results, settings=settings, **others))


def rows(table: Table) -> dict[str, list[str]]:
    """Rows by the variant, the last line of the first cell."""
    return {row[0].split("\n")[-1]: list(row[1:]) for row in table.rows}


def both(variant: str, jax: float, torch: float) -> list[Result]:
    return [steady(case(name, variant), seconds) for name, seconds in (("jax", jax), ("torch", torch))]


def test_cases_of_a_cell_that_is_not_settled_are_timed_further():
    fast = both("fused", 0.010, 0.020)
    slow = [right(case("jax", "vmap"), 0.1, workers=4), right(case("torch", "vmap"), 0.1)]
    slow[1].blocks = blocks_of_workers(0.07, 0.09, 0.11, 0.13, rounds=1)
    contenders = SPEED.contenders(record(*fast, *slow, settings=ONE_PASS))
    assert {contender.variant for contender in contenders} == {"fused", "vmap"}
    contenders = SPEED.contenders(record(*fast, *both("vmap", 0.1, 0.2), settings=ONE_PASS))
    assert {contender.variant for contender in contenders} == {"fused"}


def test_each_variant_has_a_row_with_its_time_where_one_framework_has_it_alone():
    results = [
        *both("fused", 0.1, 0.2),
        *both("vmap", 0.4, 0.1),
        steady(case("jax", "wavefront"), 0.1),
        ended(case("torch", "wavefront"), "wrong", "score off", blocks=blocks([1e-6] * 5, 4)),
    ]
    by_variant = rows(answer(*results).tables[0])
    assert list(by_variant) == ["vmap", "wavefront", "fused"]  # in the order of the ladder
    assert by_variant["wavefront"] == ["JAX 100 ms\n(PyTorch –)"]
    assert answer(results[0]).tables == []
    titles = [answer(*results, repeats=[Repeat(0, 1.0, busy)]).tables[0].title for busy in (0.25, 0.75)]
    faster = "Which framework is faster"
    assert titles == [faster, f"{faster} (measured beside another program: see the warning)"]


def test_a_new_shape_is_compared_over_processes_that_both_frameworks_have():
    jax, torch = both("vmap", 0.25, 0.5)
    jax.new_shapes = [[1.0], [4.0], [9.0, 4.0], [9.0]]
    torch.new_shapes = [[2.4]] * 2
    # a median is another mean than that of the ratios
    assert rows(answer(jax, torch).tables[1])["vmap"][0] == "no clear winner\n(within 10.9×; 2 processes)"


def test_a_sentence_of_speed_compares_the_fastest_cases_and_times_the_others():
    results = [*both("vmap", 0.4, 0.1), steady(case("jax", "wavefront"), 0.04), *both("fused", 0.01, 0.02)]
    results.append(ended(case("torch", "wavefront"), "wrong", "score off"))
    ((about, text),) = answer(*results).statements
    verdict, *notes = text.split("\n  ")
    assert about == "score" and verdict.startswith("JAX (fused, 10.0 ms per call) against PyTorch (")
    assert " per call): JAX 2.00× (" in verdict
    assert notes == [
        "Left out: PyTorch wavefront was wrong (score off).",
        "Other variants: vmap 400 ms in JAX, 100 ms in PyTorch; wavefront 40.0 ms in JAX.",
    ]


def test_the_first_row_is_the_scan_of_jax_against_a_loop_in_pytorch():
    loops = [steady(case(name, "diagonal_loop", compiled=False), 0.3) for name in ("torch", "jax")]
    by_variant = rows(answer(*both("vmap", 0.1, 0.2), *loops).tables[0])
    assert [*by_variant] == ["vmap / diagonal_loop", "diagonal_loop", "vmap"]
    assert by_variant["vmap / diagonal_loop"][0].startswith("JAX 3.00×")
    times = {("jax", "compiled"): 0.1, ("torch", "compiled"): 0.2, ("torch", "eager"): 0.4}
    results = [steady(replace(case(*of), problem="own.py"), seconds) for of, seconds in times.items()]
    of_own = rows(SPEED.answer(record(*results, settings=replace(ONE_PASS, problem="own.py"))).tables[0])
    assert [*of_own] == ["compiled / eager", "compiled"] and of_own["compiled / eager"][0].startswith("JAX 4.00×")


def test_one_kernel_in_both_frameworks_makes_no_difference_below_10_percent():
    ((_, text),) = answer(*both("fused", 0.100, 0.104)).statements
    assert text.endswith(" per call): no practical difference (within 1.05×).")


def test_before_rounds_speed_answers_from_the_calls_right_after_the_first():
    timed = [*both("vmap", 0.1, 0.2), steady(case("jax", "fused"), 0.1)]
    results = [replace(result, early_seconds=result.time.value, blocks=[]) for result in timed]
    before_rounds = answer(*results, finished=None)
    cells = {variant: cells[0] for variant, cells in rows(before_rounds.tables[0]).items()}
    assert cells == {"vmap": "JAX about 2×\n(1 process)", "fused": "JAX 100 ms\n(PyTorch –)"}
    assert "): JAX about 2× (1 process)." in answer(*results[:2], finished=None).statements[0].text
