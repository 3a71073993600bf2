"""The JSON form: everything is in it, it can be read back at any time of a run, and what is not whole is not read."""

import datetime
import json
import math
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import hand_made
import numpy as np
import pytest
from hand_made import blocks, case, ended, right, steady
from shared.bench.plan import Absence, Case, Settings
from shared.bench.statistics import Block, Cost

from shared.bench.record import (
    SCHEMA_VERSION,
    Compilation,
    Facts,
    Gate,
    Generation,
    Record,
    Result,
    UnreadableRecord,
    WarmUp,
    now,
)
from shared.problems import PROBLEMS
from shared.problems.alignment_inputs import AlignmentInputs

# every field set, to something else than what it begins with
WHOLE = Result(
    case("torch", "vmap", "hvp", input="6x7", dtype="float64", unroll=2, side=1, handicap=0.05),
    "failed",
    "it said nothing: “–”",
    Gate("score off by 1.0e-06, allowed 1.0e-05", None, "float64 vmap", 2),
    build_seconds=20.5,
    cold=Compilation(0.5, 0.25, 0.125),
    retrace=Compilation(0.25),
    retrace_note="the budget had no room for it",
    warm=[Compilation(0.125, 0.25), Compilation(0.25, None, 0.5)],
    warm_up=[WarmUp(6, True), WarmUp(60, False)],
    peak_bytes=0,
    input_bytes=2**33,
    output_bytes=480,
    work=126,
    on_device=[0.0625, 0.125, 0.25],
    blocks=[Block(0, 0, (0.25, 0.5)), Block(1, 4, (0.125,))],
)


def begun(*results: Result, **others: Any) -> Record:
    """A record of a run with half of its cases done."""
    made = hand_made.record(*results, settings=Settings(), finished=None, missing={"torch": "it is not installed"})
    return replace(made, absent=[Absence("jax", "JAX scan_cond score", "it cannot")], auto={"jax": "vmap"}, **others)


WRONG = ended(case("jax", "vmap", "marginals"), "wrong", "marginals off by 1.0e+00, allowed 1.0e-04")
RECORDS = {
    "nothing yet": Record("python compare.py"),
    "just begun": begun(),
    "half done": begun(steady(case("jax", "vmap"), 0.25), WRONG),
    "everything": begun(
        WHOLE,
        right(case("jax", "vmap"), 0.25, 0.5, 0.125),
        settings=Settings(
            variants=("vmap", "auto"), size=(6, 7), batch=3, arguments={"gap": -2.0, "end": "match"}, unroll=4,
            workers=3, sides=2, handicap=0.05, precision=0.1, budget=60.0,
        ),
        finished=now(),
        references={("single", "score"): [0.5, 0.25], ("batch", "hvp"): [2.0, 1.0]},
        speed=blocks([0.005, 0.006], workers=2),
        generations=[Generation(0, 12.0, 0.25), Generation(1, 11.0, None)],
        pictures={"batch": {"before": [[0.1, 0.2]], "after": [[0.9, 0.0]], "truth": [[0, 0]], "by": "JAX fused"}},
        notes=["the budget was spent"],
        resumed_by=["python compare.py --resume run.json"],
    ),
    "a sweep": begun(settings=Settings(input="random", sweep=((6, 7), (8, 9)))),
}  # fmt: skip
EVERY_RECORD = pytest.mark.parametrize("made", RECORDS.values(), ids=RECORDS)


def as_read(made: Record) -> Any:
    return json.loads(json.dumps(made.as_json(), allow_nan=False))


# what is in it


def test_the_schema_has_a_version():
    assert as_read(Record(""))["schema_version"] == SCHEMA_VERSION == 3


def test_the_command_and_the_time_are_kept():
    stored = as_read(begun(resumed_by=["again"]))
    assert (stored["command"], stored["resumed_by"]) == ("python compare.py", ["again"])
    assert (stored["started"], stored["finished"], stored["seconds"]) == ("2026-05-04T10:00:00+00:00", None, 312.0)


def test_times_are_of_now_in_utc():
    age = datetime.datetime.now(datetime.UTC) - datetime.datetime.fromisoformat(now())
    assert abs(age) < datetime.timedelta(minutes=5)


def test_settings_inputs_and_environment_are_kept():
    stored = as_read(RECORDS["everything"])
    settings = RECORDS["everything"].settings
    assert settings is not None and set(stored["settings"]) == {entry.name for entry in fields(Settings)}
    assert stored["settings"] == json.loads(json.dumps(asdict(settings)))
    batch = stored["inputs"]["batch"]
    assert (batch["text"], batch["shape"], batch["pairs"], batch["work"]) == ("three pairs", [3, 6, 7], 3, 126)
    assert (batch["parameters"], batch["options"]) == ({"gap": -1.0}, {"end": "any"})
    assert stored["environment"] == RECORDS["everything"].environment


def test_every_case_is_there_with_all_its_samples():
    first, second = as_read(RECORDS["everything"])["cases"]
    assert set(case("jax", "vmap").as_json()) <= set(first) & set(second)
    assert (second["variant"], second["pass_name"], second["status"]) == ("vmap", "score", "ok")
    rounds = [(block["worker"], block["round"], block["seconds"]) for block in second["blocks"]]
    assert rounds == [(0, 0, [0.25]), (0, 1, [0.5]), (0, 2, [0.125])]
    # everything that was found is there, and what is not known is not
    assert {entry.name for entry in fields(Result)} - {"case"} <= set(first)
    assert not {"retrace", "warm", "reason", "on_device"} & set(second)


def test_a_wrong_case_has_its_reason_and_no_time():
    wrong = as_read(RECORDS["half done"])["cases"][1]
    assert (wrong["status"], wrong["reason"]) == ("wrong", "marginals off by 1.0e+00, allowed 1.0e-04")
    assert not {"blocks", "cold", "warm", "retrace"} & set(wrong)


def test_what_was_not_measured_is_told():
    stored = as_read(begun())
    assert stored["missing"] == {"torch": "it is not installed"}
    assert stored["absent"] == [{"framework": "jax", "case": "JAX scan_cond score", "reason": "it cannot"}]
    assert stored["auto"] == {"jax": "vmap"}


def test_the_times_of_the_reference_and_of_the_machine_are_kept():
    stored = as_read(begun(references={("single", "score"): [0.5, 0.25]}, speed=blocks([0.005])))
    assert stored["numpy"] == [{"input": "single", "pass": "score", "seconds": [0.5, 0.25]}]
    assert stored["speed"] == [{"worker": 0, "round": 0, "seconds": [0.005]}]


# reading it again


@EVERY_RECORD
def test_a_record_can_be_read_back_at_any_time(made: Record, tmp_path: Path):
    assert Record.from_json(as_read(made)) == made
    made.write(tmp_path / "run.json")
    assert Record.read(tmp_path / "run.json") == made


def test_every_field_of_a_result_is_tried_above():
    assert not [e.name for e in fields(Result) if getattr(WHOLE, e.name) == getattr(Result(case("jax", "")), e.name)]


def test_a_case_can_be_read_back():
    stored = as_read(RECORDS["half done"])["cases"]
    again = [Case(**{entry.name: row[entry.name] for entry in fields(Case)}) for row in stored]
    assert again == [case("jax", "vmap"), case("jax", "vmap", "marginals")]


def without(stored: dict[str, Any], *path: Any) -> Any:
    """Take out what lies at a path."""
    at: Any = stored
    for name in path[:-1]:
        at = at[name]
    del at[path[-1]]
    return stored


# records without these were written before there were any
_LATER = ("generations", "pictures")
TOP = [name for name in as_read(RECORDS["everything"]) if name not in ("schema_version", *_LATER)]
WITHIN = [
    ("settings", "sweep"), ("inputs", "batch", "sha256"), ("inputs", "batch", "shape"), ("absent", 0, "reason"),
    ("numpy", 0, "seconds"), ("speed", 0, "worker"), ("cases", 0, "framework"), ("cases", 0, "blocks", 0, "round"),
    ("cases", 0, "gate", "text"), ("cases", 0, "cold", "seconds"), ("cases", 0, "warm_up", 0, "stable"),
]  # fmt: skip


@pytest.mark.parametrize("path", [*((name,) for name in TOP), *WITHIN], ids=lambda path: "-".join(map(str, path)))
def test_a_record_with_something_missing_is_not_read(path: tuple[Any, ...]):
    with pytest.raises(UnreadableRecord, match="expected a whole record, got one with a fault"):
        Record.from_json(without(as_read(RECORDS["everything"]), *path))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("seconds",), "long"),
        (("cases", 0, "status"), "perfect"),
        (("cases", 1, "blocks", 0, "seconds", 0), -1.0),
        (("cases", 1, "blocks", 0, "seconds", 0), "0.1"),
        (("generations", 0, "seconds"), "long"),
        (("pictures", "batch", "after"), [[0.5]]),
        (("pictures", "batch", "before"), "dark"),
        (("pictures", "batch", "truth"), [[1, 2, 3]]),
        (("pictures", "batch", "by"), 3),
    ],
    ids=str,
)
def test_a_record_with_an_impossible_value_is_not_read(path: tuple[Any, ...], value: Any):
    stored = at = as_read(RECORDS["everything"])
    for name in path[:-1]:
        at = at[name]
    at[path[-1]] = value
    with pytest.raises(UnreadableRecord, match="expected a whole record, got one with a fault"):
        Record.from_json(stored)


@pytest.mark.parametrize(
    ("generations", "cores"),
    [
        ([], None),
        ([Generation(0, 0.5, 0.25)], None),  # too short: the system counts in hundredths of a second
        ([Generation(0, 10.0, None)], None),
        ([Generation(0, 10.0, 1.0), Generation(1, 30.0, 9.0), Generation(2, 10.0, None)], 0.25),
    ],
)
def test_how_busy_other_programs_were_is_over_all_that_was_timed(generations: list[Generation], cores: float | None):
    assert begun(generations=generations).others_cores == cores


@pytest.mark.parametrize("path", [("settings",), ("cases", 0), ("cases", 0, "gate"), ("inputs", "batch")], ids=str)
def test_a_record_with_something_unknown_is_not_read(path: tuple[Any, ...]):
    stored = at = as_read(RECORDS["everything"])
    for name in path:
        at = at[name]
    at["colour"] = "blue"
    with pytest.raises(UnreadableRecord, match="colour"):
        Record.from_json(stored)


@pytest.mark.parametrize("version", [2, 4, "3", None])
def test_another_version_is_not_read(version: Any):
    with pytest.raises(UnreadableRecord, match=f"expected a record with schema_version 3, got {version!r}"):
        Record.from_json(as_read(begun()) | {"schema_version": version})


@pytest.mark.parametrize("stored", [[], "text", 3, None, {}, [{"schema_version": 3}]])
def test_json_that_is_no_record_is_not_read(stored: Any, tmp_path: Path):
    path = tmp_path / "run.json"
    path.write_text(json.dumps(stored))
    with pytest.raises(UnreadableRecord, match="got None"):
        Record.read(path)


@pytest.mark.parametrize("content", [b"", b"{", b"schema_version: 3", b"\xff\xfe\x00", b'{"a": 1'])
def test_a_file_that_is_no_json_is_not_read(tmp_path: Path, content: bytes):
    path = tmp_path / "run.json"
    path.write_bytes(content)
    with pytest.raises(UnreadableRecord, match="expected JSON, got something else"):
        Record.read(path)


def test_a_file_that_is_not_there_is_the_system_s_error(tmp_path: Path):
    with pytest.raises(FileNotFoundError):
        Record.read(tmp_path / "none.json")


# what it knows


@pytest.mark.parametrize(("status", "went_wrong"), [("wrong", True), ("failed", True), ("limit", False)])
def test_wrong_and_failed_cases_make_the_run_a_failure(status: str, went_wrong: bool):
    fine = right(case("jax", "vmap"), 0.5)
    assert not begun(fine).went_wrong
    assert begun(fine, ended(case("jax", "scan_cond"), status, "")).went_wrong is went_wrong


def test_the_result_of_a_case_is_begun_once():
    made, asked = begun(steady(case("jax", "vmap"), 0.25)), case("torch", "vmap")
    first = made.result(asked)
    assert first == Result(asked) and not first.measured
    assert made.result(case("torch", "vmap")) is first and len(made.results) == 2
    assert made.result(case("jax", "vmap")) is made.results[0]
    assert made.result(replace(asked, side=1)) is not first


def test_one_sample_is_its_own_median_and_has_no_interval():
    time = right(case("jax", "vmap"), 0.25).time
    assert time.value == 0.25 and math.isnan(time.low) and math.isnan(time.high)


def test_the_median_is_over_all_samples_and_the_cost_begins_with_empty_caches():
    result = right(case("jax", "vmap"), 5.0, 1.0, 4.0, 2.0, 3.0, cold=7.0, warm=[Compilation(s) for s in (1, 9, 2)])
    assert result.time.value == 3.0 and result.seconds == [5.0, 1.0, 4.0, 2.0, 3.0]
    assert (result.cost, result.warm_seconds) == (Cost(7.0, 3.0), 2.0)


def test_a_case_without_times_is_not_measured():
    wrong = ended(case("jax", "vmap"), "wrong", "score off", blocks=blocks([0.25]))
    assert not wrong.measured and not Result(case("jax", "vmap")).measured
    assert Result(case("jax", "vmap")).warm_seconds is None
    assert right(case("jax", "vmap"), 0.25).measured


# what is known of an input


LENGTHS = np.array([(2, 3), (1, 2)], np.int32)
GIVEN = AlignmentInputs(
    "two pairs",
    np.arange(12, dtype=np.float32).reshape(2, 2, 3),
    LENGTHS,
    parameters={"gap": -1.0},
    options={"end": "any"},
)


def test_the_facts_of_an_input_are_what_it_holds():
    found = Facts.of(GIVEN)
    assert (found.text, found.shape, found.pairs, found.work) == ("two pairs", (2, 2, 3), 2, 8)
    assert (found.parameters, found.options) == ({"gap": -1.0}, {"end": "any"})
    assert found == Facts.of(replace(GIVEN, similarity=GIVEN.similarity.copy())) and len(found.sha256) == 64
    assert Facts.of(AlignmentInputs("", np.zeros((4, 5)), None)).pairs == 1


OTHERS = {
    "similarity": replace(GIVEN, similarity=GIVEN.similarity + np.float32(2**-10)),
    "one cell": replace(GIVEN, similarity=np.where(GIVEN.similarity == 11, 12, GIVEN.similarity)),
    "lengths": replace(GIVEN, lengths=LENGTHS - np.array((0, 1))),
    "no lengths": replace(GIVEN, lengths=None),
    "dtype": replace(GIVEN, similarity=GIVEN.similarity.astype(np.float64)),
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_the_hash_of_an_input_changes_with_what_the_numbers_depend_on(other: AlignmentInputs):
    assert Facts.of(other).sha256 != Facts.of(GIVEN).sha256


def test_the_hash_of_an_input_changes_with_its_shape():
    flat = [
        AlignmentInputs("", GIVEN.similarity.reshape(shape), None) for shape in ((2, 2, 3), (2, 3, 2), (4, 3), (3, 4))
    ]
    assert len({Facts.of(given).sha256 for given in flat}) == len(flat)


def test_the_hash_of_an_input_does_not_change_with_its_text_or_the_integers_of_its_lengths():
    for same in (replace(GIVEN, text="other"), replace(GIVEN, lengths=LENGTHS.astype(np.int64))):
        assert Facts.of(same).sha256 == Facts.of(GIVEN).sha256


def test_the_seed_is_seen_in_the_hash_of_a_random_input():
    found = [Facts.of(PROBLEMS["smith_waterman"].inputs(Settings(input="random", size=(3, 4), seed=seed))["batch"])
             for seed in (1, 1, 2)]  # fmt: skip
    assert found[0] == found[1] and found[0].sha256 != found[2].sha256
