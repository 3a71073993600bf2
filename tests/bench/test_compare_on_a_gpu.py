"""`compare.py --device cuda` from end to end without a GPU: NumPy workers take the CPU for one.

What the frameworks do on a GPU is not shown here (see test_cuda.py), but what the comparison asks of them is: the two
inputs, the batch that is made smaller until it fits, the memory that each may take, caches flushed before every timed
call, device times, ceilings, and a case that has too little memory.
"""

import json
import re
from typing import Any, NamedTuple

import pytest
from command_line import LEAST
from in_process import run_here, use_numpy_workers

from shared.bench.record import Record
from shared.problems import alignment_inputs

# of 32 pairs 4 are different, and more than 16 do not fit; nor do PyTorch's wavefront marginals of 16
SIZES = {"GPU_SIZE": (6, 5), "GPU_BATCH": 3, "CHIP_SIZE": (9, 8), "CHIP_BATCH": 32, "CHIP_DISTINCT": 4}
LOST = {"framework": "torch", "variant": "wavefront", "pass_name": "marginals", "input": "9x8"}


class Run(NamedTuple):
    """A run, what was asked of the frameworks, and the record after the run was resumed."""

    out: str
    record: Record
    asked: list[list[Any]]
    resumed: Record
    resumed_err: list[str]

    def notes(self, *start: Any) -> list[list[Any]]:
        return [note for note in self.asked if note[: len(start)] == list(start)]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("gpu")
    path, notes = folder / "record.json", folder / "notes"
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SIZES.items():
            patch.setattr(alignment_inputs, name, value)
        use_numpy_workers(patch, {**LOST, "do": "cold", "then": "lacks memory"}, repeats=4, notes=str(notes))
        ended = run_here("--device", "cuda", *LEAST, "--variant", "wavefront,fused", "--json", str(path))
        assert ended.code == 0, ended.err
        record, asked = Record.read(path), [json.loads(line) for line in notes.read_text().splitlines()]
        resumed = run_here("--resume", str(path))
        assert resumed.code == 0, resumed.err
    return Run(ended.out, record, asked, Record.read(path), resumed.err)


def test_a_case_with_too_little_memory_is_no_failure(run: Run):
    (lost,) = [result for result in run.record.results if result.status != "ok"]
    assert {name: getattr(lost.case, name) for name in LOST} == LOST
    assert (lost.status, lost.reason) == ("limit", "out of memory")
    assert re.search(r"marginals +9x8 +PyTorch +wavefront +yes +out of memory ", run.out)
    assert "Left out: PyTorch wavefront was not completed (out of memory)." in run.out


def test_there_are_two_inputs_and_the_larger_is_the_largest_batch_that_fits(run: Run):
    inputs = run.record.inputs
    assert {name: facts.shape for name, facts in inputs.items()} == {"6x5": (3, 6, 5), "9x8": (16, 9, 8)}
    assert {name: facts.pairs for name, facts in inputs.items()} == {"6x5": 3, "9x8": 16}
    assert inputs["9x8"].work == 16 * 72
    assert inputs["9x8"].text == "random similarity, seed 0, 4 pairs of 9 x 8, each 4 times"
    assert "9x8: 16 pairs are the most that fit; 32 were asked for" in run.out
    assert {note[4] for note in run.notes("jax", "call") + run.notes("torch", "call")} == {3, 16}
    # what is repeated is judged in all its repeats
    assert {r.gate.pairs for r in run.record.results if r.gate and r.case.input == "9x8"} == {16}
    assert "on 3 of 3 and 16 of 16 pairs" in run.out


@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_the_fastest_variants_have_their_first_calls_first(run: Run, framework: str):
    called = dict.fromkeys(note[2] for note in run.notes(framework, "call") if note[4] == 3)  # pairs of 6x5
    assert list(called) == ["fused", "wavefront"]


def test_the_kernels_of_fused_are_compiled_once_before_anything_is_called(run: Run):
    (compiled,) = [note for note in run.asked if note[1] == "compile"]
    # in one layout: both inputs have few rows
    scores, gradients = ["odds_forward_kernel", "forward_kernel"], ["odds_backward_kernel", "backward_kernel"]
    assert sorted(compiled[2:]) == sorted([*scores, *scores, *gradients])
    assert run.asked.index(compiled) < next(i for i, note in enumerate(run.asked) if note[1] == "call")
    assert run.record.environment["gpu_kernels_seconds"] > 0
    assert "not compiled ahead: odds_forward_kernel, float32: no such thing" in run.record.notes


@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_each_framework_has_its_share_of_the_memory_and_caches_are_flushed_before_every_timed_call(
    run: Run, framework: str
):
    assert {note[2] for note in run.notes(framework, "share")} == {0.45}
    own = [result for result in run.record.results if result.status == "ok" and result.case.framework == framework]
    device_calls = sum(block.calls for result in own for block in result.on_device)
    assert len(run.notes(framework, "flush")) == sum(result.calls for result in own) + device_calls


def test_every_worker_takes_times_on_the_device_and_they_stand_in_the_tables(run: Run):
    for result in run.record.results:
        workers = {block.worker for block in result.blocks}
        assert {block.worker for block in result.on_device} == workers
        assert all(block.calls == 3 and block.fastest > 0 for block in result.on_device)
    assert re.search(r"median +(95% interval +)?device time +GCUPS", run.out)
    # 14 kernels for 2 * 10 anti-diagonals
    assert re.search(r"marginals +6x5 +JAX +wavefront +yes +\S+ µs +\S+ µs +14 +20 +0.7 +\S+ µs +\S+ µs", run.out)


def test_the_small_input_is_decided_by_wall_time_and_the_large_one_by_device_time(run: Run):
    small, large = (
        run.out.index(f"Which framework is faster, random similarity, seed 0, {text}") for text in ("3", "4")
    )
    assert (
        "this input wall time decides" in run.out[small:large] and "this input device time decides" in run.out[large:]
    )
    assert re.search(r"9x8, score: .*of device time per call", run.out)


def test_the_hardware_limits_are_measured_and_the_accelerator_is_named(run: Run):
    environment = run.record.environment
    assert environment["bandwidth_bytes_per_second"] > 0 and environment["exponentials_per_second"] > 0
    assert "Pretended 9000" in run.out


def test_a_resumed_run_keeps_its_batch(run: Run):
    assert run.resumed.inputs == run.record.inputs
    assert not any("fit?" in line for line in run.resumed_err)
    assert "9x8: 16 pairs are the most that fit; 32 were asked for" in run.resumed.notes
