"""The default question: a cell, a footnote and a sentence of each kind, from records made by hand."""

from dataclasses import replace

from hand_made import blocks, blocks_of_workers, case, ended, record, right, steady

from shared.bench.cases import Settings
from shared.bench.questions import QUESTIONS
from shared.bench.record import Result
from shared.bench.report.tables import Answer, Table

SPEED = QUESTIONS["speed"]
ONE_PASS = Settings(input="random", passes=("score",))
# columns, after that of the variant, of the first table with one pass and of the second one
SCORE, NEW_SHAPE, LATER_SHAPE, EMPTY, WARM, COMPILED, LINES = 0, *range(6)


def answer(*results: Result, settings: Settings = ONE_PASS, **others) -> Answer:
    return SPEED.answer(record(*results, settings=settings, **others))


def rows(table: Table) -> dict[str, list[str]]:
    """Rows by the variant, the last line of the first cell."""
    return {row[0].split("\n")[-1]: list(row[1:]) for row in table.rows}


def both(variant: str, jax: float, torch: float, pass_name: str = "score") -> list[Result]:
    return [steady(case(name, variant, pass_name), seconds) for name, seconds in (("jax", jax), ("torch", torch))]


def decision(*results: Result, **others) -> Table:
    return answer(*results, **others).tables[0]


def costs(*results: Result, **others) -> Table:
    return answer(*results, **others).tables[1]


def test_cases_of_a_cell_that_is_not_settled_are_timed_further():
    fast = both("fused", 0.010, 0.020)
    slow = [right(case("jax", "vmap"), 0.1, workers=4), right(case("torch", "vmap"), 0.1)]
    slow[1].blocks = blocks_of_workers(0.07, 0.09, 0.11, 0.13, rounds=1)
    wanted = SPEED.contenders(record(*fast, *slow, settings=ONE_PASS))
    assert {found.variant for found in wanted} == {"fused", "vmap"}
    wanted = SPEED.contenders(record(*fast, *both("vmap", 0.1, 0.2), settings=ONE_PASS))
    assert {found.variant for found in wanted} == {"fused"}


def test_each_variant_has_a_row_with_its_time_where_one_framework_has_it_alone():
    results = [
        *both("fused", 0.1, 0.2),
        *both("vmap", 0.4, 0.1),
        steady(case("jax", "wavefront"), 0.1),
        ended(case("torch", "wavefront"), "wrong", "score off", blocks=blocks([1e-6] * 5, 4)),
    ]
    found = rows(decision(*results))
    assert list(found) == ["vmap", "wavefront", "fused"]  # in the order of the ladder
    assert found["wavefront"] == ["JAX only\n(100 ms)"]
    assert rows(costs(*results))["wavefront"] == [*["–"] * 4, "JAX only", "–"]
    assert answer(results[0]).tables == []


def test_a_new_shape_is_compared_over_processes_that_both_frameworks_have():
    jax, torch = both("vmap", 0.25, 0.5)
    jax.new_shapes = [[5.0], [5.0], [5.0, 4.0], *[[1.0]] * 4]
    torch.new_shapes = [[2.0]] * 3
    assert rows(costs(jax, torch))["vmap"][NEW_SHAPE] == "PyTorch 2.50×\n(2.14 … 2.91)"


def test_a_sentence_of_speed_compares_the_fastest_cases_and_tells_the_times_of_the_others():
    results = [*both("vmap", 0.4, 0.1), steady(case("jax", "wavefront"), 0.04), *both("fused", 0.01, 0.02)]
    results.append(ended(case("torch", "wavefront"), "wrong", "score off"))
    ((about, text),) = answer(*results).statements
    verdict, *notes = text.split("\n  ")
    assert about == "score" and verdict.startswith("JAX (fused, 10.0 ms per call) is 2.00 times as fast as PyTorch (")
    assert notes == [
        "Left out: PyTorch wavefront was wrong (score off).",
        "Other variants: vmap 400 ms in JAX, 100 ms in PyTorch; wavefront 40.0 ms in JAX.",
    ]


def test_the_first_row_is_the_scan_of_jax_against_a_loop_in_pytorch():
    loops = [steady(case(name, "diagonal_loop", compiled=False), 0.3) for name in ("torch", "jax")]
    found = rows(decision(*both("vmap", 0.1, 0.2), *loops))
    assert [*found] == ["vmap / diagonal_loop", "diagonal_loop", "vmap"]
    assert found["vmap / diagonal_loop"][SCORE].startswith("JAX 3.00×")


def test_one_kernel_in_both_frameworks_makes_no_practical_difference_below_10_percent():
    found = decision(*both("vmap", 0.100, 0.104), *both("fused", 0.100, 0.104))
    assert {name: own[SCORE] for name, own in rows(found).items()} == {
        "vmap": "JAX 1.040×\n(1.032 … 1.048)", "fused": "no practical difference\n(within 1.05×)"
    }  # fmt: skip
    ((_, text),) = answer(*both("fused", 0.100, 0.104)).statements
    assert text.endswith("; 95% interval 1.032 … 1.048, no practical difference.")


def test_before_rounds_speed_answers_from_the_calls_right_after_the_first():
    timed = [*both("vmap", 0.1, 0.2), steady(case("jax", "fused"), 0.1)]
    results = [replace(result, early_seconds=result.time.value, blocks=[]) for result in timed]
    found = answer(*results, finished=None)
    cells = {variant: cells[SCORE] for variant, cells in rows(found.tables[0]).items()}
    assert cells == {"vmap": "JAX about 2×\n(1 process)", "fused": "JAX only\n(100 ms)"}
    assert " is about 2 times as fast as " in answer(*results[:2], finished=None).statements[0].text
