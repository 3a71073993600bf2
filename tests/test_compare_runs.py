"""Whole runs of compare.py: what is printed where, what is written, and that the parent stays light."""

import json
import subprocess
import sys
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any, NamedTuple

import pytest
from command_line import COMPARE, JAX, ROOT, TINY, rows, run_compare, verdicts, without

from shared.bench.plan import PASSES
from shared.problems import PROBLEMS
from shared.variants import variant_names

# what a user might write to call it from Python; at the end, which of these modules are loaded
_AS_A_FUNCTION = (
    "import sys; sys.path.insert(0, {root!r}); import compare; code = compare.main(sys.argv[1:]); "
    "print('loaded:', *sorted({{'numpy', 'jax', 'jaxlib', 'torch'}} & set(sys.modules))); sys.exit(code)"
)


class Run(NamedTuple):
    """A finished run and the JSON that it wrote."""

    done: CompletedProcess[str]
    json: dict[str, Any]


def case_of(run: Run, framework: str, variant: str, pass_name: str) -> dict[str, Any]:
    wanted = (framework, variant, pass_name)
    (case,) = (c for c in run.json["cases"] if (c["framework"], c["variant"], c["pass_name"]) == wanted)
    return case


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Both frameworks: what auto picks, which is not compiled, and vmap, which is."""
    path = tmp_path_factory.mktemp("both") / "run.json"
    arguments = (*TINY, "--framework", "torch,jax", "--variant", "auto,vmap", "--pass", "score", "--json", str(path))
    return Run(run_compare(*arguments), json.loads(path.read_text()))


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """JAX, from another folder, in float64, with other parameters."""
    folder = tmp_path_factory.mktemp("alone")
    arguments = (*JAX, "--repeats", "4", "--dtype", "float64", "--end", "match", "--gap", "-0.5", "--temperature", "2")
    done = run_compare(*arguments, "--json", "run.json", cwd=folder)
    return Run(done, json.loads((folder / "run.json").read_text()))


def test_a_run_prints_a_table_and_a_verdict_and_ends_with_0(both: Run):
    assert both.done.returncode == 0
    assert set(rows(both.done.stdout)) == {
        ("score", "PyTorch", "fused (auto)"),
        ("score", "PyTorch", "vmap"),
        ("score", "JAX", "fused (auto)"),
        ("score", "JAX", "vmap"),
    }
    (verdict,) = verdicts(both.done.stdout)
    assert " times as fast as " in verdict and "PyTorch (" in verdict and "JAX (" in verdict
    assert "every time above passed the parity gate on 3 of 3 pairs" in both.done.stdout


def test_progress_goes_to_standard_error(both: Run):
    lines = both.done.stderr.splitlines()
    assert lines[:2] == ["starting PyTorch", "starting JAX"]
    assert [line for line in lines if line.startswith("[")] == [
        "[1/4] PyTorch vmap score",
        "[2/4] JAX vmap score",
        "[3/4] PyTorch fused score, not compiled, after compiling its kernels unless they are in the cache",
        "[4/4] JAX fused score",
    ]
    assert "starting" not in both.done.stdout.splitlines()[0] and "[1/4]" not in both.done.stdout


def test_a_compiled_case_is_marked(both: Run):
    table = rows(both.done.stdout)
    assert table["score", "PyTorch", "vmap"][0] == table["score", "JAX", "vmap"][0] == "yes"
    assert table["score", "PyTorch", "fused (auto)"][0] == "no"


def test_every_worker_is_kept_to_the_cores_that_are_asked_for(both: Run):
    environment = both.json["environment"]
    assert environment["threads"] == 1
    assert {name: (f["threads"], f["cores"]) for name, f in environment["frameworks"].items()} == {
        "torch": (1, 1),
        "jax": (1, 1),
    }


def test_the_json_says_where_and_what_ran(both: Run):
    environment = both.json["environment"]
    assert {"cpu", "system", "python", "numpy", "git_commit"} <= set(environment)
    assert environment["frameworks"]["jax"]["jax"] and environment["frameworks"]["torch"]["torch"]
    assert both.json["command"].startswith("python compare.py --input random --size 6x7")
    assert both.json["settings"]["size"] == [6, 7]
    assert both.json["inputs"]["batch"]["similarity_shape"] == [3, 6, 7]
    assert both.json["auto"] == {"torch": "fused", "jax": "fused"}


def test_every_time_in_the_json_stands_behind_a_gate(both: Run):
    for case in both.json["cases"]:
        assert case["status"] == "ok" and case["gate"]["source"] == "NumPy" and case["gate"]["pairs"] == 3
        assert 0 <= case["gate"]["error_of_allowed"] <= 1
        assert case["first_seconds"] > 0 and len(case["steady_seconds"]) == 1
        assert case["work"] == both.json["inputs"]["batch"]["work_cells"]


def test_the_first_call_includes_compilation(both: Run):
    case = case_of(both, "torch", "vmap", "score")
    assert case["first_seconds"] > 10 * case["steady_seconds"][0]


def test_there_are_exactly_two_verdict_lines_one_for_each_pass(alone: Run):
    assert alone.done.returncode == 0, alone.done.stderr
    assert [line.split(" (")[0] for line in verdicts(alone.done.stdout)] == ["score: only JAX", "marginals: only JAX"]


def test_it_runs_from_another_folder_and_writes_there(alone: Run):
    assert alone.json["settings"]["json"] == "run.json"


def test_parameters_and_dtype_reach_the_table_and_the_cases(alone: Run):
    assert "float64, gap -0.5, temperature 2, end match" in alone.done.stdout.splitlines()[0]
    assert {case["dtype"] for case in alone.json["cases"]} == {"float64"}


def test_every_sample_is_in_the_json(alone: Run):
    assert [len(case["steady_seconds"]) for case in alone.json["cases"]] == [4, 4]


def test_a_fasta_file_runs_and_the_parent_imports_neither_framework(tmp_path: Path):
    (tmp_path / "mine.fasta").write_text(">one\nACDEFGH\n>two\nACDFGH\n>three\nWCDEW\n")
    python = ("-c", _AS_A_FUNCTION.format(root=str(ROOT)))
    arguments = ("--input", "mine.fasta", "--matrix", "PAM250", "--framework", "jax", "--variant", "vmap")
    done = run_compare(*arguments, "--repeats", "1", "--pass", "score", cwd=tmp_path, python=python)
    assert done.returncode == 0, done.stderr
    assert "input: mine.fasta, PAM250, 3 pairs of 3 proteins, up to 7 x 6; " in done.stdout
    assert done.stdout.splitlines()[-1] == "loaded: numpy"


def test_list_shows_problems_variants_and_each_framework_s_choice():
    done = run_compare("--list", "--framework", "jax")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split(":")[0] for line in lines[: len(PROBLEMS)]] == list(PROBLEMS)
    assert lines[1].endswith(
        "passes: score, marginals, hvp; "
        "takes --gap-open --gap-extend --temperature --no-restrict-turns --no-penalize-turns"
    )
    assert lines[len(PROBLEMS)] == f"variants of {', '.join(PROBLEMS)}:"
    listed = [line.split()[0] for line in lines if line.startswith("  ") and not line.startswith("   ")]
    assert listed == list(variant_names("smith_waterman"))
    assert lines[-1].startswith("JAX ") and lines[-1].endswith("auto picks fused")


@pytest.mark.parametrize(
    ("problem", "arguments", "head"),
    [
        (
            "smith_waterman_affine",
            ("--gap-open", "-11", "--no-restrict-turns", "--no-penalize-turns"),
            "gap_open -11, gap_extend -1, temperature 1, restrict_turns False, penalize_turns False",
        ),
        ("free_gap", ("--temperature", "0.5"), "temperature 0.5"),
        ("needleman_wunsch", ("--gap", "-2"), "gap -2, temperature 1"),
    ],
)
def test_every_problem_is_measured_in_every_pass(problem: str, arguments: tuple[str, ...], head: str):
    done = run_compare(*JAX, "--problem", problem, *arguments, "--pass", "score,marginals,hvp")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].endswith(f"; float32, {head}")
    assert set(rows(done.stdout)) == {(name, "JAX", "vmap") for name in PASSES}
    assert "every time above passed the parity gate on 3 of 3 pairs" in done.stdout


def test_second_derivatives_in_torch_come_from_the_variants_that_have_them():
    done = run_compare(*TINY, "--framework", "torch", "--pass", "hvp", "--variant", "diagonal_loop,vmap")
    assert done.returncode == 0, done.stderr
    assert list(rows(done.stdout)) == [("hvp", "PyTorch", "diagonal_loop")]
    assert done.stdout.splitlines()[-1] == (
        "absent: PyTorch vmap hvp: PyTorch's scan operator has wrong second derivatives"
    )


def test_a_ladder_of_one_kind_of_rungs_shows_and_times_only_their_input():
    arguments = ("--ladder", "--framework", "jax", "--variant", "scan_select", "--size", "3x4", "--unroll", "2")
    done = run_compare(*arguments, "--problem", "free_gap")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].endswith("temperature 1, unroll 2")
    assert "one pair of 3 x 4" in done.stdout
    assert "pairs of up to" not in done.stdout and "NumPy score, batch" not in done.stderr


def test_the_ladder_prints_the_single_pair_and_the_batch(tmp_path: Path):
    arguments = ("--ladder", "--framework", "jax", "--variant", "scan_select,vmap", "--size", "3x4", "--batch", "2")
    done = run_compare(*arguments, "--json", str(tmp_path / "run.json"))
    assert done.returncode == 0, done.stderr
    titles = [line for line in done.stdout.splitlines() if line.startswith("score, random similarity")]
    assert [title.split(", ")[-1] for title in titles] == ["one pair of 3 x 4", "2 pairs of up to 3 x 4"]
    (rung,) = (line.split("  ") for line in done.stdout.splitlines() if line.startswith("scan_select"))
    assert sum(cell.strip().endswith("s") for cell in rung) == 4
    stored = json.loads((tmp_path / "run.json").read_text())
    assert [len(row["seconds"]) for row in stored["numpy"]] == [2, 2]
    climbed = [(case["variant"], case["single"], case["compiled"]) for case in stored["cases"]]
    assert climbed == [
        ("scan_select", True, False),
        ("scan_select", True, True),
        ("vmap", False, False),
        ("vmap", False, True),
    ]


def test_a_pair_too_large_for_numpy_is_gated_by_a_float64_run():
    arguments = ("--input", "random", "--size", "600x700", "--batch", "1", "--framework", "jax", "--variant", "vmap")
    done = run_compare(*arguments, "--pass", "score", "--repeats", "1")
    assert done.returncode == 0, done.stderr
    assert rows(done.stdout)["score", "JAX", "vmap"][1].endswith("s")
    assert (
        "pairs too large for the NumPy reference were gated by float64 fused, itself gated by NumPy on cut pairs"
        in done.stdout.splitlines()
    )


def test_a_framework_that_is_not_installed_is_one_line_and_the_other_is_measured(tmp_path: Path):
    folder = without(tmp_path, "torch")
    done = run_compare(*TINY, "--variant", "vmap", "--pass", "score", folders=(folder,))
    assert done.returncode == 0, done.stderr
    assert list(rows(done.stdout)) == [("score", "JAX", "vmap")]
    told = [line for line in done.stdout.splitlines() if "not installed" in line]
    assert told == ["PyTorch was not measured: PyTorch is not installed (No module named 'torch')"]
    assert verdicts(done.stdout)[0].startswith("score: only JAX (vmap, ")


def test_without_any_framework_there_is_a_line_for_each_and_exit_code_3(tmp_path: Path):
    done = run_compare(*TINY, folders=(without(tmp_path, "jax", "jaxlib", "torch"),))
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.splitlines()[-2:] == [
        "JAX is not installed (No module named 'jax')",
        "PyTorch is not installed (No module named 'torch')",
    ]


def test_without_a_cuda_device_there_is_a_line_for_each_framework_and_exit_code_3(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # hides the devices of a machine that has some
    done = run_compare(*TINY, "--device", "cuda")
    assert (done.returncode, done.stdout) == (3, "")
    jax, torch = done.stderr.splitlines()[-2:]
    assert jax.startswith("JAX ") and "sees no cuda device (" in jax and "install jax[cuda13]" in jax
    assert torch.startswith("PyTorch ") and "sees no cuda device (" in torch and "install a CUDA build" in torch


def test_a_reader_that_closes_the_pipe_ends_it_quietly():
    command = [sys.executable, COMPARE, "--list", "--framework", "jax"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == "starting JAX\n"
