"""All questions: the ladder, a new question in a class and a line, recorded runs, and sums that stay small."""

import importlib
import json
from pathlib import Path
from typing import Any

import pytest
from hand_made import blocks, case, ended, record, right
from in_process import assert_refused, finished, run_here, use_numpy_workers
from rendered import console_report, html_report, markdown_report

from shared.bench.cases import BETWEEN, Settings
from shared.bench.measure.machine import usable_cores
from shared.bench.questions import QUESTIONS
from shared.bench.questions.between import LOOP
from shared.bench.record import Record

ROOT = Path(__file__).parents[2]
FEW = ("--framework", "jax", "--variant", "vmap", "--pass", "score", "--size", "6x7")
RECORDED = [
    path for path in sorted((ROOT / "results").glob("*.json")) if "schema_version" in json.loads(path.read_text())
]


REFUSED = {
    "--problem learn_alignment": "learn_alignment goes with the question learning, not with speed",
    "--model encoder": "--model goes with --problem learn_alignment, not with smith_waterman",
    "learning --problem stencil": "learning goes with learn_alignment, not with stencil",
    "learning --gap -2": "--gap goes with --problem",
    "learning --rounds 9": "--rounds goes with the question speed",
    "learning --model transformer": "unknown model 'transformer'; known: matrix, encoder",
    "learning --variant vmap": "unknown variant 'vmap' of learn_alignment; known: wavefront, fused, auto",
    "learning --families nowhere": "nowhere",
    "learning --checkpoints one.sto/kept": "one.sto/kept: Not a directory",
    "learning --families .": "one.sto': expected at least 2 sequences, got only 'a'",
    **{f"{name} --problem stencil": f"{name} goes with alignments, not with stencil"
       for name in ("bridge", "processes", "shapes", "transforms")},
    **{f"{name} --input globins": f"{name} goes with --input random, got 'globins'"
       for name in ("memory", "shapes", "transforms")},
    **{f"{name} --device cuda": f"{name} goes with --device cpu, got cuda"
       for name in ("between", "processes", "threads")},
    "bridge --pass path": "bridge goes with --pass score or marginals or hvp, got path",
    "bridge --framework jax": "bridge needs both frameworks, got --framework jax",
    "bridge --python jax=python3": "bridge needs both frameworks in the interpreter that runs it",
    "memory --batch 3": "memory seeks the largest batch: leave out --batch",
    "memory --memory nanGB": "memory must be a number with MB, GB, TB, MiB, GiB or TiB, such as 2GB, got 'nanGB'",
    "processes --processes 1": "processes must have a number above 1, such as 2 or 1,2,4, got '1'",
    "processes --processes 2 --batch 1": "2 processes need a pair each, got 1",
    "processes --processes 1,99": f"--processes must be at most {len(usable_cores())}, the cores to use, got 99",
    "processes --threads 1": "processes needs at least 2 cores, got 1",
    "processes --pass path": "processes goes with --pass score or marginals or hvp or step, got path",
    "shapes --pass hvp": "shapes goes with --pass score or marginals, got hvp",
    "threads --threads 1": "threads needs at least 2 threads to compare, got 1",
    "transforms --pass marginals": "transforms goes with --pass score, got marginals",
}  # fmt: skip


@pytest.mark.parametrize("arguments", REFUSED)
def test_a_question_that_cannot_be_answered_is_refused(arguments: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    (tmp_path / "one.sto").write_text("# STOCKHOLM 1.0\na ACDEF\n//\n")  # one sequence
    monkeypatch.chdir(tmp_path)
    assert_refused(run_here(*arguments.split()), REFUSED[arguments])


def test_a_run_multiplies_before_every_timed_call_of_one_label_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    notes = tmp_path / "notes"
    use_numpy_workers(monkeypatch, notes=str(notes))
    _, made = finished(tmp_path, "between", *FEW, "--batch", "3", "--workers", "2", "--rounds", "2")
    assert [result.case.label for result in made.results if result.measured] == [LOOP, BETWEEN]
    done = [json.loads(line)[1] for line in notes.read_text().splitlines()]
    timed = sum(block.calls for result in made.results for block in result.blocks if result.case.label == BETWEEN)
    assert done.count("multiply") == timed > 0
    assert all(done[at + 1] == "call" for at, event in enumerate(done) if event == "multiply")


def test_a_rung_of_the_ladder_has_times_marks_or_dashes():
    rung = [("jax", False), ("jax", True), ("torch", False), ("torch", True)]
    cases = [case(framework, "cell_loop", compiled=compiled, input="single") for framework, compiled in rung]
    results = [
        right(cases[0], 0.2, cold=0.75),
        *(ended(of, status, "> 120 s") for of, status in zip(cases[1:], ("limit", "wrong", "failed"), strict=True)),
        right(case("jax", "fused", input="single"), 0.002, cold=0.125),
    ]
    answer = QUESTIONS["ladder"].answer(record(*results, settings=Settings("ladder", passes=("score",))))
    assert {row[0]: [*row[1:]] for row in answer.tables[0].rows} == {
        "cell_loop": ["750 ms", "200 ms", "> 120 s", "–", "WRONG", "–", "FAILED", "–"],
        "fused": ["–", "–", "125 ms", "2.00 ms", *["–"] * 4],
    }
    (gain,) = answer.statements
    assert gain.text == "JAX from 200 ms (cell_loop, not compiled) to 2.00 ms (fused), 100 times as fast."


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
    default_input = "random"

    def number_of(self, point):
        return float(point.split()[0])

    def inputs(self, settings):
        make = problem_of(settings.problem).inputs_of_size
        return {f"{pairs} pairs": make(replace(settings, batch=pairs), settings.size or (6, 7)) for pairs in (2, 8, 32)}


QUESTION = Batches()
'''


def test_a_question_along_a_new_axis_is_a_file_of_few_lines(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    assert BATCHES.count("\n") < 60
    (tmp_path / "batches.py").write_text(BATCHES)
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("batches")
    monkeypatch.setitem(QUESTIONS, "batches", module.QUESTION)
    use_numpy_workers(monkeypatch)
    page = tmp_path / "run.md"
    ended, made = finished(tmp_path, "batches", *FEW, "--workers", "3", "--rounds", "2", "--markdown", str(page))
    assert [result.case.input for result in made.results if result.measured] == ["2 pairs", "8 pairs", "32 pairs"]
    title = "8 pairs and 32 pairs against 2 pairs"
    assert title in ended.out and f"### {title}" in page.read_text()
    assert "<img" in html_report([made])
    # the change is that of the time for as much work
    for result, seconds, cells in zip(made.results, (0.1, 0.2, 0.4), (10, 40, 160), strict=True):
        result.blocks, result.work = blocks([seconds] * 5, workers=4), cells
    (table,) = module.QUESTION.answer(made).tables
    assert [row[3:] for row in table.rows] == [
        ("100 ms", "–"), ("200 ms", "2.00×\n(1.98 … 2.02)"), ("400 ms", "4.00×\n(3.97 … 4.03)")
    ]  # fmt: skip


def test_the_benchmark_and_the_tests_stay_small():
    def lines(*paths: Path) -> int:
        return sum(len(path.read_text().splitlines()) for path in paths)

    bench = ROOT / "shared/bench"
    assert lines(ROOT / "compare.py", *bench.rglob("*.py"), *bench.rglob("*.j2")) <= 8124
    assert lines(*(ROOT / "tools").glob("*.py")) <= 787
    assert lines(*(ROOT / "tests").rglob("*.py")) <= 19_000
    assert sum(path.stat().st_size for path in (ROOT / "results").iterdir()) <= 5_000_000


def smallest_first() -> list[Any]:
    """The recorded runs; those of a question but the smallest are slow."""
    sizes_tried: set[str] = set()
    orders = []
    for path in sorted(RECORDED, key=lambda path: path.stat().st_size):
        question = json.loads(path.read_text())["settings"]["question"]
        orders.append(pytest.param(path, id=path.stem, marks=[pytest.mark.slow] * (question in sizes_tried)))
        sizes_tried.add(question)
    assert sizes_tried == QUESTIONS.keys() - {"graphs"}
    return orders


@pytest.mark.parametrize("path", smallest_first())
def test_a_recorded_run_can_be_read_and_shown(path: Path):
    made = Record.read(path)
    printed, tables = console_report(made), QUESTIONS[made.settings.question].answer(made).tables
    assert all(table.title in printed for table in tables)
    assert markdown_report([made]).count("\n|") > sum(len(table.rows) for table in tables) > 0
    if path.stem == "cpu-ladder":  # a page takes seconds to draw
        assert "<img" in html_report([made])


@pytest.mark.parametrize(
    ("name", "where", "value", "told"),
    [
        ("learning", ("processes", 0), 0.0, "processes must be an object, got 0.0"),
        ("learning", ("processes", 0, "epochs", 0, "seconds"), None, "seconds must be a finite number, got None"),
        ("learning", ("target",), None, "target must be a finite number, got None"),
        ("memory", ("peaks", 0, 1), 0, "pairs and peaks must be two growing numbers each"),
        ("memory", ("trial", "peak"), 0, "those of a trial positive"),
        ("shapes", ("seconds", 0, 0), -1.0, "seconds must be positive, got -1.0"),
        ("shapes", ("seconds", 0), [], "seconds and compilations must be those of the same processes"),
        ("transforms", ("outcomes", "gradient"), 3, "transforms cannot show it"),
    ],
)
def test_details_edited_by_hand_are_refused_in_one_line(
    name: str, where: tuple[Any, ...], value: Any, told: str, tmp_path: Path
):
    stored = json.loads((ROOT / f"results/cpu-{name}.json").read_text())
    *outer, last = where
    entry = stored["results"][0]["details"]
    for key in outer:
        entry = entry[key]
    entry[last] = value
    (tmp_path / "edited.json").write_text(json.dumps(stored))
    ended = run_here("--from", str(tmp_path / "edited.json"), "--report", str(tmp_path / "page.html"))
    assert_refused(ended, told)
