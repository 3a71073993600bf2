"""Whole runs of compare.py: what is printed where, what is written, and that the parent stays light."""

import json
import shlex
import subprocess
import sys
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any, NamedTuple

import numpy as np
import pytest
from command_line import COMPARE, JAX, ROOT, SECONDS, TINY, rows, run_compare, verdicts, without
from shared.bench.machine import usable_cores
from shared.bench.schedule import MOST_CALLS

from shared.alignments import ALIGNMENTS
from shared.kernels import cpp
from shared.problems import PROBLEMS
from shared.problems.alignments import PASSES
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
    arguments = (*JAX, "--rounds", "3", "--dtype", "float64", "--end", "match", "--gap", "-0.5", "--temperature", "2")
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
    assert verdict.startswith("score: not decided: ") and "PyTorch (" in verdict and "JAX (" in verdict
    assert verdict.endswith(" in one process, and another may say otherwise.")
    assert "every time above passed the parity gate on 3 of 3 pairs" in both.done.stdout


def test_progress_goes_to_standard_error(both: Run):
    lines = both.done.stderr.splitlines()
    assert lines[:3] == ["starting PyTorch", "starting JAX", lines[2]] and lines[2].startswith(
        "NumPy reference on 3 of 3"
    )
    assert lines[3:8] == [
        "first calls",
        "[1/4] PyTorch fused score, not compiled, after compiling its kernels unless they are in the cache",
        "[2/4] JAX fused score",
        "[3/4] PyTorch vmap score",
        "[4/4] JAX vmap score",
    ]
    assert lines[8] == "worker 1, preparing" and lines[-3:] == ["worker 1, timing", "[1/2] round 1", "[2/2] round 2"]
    assert "starting" not in both.done.stdout.splitlines()[0] and "[1/4]" not in both.done.stdout


def test_a_compiled_case_is_marked(both: Run):
    table = rows(both.done.stdout)
    assert table["score", "PyTorch", "vmap"]["compiled"] == table["score", "JAX", "vmap"]["compiled"] == "yes"
    assert table["score", "PyTorch", "fused (auto)"]["compiled"] == "no"


def test_every_worker_is_kept_to_the_cores_that_are_asked_for(both: Run):
    environment = both.json["environment"]
    assert environment["threads"] == 1
    first = usable_cores()[:1]
    assert {name: (f["threads"], f["cores"]) for name, f in environment["frameworks"].items()} == {
        "torch": (1, first),
        "jax": (1, first),
    }


def test_the_json_says_where_and_what_ran(both: Run):
    environment = both.json["environment"]
    assert {"cpu", "system", "python", "numpy", "git_commit"} <= set(environment)
    assert environment["frameworks"]["jax"]["jax"] and environment["frameworks"]["torch"]["torch"]
    # the first start: inductor takes seconds for that, and milliseconds for a second
    assert environment["frameworks"]["torch"]["compiler_start_seconds"] > 0.5
    assert both.json["command"].startswith("python compare.py --input random --size 6x7")
    assert both.json["settings"]["size"] == [6, 7]
    assert both.json["inputs"]["batch"]["shape"] == [3, 6, 7]
    assert both.json["finished"] >= both.json["started"]
    assert both.json["auto"] == {"torch": "fused", "jax": "fused"}


def test_every_time_in_the_json_stands_behind_a_gate(both: Run):
    for case in both.json["cases"]:
        assert case["status"] == "ok" and case["gate"]["source"] == "NumPy" and case["gate"]["pairs"] == 3
        assert 0 <= case["gate"]["error_of_allowed"] <= 1
        assert case["cold"]["seconds"] > 0 and [block["round"] for block in case["blocks"]] == [0, 1]
        # how many calls fit into a block is the machine's affair
        assert all(1 <= len(block["seconds"]) <= MOST_CALLS for block in case["blocks"])
        assert case["work"] == both.json["inputs"]["batch"]["work"]


def test_a_first_call_is_told_with_caches_empty_with_caches_on_disk_and_on_a_new_shape(both: Run):
    case = case_of(both, "torch", "vmap", "score")
    steady = float(np.median(case["blocks"][0]["seconds"]))
    (warm,) = case["warm"]
    assert min(case["cold"]["seconds"], warm["seconds"], case["retrace"]["seconds"]) > 10 * steady


@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_a_first_call_is_split_into_tracing_and_compiling(both: Run, framework: str):
    cold = case_of(both, framework, "vmap", "score")["cold"]
    assert cold["tracing"] > 0 and cold["compiling"] > 0
    assert 0.5 * cold["seconds"] < cold["tracing"] + cold["compiling"] <= cold["seconds"]


def test_what_the_framework_s_cache_saves_is_compiling_not_tracing(both: Run):
    case = case_of(both, "jax", "vmap", "score")
    (warm,) = case["warm"]
    assert warm["compiling"] < 0.5 * case["cold"]["compiling"]


def test_the_memory_and_the_sizes_of_a_case_are_told(both: Run):
    for case in both.json["cases"]:
        assert case["input_bytes"] == 3 * 6 * 7 * 4 + 3 * 2 * 4 and case["output_bytes"] == 3 * 4
        assert case["peak_bytes"] >= 0


def test_the_machine_is_looked_at(both: Run):
    assert both.json["environment"]["bandwidth_bytes_per_second"] > 1e8
    assert [(block["worker"], block["round"]) for block in both.json["speed"]] == [(0, 0), (0, 1)]


def test_there_are_exactly_two_verdict_lines_one_for_each_pass(alone: Run):
    assert alone.done.returncode == 0, alone.done.stderr
    assert [line.split(" (")[0] for line in verdicts(alone.done.stdout)] == ["score: only JAX", "marginals: only JAX"]


def test_parameters_and_dtype_reach_the_table_and_the_cases(alone: Run):
    assert "float64, gap -0.5, temperature 2, end match" in alone.done.stdout.splitlines()[0]
    assert {case["dtype"] for case in alone.json["cases"]} == {"float64"}


def test_every_worker_and_round_that_is_asked_for_is_in_the_json(alone: Run):
    for case in alone.json["cases"]:
        assert [(block["worker"], block["round"]) for block in case["blocks"]] == [(0, 0), (0, 1), (0, 2)]


def test_a_fasta_file_runs_and_the_parent_imports_neither_framework(tmp_path: Path):
    (tmp_path / "mine.fasta").write_text(">one\nACDEFGH\n>two\nACDFGH\n>three\nWCDEW\n")
    python = ("-c", _AS_A_FUNCTION.format(root=str(ROOT)))
    arguments = ("--input", "mine.fasta", "--matrix", "PAM250", "--framework", "jax", "--variant", "vmap")
    done = run_compare(*arguments, "--workers", "1", "--pass", "score", cwd=tmp_path, python=python)
    assert done.returncode == 0, done.stderr
    assert "input: mine.fasta, PAM250, 3 pairs of 3 proteins, up to 7 x 6; " in done.stdout
    assert done.stdout.splitlines()[-1] == "loaded: numpy"


def test_a_sweep_measures_every_size(tmp_path: Path):
    arguments = (*JAX, "--sweep", "4x5,8x9", "--pass", "score", "--json", str(tmp_path / "run.json"))
    done = run_compare(*[word for word in arguments if word not in ("--size", "6x7")])
    assert done.returncode == 0, done.stderr
    stored = json.loads((tmp_path / "run.json").read_text())
    assert [(case["input"], len(case["blocks"])) for case in stored["cases"]] == [("4x5", 2), ("8x9", 2)]
    assert [line.split(":")[0] for line in done.stdout.splitlines() if ": only JAX" in line] == [
        "4x5, score",
        "8x9, score",
    ]


def test_a_budget_that_is_too_short_is_told_and_the_least_is_measured():
    done = run_compare(*JAX[:6], *JAX[-4:], "--threads", "1", "--pass", "score", "--budget", "0.5")
    assert done.returncode == 0, done.stderr
    assert rows(done.stdout)["score", "JAX", "vmap"]["95% interval"] != "–"
    assert (
        "1 fresh process of each framework: one more did not fit into the budget of 0.5 s; "
        "the intervals know nothing of that one's luck"
    ) in done.stdout.splitlines()
    assert "new shape not measured: JAX vmap score: the budget had no room for it" in done.stdout


def test_list_shows_problems_variants_and_each_framework_s_choice():
    done = run_compare("--list", "--framework", "jax")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split(":")[0] for line in lines[: len(PROBLEMS)]] == list(PROBLEMS)
    assert lines[1].endswith(
        "passes: score, marginals, hvp; "
        "takes --gap-open --gap-extend --temperature --no-restrict-turns --no-penalize-turns"
    )
    heads = [f"variants of {', '.join(ALIGNMENTS)}:", *(f"variants of {name}:" for name in list(PROBLEMS)[4:])]
    assert [line for line in lines if line.startswith("variants of ")] == heads and lines[len(PROBLEMS)] == heads[0]
    listed = [line.split()[0] for line in lines if line.startswith("  ") and not line.startswith("   ")]
    every = [variant_names(name) for name in ("smith_waterman", *list(PROBLEMS)[4:])]
    assert listed == [name for names in every for name in names]
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
    # XLA takes half a minute for the passes of vmap
    variant = "fused" if cpp.why_absent() is None else "vmap"
    case = *TINY, "--framework", "jax", "--variant", variant, "--problem", problem, *arguments
    done = run_compare(*case, "--pass", "score,marginals,hvp")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].endswith(f"; float32, {head}")
    assert [(name, where) for name, where, _ in rows(done.stdout)] == [(name, "JAX") for name in PASSES]
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
    climbed = [(case["variant"], case["input"], case["compiled"]) for case in stored["cases"]]
    assert climbed == [
        ("scan_select", "single", False),
        ("scan_select", "single", True),
        ("vmap", "batch", False),
        ("vmap", "batch", True),
    ]


def test_a_pair_too_large_for_numpy_is_gated_by_a_float64_run():
    arguments = ("--input", "random", "--size", "600x700", "--batch", "1", "--framework", "jax", "--variant", "vmap")
    done = run_compare(*arguments, "--pass", "score", "--workers", "1")
    assert done.returncode == 0, done.stderr
    assert rows(done.stdout)["score", "JAX", "vmap"]["median"].endswith("s")
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


FUSED = ("--framework", "jax", "--variant", "vmap", "--pass", "score", "--json")


def shell(arguments: tuple[str, ...], redirected: str) -> CompletedProcess[str]:
    """compare.py with its standard streams redirected by a shell."""
    line = " ".join([shlex.quote(word) for word in (sys.executable, COMPARE, *arguments)] + [redirected])
    return subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=SECONDS, cwd=ROOT)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_table_that_cannot_be_printed_goes_to_standard_error(tmp_path: Path):
    done = shell((*TINY, *FUSED, str(tmp_path / "run.json")), "> /dev/full")
    assert done.returncode == 2 and "score: only JAX (vmap, " in done.stderr
    assert done.stderr.splitlines()[-1] == (
        "compare.py: error: cannot print the table to standard output: No space left on device"
    )


def test_without_standard_output_and_without_a_file_nothing_is_begun():
    done = shell(TINY, ">&-")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "compare.py: error: standard output is closed and no file is asked for: nothing would be seen of it\n"
    )


@pytest.mark.parametrize("where", ["2>&-", "2>/dev/full"])
def test_a_standard_error_that_nobody_reads_costs_nothing(tmp_path: Path, where: str):
    if "full" in where and not Path("/dev/full").exists():
        pytest.skip("no device that is always full")
    done = shell((*TINY, *FUSED, str(tmp_path / "run.json")), where)
    assert done.returncode == 0
    assert done.stdout.startswith("smith_waterman: ") and json.loads((tmp_path / "run.json").read_text())["finished"]


def test_a_reader_that_closes_the_pipe_ends_it_quietly():
    command = [sys.executable, COMPARE, "--list", "--framework", "jax"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == "starting JAX\n"
