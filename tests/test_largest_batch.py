"""The largest batch that fits: what is tried, by whom, and what an answer, a failure and a death mean."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hand_made import case, facts, record
from shared.bench.plan import Settings
from shared.bench.workers import Reply

from shared.bench import fitting
from shared.problems import Inputs
from shared.problems.alignment_inputs import AlignmentInputs
from shared.variants import Abilities

ABILITIES = {"jax": Abilities("fused"), "torch": Abilities("fused", ready=("fused",))}
CASES = [
    case(framework, variant, pass_name, device="cuda", input="5x4")
    for pass_name in ("score", "marginals")
    for variant in ("vmap", "wavefront")
    for framework in ("jax", "torch")
]


class Going:
    """A run whose workers have room for so many repeats; one that has no number dies."""

    def __init__(
        self, room: dict[str, int | None], passes: tuple[str, ...] = ("score", "marginals"), status="ok"
    ) -> None:
        self.settings = Settings(device="cuda", passes=passes)
        self.record = record()
        self.record.inputs = {}
        self.progress = SimpleNamespace(say=lambda text: None)
        self.team = self
        self.room, self.status = room, status
        self.asked: list[tuple[str, str, str, bool, int]] = []
        self.stopped: list[str | None] = []

    def ask_worker(self, of: Any, do: str, limit: float, /, **more: Any) -> Reply:
        assert do == "fits" and more["case"] == of.as_json()
        self.asked.append((of.framework, of.variant, of.pass_name, of.compiled, more["repeats"]))
        room = self.room[of.framework]
        if self.status == "failed" or room is None:
            return Reply("failed", "it broke", {})
        return Reply("ok", None, {"fits": more["repeats"] <= room})

    def running(self, case: Any) -> object | None:
        return None if self.room[case.framework] is None else object()

    def stop(self, case: Any = None) -> None:
        self.stopped.append(case and case.framework)


def inputs(repeats: int = 8) -> dict[str, Inputs]:
    made = AlignmentInputs("two pairs", np.zeros((2, 5, 4), np.float32), None, parameters={}, options={})
    return {"5x4": replace(made, repeats=repeats), "3x3": made}


def fitted(going: Going, folder: Path, repeats: int = 8) -> int:
    found = fitting.fitted(going, inputs(repeats), CASES, ABILITIES, folder)  # pyright: ignore[reportArgumentType]
    assert found["3x3"].repeats == 1
    return found["5x4"].repeats


@pytest.mark.parametrize(
    ("jax", "torch", "repeats"), [(8, 8, 8), (4, 8, 4), (8, 2, 2), (4, 1, 1), (3, 100, 2), (0, 0, 1)]
)
def test_it_is_what_fits_in_both(jax: int, torch: int, repeats: int, tmp_path: Path):
    assert fitted(Going({"jax": jax, "torch": torch}), tmp_path) == repeats


def test_each_tries_its_own_choice_and_the_dearest_pass_and_starts_where_the_other_ended(tmp_path: Path):
    going = Going({"jax": 4, "torch": 2})
    fitted(going, tmp_path)
    jax, torch = ("jax", "fused", "marginals", True), ("torch", "fused", "marginals", False)
    assert going.asked == [(*jax, 8), (*jax, 4), (*torch, 4), (*torch, 2)]
    # one that had too little is replaced; in the end all are
    assert going.stopped == ["jax", "torch", None]


def test_a_worker_that_dies_had_too_little_memory(tmp_path: Path):
    assert fitted(Going({"jax": 8, "torch": None}), tmp_path) == 1


def test_what_goes_wrong_otherwise_is_for_the_case_to_tell(tmp_path: Path):
    going = Going({"jax": 8, "torch": 8}, status="failed")
    assert fitted(going, tmp_path) == 8
    assert len(going.asked) == 2


def test_a_run_that_is_gone_on_with_keeps_what_it_found(tmp_path: Path):
    going = Going({"jax": 8, "torch": 8})
    going.record.inputs = {"5x4": facts(shape=(6, 5, 4))}  # three times the two pairs
    assert fitted(going, tmp_path) == 3
    assert not going.asked


def test_what_was_asked_for_and_did_not_fit_is_told():
    asked, found = inputs(8), inputs(4)
    assert list(fitting.told(asked, found)) == ["5x4: 8 pairs are the largest batch that fits; 16 were asked for"]
    assert list(fitting.told(asked, asked)) == []
