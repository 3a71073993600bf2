"""The trial of the protocol: what it asks for, what it counts, and when it says that the protocol has failed."""

import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from hand_made import case, ended, steady
from shared.bench.plan import Settings

from shared.bench import trial
from shared.bench.record import Record

FRAMEWORKS = "jax", "torch"


@dataclass
class Protocol:
    """Stands for whole runs: the second side takes `honest` times as long, or as long as the handicap says."""

    honest: dict[int, float] = field(default_factory=dict)  # seed -> that factor; 1 for the others
    misses: bool = False  # whether a handicap does not show
    fails: bool = False
    asked: list[Settings] = field(default_factory=list)

    def run(self, settings: Settings, record: Record, progress: Any, keep: Any) -> None:
        self.asked.append(settings)
        record.settings = settings
        factor = self.honest.get(settings.seed, 1.0) + (0.0 if self.misses else settings.handicap)
        for framework in FRAMEWORKS:
            for variant in settings.variants or ():
                one, other = (case(framework, variant, side=side) for side in (1, 2))
                record.results.append(steady(one, 0.001))
                record.results.append(ended(other, "failed", "killed") if self.fails else steady(other, 0.001 * factor))


def tried(monkeypatch: pytest.MonkeyPatch, protocol: Protocol, *arguments: str) -> int:
    monkeypatch.setattr(trial, "run", protocol.run)
    return trial.main(arguments)


def test_it_runs_every_case_against_itself_with_and_without_a_handicap(monkeypatch):
    protocol = Protocol()
    assert tried(monkeypatch, protocol, "--runs", "3", "--planted-runs", "2") == 0
    assert [(asked.seed, asked.handicap, asked.variants, asked.budget) for asked in protocol.asked] == [
        *((seed, 0.0, ("wavefront", "fused"), 100.0) for seed in range(3)),
        *((seed, 0.05, ("fused",), 450.0) for seed in range(2)),
    ]
    defaults = Settings()
    for asked in protocol.asked:
        assert asked.sides == 2
        # the protocol on trial is the one that a user gets
        for name in ("precision", "workers", "rounds", "passes"):
            assert getattr(asked, name) == getattr(defaults, name)


def test_what_was_counted_is_printed_and_written(monkeypatch, tmp_path, capsys):
    path = tmp_path / "trial.json"
    protocol = Protocol(honest={1: 1.03})
    assert tried(monkeypatch, protocol, "--runs", "2", "--planted-runs", "1", "--json", str(path)) == 1
    out = capsys.readouterr().out
    assert "A/A: 4 of 8 comparisons of a case with itself call a difference\n  JAX wavefront score, seed 1: " in out
    assert "planted 5%: found in 2 of 2; missed:\n" in out
    found = json.loads(path.read_text())
    assert [len(found[kind]) for kind in ("a_a", "planted")] == [8, 2]
    assert found["a_a"][4] == {
        "case": "JAX wavefront score", "seed": 1, "seconds": 0.001, "workers": 4,
        "ratio": pytest.approx(1.03), "low": pytest.approx(1.03), "high": pytest.approx(1.03),
    }  # fmt: skip
    assert found["planted"][0]["ratio"] == pytest.approx(1.05)


@pytest.mark.parametrize(("alarming", "code"), [(1, 0), (2, 1)])
def test_more_false_alarms_than_one_in_ten_are_a_failure(monkeypatch, alarming, code):
    protocol = Protocol(honest=dict.fromkeys(range(alarming), 0.97))  # four comparisons each
    assert tried(monkeypatch, protocol, "--runs", "10", "--planted-runs", "0") == code


def test_a_planted_difference_that_is_not_found_is_a_failure(monkeypatch, capsys):
    assert tried(monkeypatch, Protocol(misses=True), "--runs", "0", "--planted-runs", "1") == 1
    assert "found in 0 of 2; missed:\n  JAX fused score, seed 0: 1.0000, " in capsys.readouterr().out


def test_a_difference_in_the_wrong_direction_is_not_found(monkeypatch):
    protocol = Protocol(honest={0: 0.9}, misses=True)
    assert tried(monkeypatch, protocol, "--runs", "0", "--planted-runs", "1") == 1


def test_a_case_that_fails_ends_the_trial_with_its_reason(monkeypatch):
    with pytest.raises(SystemExit, match="JAX wavefront score, side B: killed"):
        tried(monkeypatch, Protocol(fails=True), "--runs", "1")
