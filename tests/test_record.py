"""The JSON form: everything is in it, at any time of a run, and a reader never sees half of a file."""

import datetime
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hand_made
import numpy as np
import pytest
from hand_made import case, ended, right

from shared.bench import record as record_module
from shared.bench.plan import Absence, Case, Settings
from shared.bench.record import SCHEMA_VERSION, Record, machine
from shared.problems import Inputs
from shared.variants import Abilities

ROOT = Path(__file__).parents[1]


def started(*results: Any) -> Record:
    """A record of a run on this machine, with half of its cases done."""
    inputs = Inputs("three pairs", np.zeros((3, 6, 7), np.float32), None, {"gap": -1.0}, {"end": "any"})
    team: Any = {
        "jax": SimpleNamespace(
            abilities=Abilities("vmap", {}, {}, {}), environment={"jax": "1.2.3", "threads": 1, "cores": 1}
        )
    }
    made = Record("python compare.py --threads 1")
    absent = [Absence("jax", "JAX scan_cond score", "it cannot")]
    made.start(Settings(threads=1), {False: inputs}, team, {"torch": "PyTorch is not installed"}, absent)
    for result in results:
        made.add(result)
    return made


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("record") / "run.json"
    started(
        right(case("jax", "vmap"), 0.25, 0.5, 0.125),
        ended(case("jax", "vmap", "marginals"), "wrong", "marginals off by 1.0e+00, allowed 1.0e-04"),
    ).write(path)
    return json.loads(path.read_text())


def test_the_schema_has_a_version(written: dict[str, Any]):
    assert written["schema_version"] == SCHEMA_VERSION == 2


def test_the_command_and_the_date_are_kept(written: dict[str, Any]):
    assert written["command"] == "python compare.py --threads 1"
    age = datetime.datetime.now(datetime.UTC) - datetime.datetime.fromisoformat(written["date"])
    assert abs(age) < datetime.timedelta(minutes=5)


def test_the_environment_says_where_it_ran(written: dict[str, Any]):
    environment = written["environment"]
    assert environment["cpu"] and environment["system"] and environment["cores"] >= 1
    assert re.fullmatch(r"3\.\d+\.\d+.*", environment["python"]) and environment["numpy"] == np.__version__
    assert environment["threads"] == 1
    assert environment["frameworks"] == {"jax": {"jax": "1.2.3", "threads": 1, "cores": 1}}


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a git checkout")
def test_the_environment_says_which_code_ran(written: dict[str, Any]):
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert written["environment"]["git_commit"].removesuffix("-dirty") == head.strip()


def test_without_git_there_is_no_commit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert machine()["git_commit"] is None


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_code_that_differs_from_its_commit_is_dirty(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    def git(*arguments: str) -> None:
        identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True, capture_output=True)

    code = tmp_path / "code.py"
    code.write_text("one\n")
    git("init", "-q")
    git("add", "code.py")
    git("commit", "-q", "-m", "one")
    monkeypatch.setattr(record_module, "__file__", str(code))
    clean = machine()["git_commit"]
    code.write_text("two\n")
    assert re.fullmatch(r"[0-9a-f]{40,64}", clean) and machine()["git_commit"] == f"{clean}-dirty"


def test_settings_and_inputs_are_kept(written: dict[str, Any]):
    assert written["settings"]["arguments"] == {} and written["settings"]["input"] == "globins"
    assert written["inputs"] == {
        "batch": {
            "text": "three pairs",
            "similarity_shape": [3, 6, 7],
            "work_cells": 126,
            "parameters": {"gap": -1.0},
            "options": {"end": "any"},
        }
    }


def test_every_case_is_there_with_all_its_samples(written: dict[str, Any]):
    first, second = written["cases"]
    assert (first["variant"], first["pass_name"], first["status"]) == ("vmap", "score", "ok")
    assert first["steady_seconds"] == [0.25, 0.5, 0.125] and first["first_seconds"] == 0.5
    assert set(case("jax", "vmap").as_json()) <= set(second)


def test_a_wrong_case_has_its_reason_and_no_time(written: dict[str, Any]):
    wrong = written["cases"][1]
    assert (wrong["status"], wrong["reason"]) == ("wrong", "marginals off by 1.0e+00, allowed 1.0e-04")
    assert not any("seconds" in name for name in wrong)


def test_what_was_not_measured_is_told(written: dict[str, Any]):
    assert written["missing"] == {"PyTorch": "PyTorch is not installed"}
    assert written["absent"] == [{"framework": "jax", "case": "JAX scan_cond score", "reason": "it cannot"}]
    assert written["auto"] == {"jax": "vmap"}


def test_the_times_of_the_reference_are_kept():
    made = hand_made.record()
    made.add_reference(True, "score", [0.5, 0.25])
    assert made.as_json()["numpy"] == [{"single": True, "pass": "score", "seconds": [0.5, 0.25]}]


def test_a_record_is_json_at_any_time():
    nothing, begun = Record("python compare.py"), started()
    half = started(right(case("jax", "vmap"), 0.5))
    for made, cases in ((nothing, 0), (begun, 0), (half, 1)):
        assert len(json.loads(json.dumps(made.as_json(), allow_nan=False))["cases"]) == cases


@pytest.mark.parametrize(("status", "went_wrong"), [("wrong", True), ("failed", True), ("limit", False)])
def test_wrong_and_failed_cases_make_the_run_a_failure(status: str, went_wrong: bool):
    fine = right(case("jax", "vmap"), 0.5)
    assert not started(fine).went_wrong
    assert started(fine, ended(case("jax", "scan_cond"), status, "")).went_wrong is went_wrong


def test_a_name_may_be_as_long_as_the_system_allows(tmp_path: Path):
    path = tmp_path / ("a" * os.pathconf(tmp_path, "PC_NAME_MAX"))
    started().write(path)
    assert json.loads(path.read_text())["cases"] == []


def test_a_reader_of_the_old_file_never_sees_the_new_one(tmp_path: Path):
    path = tmp_path / "run.json"
    path.write_text("old")
    with path.open() as reader:
        started().write(path)
        assert reader.read() == "old"
    assert json.loads(path.read_text())["schema_version"] == SCHEMA_VERSION


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path):
    path = tmp_path / "run.json"
    path.write_text("old")
    unwritable = started(ended(case("jax", "vmap"), "ok", "", thing={1, 2}))  # no set is JSON
    with pytest.raises(TypeError):
        unwritable.write(path)
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_a_write_that_is_cut_short_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def cut_short(self: Path, text: str) -> None:
        with self.open("w") as file:
            file.write(text[:100])
        raise OSError(28, "No space left on device")

    path = tmp_path / "run.json"
    path.write_text("old")
    monkeypatch.setattr(Path, "write_text", cut_short)
    with pytest.raises(OSError, match="No space left"):
        started().write(path)
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_a_case_can_be_read_back(written: dict[str, Any]):
    fields = case("jax", "vmap").as_json()
    again = [Case(**{name: stored[name] for name in fields}) for stored in written["cases"]]
    assert again == [case("jax", "vmap"), case("jax", "vmap", "marginals")]
