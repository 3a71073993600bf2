"""Whole runs of compare.py with both frameworks: what is printed where, and what is recorded."""

import re
import subprocess
import sys
from pathlib import Path
from subprocess import CompletedProcess
from typing import NamedTuple

import hand_made
import pytest
from command_line import COMPARE, LEAST, ROOT, TINY, rows, run_compare, verdicts, without
from in_process import run_here, start_at_once, use_numpy_workers
from rendered import console_report

from shared.alignments import ALIGNMENTS
from shared.bench.measure.machine import usable_cores
from shared.bench.questions import QUESTIONS
from shared.bench.record import Record, Result
from shared.bench.run.schedule import MOST_CALLS
from shared.bench.units import duration
from shared.kernels import cpp
from shared.problems import ANY_FILE, PROBLEMS, problem_of
from shared.problems.alignments import PASSES

# as a user might call it from Python; at the end, which of these modules are loaded
_AS_A_FUNCTION = (
    "import sys; sys.path.insert(0, {root!r}); import compare; code = compare.main(sys.argv[1:]); "
    "print('loaded:', *sorted({{'numpy', 'jax', 'jaxlib', 'torch'}} & set(sys.modules))); sys.exit(code)"
)


class Run(NamedTuple):
    """A finished run, its record, and the folder of its files."""

    done: CompletedProcess[str]
    record: Record
    folder: Path

    def result(self, framework: str, variant: str) -> Result:
        (found,) = (r for r in self.record.results if (r.case.framework, r.case.variant) == (framework, variant))
        return found


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Both frameworks on what PyTorch does not compile."""
    folder = tmp_path_factory.mktemp("both")
    which = ("--framework", "torch,jax", "--variant", "auto,wavefront", "--pass", "score")
    done = run_compare(*TINY, *which, "--json", str(folder / "run.json"))
    assert done.returncode == 0, done.stderr
    return Run(done, Record.read(folder / "run.json"), folder)


@pytest.fixture(scope="module")
def regression(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Another problem, on which PyTorch's compiler takes only seconds; with a page."""
    folder = tmp_path_factory.mktemp("regression")
    options = ("--problem", "linear_regression", "--epochs", "20", "--size", "30", "--learning-rate", "0.2")
    which = ("--framework", "torch", "--variant", "eager_loop,jit_step", "--dtype", "float64")
    files = ("--json", str(folder / "run.json"), "--report", str(folder / "page.html"))
    done = run_compare(*LEAST, *options, *which, *files)
    assert done.returncode == 0, done.stderr
    return Run(done, Record.read(folder / "run.json"), folder)


def test_standard_output_has_a_first_table_then_the_report(both: Run):
    report = console_report(both.record)
    assert both.done.stdout.endswith(f"\n{report}\n")
    first = both.done.stdout.removesuffix(f"{report}\n")
    assert re.match(r"first table after \d+ s \(provisional\)\n", first) and "Which framework is faster" in first
    table = rows(both.done.stdout)
    assert set(table) == {
        ("score", name, variant) for name in ("PyTorch", "JAX") for variant in ("fused (auto)", "wavefront")
    }
    assert {name: table["score", name, "wavefront"]["compiled"] for name in ("PyTorch", "JAX")} == {
        "PyTorch": "no",
        "JAX": "yes",
    }
    (verdict,) = verdicts(both.done.stdout)
    assert verdict.startswith("score: ") and verdict.endswith(" (1 process).")
    assert "every time passed the parity gate on 3 of 3 pairs" in report


def test_progress_goes_to_standard_error(both: Run):
    lines = both.done.stderr.splitlines()
    assert lines[:2] == ["speed: up to 5:00 minutes; --budget SECONDS changes that", "starting PyTorch and JAX"]
    assert lines[2].startswith("NumPy reference on 3 of 3")
    assert lines[3:7] == ["first calls", "worker 1, preparing", "worker 1, timing", "worker 1, first calls"]


def test_the_record_says_where_and_what_ran(both: Run):
    environment, settings = both.record.environment, both.record.settings
    assert {"cpu", "system", "python", "numpy", "git_commit"} <= environment.keys()
    assert environment["bandwidth_bytes_per_second"] > 1e8
    for name in ("jax", "torch"):
        facts = environment["frameworks"][name]
        assert facts[name] and (facts["threads"], facts["cores"]) == (1, usable_cores()[:1])
    assert settings and settings.size == (6, 7) and both.record.inputs["batch"].shape == (3, 6, 7)
    assert both.record.command.startswith("python compare.py --input random --size 6x7")
    assert both.record.started and both.record.finished and both.record.finished >= both.record.started
    assert both.record.auto == {"torch": "fused", "jax": "fused"}
    assert len(both.record.speed) == 2


def test_every_case_has_passed_its_gate_and_has_times_memory_and_sizes(both: Run):
    for result in both.record.results:
        gate = result.gate
        assert gate and gate.source == "NumPy" and gate.pairs == 3 and 0 <= (gate.error_of_allowed or 0.0) <= 1
        assert [(block.worker, block.round) for block in result.blocks] == [(0, 0), (0, 1)]
        assert all(1 <= block.calls <= MOST_CALLS for block in result.blocks)
        assert result.work == both.record.inputs["batch"].work and (result.peak_bytes or 0) >= 0
        assert (result.input_bytes, result.output_bytes) == (3 * 6 * 7 * 4 + 3 * 2 * 4, 3 * 4)


@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_first_calls_are_split_into_tracing_and_compiling(both: Run, regression: Run, framework: str):
    result = both.result("jax", "wavefront") if framework == "jax" else regression.result("torch", "jit_step")
    (cold, *_), (warm,), (shapes, *_) = result.cold, result.warm, result.new_shapes
    assert cold.tracing and cold.compiling
    assert 0.5 * cold.seconds < cold.tracing + cold.compiling <= cold.seconds
    assert min(cold.seconds, warm, shapes[0]) > 10 * result.time.value
    if framework == "jax":  # the cache on disk saves compiling, not tracing
        assert warm < cold.seconds - 0.5 * cold.compiling


def test_a_fasta_file_is_measured_in_every_pass_with_all_options_and_the_parent_imports_neither_framework(
    tmp_path: Path,
):
    (tmp_path / "mine.fasta").write_text(">one\nACDEFGH*\n>two\nACDFGH\n>three\nWUDEW*\n")
    # XLA takes half a minute for the passes of vmap
    variant = "fused" if cpp.why_absent() is None else "vmap"
    arguments = ("--input", "mine.fasta", "--matrix", "PAM250", "--framework", "jax", "--variant", variant, *LEAST)
    problem = ("--problem", "smith_waterman_affine", "--gap-open", "-11", "--no-restrict-turns", "--dtype", "float64")
    python = ("-c", _AS_A_FUNCTION.format(root=str(ROOT)))
    done = run_compare(*arguments, *problem, "--pass", ",".join(PASSES), cwd=tmp_path, python=python)
    assert done.returncode == 0, done.stderr
    assert "; float64, gap_open -11, gap_extend -1, temperature 1, restrict_turns no" in done.stdout
    assert "\ninput: mine.fasta, PAM250, 3 pairs of 3 proteins, up to 7 x 6; " in done.stdout
    assert "\nmine.fasta: the final * is left out in 2 of 3 sequences\n" in done.stdout
    assert "\nmine.fasta: U, which PAM250 lacks, is scored as C in 1 of 3 sequences\n" in done.stdout
    assert [(name, where) for name, where, _ in rows(done.stdout)] == [(name, "JAX") for name in PASSES]
    assert done.stdout.splitlines()[-1] == "loaded: numpy"


def test_what_workers_of_both_frameworks_say_has_no_types_of_theirs():
    done = run_compare("--list", python=("-c", _AS_A_FUNCTION.format(root=str(ROOT))))
    assert done.returncode == 0, done.stderr
    assert "PyTorch" in done.stdout and done.stdout.splitlines()[-1] == "loaded: numpy"


def test_growth_measures_every_size_and_predicts_another(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    path, sizes = tmp_path / "run.json", ("1x4x4", "2x4x1", "8x2x2", "3x8x6", "1x9x9")
    use_numpy_workers(monkeypatch)
    arguments = ("--framework", "jax", "--variant", "vmap", "--pass", "score", "--json", str(path))
    ended = run_here("growth", *LEAST, *arguments, "--sizes", ",".join(sizes))
    assert ended.code == 0, ended.err
    made = Record.read(path)
    assert [(r.case.input, len(r.blocks)) for r in made.results] == [(size, 2) for size in sizes]
    assert [facts.shape for facts in made.inputs.values()] == [tuple(map(int, size.split("x"))) for size in sizes]
    assert "Time of a call, fitted over 5 sizes" in ended.out
    predicted = run_here("--from", str(path), "--predict", "2x5x5")
    assert predicted.code == 0 and "\nscore   JAX          vmap" in predicted.out


def test_the_ladder_has_a_table_of_the_single_pair_and_of_the_batch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    path = tmp_path / "run.json"
    use_numpy_workers(monkeypatch)
    arguments = ("--framework", "jax", "--variant", "scan_select,vmap", "--size", "3x4", "--batch", "2")
    ended = run_here("ladder", *arguments, "--json", str(path))
    assert ended.code == 0, ended.err
    lines = ended.out.splitlines()
    titles = [line.split(", ")[-1] for line in lines if line.startswith("score, random similarity")]
    assert titles == ["one pair of 3 x 4", "2 pairs of up to 3 x 4"]
    rung = next(line.split("  ") for line in lines if line.startswith("scan_select"))
    assert sum(cell.strip().endswith("s") for cell in rung) == 4
    first = next(line for line in lines if line and not line.startswith("WARNING"))  # of variables that the suite sets
    assert first.startswith("score, random similarity")  # no provisional table
    climbed = [(r.case.variant, r.case.input, r.case.compiled) for r in Record.read(path).results]
    assert climbed == [
        ("scan_select", "single", False),
        ("scan_select", "single", True),
        ("vmap", "batch", False),
        ("vmap", "batch", True),
    ]


def test_a_pair_too_large_for_numpy_is_gated_by_a_float64_run():
    arguments = ("--input", "random", "--size", "600x700", "--batch", "1", "--framework", "jax", "--variant", "auto")
    done = run_compare(*arguments, "--pass", "score", *LEAST)
    assert done.returncode == 0, done.stderr
    gate = "pairs too large for the NumPy reference were gated by float64 fused, itself gated by NumPy on cut pairs"
    assert gate in done.stdout.splitlines()


def test_a_regression_is_measured_in_steps_per_second(regression: Run):
    printed, page = regression.done.stdout, (regression.folder / "page.html").read_text()
    assert "learning_rate 0.2, epochs 20\ninput: 30 points, seed 0; 20 steps\n" in printed
    assert " steps/s" in printed and "GCUPS" not in printed and "pairs" not in printed
    assert "steps/s" in page and "GCUPS" not in page
    assert printed.count("least squares a ") == 2
    assert verdicts(printed)[0].startswith("train: only PyTorch (jit_step, ")


def test_the_start_of_a_compiler_is_told_and_belongs_to_no_case(regression: Run):
    # the first start: inductor takes seconds for that, and milliseconds for a second
    seconds = regression.record.environment["frameworks"]["torch"]["compiler_start_seconds"][0]
    cold = regression.result("torch", "jit_step").cold[0]
    assert seconds > 0.5 and cold.seconds < seconds
    assert f"; compiler start-up, not included below: {duration(seconds)}, then" in regression.done.stdout


def test_list_shows_questions_problems_variants_and_each_framework_s_choice(monkeypatch: pytest.MonkeyPatch):
    start_at_once(monkeypatch)
    lines = run_here("--list").out.splitlines()
    problems = [*PROBLEMS, ANY_FILE]
    titles = [*QUESTIONS, *problems]
    assert [line.split(":")[0] for line in lines[: len(titles)]] == titles
    assert lines[len(QUESTIONS) + 1].endswith(
        "takes --gap-open --gap-extend --temperature --no-restrict-turns --no-penalize-turns --gaps-by-position"
    )
    heads = [
        f"passes, then variants, of {', '.join(ALIGNMENTS)}:",
        *(f"passes, then variants, of {name}:" for name in problems[4:]),
    ]
    assert [line for line in lines if line.startswith("passes, then variants, of ")] == heads
    listed = [line.split()[0] for line in lines if line.startswith("  ") and not line.startswith("   ")]
    every = [problem_of(name) for name in ("smith_waterman", *problems[4:])]
    assert listed == [name for problem in every for name in (*problem.passes, *problem.variant_names)]
    assert lines[-2:] == ["JAX 1.2.3: auto picks vmap", "PyTorch 1.2.3: auto picks vmap"]


def test_without_any_framework_there_is_a_line_for_each_and_exit_code_3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PYTHONPATH", str(without(tmp_path, "jax", "jaxlib", "torch")))
    ended = run_here(*TINY)
    assert (ended.code, ended.out) == (3, "")
    assert ended.err[-2:] == [
        "JAX is not installed (No module named 'jax')",
        "PyTorch is not installed (No module named 'torch')",
    ]


def test_without_a_cuda_device_there_is_a_line_for_each_framework_and_exit_code_3(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # hides the devices of a machine that has some
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    ended = run_here(*TINY, "--device", "cuda")
    assert (ended.code, ended.out) == (3, "")
    jax, torch = ended.err[-2:]
    assert jax.startswith("JAX ") and "sees no cuda device (" in jax and "install jax[cuda13]" in jax
    assert torch.startswith("PyTorch ") and "sees no cuda device (" in torch and "install a CUDA build" in torch


def test_a_reader_that_closes_the_pipe_ends_it_quietly(tmp_path: Path):
    path = tmp_path / "run.json"
    hand_made.record(hand_made.steady(hand_made.case("jax", "vmap"), 0.25)).write(path)
    command = [sys.executable, COMPARE, "--from", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert (process.stderr.read(), process.wait()) == ("", 141)
