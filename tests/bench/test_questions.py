"""The questions: what each answers from records made by hand, and that a new one is a class and a line."""

import importlib
import json
from dataclasses import replace
from pathlib import Path

import pytest
from hand_made import blocks, case, ended, record, right, steady
from in_process import run_here, use_numpy_workers
from rendered import console_report, html_report, markdown_report

from shared.bench.cases import Absence, Settings
from shared.bench.estimates import Block
from shared.bench.questions import QUESTIONS
from shared.bench.record import Compilation, Record, ReferenceTime, Result
from shared.bench.report.tables import Answer, Table

ROOT = Path(__file__).parents[2]
RECORDED = [
    path for path in sorted((ROOT / "results").glob("*.json")) if "schema_version" in json.loads(path.read_text())
]
ONE_PASS = Settings(input="random", passes=("score",))


def answer(made: Record) -> Answer:
    return QUESTIONS[made.settings.question].answer(made)


def rows(table: Table) -> dict[str, list[str]]:
    """Rows by the variant, the last line of the first cell."""
    return {row[0].split("\n")[-1]: list(row[1:]) for row in table.rows}


def both(variant: str, jax: float, torch: float, pass_name: str = "score") -> list[Result]:
    return [steady(case(name, variant, pass_name), seconds) for name, seconds in (("jax", jax), ("torch", torch))]


# speed

# columns, after that of the variant, of the first table with one pass and of the second one
SCORE, NEW_SHAPE, LATER_SHAPE, EMPTY, WARM, COMPILED, LINES = 0, *range(6)


def test_cases_of_a_cell_that_is_not_settled_are_timed_further():
    fast = both("fused", 0.010, 0.020)
    slow = [
        right(case(name, "vmap"), 0.1, 0.1 + 0.001 * place, workers=4) for place, name in enumerate(("jax", "torch"))
    ]
    slow[1].blocks = [Block.of(b.worker, b.round, [0.07 + 0.02 * b.worker]) for b in slow[1].blocks]
    wanted = QUESTIONS["speed"].contenders(record(*fast, *slow, settings=ONE_PASS))
    assert {found.variant for found in wanted} == {"fused", "vmap"}
    wanted = QUESTIONS["speed"].contenders(record(*fast, *both("vmap", 0.1, 0.2), settings=ONE_PASS))
    assert {found.variant for found in wanted} == {"fused"}


def decision(*results: Result, settings: Settings = ONE_PASS, **others) -> Table:
    return answer(record(*results, settings=settings, **others)).tables[0]


def costs(*results: Result, settings: Settings = ONE_PASS, **others) -> Table:
    return answer(record(*results, settings=settings, **others)).tables[1]


def test_speed_has_a_row_for_each_variant_that_was_measured_and_the_time_of_one_that_only_one_framework_has():
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
    assert answer(record(results[0], settings=ONE_PASS)).tables == []


def test_a_cell_of_speed_names_the_faster_framework_or_says_why_none_is_named():
    spread = steady(case("torch", "wavefront"), 0.1)
    spread.blocks = [
        Block.of(block.worker, block.round, [0.096 if block.worker % 2 else 0.106]) for block in spread.blocks
    ]
    found = decision(*both("vmap", 0.4, 0.1), *both("fused", 0.1, 0.102), steady(case("jax", "wavefront"), 0.1), spread)
    cells = {variant: cells[SCORE] for variant, cells in rows(found).items()}
    assert cells["vmap"] == "PyTorch 4.00×\n(3.97 … 4.03)"
    assert cells["fused"] == "same\n(within 2.8%)"
    assert cells["wavefront"] == "no clear winner\n(within 1.09×)"


def test_speed_tells_the_lines_of_code_and_what_was_compiled_with_the_reason_below():
    results = [*both("vmap", 0.1, 0.2), *both("fused", 0.1, 0.2)]
    results[-1].case = case("torch", "fused", compiled=False)
    found = costs(
        *results,
        code_lines={"jax": {"vmap": 1234, "fused": 9}, "torch": {"vmap": 25}},
        uncompiled={"torch": {"fused": "one operator already"}},
    )
    cells = {variant: cells[COMPILED : LINES + 1] for variant, cells in rows(found).items()}
    assert cells == {"vmap": ["both", "1,234 / 25"], "fused": ["JAX only", "9 / –"]}
    assert found.below[1:] == ("Not compiled in PyTorch: one operator already.",)


def test_speed_compares_first_calls_and_the_total_time_with_them():
    (jax, torch) = both("vmap", 0.25, 0.5)
    jax.cold, jax.warm, jax.new_shapes = [Compilation(11.0)], [3.1], [[5.0]] * 3
    torch.cold, torch.warm, torch.new_shapes = [Compilation(1.0)], [1.0], [[0.5]] * 3
    cells = rows(costs(jax, torch))["vmap"]
    assert cells[NEW_SHAPE : NEW_SHAPE + 2] == ["PyTorch 10.0×\n(8.58 … 11.7)", "–"]
    for first, cell in ((11.0, cells[EMPTY]), (3.1, cells[WARM])):
        calls = next(n for n in range(1, 100) if first + (n - 1) * 0.25 < 1.0 + (n - 1) * 0.5)
        assert cell == f"JAX from call {calls}"
    assert rows(answer(record(jax, torch, settings=ONE_PASS)).tables[2]) == {
        "score": ["PyTorch", "vmap (auto)", "yes", "1.00 s", "1.00 s", "500 ms\n(429 … 583 ms)"]
    }  # the other row has the same first cell
    jax.warm, jax.new_shapes = [], []
    assert rows(costs(jax, torch))["vmap"][NEW_SHAPE:COMPILED] == ["–", "–", "JAX from call 42", "–"]


def test_speed_compares_on_a_new_shape_only_processes_that_both_frameworks_have():
    jax, torch = both("vmap", 0.25, 0.5)
    jax.new_shapes = [[5.0], [5.0], [5.0, 4.0], *[[1.0]] * 4]
    torch.new_shapes = [[2.0]] * 3
    assert rows(costs(jax, torch))["vmap"][NEW_SHAPE] == "PyTorch 2.50×\n(2.14 … 2.91)"


def test_a_sentence_of_speed_compares_the_fastest_cases_and_tells_the_times_of_the_others():
    results = [*both("vmap", 0.4, 0.1), steady(case("jax", "wavefront"), 0.04), *both("fused", 0.01, 0.02)]
    results.append(ended(case("torch", "wavefront"), "wrong", "score off"))
    ((about, text),) = answer(record(*results, settings=ONE_PASS)).statements
    verdict, *notes = text.split("\n  ")
    assert about == "score" and verdict.startswith("JAX (fused, 10.0 ms per call) is 2.00 times as fast as PyTorch (")
    assert notes == [
        "Left out: PyTorch wavefront was wrong (score off).",
        "Other variants: vmap 400 ms in JAX, 100 ms in PyTorch; wavefront 40.0 ms in JAX.",
    ]


def test_marginals_stand_first_and_first_calls_are_those_of_the_last_pass():
    results = [*both("vmap", 0.1, 0.2), *both("fused", 0.1, 0.2), *both("vmap", 0.4, 0.1, "marginals")]
    found, settings = decision(*results, settings=Settings()), Settings()
    assert [header.partition("\n")[0] for header in found.headers[1:]] == ["marginals", "score"]
    assert rows(found)["vmap"] == ["PyTorch 4.00×\n(3.97 … 4.03)", "JAX 2.00×\n(1.98 … 2.02)"]
    assert rows(found)["fused"][0] == "–"
    assert rows(costs(*results, settings=settings))["fused"][:COMPILED] == ["–"] * 4


def test_what_one_would_write_first_is_jax_s_scan_against_a_loop_in_pytorch():
    results = [*both("vmap", 0.1, 0.2), steady(case("torch", "diagonal_loop", compiled=False), 0.3)]
    cells = {name: own[SCORE].partition("\n")[0] for name, own in rows(decision(*results)).items()}
    assert cells == {"vmap / diagonal_loop": "JAX 3.00×", "vmap": "JAX 2.00×"}
    in_jax = steady(case("jax", "diagonal_loop", compiled=False), 0.1)
    assert [*rows(decision(*results, in_jax))] == ["vmap / diagonal_loop", "diagonal_loop", "vmap"]


def test_one_kernel_in_both_frameworks_makes_no_practical_difference_below_10_percent():
    found = decision(*both("vmap", 0.100, 0.104), *both("fused", 0.100, 0.104))
    assert {name: own[SCORE] for name, own in rows(found).items()} == {
        "vmap": "JAX 1.040×\n(1.032 … 1.048)", "fused": "no practical difference\n(within 1.05×)"
    }  # fmt: skip
    ((_, text),) = answer(record(*both("fused", 0.100, 0.104), settings=ONE_PASS)).statements
    assert text.endswith("; 95% interval 1.032 … 1.048, no practical difference.")


def test_a_footnote_of_speed_says_why_a_case_is_absent():
    absent = [Absence("torch", "PyTorch vmap hvp", "it cannot")]
    assert decision(*both("vmap", 0.1, 0.2), absent=absent).below[-1] == "No PyTorch vmap hvp: it cannot."


def before_rounds(*results: Result) -> list[Result]:
    """These as they are when only their first calls have been made."""
    return [replace(result, early_seconds=result.time.value, blocks=[]) for result in results]


def test_before_rounds_speed_answers_from_the_calls_right_after_the_first():
    results = before_rounds(*both("vmap", 0.1, 0.2), steady(case("jax", "fused"), 0.1))
    found = QUESTIONS["speed"].answer(record(*results, settings=ONE_PASS, finished=None))
    cells = {variant: cells[SCORE] for variant, cells in rows(found.tables[0]).items()}
    assert cells == {"vmap": "JAX about 2×\n(1 process)", "fused": "JAX only\n(100 ms)"}


# ladder


def test_a_rung_of_the_ladder_has_times_marks_or_dashes():
    rung = [("jax", False), ("jax", True), ("torch", False), ("torch", True)]
    cases = [case(framework, "cell_loop", compiled=compiled, input="single") for framework, compiled in rung]
    results = [
        right(cases[0], 0.2, cold=0.75),
        ended(cases[1], "limit", "> 120 s", cold=Compilation(0.001)),
        ended(cases[2], "wrong", "score off", cold=Compilation(0.001)),
        ended(cases[3], "failed", "ValueError", cold=Compilation(0.001)),
        right(case("jax", "fused", input="single"), 0.002, cold=0.125),
        right(case("jax", "vmap"), 0.004),
    ]
    settings = Settings("ladder", passes=("score",))
    found = answer(record(*results, settings=settings, references=[ReferenceTime("single", "score", [0.25, 0.24])]))
    single, batch = found.tables
    assert (single.title, batch.title) == ("score, one pair", "score, three pairs")
    assert [header.split("\n")[-2:] for header in single.headers[1:5]] == [
        ["jit off", "first"], ["jit off", "later"], ["jit on", "first"], ["jit on", "later"]
    ]  # fmt: skip
    assert rows(single) == {
        "NumPy": ["250 ms", "240 ms", "", ""] * 2,
        "cell_loop": ["750 ms", "200 ms", "> 120 s", "–", "WRONG", "–", "FAILED", "–"],
        "fused": ["–", "–", "125 ms", "2.00 ms", *["–"] * 4],
    }
    (gain,) = found.statements
    assert gain.text == "JAX from 200 ms (cell_loop, not compiled) to 2.00 ms (fused), 100 times as fast."


# another question

BATCHES = '''
"""What does a cell cost in larger batches?"""

from dataclasses import replace

from shared.bench.questions.axis_question import AxisQuestion
from shared.problems import problem_of


class Batches(AxisQuestion):
    """Every case on several numbers of pairs."""

    name = "batches"
    asks = "what does a cell cost in larger batches"
    axis, change, is_over_inputs = "pairs", "gain", True
    below = ("Gain: the time of a cell with the fewest pairs over that with so many, and the 95% interval.",)
    default_input = "random"

    def number_of(self, point):
        return float(point.split()[0])

    def inputs(self, settings):
        found = {}
        for pairs in (2, 8, 32):
            (found[f"{pairs} pairs"],) = problem_of(settings.problem).inputs(replace(settings, batch=pairs)).values()
        return found


QUESTION = Batches()
'''


def test_a_question_along_a_new_axis_is_a_file_of_few_lines(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    assert BATCHES.count("\n") < 60
    (tmp_path / "batches.py").write_text(BATCHES)
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("batches")
    monkeypatch.setitem(QUESTIONS, "batches", module.QUESTION)
    use_numpy_workers(monkeypatch)
    asked = ("--framework", "jax", "--variant", "vmap", "--pass", "score", "--size", "6x7")
    files = ("--json", str(tmp_path / "run.json"), "--markdown", str(tmp_path / "run.md"))
    ended = run_here("batches", *asked, "--workers", "3", "--rounds", "2", *files)
    assert ended.code == 0, ended.err
    made = Record.read(tmp_path / "run.json")
    assert [result.case.input for result in made.results if result.measured] == ["2 pairs", "8 pairs", "32 pairs"]
    title = "8 pairs and 32 pairs against 2 pairs"
    assert title in ended.out and f"### {title}" in (tmp_path / "run.md").read_text()
    assert "<img" in html_report([made])
    # the change is that of the time for as much work
    for result, seconds, cells in zip(made.results, (0.1, 0.2, 0.4), (10, 40, 160), strict=True):
        result.blocks, result.work = blocks([seconds] * 5, workers=4), cells
    (table,) = module.QUESTION.answer(made).tables
    assert [row[3:] for row in table.rows] == [
        ("100 ms", "–"), ("200 ms", "2.00×\n(1.98 … 2.02)"), ("400 ms", "4.00×\n(3.97 … 4.03)")
    ]  # fmt: skip


# what is kept small, and what is kept readable


def test_the_benchmark_stays_small():
    def lines(*paths: Path) -> int:
        return sum(len(path.read_text().splitlines()) for path in paths)

    bench = ROOT / "shared/bench"
    assert lines(ROOT / "compare.py", *bench.rglob("*.py"), *bench.rglob("*.j2")) <= 8488
    assert lines(*(ROOT / "tools").glob("*.py")) <= 840
    assert sum(path.stat().st_size for path in (ROOT / "results").iterdir()) <= 5_000_000


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_a_recorded_run_can_be_read_and_shown(path: Path):
    made = Record.read(path)
    assert made.results
    printed = console_report(made)
    assert all(table.title in printed for table in answer(made).tables)
    assert markdown_report([made]).count("\n|") > len(made.results)
    if path.stem in ("cpu-ladder", "cpu-regression-growth"):  # a page takes seconds to draw
        assert "<img" in html_report([made])


def test_there_are_recorded_runs_of_the_first_questions():
    kinds = {json.loads(path.read_text())["settings"]["question"] for path in RECORDED}
    assert {"speed", "ladder", "growth"} <= kinds <= set(QUESTIONS)
