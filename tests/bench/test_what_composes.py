"""The question of transforms: its answer from outcomes made by hand, and whole runs of it."""

import dataclasses
from pathlib import Path
from typing import Any

import in_process
import pretended_transforms
import pytest
from hand_made import case, facts, record
from in_process import Ended, run_here, started_workers, use_numpy_workers
from pretended_transforms import FATES

from shared.alignments import ALIGNMENTS
from shared.bench.cases import Absence, Settings
from shared.bench.questions import QUESTIONS, transforms
from shared.bench.record import Record, Result
from shared.bench.report.tables import Answer
from shared.transforms import TRANSFORMS

settings_of = in_process.settings_of  # a fixture
SETTINGS = Settings("transforms", input="random", passes=("score",), more_problems=("free_gap",))
RIGHT = {"outcome": "right", "text": None}
OWN = "CannotDifferentiate: variant {!r} is right to first order only"


def raises(text: str) -> dict[str, Any]:
    return {"outcome": "raises", "text": text}


def tried(framework: str, variant: str, problem: str = "smith_waterman", **outcomes: dict[str, Any]) -> Result:
    """Every transform is right but these, whose spaces are underscores."""
    names = transforms.transforms_of(framework)
    details = {"outcomes": {name: outcomes.get(name.replace(" ", "_"), RIGHT) for name in names}}
    return Result(case(framework, variant, compiled=False, input=problem, problem=problem), details=details)


def answer(*results: Result, **others: Any) -> Answer:
    inputs = {problem: facts() for problem in ("smith_waterman", "free_gap")}
    return QUESTIONS["transforms"].answer(record(*results, settings=SETTINGS, inputs=inputs, **others))


def cells(found: Answer, row: str) -> list[str]:
    return next(list(cells) for name, *cells in found.tables[0].rows if name == row)


SECOND, THIRD = "autograd twice, create_graph", "autograd three times, create_graph"


def test_a_cell_says_what_happens_and_an_error_stands_once_with_its_variants():
    both: tuple[Any, Any] = ("smith_waterman", "free_gap")
    shown = answer(
        *(tried("torch", "vmap", p, second_derivative=raises(OWN.format("vmap"))) for p in both),
        *(tried("torch", "scan_cond", p, second_derivative=raises(OWN.format("scan_cond"))) for p in both),
        tried("torch", "fused", export=raises("ValueError: no")),
        tried("torch", "fused", "free_gap", third_derivative={"outcome": "limit", "text": "> 120 s"}),
        absent=[Absence("torch", "PyTorch cuda_graph score, not compiled", "no CUDA device")],
    )
    table, errors = shown.tables
    assert table.headers == ("transform", "scan\ncond", "vmap", "fused")
    assert cells(shown, SECOND) == ["E1", "E1", "yes"]
    assert cells(shown, "export") == ["yes", "yes", "E2 / yes"]
    assert cells(shown, THIRD) == ["yes", "yes", "yes / > 120 s"]
    assert errors.rows == [
        ("E1", "scan_cond,\nvmap", "CannotDifferentiate: variant … is right to first order only"),
        ("E2", "fused\n(smith_waterman)", "ValueError: no"),
    ]
    assert table.below[-1] == "Not built: PyTorch cuda_graph score, not compiled: no CUDA device."
    assert table.rows[-1] == ("every other", "yes", "yes", "yes") and "func.vmap" in table.below[0]
    assert dict(shown.statements)["PyTorch"] == f"take fused; for {THIRD} and export take vmap."
    no = raises("ValueError: no")
    most = [tried("jax", "vmap", problem, export=no, vmap=no) for problem in ("a", "b")]
    assert answer(*most).tables[1].rows[0][1] == "vmap"
    assert answer(*most, tried("jax", "vmap", "c")).tables[1].rows[0][1] == "vmap (a, b)"


def test_a_transform_that_no_variant_does_is_told():
    alone = answer(tried("jax", "fused", third_derivative=raises("E: y")))
    nobody = "take fused where it works; none of these variants does grad of grad of grad."
    assert dict(alone.statements)["JAX"] == nobody


def test_a_wrong_transform_and_one_that_was_not_tried_are_told():
    result = tried("jax", "fused", vmap={"outcome": "wrong", "text": "off by 1"})
    result = dataclasses.replace(result, status="wrong", reason="vmap: off by 1")
    del result.details["outcomes"]["export"]
    shown = answer(result)
    assert cells(shown, "vmap") == ["WRONG"] and cells(shown, "export") == ["–"]
    assert shown.statements[0] == ("WRONG", "JAX fused score, smith_waterman, not compiled: vmap: off by 1")
    said = shown.statements[1].text
    assert said.startswith("of what was tried: take fused") and said.endswith("none of these variants does vmap.")
    below = shown.tables[0].below
    assert "Not fully tried for smith_waterman within the budget: fused." in below
    assert "Not fully tried for free_gap within the budget: fused." in below
    assert answer().tables == []


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Workers in which each of FATES ends in its own way; returns those that are started."""
    use_numpy_workers(monkeypatch)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))  # of the workers
    monkeypatch.setattr(transforms, "attempt", pretended_transforms.attempt)
    monkeypatch.setattr(transforms, "transforms_of", lambda _: list(FATES))
    return started_workers(monkeypatch)


def run_transforms(*arguments: str) -> Ended:
    return run_here("transforms", "--threads", "1", *arguments)


@pytest.mark.slow
def test_a_run_tries_every_transform_and_again_what_failed_when_resumed(pretended: list[Any], tmp_path: Path):
    path, page = tmp_path / "run.json", tmp_path / "run.html"
    options = ("--variant", "vmap,fused", "--problem", "free_gap", "--compile-limit", "1")
    ended = run_transforms(*options, "--json", str(path), "--report", str(page))
    assert ended.code == 1
    made = Record.read(path)
    assert [(r.case.framework, r.case.variant, r.status) for r in made.results] == [
        ("jax", "vmap", "wrong"), ("torch", "vmap", "failed"), ("jax", "fused", "wrong"), ("torch", "fused", "failed"),
    ]  # fmt: skip
    for result in made.results:
        outcomes = {name: outcome["outcome"] for name, outcome in result.details["outcomes"].items()}
        of_export = "wrong" if result.case.framework == "jax" else "right"
        assert outcomes == dict(
            zip(FATES, ("right", "failed", "raises", "raises", "limit", of_export, "right"), strict=True)
        )
    # at first, and after an end, an error of the framework's own and a limit, but not after an error of this package
    assert sorted(framework for framework, *_ in pretended) == ["jax"] * 7 + ["torch"] * 7  # 1 + 3 * 2
    assert "WRONG: JAX fused score, free_gap, not compiled: export: off by 1.0e+00" in ended.out
    assert "which transforms work" in page.read_text() and "<figure" not in page.read_text()
    # a resumed run tries what has no outcome and what failed
    outcomes = made.results[-1].details["outcomes"]
    outcomes.pop("export")
    outcomes["compiled"]["text"] = "kept"
    made.write(path)
    assert run_here("--resume", str(path)).code == 1
    result = Record.read(path).results[-1]
    assert list(result.details["outcomes"]) == list(FATES)  # in the table's order
    assert result.details["outcomes"]["export"] == RIGHT
    assert result.details["outcomes"]["compiled"]["text"] == "kept"
    assert result.reason == "vmap: the worker ended with exit code 7: it printed nothing"


@pytest.mark.slow
def test_a_transform_that_the_budget_has_no_room_for_is_not_tried(pretended: list[Any], tmp_path: Path):
    path = tmp_path / "run.json"
    options = ("--variant", "fused", "--framework", "jax", "--compile-limit", "30", "--budget", "12")
    ended = run_transforms(*options, "--json", str(path))
    first, *later = Record.read(path).results
    assert list(first.details["outcomes"]) == list(FATES[:4])  # the next one takes a minute
    assert [result.case.problem for result in later] == [name for name in ALIGNMENTS if name != "smith_waterman"]
    assert not any(result.details for result in later)
    assert "Not fully tried for soft_dtw within the budget: fused." in ended.out


@pytest.mark.slow
def test_a_run_compares_with_the_reference(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(transforms, "transforms_of", lambda _: ["gradient", "third derivative", "export"])
    real, scores = transforms.wanted, TRANSFORMS["export"].gives
    monkeypatch.setattr(  # the gradient is expected as it is, scores are not
        transforms, "wanted", lambda *given: {k: v + (k == scores) for k, v in real(*given).items()}
    )
    path = tmp_path / "run.json"
    options = ("--variant", "fused", "--problem", "free_gap", "--framework", "torch", "--json", str(path))
    ended = run_transforms(*options)
    assert ended.code == 1 and "WRONG: PyTorch fused score" in ended.out and "off by 1.0e+00" in ended.out
    (result,) = Record.read(path).results
    assert [outcome["outcome"] for outcome in result.details["outcomes"].values()] == ["right", "raises", "wrong"]
    assert result.details["outcomes"]["third derivative"]["text"].startswith(
        "CannotDifferentiate: variant 'fused' is right to second order only; for third derivatives use "
    )


def test_every_alignment_is_tried_unless_one_is_named(settings_of: Any):
    assert settings_of("transforms").more_problems == tuple(name for name in ALIGNMENTS if name != "smith_waterman")
    assert settings_of("transforms", "--problem", "smith_waterman").more_problems == ()
    assert settings_of("speed").more_problems == ()
    assert all(transform.jax or transform.torch for transform in TRANSFORMS.values())
