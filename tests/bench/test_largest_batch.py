"""The largest batch that fits: what is tried, by whom, and what an answer, a failure and a death mean."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hand_made import case, facts, record

from shared.bench.cases import Settings
from shared.bench.run.largest_batch import fits, largest_batches
from shared.bench.run.worker_handle import Reply
from shared.problems import Inputs
from shared.problems.alignment_inputs import AlignmentInputs
from shared.variants import Abilities

ABILITIES = {
    "jax": Abilities("fused"),
    "torch": Abilities("fused", uncompiled_variants={"fused": "one operator already"}),
}
CASES = [
    case(framework, variant, pass_name, device="cuda", input="5x4")
    for pass_name in ("score", "marginals")
    for variant in ("vmap", "wavefront")
    for framework in ("jax", "torch")
]


class FakeRun:
    """Its workers have room for so many repeats; one that has no number dies."""

    def __init__(self, jax: int | None, torch: int | None, status: str = "ok") -> None:
        self.settings = Settings(device="cuda", passes=("score", "marginals"))
        self.record = record()
        self.record.inputs = {}
        self.progress = SimpleNamespace(say=lambda text: None)
        self.room, self.status = {"jax": jax, "torch": torch}, status
        self.asked: list[tuple[str, str, str, bool, int]] = []
        self.stopped: list[str | None] = []

    def write(self, name: str, value: Any) -> None:
        assert name == "5x4.inputs"

    def ask(self, do: str, of: Any, function: Any, repeats: int) -> Reply:
        assert (do, function) == ("call", fits)
        self.asked.append((of.framework, of.variant, of.pass_name, of.compiled, repeats))
        room = self.room[of.framework]
        if self.status == "failed" or room is None:
            return Reply("failed", "it broke")
        return Reply("ok", None, {"fits": repeats <= room})

    def running(self, case: Any) -> object | None:
        return None if self.room[case.framework] is None else object()

    def stop(self, case: Any = None) -> None:
        self.stopped.append(case and case.framework)


def largest(run: FakeRun) -> int:
    made = AlignmentInputs("two pairs", np.zeros((2, 5, 4), np.float32), None)
    inputs: dict[str, Inputs] = {"5x4": replace(made, repeats=8), "3x3": made}
    found = largest_batches(run, inputs, CASES, ABILITIES)  # pyright: ignore[reportArgumentType]
    assert found["3x3"].repeats == 1
    return found["5x4"].repeats


@pytest.mark.parametrize(
    ("jax", "torch", "repeats"), [(8, 8, 8), (4, 8, 4), (4, 1, 1), (3, 100, 2), (0, 0, 1), (8, None, 1)]
)
def test_it_fits_in_the_memory_of_both_frameworks(jax: int, torch: int | None, repeats: int):
    assert largest(FakeRun(jax, torch)) == repeats  # a worker that dies has too little


def test_each_framework_tries_its_own_choice_with_the_last_pass_from_where_the_other_ended():
    run = FakeRun(jax=4, torch=2)
    largest(run)
    jax, torch = ("jax", "fused", "marginals", True), ("torch", "fused", "marginals", False)
    assert run.asked == [(*jax, 8), (*jax, 4), (*torch, 4), (*torch, 2)]
    assert run.stopped == ["jax", "torch"]  # those that had too little memory, which is fragmented now


def test_any_other_error_is_left_for_the_case_to_report():
    run = FakeRun(jax=8, torch=8, status="failed")
    assert largest(run) == 8
    assert len(run.asked) == 2


def test_a_resumed_run_keeps_its_batch():
    run = FakeRun(jax=8, torch=8)
    run.record.inputs = {"5x4": facts(shape=(6, 5, 4))}  # three times the two pairs
    assert largest(run) == 3
    assert not run.asked
