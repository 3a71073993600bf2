"""Whole runs: both frameworks once, and NumPy workers that go wrong, are interrupted, or pretend to have a GPU."""

import functools
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from command_line import LEAST, ROOT, SECONDS, TINY, environment, rows, run_compare, verdicts, without
from in_process import no_biopython, numpy_workers, run_here, use_numpy_workers  # noqa: F401 - a fixture
from rendered import console_report

from shared.bench.measure.machine import usable_cores
from shared.bench.record import Record, Result
from shared.bench.run import first_calls, protocol, timed_calls, worker_handle
from shared.bench.run.schedule import MOST_CALLS
from shared.problems import alignment_inputs, alignment_reference
from tools.cuda_check import TESTS

# what a machine with a GPU is not likely to have; this project asks for all but the first in its tests alone
ABSENT = ("Bio", "playwright")
VMAP = ("--framework", "jax", "--variant", "vmap")


def results_of(path: Path) -> dict[str, Result]:
    return {result.case.variant: result for result in Record.read(path).results}


# real workers

# as a user might call it from Python; at the end, which of these modules are loaded
AS_A_FUNCTION = (
    f"import sys; sys.path.insert(0, {str(ROOT)!r}); import compare; code = compare.main(sys.argv[1:]); "
    "print('loaded:', *sorted({'numpy', 'jax', 'jaxlib', 'torch'} & set(sys.modules))); sys.exit(code)"
)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """Both frameworks on a FASTA file and variants that PyTorch does not compile, with all options."""
    folder = tmp_path_factory.mktemp("both")
    (folder / "mine.fasta").write_text(">one\nACDEFGH*\n>two\nACDFGH\n>three\nWUDEW*\n")
    same = ("--input", "mine.fasta", "--matrix", "PAM250", "--framework", "torch,jax", "--variant", "auto,wavefront")
    problem = ("--problem", "smith_waterman_affine", "--gap-open", "-11", "--no-restrict-turns", "--dtype", "float64")
    options = (*same, *problem, "--pass", "score", *LEAST, "--json", "run.json")
    done = run_compare(*options, cwd=folder, python=("-c", AS_A_FUNCTION))
    assert done.returncode == 0, done.stderr
    return SimpleNamespace(record=Record.read(folder / "run.json"), out=done.stdout, err=done.stderr.splitlines())


def test_output_is_a_first_table_then_the_report_and_progress_goes_to_standard_error(both: SimpleNamespace):
    first, printed, last = both.out.partition(console_report(both.record))
    assert re.match(r"first table after \d+ s \(provisional\)\n", first) and "Which framework is faster" in first
    # the parent imports no framework, and workers send no types of theirs
    assert printed and last == "\nloaded: numpy\n"
    compiled = {key[1:]: row["compiled"] for key, row in rows(both.out).items()}
    assert compiled.keys() == {(name, how) for name in ("PyTorch", "JAX") for how in ("fused (auto)", "wavefront")}
    assert compiled["PyTorch", "wavefront"] == "no" and compiled["JAX", "wavefront"] == "yes"
    # a line for each stage, and no step
    stages = ["first calls", "repeat 1, preparing", "repeat 1, timing", "repeat 1, first calls"]
    assert both.err[1] == "starting PyTorch and JAX" and both.err[-4:] == stages


def test_options_notes_the_machine_and_the_versions_are_told_and_recorded(both: SimpleNamespace):
    for text in (
        "; float64, gap_open -11, gap_extend -1, temperature 1, restrict_turns no",
        "\ninput: mine.fasta, PAM250, 3 pairs of 3 proteins, up to 7 x 6; ",
        "\nmine.fasta: the final * is left out in 2 of 3 sequences\n",
        "\nmine.fasta: U, which PAM250 lacks, is scored as C in 1 of 3 sequences\n",
    ):
        assert text in both.out
    environment = both.record.environment
    assert {"cpu", "system", "python", "numpy", "git_commit"} <= environment.keys()
    assert environment["bandwidth_bytes_per_second"] > 1e8
    for name in ("jax", "torch"):
        facts = environment["frameworks"][name]
        assert facts[name] and (facts["threads"], facts["cores"]) == (1, usable_cores()[:1])
    assert both.record.command.startswith("python compare.py --input mine.fasta --matrix PAM250")
    assert both.record.started and both.record.finished and both.record.finished >= both.record.started
    assert both.record.auto == {"torch": "fused", "jax": "fused"} and len(both.record.calibration_seconds) == 2


def test_every_case_has_passed_its_gate_and_has_times_memory_sizes_and_a_split(both: SimpleNamespace):
    for result in both.record.results:
        gate = result.gate
        assert gate and gate.source == "NumPy" and gate.pairs == 3 and 0 <= (gate.error_of_allowed or 0.0) <= 1
        assert [(block.repeat, block.round) for block in result.blocks] == [(0, 0), (0, 1)]
        assert all(1 <= block.calls <= MOST_CALLS for block in result.blocks)
        assert result.work == both.record.inputs["batch"].work and (result.peak_bytes or 0) >= 0
        assert (result.input_bytes, result.output_bytes) == (3 * 7 * 6 * 8 + 3 * 2 * 4, 3 * 8)
        if (result.case.framework, result.case.variant) == ("jax", "wavefront"):
            assert_split(result)


def assert_split(result: Result) -> None:
    """A first call is split into tracing and compiling, and others take far less."""
    (cold, *_), (warm,), (shapes, *_) = result.cold, result.warm, result.new_shapes
    assert cold.tracing and cold.compiling
    assert 0.5 * cold.seconds < cold.tracing + cold.compiling <= cold.seconds
    assert min(cold.seconds, warm, shapes[0]) > 10 * result.time.value


@pytest.mark.slow
def test_a_regression_that_torch_compiles_has_steps_and_the_compilers_start(tmp_path: Path):
    path = tmp_path / "run.json"
    args = ("--problem", "linear_regression", "--epochs", "20", "--size", "30", "--dtype", "float64")
    done = run_compare(*LEAST, *args, "--framework", "torch", "--variant", "eager_loop,jit_step", "--json", str(path))
    assert done.returncode == 0, done.stderr
    assert "steps/s" in done.stdout and "GCUPS" not in done.stdout
    result = results_of(path)["jit_step"]
    assert_split(result)
    # the first start: inductor takes seconds for that, and milliseconds for a second
    seconds = Record.read(path).environment["frameworks"]["torch"]["compiler_start_seconds"][0]
    assert seconds > 0.5 and result.cold[0].seconds < seconds


@pytest.mark.slow
def test_a_users_file_is_measured_as_far_as_the_limit_allows(tmp_path: Path):
    """PyTorch's compiler passes this limit, which is no failure."""
    path = tmp_path / "run.json"
    which = ("--problem", "docs/soft_dtw.py", "--pass", "value", "--compile-limit", "3")
    done = run_compare(*LEAST, *which, "--json", str(path))
    assert done.returncode == 0, done.stderr
    compiled = {("PyTorch", "eager"): "no", ("JAX", "compiled"): "yes", ("PyTorch", "compiled"): "yes"}
    assert {key[1:]: row["compiled"] for key, row in rows(done.stdout).items()} == compiled
    record = Record.read(path)
    measured = [result for result in record.results if result.measured]
    assert {result.case.name for result in measured} >= {"JAX compiled", "PyTorch eager"}
    assert {result.new_shapes_note for result in measured} == {None}
    assert {*record.code_lines} == {"jax", "torch"} and all(lines["eager"] > 5 for lines in record.code_lines.values())
    assert "absent: JAX eager value, not compiled: JAX runs it under jit\n" in done.stdout


@pytest.mark.slow
@pytest.mark.usefixtures("no_biopython")
def test_random_matrices_are_measured_without_pytorch_and_biopython_and_shown_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv("PYTHONPATH", str(without(tmp_path, "torch", *ABSENT)))  # of the workers
    path = tmp_path / "random.json"
    done = run_here(*TINY, "--variant", "fused", "--pass", "score", "--json", str(path))
    assert done.code == 0, done.err
    assert list(rows(done.out)) == [("score", "JAX", "fused (auto)")]
    assert verdicts(done.out)[0].startswith("score: only JAX (fused, ")
    lines = [line for line in done.out.splitlines() if "was not measured" in line]
    why = "torch_impl needs torch (No module named 'torch'): install it, or this package with its extra [torch]"
    assert lines == [f"PyTorch was not measured: PyTorch cannot be imported: {why}"]
    again = run_here("--from", str(path), "--report", str(tmp_path / "a.html"))
    assert again.code == 0 and done.out.endswith(again.out)


@pytest.mark.slow
def test_the_tests_for_a_gpu_can_be_collected_without_what_only_other_tests_need(tmp_path: Path):
    folder = without(tmp_path, *ABSENT)
    command = [sys.executable, "-m", "pytest", "-m", "cuda", "--collect-only", "-q", "-p", "no:cacheprovider", *TESTS]
    done = subprocess.run(command, cwd=ROOT, env=environment(folder), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert "tests/test_cuda.py::" in done.stdout


# NumPy workers: other questions and inputs


def test_the_ladder_is_climbed_and_a_pair_too_large_for_numpy_is_gated_by_a_float64_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    cut = functools.partial(alignment_reference.reference_results, cells=16, whole=16)
    monkeypatch.setattr(alignment_reference, "reference_results", cut)
    use_numpy_workers(monkeypatch)
    path = tmp_path / "run.json"
    arguments = ("--framework", "jax", "--variant", "scan_select,vmap", "--size", "6x7", "--batch", "2")
    ended = run_here("ladder", *arguments, "--json", str(path))
    assert ended.code == 0, ended.err
    titles = re.findall(r"^score, random similarity.*, (.*)$", ended.out, re.MULTILINE)
    assert titles == ["one pair of 6 x 7", "2 pairs of up to 6 x 7"] and "provisional" not in ended.out
    climbed = [(r.case.variant, r.case.input, r.case.compiled) for r in Record.read(path).results if r.measured]
    places = (("scan_select", "single"), ("vmap", "batch"))
    assert climbed == [(*place, compiled) for place in places for compiled in (False, True)]
    gate = "pairs too large for the NumPy reference were gated by float64 fused, itself gated by NumPy on cut pairs"
    assert gate in ended.out.splitlines()


# NumPy workers: faults

WRONG, NO_ROOM = "wavefront", "the budget had no room for it"
KILLED = "the worker was killed by SIGKILL (out of memory?)"
# what goes wrong with each variant, and how its case ends
FAULTS = {
    "cell_loop": ({"do": "cold", "then": "raises"}, "failed", "ValueError: no such thing"),
    "diagonal_loop": (
        {"do": "cold", "then": "ends"},
        "failed",
        "the worker ended with exit code 7: the kernel gave up",
    ),
    "scan_cond": ({"do": "cold", "then": "is killed"}, "failed", KILLED),
    "scan_select": ({"do": "cold", "then": "hangs"}, "limit", "> 2 s"),
    "batch_loop": ({"do": "sample", "nth": 1, "then": "hangs"}, "failed", "the worker did not answer within 1."),
    "vmap": ({"do": "sample", "nth": 2, "then": "is killed"}, "failed", KILLED),
    WRONG: ({}, "wrong", "score off by 1.0e+00"),
}
# longer than a first call may take: native kernels are built once, which does not count
SLOW_BUILD = {"variant": "fused", "do": "build", "nth": 1, "then": "is slow"}


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """A run in which all variants but `fused` go wrong, its results, and both after it was resumed without faults."""
    path, temporary = (tmp_path_factory.mktemp(name) / "run.json" for name in ("faulty", "temporary"))
    faults = [{"variant": variant, **fault} for variant, (fault, _, _) in FAULTS.items() if fault]
    words = ("--framework", "jax", "--variant", ",".join([*FAULTS, "fused"]), "--pass", "score", "--compile-limit", "2")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tempfile.tempdir", str(temporary.parent))
        patch.setattr(worker_handle, "PATIENCE_SECONDS", 1.0)
        use_numpy_workers(patch, *faults, SLOW_BUILD, wrong=WRONG)
        ended = run_here(*TINY, *words, "--json", str(path))
        results, made = results_of(path), Record.read(path)
        made.environment["settings"]["jax_x"] = "1"  # as a user's function may have changed it
        made.write(path)
        assert not list(temporary.parent.iterdir())
    with pytest.MonkeyPatch.context() as patch:
        use_numpy_workers(patch)
        resumed = run_here("--resume", str(path))
    return SimpleNamespace(ended=ended, results=results, resumed=resumed, after=Record.read(path))


def test_a_case_without_a_fault_is_measured_beside_faulty_ones(faulty: SimpleNamespace):
    table = rows(faulty.ended.out)
    assert faulty.ended.code == 1 and len(table) == 8
    assert table["score", "JAX", "fused (auto)"]["median"].endswith("s")
    assert [name for name, result in faulty.results.items() if result.measured] == ["fused"]
    assert len(faulty.results["fused"].blocks) == 2 and faulty.results["fused"].build_seconds > 2
    assert verdicts(faulty.ended.out)[0].startswith("score: only JAX (fused, ")


@pytest.mark.parametrize("variant", FAULTS)
def test_a_wrong_or_late_result_or_a_worker_that_dies_or_hangs_gets_no_time(faulty: SimpleNamespace, variant: str):
    result, (_, status, reason) = faulty.results[variant], FAULTS[variant]
    mark = reason if status == "limit" else status.upper()
    row = rows(faulty.ended.out)["score", "JAX", variant]
    assert row["first call, caches empty"] == mark and "median" not in row
    assert result.status == status and (result.reason or "").startswith(reason)
    assert status == "limit" or f"\n{mark}: {result.case.title}: {reason}" in faulty.ended.out
    if variant == "vmap":  # killed in its second block
        (block,) = result.blocks
        assert f"(the blocks of {block.calls} calls timed before are kept in the record)" in faulty.ended.out
    elif variant in (WRONG, "scan_select"):
        assert not (result.cold or result.warm or result.blocks)


def test_a_resumed_run_tries_again_what_failed_and_nothing_else(faulty: SimpleNamespace):
    assert faulty.resumed.code == 1  # one is still wrong
    after = {result.case.variant: result for result in faulty.after.results}
    assert {name: result.status for name, result in after.items()} == {
        **dict.fromkeys(after, "ok"), WRONG: "wrong", "scan_select": "limit",
    }  # fmt: skip
    assert all(result.blocks for result in after.values() if result.status == "ok")
    assert after["fused"].cold[0] == faulty.results["fused"].cold[0]
    assert faulty.after.environment["settings"] == {"jax_x": "1"}


@pytest.mark.slow
def test_a_case_that_the_budget_left_out_is_measured_when_the_run_is_resumed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    path = tmp_path / "run.json"
    use_numpy_workers(monkeypatch)
    two = ("--framework", "jax", "--variant", "vmap,wavefront", "--pass", "score")
    never_precise = ("--precision", "0.0001")
    ended = run_here(*TINY[:-4], *two, *never_precise, "--budget", "0.1", "--json", str(path))
    table = rows(ended.out)
    assert ended.code == 0 and table["score", "JAX", "vmap"]["first call, caches empty"] == NO_ROOM
    assert table["score", "JAX", "wavefront"]["median"]  # the first rung whatever the budget
    with monkeypatch.context() as patch:  # room for the first call, not for a new shape
        patch.setattr(first_calls, "_NEW_SHAPES_SECONDS", 0.0)
        patch.setattr(first_calls, "_NEW_SHAPES_SHARE", 0.0)
        patch.setattr(timed_calls, "_FIRST_CALLS_SHARE", 0.0)
        patch.setattr(first_calls, "CHEAP_FIRST_CALL", 0.0)
        lines = run_here("--resume", str(path), "--budget", "4").out.splitlines()
    assert any(line.startswith("new shape not measured: ") and line.endswith(NO_ROOM) for line in lines)
    assert any("the budget of 4 s was spent" in line for line in lines)
    before = results_of(path)["vmap"]
    assert before.blocks and not before.new_shapes
    assert run_here("--resume", str(path), "--budget", "8").code == 0
    after = results_of(path)["vmap"]
    assert after.new_shapes and after.new_shapes_note is None and len(after.cold) > len(before.cold)


# NumPy workers: signals


def interrupt_at(
    progress: str, *arguments: str, by: Sequence[signal.Signals], fault: dict[str, Any]
) -> tuple[int, str, str]:
    """Run it with NumPy workers that have a fault, and send signals when a line of progress begins so.

    By the last one it must end, and leave no process. If there are more, it starts with a hangup ignored. Returns its
    exit code and its output.
    """
    program = (
        "import compare; from shared.bench.run import worker_handle; "
        f"worker_handle.WORKER_COMMAND = {numpy_workers(fault)!r}; compare.run()"
    )

    def handlers() -> None:
        # tests that run in the background of a shell ignore Ctrl-C, and their children with them
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGHUP, signal.SIG_IGN if signal.SIGHUP in by else signal.SIG_DFL)

    process = subprocess.Popen(
        [sys.executable, "-c", program, *TINY, *VMAP, *arguments], cwd=ROOT, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=handlers,
    )  # fmt: skip
    assert process.stderr is not None
    seen = ""
    for line in process.stderr:
        seen += line
        if line.startswith(progress):
            break
    time.sleep(1.0)  # until it waits for its worker
    workers = psutil.Process(process.pid).children()
    assert workers
    for event in by:
        assert process.poll() is None
        process.send_signal(event)
        time.sleep(0.2)
    out, err = process.communicate(timeout=SECONDS)
    _, alive = psutil.wait_procs(workers, timeout=0.5)  # the system ends those of a killed process
    survivors = [worker for worker in alive if worker.status() != psutil.STATUS_ZOMBIE]
    for worker in survivors:
        worker.kill()
    assert not survivors
    return process.returncode, out, seen + err


on_linux = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere workers may outlive a killed run")
# the second round does not end
ENDLESS_ROUND = {"do": "sample", "nth": 3, "then": "hangs"}


@on_linux
def test_a_polite_kill_prints_and_writes_what_is_finished(tmp_path: Path, temporary: Path):
    path, by = tmp_path / "run.json", [signal.SIGTERM]
    options = ("--quick", "--json", str(path))
    fault = ENDLESS_ROUND | {"nth": 2}
    code, out, err = interrupt_at("repeat 1, timing", *options, by=by, fault=fault)
    assert code == 130 and not list(temporary.iterdir())
    assert "interrupted; this is what was finished:" in err and "Traceback" not in err
    assert list(rows(out)) == [("marginals", "JAX", "vmap")]
    assert "WARNING: This run was not finished." in out
    results = Record.read(path).results
    assert [(len(result.blocks), result.new_shapes) for result in results] == [(1, [])]  # as it was a quick one


@on_linux
def test_a_run_under_nohup_survives_a_hangup_and_is_resumed_after_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, temporary: Path
):
    path, by = tmp_path / "run.json", [signal.SIGHUP, signal.SIGKILL]
    code, _, _ = interrupt_at("repeat 1, timing", "--json", str(path), by=by, fault=ENDLESS_ROUND)
    assert code == -signal.SIGKILL and len(list(temporary.iterdir())) == 1
    before = Record.read(path)
    assert before.finished is None and [len(result.blocks) for result in before.results] == [1, 1]
    use_numpy_workers(monkeypatch)
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    (of_another := temporary / "compare-mine").mkdir()
    with protocol._folder() as living:
        ended = run_here("--resume", str(path))
        assert sorted(temporary.iterdir()) == sorted([of_another, living])  # not the one that the killed run has left
    assert ended.code == 0 and "not finished" not in ended.out
    after = Record.read(path)
    assert after.finished and after.command == before.command
    assert after.resumed_by == [f"python compare.py --resume {path}"]
    for old, new in zip(before.results, after.results, strict=True):
        assert new.cold[:1] == old.cold and new.blocks[0] == old.blocks[0] and len(new.blocks) == 3
        # what the interrupted process had compiled is gone: the next one found no caches
        assert len(old.warm) == len(new.warm) == 1
    assert [entry.number for entry in after.repeats] == [1]  # the interrupted one does not count


@on_linux
def test_ctrl_c_while_a_worker_starts_leaves_no_worker():
    fault = {"do": "start", "then": "hangs"}
    code, out, err = interrupt_at("starting JAX", by=[signal.SIGINT], fault=fault)
    assert code == 130 and "Traceback" not in err and not out


# NumPy workers that take the CPU for a GPU: what the comparison asks of a framework there

# of 32 pairs 4 are different, and more than 16 do not fit; nor do PyTorch's wavefront marginals of 16
SIZES = {"GPU_SIZE": (6, 5), "GPU_BATCH": 3, "CHIP_SIZE": (9, 8), "CHIP_BATCH": 32, "CHIP_DISTINCT": 4}
LOST = {"framework": "torch", "variant": "wavefront", "pass_name": "marginals", "input": "9x8"}


@pytest.fixture(scope="module")
def on_gpu(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """A run, what was asked of the frameworks in it, and the record after the run was resumed."""
    path, notes = (tmp_path_factory.mktemp("gpu") / name for name in ("record.json", "notes"))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SIZES.items():
            patch.setattr(alignment_inputs, name, value)
        has = {"copies": 4, "memory": 120_000}  # 45 % of it holds 8 times the bytes of 5 copies
        use_numpy_workers(patch, {**LOST, "do": "cold", "then": "lacks memory"}, **has, notes=str(notes))
        ended = run_here("--device", "cuda", *LEAST, "--variant", "wavefront,fused", "--json", str(path))
        assert ended.code == 0, ended.err
        record, calls = Record.read(path), [json.loads(line) for line in notes.read_text().splitlines()]
        assert run_here("--resume", str(path)).code == 0
    return SimpleNamespace(out=ended.out, record=record, asked=calls, resumed=Record.read(path))


def noted(on_gpu: SimpleNamespace, framework: str, what: str) -> list[list[Any]]:
    return [note for note in on_gpu.asked if note[:2] == [framework, what]]


def test_a_case_with_too_little_memory_is_no_failure(on_gpu: SimpleNamespace):
    (lost,) = [result for result in on_gpu.record.results if result.status != "ok"]
    assert {name: getattr(lost.case, name) for name in LOST} == LOST
    assert (lost.status, lost.reason) == ("limit", "out of memory")
    assert "Left out: PyTorch wavefront was not completed (out of memory)." in on_gpu.out


def test_there_are_two_inputs_and_the_larger_is_halved_where_memory_is_small(on_gpu: SimpleNamespace):
    inputs = on_gpu.record.inputs
    assert {name: facts.shape for name, facts in inputs.items()} == {"6x5": (3, 6, 5), "9x8": (16, 9, 8)}
    assert inputs["9x8"].work == 16 * 72
    assert inputs["9x8"].text == "random similarity, seed 0, 4 pairs of 9 x 8, each 4 times"
    fits = "9x8: 16 pairs instead of 32, for want of memory"
    assert fits in on_gpu.out
    assert {note[4] for name in ("jax", "torch") for note in noted(on_gpu, name, "call")} == {3, 16}
    # what is repeated is judged in all its copies
    assert {r.gate.pairs for r in on_gpu.record.results if r.gate and r.case.input == "9x8"} == {16}
    assert on_gpu.resumed.inputs == inputs and fits in on_gpu.resumed.notes


def test_kernels_are_compiled_once_before_any_call_and_the_fastest_variants_go_first(on_gpu: SimpleNamespace):
    (compiled,) = [note for note in on_gpu.asked if note[1] == "compile"]
    # in one layout: both inputs have few rows
    kernels = ["block_forward_kernel", "forward_kernel"] * 2 + ["block_backward_kernel", "backward_kernel"]
    assert sorted(compiled[2:]) == sorted(kernels)
    assert "call" not in [note[1] for note in on_gpu.asked[: on_gpu.asked.index(compiled)]]
    assert "not compiled ahead: block_forward_kernel, float32: no such thing" in on_gpu.record.notes
    for framework in ("jax", "torch"):
        called = dict.fromkeys(note[2] for note in noted(on_gpu, framework, "call") if note[4] == 3)  # pairs of 6x5
        assert list(called) == ["fused", "wavefront"]


def test_each_framework_has_its_share_of_memory_and_flushed_caches_at_timed_calls(on_gpu: SimpleNamespace):
    for framework in ("jax", "torch"):
        assert {note[2] for note in noted(on_gpu, framework, "share")} == {0.45}
        right = [r for r in on_gpu.record.results if r.status == "ok" and r.case.framework == framework]
        device_calls = sum(block.calls for result in right for block in result.on_device)
        assert len(noted(on_gpu, framework, "flush")) == sum(result.calls for result in right) + device_calls


def test_times_on_the_device_and_hardware_limits_are_measured_and_decide_the_large_input(on_gpu: SimpleNamespace):
    for result in on_gpu.record.results:
        assert {block[:2] for block in result.on_device} == {(b.repeat, at) for b in result.blocks for at in range(3)}
        assert all(block.calls == 1 and block.fastest > 0 for block in result.on_device)
    # 14 kernels for 2 * 10 anti-diagonals
    assert re.search(r"marginals +6x5 +JAX +wavefront +yes +\S+ .s +\S+ .s +14 +20 +0.7 +\S+ .s +\S+ .s", on_gpu.out)
    environment = on_gpu.record.environment
    assert environment["bandwidth_bytes_per_second"] > 0 and environment["exponentials_per_second"] > 0
    assert "Pretended 9000" in on_gpu.out
    small, large = (on_gpu.out.index(f"Which framework is faster, random similarity, seed 0, {text}") for text in "34")
    assert "this input wall time decides" in on_gpu.out[small:large]
    assert "this input device time decides" in on_gpu.out[large:]
