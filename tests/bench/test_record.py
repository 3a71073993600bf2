"""The JSON form of a record: it can be read back at any time of a run, and what is not a whole record is refused."""

import json
import math
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import hand_made
import numpy as np
import pytest
import recorded
from hand_made import case, steady

from shared.bench.cases import Settings
from shared.bench.estimates import Block
from shared.bench.questions import read_record
from shared.bench.record import SCHEMA_VERSION, Gate, InputFacts, Record, Repeat, Result, UnreadableRecord
from shared.problems.alignment_inputs import AlignmentInputs

CASE = asdict(case("jax", "vmap", input="6x7"))
# every field set, to something else than its default
WHOLE_RESULT = replace(
    recorded.plain().results[0],
    case=case("torch", "vmap", "hvp", input="6x7", dtype="float64", label="A"),
    status="failed",
    reason="it said nothing: “–”",
    gate=Gate("score off by 1.0e-06, allowed 1.0e-05", None, "float64 vmap", 2, "it found 9 of 10 letters"),
    build_seconds=20.5,
    new_shapes_note="the budget had no room for it",
    settled=[True, None, False],
    on_device=[Block.of(0, 0, [0.0625, 0.125]), Block.of(1, 0, [0.25])],
    kernels=1024,
    details={"shapes": [[6, 7], [8, 9]], "processes": [{"seconds": [0.25, 0.5]}]},
)
WHOLE = replace(
    recorded.plain(),
    settings=Settings("growth", variants=("vmap", "auto"), size=(6, 7), sizes=((6, 7), (8, 9)), batch=3, workers=3,
                      budget=60, arguments={"gap": -2.0, "end": "match"}),
    inputs={"6x7": replace(hand_made.facts(), by_device_time=True)},
    gpu_state={"samples": 2, "sm_mhz": [1005, 1492.5, 1980], "throttled": {"power": 0.5}},
    missing={"torch": "it is not installed"},
    kernel_lines=1500,
    results=[WHOLE_RESULT, steady(case("jax", "vmap", input="6x7"), 0.25)],
    calibration_seconds=[0.005, 0.006],
    repeats=[Repeat(0, 12.0, 0.25), Repeat(1, 11.0, None)],
    resumed_by=["python compare.py --resume run.json"],
)  # fmt: skip


@pytest.mark.parametrize("made", [WHOLE, recorded.begun()], ids=["whole", "begun"])
def test_a_record_can_be_read_back_at_any_time(made: Record, tmp_path: Path):
    made.write(tmp_path / "run.json")
    assert Record.read(tmp_path / "run.json") == made


def test_every_field_is_tried_above():
    for whole, empty in ((WHOLE_RESULT, Result(case("jax", ""))), (WHOLE, Record("", Settings()))):
        assert not [entry.name for entry in fields(whole) if getattr(whole, entry.name) == getattr(empty, entry.name)]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"schema_version": SCHEMA_VERSION - 1}, f"expected schema_version {SCHEMA_VERSION}, got {SCHEMA_VERSION - 1}"),
        ({"colour": "blue"}, "it has no field colour"),
        ({"results": [{}]}, "results lacks case"),
        ({"results": [{"case": CASE}] * 2}, "results must be of different cases, got two of JAX vmap score, 6x7"),
        ({"settings": {"budget": -1}}, "budget must be positive, got -1"),
        ({"settings": {"question": "how much"}}, "unknown question 'how much'"),
        ({"results": [{"case": CASE | {"variant": "fastest"}}]}, "unknown variant 'fastest'"),
        ({"results": [{"case": CASE | {"input": "single"}}]}, "unknown input 'single'"),
        ({"results": [{"case": CASE, "status": "great"}]}, "unknown status 'great'"),
        ({"notes": [None]}, "notes must be a text, got None"),
        ({"seconds": math.nan}, "seconds must be a finite number, got nan"),
        ({"kernel_lines": True}, "kernel_lines must be a whole number, got True"),
        ({"settings": {"quick": 1}}, "quick must be true or false, got 1"),
        ({"calibration_seconds": [0.25, 0]}, "calibration_seconds must be positive, got 0"),
        ({"results": [{"case": CASE, "blocks": [[0, 0, 1, 0.25]]}]}, "blocks must be a list of 7, got [0, 0, 1, 0.25]"),
    ],
)
def test_a_record_of_another_version_is_refused(tmp_path: Path, change: dict[str, Any], text: str):
    path = tmp_path / "run.json"
    WHOLE.write(path)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(UnreadableRecord, match="not a record that this version reads: ") as error:
        read_record(path)
    assert str(error.value).endswith(text) and str(path) in str(error.value)


@pytest.mark.parametrize("content", [b"[]", b"\xff\xfe\x00", b"[" * 100_000, None])
def test_a_file_that_is_no_record_is_refused_with_its_name(tmp_path: Path, content: bytes | None):
    path = tmp_path / "run.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UnreadableRecord, match=f"cannot read {path}: "):
        read_record(path)


@pytest.mark.parametrize(
    ("repeats", "cores"),
    [
        ([Repeat(0, 0.5, 0.25)], 0.5),
        # too short: the system counts in hundredths of a second
        ([Repeat(0, 0.3, 0.15), Repeat(1, 0.1, 0.0)], None),
        ([Repeat(0, 10.0, None)], None),
        ([Repeat(0, 10.0, 1.0), Repeat(1, 30.0, 9.0), Repeat(2, 10.0, None)], 0.25),
    ],
)
def test_the_load_by_other_programs_is_over_all_that_was_timed(repeats: list[Repeat], cores: float | None):
    assert hand_made.record(repeats=repeats).cores_busy_with_others == cores


def test_the_facts_of_an_input_are_what_it_holds():
    inputs = AlignmentInputs(
        "two pairs",
        np.arange(12, dtype=np.float32).reshape(2, 2, 3),
        np.array([(2, 3), (1, 2)], np.int32),
        parameters={"gap": -1.0},
        options={"end": "any"},
    )
    facts = InputFacts.of(inputs)
    assert facts == InputFacts("two pairs", (2, 2, 3), 2, 8, {"gap": -1.0}, {"end": "any"}, facts.sha256)
    for other in (replace(inputs, similarity=inputs.similarity + np.float32(2**-10)), replace(inputs, lengths=None)):
        assert InputFacts.of(other).sha256 != facts.sha256
    assert InputFacts.of(replace(inputs, text="other")).sha256 == facts.sha256
