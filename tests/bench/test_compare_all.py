"""`compare.py all`, and records of several questions or machines in one report."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hand_made
import pytest
from hand_made import case, steady
from in_process import run_here
from rendered import html_report

import compare
from shared.bench import command_line
from shared.bench.command_line import parse
from shared.bench.questions import QUESTIONS
from shared.bench.record import Facts, Record
from shared.bench.report.side_by_side import side_by_side
from shared.bench.run.context import CannotMeasure
from shared.problems.problem import UnusableInput


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The questions, of four, that runs in this process were asked; shapes refuses its input, growth cannot be
    measured, others find a result."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        command_line, "QUESTIONS", {name: QUESTIONS[name] for name in ("speed", "ladder", "growth", "shapes")}
    )
    asked: list[str] = []

    def measure(_: object, record: Record, __: object, keep: Callable[[], None]) -> None:
        if record.settings.question == "shapes":
            raise UnusableInput("shapes goes with others")
        if asked and record.settings.question == "growth":
            raise CannotMeasure("JAX can use 2 cores, expected 1")
        asked.append(record.settings.question)
        result = steady(case("jax", "vmap", input="3x6x7"), 0.25)
        whole = hand_made.record(result, settings=dataclasses.replace(record.settings, passes=("score",)))
        vars(record).update(vars(dataclasses.replace(whole, inputs={"3x6x7": hand_made.facts()})))
        keep()

    monkeypatch.setattr(compare, "measure", measure)
    return asked


def test_all_asks_every_question_that_can_be_asked_and_writes_a_page_and_a_record_of_each(
    asked: list[str], tmp_path: Path
):
    ended = run_here("all", "--framework", "jax", "--json", "records")
    assert ended.code == 0
    assert ended.err == [
        "speed, ladder, growth, shapes: up to 34:00 minutes in all",
        "not asked: growth: JAX can use 2 cores, expected 1",
        "not asked: shapes: shapes goes with others",
    ]
    assert asked == ["speed", "ladder"]
    page = (tmp_path / "report.html").read_text()
    for name in asked:
        assert Record.read(tmp_path / "records" / f"{name}.json").settings.question == name
        assert page.count(f">{name}</a>: ") == page.count(f">{name}: smith_waterman in JAX on cpu") == 1
    again = run_here("all", "--framework", "jax", "--json", "records")
    assert again.code == 2 and again.err[0].endswith("speed.json (--json): it exists; --force overwrites it")


@pytest.mark.parametrize(
    ("budget", "seconds", "expected"),
    [("10", [10.0], {"speed": 10.0}), ("1200", [301.0, 897.0], {"speed": 300.0, "ladder": 899.0}),
     ("1000", [20.0, 900.0], {"speed": 300.0, "ladder": 900.0})],
)  # fmt: skip
def test_all_asks_the_questions_for_which_time_is_left_and_the_first_whatever_it_is(
    asked: list[str], monkeypatch: pytest.MonkeyPatch, budget: str, seconds: list[float], expected: dict[str, float]
):
    """seconds: that each question takes."""
    now, budgets, measure, takes = [0.0], {}, compare.measure, iter(seconds)

    def take(question: Any, record: Record, *others: Any) -> None:
        now[0] += next(takes)
        budgets[record.settings.question] = record.settings.budget
        measure(question, record, *others)

    monkeypatch.setattr(compare, "measure", take)
    monkeypatch.setattr(compare, "time", SimpleNamespace(monotonic=lambda: now[0]))
    ended = run_here("all", "--framework", "jax", "--budget", budget)
    assert {name: budgets[name] for name in asked} == expected
    left = max(0.0, float(budget) - sum(seconds))
    assert ended.err[-2:] == [f"not asked: {name}: it takes {QUESTIONS[name].default_budget:g} s of the budget, "
                              f"{left:.0f} s are left" for name in ("growth", "shapes")]  # fmt: skip


def test_no_time_is_kept_for_a_question_that_cannot_be_asked():
    request, settings = parse(["all"])
    left_out = ["graphs", "versions"]
    assert [own.question for own in settings] == [name for name in QUESTIONS if name not in left_out]
    assert [line.split(":")[0] for line in request.left_out] == left_out


def test_an_option_goes_to_the_questions_that_take_it():
    request, settings = parse(["all", "--size", "64x64"])
    sizes = {own.question: own.size for own in settings}
    assert sizes["speed"] == (64, 64) and sizes["growth"] is None
    assert parse(["all", "--input", "globins"])[0].left_out[0] == "growth: growth goes with --input random"
    assert request.all and request.report == Path("report.html")


def test_options_that_go_with_no_question_are_refused(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        parse(["all", "--variant", "fastest"])
    assert "unknown variant 'fastest'" in capsys.readouterr().err


# several machines


def of_machine(name: str, factor: float, **inputs: Facts) -> Record:
    made = hand_made.record(
        steady(case("jax", "vmap"), 0.1), steady(case("torch", "vmap"), 0.1 * factor),
        inputs={"batch": hand_made.facts()} | inputs,
    )  # fmt: skip
    return dataclasses.replace(made, environment=made.environment | {"cpu": name})


def test_records_of_several_machines_are_shown_side_by_side():
    records = [of_machine("Abacus", 2.0), of_machine("Soroban", 0.5)]
    (table,) = side_by_side(records)
    assert table.headers == ("variant", "pass", "Abacus\n1 core", "Soroban\n1 core")
    ((variant, pass_name, *cells),) = table.rows
    assert (variant, pass_name) == ("vmap", "score") and table.below[-1] == "Input: three pairs."
    assert [cell.split("\n") for cell in cells] == [
        ["JAX 2.00×", "(1.98 … 2.02)", "100 ms / 200 ms"], ["PyTorch 2.00×", "(1.98 … 2.02)", "100 ms / 50.0 ms"],
    ]  # fmt: skip
    page = html_report(records)
    assert table.title in page and "Recorded on different machines or cores (Abacus, 1 core; Soroban, 1 core)" in page
    assert "Recorded on" not in html_report(records[:1])
    cases = [dataclasses.replace(result.case, label="2 threads") for result in records[0].results]
    labelled = [dataclasses.replace(result, case=own) for result, own in zip(records[0].results, cases, strict=True)]
    assert side_by_side([records[1], dataclasses.replace(records[0], results=labelled)]) == []
    assert side_by_side(records[:1]) == side_by_side([records[0], records[0]]) == []


def test_another_input_of_the_same_name_has_a_row_of_its_own():
    records = [of_machine("Abacus", 2.0), of_machine("Soroban", 0.5, batch=hand_made.facts("four pairs"))]
    (table,) = side_by_side(records)
    assert [row[0] for row in table.rows] == ["three pairs", "four pairs"]
    assert [row[3:].index("–") for row in table.rows] == [1, 0]
