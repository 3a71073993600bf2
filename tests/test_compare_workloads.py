"""Whole runs of compare.py with the problems that are no alignments."""

import json
from pathlib import Path

import pytest
from command_line import run_compare

from shared.bench.record import Record
from shared.bench.table import report

ONE = ("--threads", "1", "--workers", "1", "--rounds", "2")


@pytest.fixture(scope="module")
def regression(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Record]:
    path = tmp_path_factory.mktemp("regression") / "run.json"
    page = path.with_suffix(".html")
    options = ("--problem", "linear_regression", "--epochs", "20", "--size", "30", "--learning-rate", "0.2")
    done = run_compare(*ONE, *options, "--json", str(path), "--report", str(page))
    assert done.returncode == 0, done.stderr
    assert "steps per second" in page.read_text() and "GCUPS" not in page.read_text()
    return done.stdout, Record.read(path)


def test_a_regression_shows_steps_per_second_and_what_it_found(regression: tuple[str, Record]):
    out, record = regression
    assert out.splitlines()[0] == (
        "linear_regression: fit y = a x + b by gradient descent on the mean squared error; float32, learning_rate 0.2, "
        "epochs 20"
    )
    assert out.splitlines()[1] == "input: 30 points, seed 0; 20 steps"
    assert " steps/s " in out and "GCUPS" not in out and "pairs" not in out
    assert "train: not decided: " in out
    assert "every time above passed the parity gate; worst error " in out
    assert {result.status for result in record.results} == {"ok"} and len(record.results) == 8
    assert out.count("least squares a ") == 8


def test_what_is_compiled_in_a_regression_is_the_variant_s_affair(regression: tuple[str, Record]):
    _, record = regression
    compiled = {result.case.variant for result in record.results if result.case.compiled}
    assert compiled == {"jit_step", "compiled_loop"}


def test_a_record_of_a_regression_is_printed_again(regression: tuple[str, Record]):
    out, record = regression
    assert report(record) == out.rstrip("\n")


def test_a_stencil_is_climbed_with_the_compiler_off_and_on(tmp_path: Path):
    arguments = ("--problem", "stencil", "--ladder", "--framework", "jax", "--size", "4x3", "--threads", "1")
    done = run_compare(*arguments, "--pass", "value,gradient", "--json", str(tmp_path / "run.json"))
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if line.endswith(", weights of 4 x 3, seed 0")] == [
        "value, weights of 4 x 3, seed 0",
        "gradient, weights of 4 x 3, seed 0",
    ]
    rungs = [line.split("  ") for line in done.stdout.splitlines() if line.startswith("scan_sum")]
    assert [sum(cell.strip().endswith("s") for cell in rung) for rung in rungs] == [4, 4]
    numpy_rows = [line for line in done.stdout.splitlines() if line.startswith("NumPy  ")]
    assert len(numpy_rows) == 2 and all(row.rstrip().endswith("s") for row in numpy_rows)
    stored = json.loads((tmp_path / "run.json").read_text())
    assert len(stored["cases"]) == 5 * 2 * 2 and len(stored["numpy"]) == 2
    assert all(case["status"] == "ok" for case in stored["cases"])


def test_a_sweep_of_a_stencil_fits_exponents():
    arguments = ("--problem", "stencil", "--framework", "jax", "--variant", "cell_loop,scan_sum", "--pass", "value")
    done = run_compare(*ONE, *arguments, "--sweep", "4x1,4x2,4x4")
    assert done.returncode == 0, done.stderr
    assert "Growth: p of n^p for n cells in a call, fitted from 4 to 16" in done.stdout


def test_the_regression_in_pytorch_alone_and_in_float64():
    arguments = ("--problem", "linear_regression", "--epochs", "5", "--size", "7", "--dtype", "float64")
    done = run_compare(*ONE, *arguments, "--framework", "torch", "--variant", "eager_loop,loop_unjitted")
    assert done.returncode == 0, done.stderr
    assert "train: only PyTorch (" in done.stdout
