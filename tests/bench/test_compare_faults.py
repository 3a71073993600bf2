"""A case that goes wrong costs itself only, whatever it does to its worker; a resumed run tries it again."""

from pathlib import Path
from typing import NamedTuple

import pytest
from command_line import TINY, rows, verdicts
from in_process import Ended, run_here, use_numpy_workers

from shared.bench.record import Record, Result
from shared.bench.run import first_calls, timed_calls, worker_handle

# what goes wrong with each variant
FAULTS = (
    {"variant": "cell_loop", "do": "cold", "then": "raises"},
    {"variant": "diagonal_loop", "do": "cold", "then": "ends"},
    {"variant": "scan_cond", "do": "cold", "then": "is killed"},
    {"variant": "scan_select", "do": "cold", "pass_name": "score", "then": "hangs"},
    {"variant": "batch_loop", "do": "sample", "nth": 1, "then": "hangs"},
    {"variant": "vmap", "do": "sample", "nth": 2, "then": "is killed"},
    # longer than a first call may take: native kernels are built once, which does not count
    {"variant": "fused", "do": "build", "nth": 1, "then": "is slow"},
)
WRONG = "wavefront"
NO_ROOM = "the budget had no room for it"
FAILED = {
    "cell_loop": "ValueError: no such thing",
    "diagonal_loop": "the worker ended with exit code 7: the kernel gave up",
    "scan_cond": "the worker was killed by SIGKILL (out of memory?)",
    "batch_loop": "the worker did not answer within 1.",
    "vmap": "the worker was killed by SIGKILL (out of memory?)",
}


class Faulty(NamedTuple):
    """A run in which all variants but `fused` go wrong, its record, and both after it was resumed without faults."""

    ended: Ended
    results: dict[str, Result]
    resumed: Ended
    results_after: dict[str, Result]
    left: list[Path]  # temporary files


def results_of(path: Path) -> dict[str, Result]:
    return {result.case.variant: result for result in Record.read(path).results}


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Faulty:
    path = tmp_path_factory.mktemp("faulty") / "run.json"
    temporary = tmp_path_factory.mktemp("temporary")
    variants = ",".join([*(fault["variant"] for fault in FAULTS), WRONG])
    arguments = ("--framework", "jax", "--variant", variants, "--pass", "score", "--compile-limit", "2")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tempfile.tempdir", str(temporary))
        patch.setattr(worker_handle, "PATIENCE_SECONDS", 1.0)
        use_numpy_workers(patch, *FAULTS, wrong=WRONG)
        ended = run_here(*TINY, *arguments, "--json", str(path))
        results = results_of(path)
    with pytest.MonkeyPatch.context() as patch:
        use_numpy_workers(patch)
        resumed = run_here("--resume", str(path))
    return Faulty(ended, results, resumed, results_of(path), list(temporary.iterdir()))


def test_the_case_without_a_fault_is_measured(faulty: Faulty):
    table = rows(faulty.ended.out)
    assert faulty.ended.code == 1 and len(table) == 8
    assert table["score", "JAX", "fused (auto)"]["median"].endswith("s")
    assert [name for name, result in faulty.results.items() if result.measured] == ["fused"]
    assert len(faulty.results["fused"].blocks) == 2 and faulty.results["fused"].build_seconds > 2
    assert verdicts(faulty.ended.out)[0].startswith("score: only JAX (fused, ")
    assert not faulty.left


@pytest.mark.parametrize("variant", FAILED)
def test_a_case_that_raises_or_whose_worker_dies_or_hangs_fails_with_the_reason(faulty: Faulty, variant: str):
    result, reason = faulty.results[variant], FAILED[variant]
    row = rows(faulty.ended.out)["score", "JAX", variant]
    assert row["first call, caches empty"] == "FAILED" and "median" not in row
    assert result.status == "failed" and (result.reason or "").startswith(reason)
    (line,) = (line for line in faulty.ended.out.splitlines() if line.startswith(f"FAILED: JAX {variant} score"))
    assert reason in line
    if variant == "vmap":  # killed in its second block
        (block,) = result.blocks
        assert f"(the blocks of {block.calls} calls timed before are kept in the record)" in line


def test_a_wrong_result_is_seen_and_gets_no_time(faulty: Faulty):
    result = faulty.results[WRONG]
    assert result.status == "wrong" and not (result.cold or result.warm or result.blocks)
    assert rows(faulty.ended.out)["score", "JAX", WRONG] == {"compiled": "yes", "first call, caches empty": "WRONG"}
    assert f"\nWRONG: JAX {WRONG} score: score off by 1.0e+00" in faulty.ended.out
    assert "WARNING: 1 case gave a wrong result." in faulty.ended.out


def test_a_first_call_that_passes_the_limit_is_no_failure(faulty: Faulty):
    result = faulty.results["scan_select"]
    assert (result.status, result.reason) == ("limit", "> 2 s")
    assert rows(faulty.ended.out)["score", "JAX", "scan_select"] == {
        "compiled": "yes",
        "first call, caches empty": "> 2 s",
    }


def test_a_resumed_run_tries_again_what_failed_and_nothing_else(faulty: Faulty):
    assert faulty.resumed.code == 1  # one is still wrong
    after = faulty.results_after
    assert {name: result.status for name, result in after.items()} == {
        **dict.fromkeys(after, "ok"), WRONG: "wrong", "scan_select": "limit",
    }  # fmt: skip
    assert all(result.blocks for result in after.values() if result.status == "ok")
    assert after["fused"].cold[0] == faulty.results["fused"].cold[0]


def test_a_budget_that_is_too_short_is_told_and_what_it_left_out_is_measured_when_the_run_is_resumed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    path = tmp_path / "run.json"
    use_numpy_workers(monkeypatch)
    two = ("--framework", "jax", "--variant", "vmap,wavefront", "--pass", "score")
    never_precise = ("--precision", "0.0001")
    ended = run_here(*TINY[:-4], *two, *never_precise, "--budget", "0.1", "--json", str(path))
    found = rows(ended.out)
    assert ended.code == 0 and found["score", "JAX", "vmap"]["first call, caches empty"] == NO_ROOM
    assert found["score", "JAX", "wavefront"]["median"]  # the first rung whatever the budget
    with monkeypatch.context() as patch:  # room for the first call, not for a new shape
        patch.setattr(first_calls, "_MOMENTS", 0.0)
        patch.setattr(first_calls, "_NEW_SHAPES_SHARE", 0.0)
        patch.setattr(timed_calls, "_FIRST_CALLS_SHARE", 0.0)
        patch.setattr(first_calls, "CHEAP_FIRST_CALL", 0.0)
        lines = run_here("--resume", str(path), "--budget", "3").out.splitlines()
    assert any(line.startswith("new shape not measured: ") and line.endswith(NO_ROOM) for line in lines)
    assert any("the budget of 3 s was spent" in line for line in lines)
    before, _ = Record.read(path).results
    assert before.case.variant == "vmap" and before.blocks and not before.new_shapes
    assert run_here("--resume", str(path), "--budget", "5").code == 0
    after, _ = Record.read(path).results
    assert after.new_shapes and after.new_shapes_note is None and len(after.cold) > len(before.cold)
