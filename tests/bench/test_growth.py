"""Growth: the fit of times made from known costs, what it tells of records with such times, and what it predicts."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from hand_made import case, facts, record, right
from in_process import assert_refused, run_here

from shared.bench.analysis.cost_model import Fit, fitted
from shared.bench.cases import Settings
from shared.bench.questions import QUESTIONS
from shared.bench.questions.growth import cost_table, first_call_table, prediction
from shared.bench.record import Record, Result
from shared.problems import PROBLEMS
from shared.problems.argument_types import size_text
from shared.problems.problem import Loop, UnusableInput

SETTINGS = Settings("growth", input="random", passes=("score",))
PROBLEM = PROBLEMS["smith_waterman"]
SIZES = PROBLEM.sizes.growth
NAMES = tuple(map(size_text, SIZES))
CELL, STEP, CALL = COSTS = (2e-8, 3e-6, 1e-4)  # in the order of the columns
NEW = (32, 100, 150)
Size = tuple[int, ...]
Seconds = Callable[[Loop], float]


def costing(call: float, step: float, cell: float) -> Seconds:
    return lambda loop: call + step * loop.steps + cell * loop.cells


FAST, SLOW = costing(CALL, STEP, CELL), costing(10 * CALL, 10 * STEP, 10 * CELL)


def results(framework: str, seconds: Seconds, variant: str = "vmap", noise: int | None = None) -> list[Result]:
    """A case at each size; noise: the seed of errors of a tenth."""
    generator, made = np.random.default_rng(noise), []
    for size in SIZES:
        loop = PROBLEM.loop(SETTINGS, variant, size)
        time = seconds(loop) * (1.0 if noise is None else float(np.exp(0.1 * generator.standard_normal())))
        compiling = 0.5 + 0.002 * loop.steps
        made.append(
            right(
                case(framework, variant, input=size_text(size)), *[time] * 3, workers=2,
                cold=compiling + time, peak_bytes=round(10_000 + 24 * loop.cells),
            )
        )  # fmt: skip
    return made


def growth_of(*cases: list[Result]) -> Record:
    inputs = {size_text(size): facts(shape=size) for size in SIZES}
    return record(*(result for of_case in cases for result in of_case), settings=SETTINGS, inputs=inputs)


def cells(made: Record) -> dict[str, str]:
    """The first lines of the cells in the first rows of both tables."""
    by_title = {}
    for table in (cost_table(made), first_call_table(made)):
        by_title |= zip(table.headers, (cell.partition("\n")[0] for cell in table.rows[0]), strict=True)
    return by_title


@pytest.mark.parametrize(
    ("problem", "variant", "size", "loop"),
    [
        ("smith_waterman", "wavefront", (3, 5), Loop(7, 16 * 7 * 3 / 2)),  # a batch of 16
        # as many steps and cells as test_ladder.py finds in their loops
        ("smith_waterman", "vmap", (5, 2, 3), Loop(4, 5 * 4 * 3 / 2)),
        ("smith_waterman", "batch_loop", (5, 2, 3), Loop(5 * 4, 5 * 4 * 3 / 2)),
        ("needleman_wunsch", "cell_loop", (16, 3, 5), Loop(15, 16 * 15)),
        ("needleman_wunsch", "fused", (16, 3, 5), Loop(0, 16 * 15)),
        ("stencil", "scan", (64, 32), Loop(32, 64 * 32)),
        ("stencil", "cell_loop", (64, 32), Loop(64 * 32, 0)),
        ("linear_regression", "jit_step", (50,), Loop(200, 200 * 50, repeats=200)),
    ],
)
def test_a_problem_tells_the_steps_of_the_loop_and_the_cells(problem, variant, size, loop):
    assert PROBLEMS[problem].loop(Settings(problem=problem, arguments={"epochs": 200}), variant, size) == loop


def columns_of(size: Size) -> tuple[float, ...]:
    loop = PROBLEM.loop(SETTINGS, "vmap", size)
    return loop.cells, loop.steps, 1.0


def seconds_of(size: Size) -> float:
    return float(np.dot(columns_of(size), COSTS))


def fit(factors: Sequence[float] | np.ndarray, has_knee: bool = False, part: slice = slice(None)) -> Fit:
    """The fit of the known costs over a part of the sizes, each size's time times a factor."""
    times = [seconds_of(size) * factor for size, factor in zip(SIZES, factors, strict=True)]
    fit = fitted(NAMES[part], tuple(map(columns_of, SIZES))[part], tuple(times)[part], has_knee)
    assert fit is not None
    return fit


def noise(generator: np.random.Generator) -> np.ndarray:
    return np.exp(0.1 * generator.standard_normal(len(SIZES)))


def test_intervals_cover_the_costs_and_the_times_of_sizes_that_were_not_seen():
    generator, draws = np.random.default_rng(0), 30
    covered, widths = np.zeros(4), []
    for _ in range(draws):
        costs = fit(noise(generator))
        new = costs.at(columns_of(NEW))
        truths = (*COSTS, seconds_of(NEW) * noise(generator)[0])
        estimates = (*map(costs.coefficient, range(3)), new)
        covered += [one.low <= truth <= one.high for one, truth in zip(estimates, truths, strict=True)]
        widths.append(new.high / new.value)
    assert (covered >= 0.85 * draws).all(), covered
    assert np.median(widths) < 1.5


def test_no_cost_is_negative():
    sums = fit([np.dot(columns_of(size), (CELL, -5e-7, 1e-3)) / seconds_of(size) for size in SIZES], has_knee=True)
    estimate = sums.coefficient(1)
    assert 0 <= estimate.value < 1e-9 and estimate.high < 1e-6


def test_errors_that_two_cases_share_cancel_out_of_their_ratio():
    generator = np.random.default_rng(2)
    first, second = noise(generator), noise(generator)
    base, like, unlike = map(fit, (first, 1.3 * first, 1.3 * second))
    alike, apart = (one.over(base, columns_of(NEW), columns_of(NEW)) for one in (like, unlike))
    assert alike is not None and apart is not None
    assert alike.value == pytest.approx(1.3, rel=1e-3) and alike.low > 1.29 and alike.outcome == "different"
    assert apart.low < 1.3 < apart.high and apart.high - apart.low > 0.2


def test_a_ratio_needs_sizes_that_both_cases_have():
    as_is = np.ones(len(SIZES))
    first, last, most = (fit(as_is, part=part) for part in (slice(4), slice(-4, None), slice(2, None)))
    ratio = fit(as_is).over(most, columns_of(NEW), columns_of(NEW))
    assert ratio is not None and ratio.value == pytest.approx(1.0, rel=1e-3)
    assert first.over(last, columns_of(NEW), columns_of(NEW)) is None


def test_a_row_has_the_costs_with_their_units_and_the_errors_on_sizes_not_seen():
    by_title = cells(growth_of(results("jax", FAST)))
    costs = {"a call": "100 µs", "a step": "3.00 µs", "a cell": "20.0 ns", "a cell beyond\nthe caches": "–"}
    costs |= {"memory\nof a cell": "24.0 B", "compiling": "500 ms", "compiling\na step": "2.00 ms"}
    assert by_title.items() >= (costs | {"error on sizes\nnot seen": "0%"}).items()


def test_sizes_without_a_peak_or_a_time_are_left_out():
    made = results("jax", FAST)
    made[2].peak_bytes = made[6].peak_bytes = 0
    assert cells(growth_of(made))["memory\nof a cell"] == "24.0 B"
    for result in made[1::2]:
        result.status, result.blocks = "limit", []
    assert cells(growth_of(made))["a step"] == "3.00 µs"
    for result in made:
        result.peak_bytes = None
    assert cells(growth_of(made))["memory\nof a cell"] == "–"
    assert cost_table(growth_of(made[:5])).rows == []


# equal at 900 µs / 15 ns = 60,000 cells
EARLY, LATE = costing(1e-4, 0.0, 2e-8), costing(1e-3, 0.0, 5e-9)


def told(*cases: list[Result], about: str = "score, vmap") -> str:
    return dict(QUESTIONS["growth"].answer(growth_of(*cases)).statements)[about]


def test_a_sentence_tells_from_which_size_on_the_other_framework_is_faster():
    text = told(results("jax", EARLY), results("torch", LATE))
    assert text == "JAX up to 58,000 cells in a call, PyTorch from 66,000 on (evaluated from 16x16x16 to 16x482x482)."


def test_a_framework_may_be_faster_or_the_same_throughout():
    assert told(results("jax", FAST), results("torch", SLOW)).startswith("JAX throughout (")
    assert told(results("jax", FAST), results("torch", costing(1.01e-4, 3e-6, 2e-8))).startswith("same throughout (")


def predicted(made: Record, size: tuple[int, ...]) -> tuple[dict[str, str], list[str]]:
    """The first row by header, without that of the second interval; and the sentences."""
    report = prediction(made, size)
    (table,) = report.answer.tables
    return dict(zip(table.headers[:6], table.rows[0], strict=False)) | {"": table.rows[0][-1]}, [
        text for _, text in report.answer.statements
    ]


def test_a_prediction_has_time_memory_and_the_faster_framework():
    row, (sentence,) = predicted(growth_of(results("jax", FAST), results("torch", SLOW)), NEW)
    assert row["time"] == f"{seconds_of(NEW) * 1e3:.1f} ms" and row["95% interval"].startswith(row["time"][:3])
    assert row["memory"] == f"{(10_000 + 24 * columns_of(NEW)[0]) / 2**20:.1f} MiB" and row[""] == ""
    assert re.fullmatch(r"JAX \(vmap\) against PyTorch \(vmap\): JAX 1[\d.]*× \([\d.]+ … [\d.]+\)\.", sentence)
    close = [results("jax", FAST, noise=0), results("torch", FAST, noise=1)]
    _, (sentence,) = predicted(growth_of(*close), NEW)
    assert sentence.startswith("JAX (vmap) against PyTorch (vmap): no clear winner (within ")
    assert predicted(growth_of(close[0]), NEW)[1] == []


@pytest.mark.parametrize("size", [(1, 2, 2), (512, 256, 256), (1, 4096, 4096), (4096, 16, 16)])
def test_a_size_outside_those_measured_is_marked(size: tuple[int, ...]):
    made = growth_of(results("jax", FAST), results("torch", SLOW))
    row, (sentence,) = predicted(made, size)
    assert row[""] == "extrapolated" and sentence.endswith(" Extrapolated.")
    row, (sentence,) = predicted(made, (50, 60))  # a batch of 16
    assert row[""] == "" and not sentence.endswith(" Extrapolated.")


def test_a_prediction_that_cannot_be_made_is_refused_in_one_line(tmp_path: Path):
    made = growth_of(results("jax", FAST))
    form = "a size of smith_waterman is BATCHxROWSxCOLS or ROWSxCOLS, such as 128x256x256, got '100'"
    with pytest.raises(UnusableInput, match=form):
        prediction(made, (100,))
    with pytest.raises(UnusableInput, match="a prediction takes cases that were measured at several sizes, got none"):
        prediction(growth_of(), (100, 150))
    made.settings = Settings("speed")
    made.write(tmp_path / "speed.json")
    ended = run_here("growth", "--from", str(tmp_path / "speed.json"), "--predict", "16x100x150")
    assert_refused(ended, "a prediction takes a record of growth, got one of speed")


def test_the_command_prints_a_prediction_and_nothing_else(tmp_path: Path):
    growth_of(results("jax", FAST)).write(tmp_path / "growth.json")
    for question, size in (((), "16x100x150"), (("growth",), "100x150")):
        ended = run_here(*question, "--from", str(tmp_path / "growth.json"), "--predict", size)
        assert ended.code == 0 and ended.err == [] and "All cases" not in ended.out
        assert ended.out.startswith("Predicted for 16x100x150, from 10 sizes; nothing was measured\n\npass")
