"""Validation of the protocol: what it measures, what it counts, when it fails; and the injected slowdown."""

import json
import runpy
import sys
import time
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest
from hand_made import case, ended, steady

from shared.bench.cases import Settings
from shared.bench.measure import clock
from shared.bench.record import Record
from shared.bench.run.plan import Plan
from shared.bench.worker import case_runner
from shared.bench.worker import main as worker
from tools import slowed_worker, validate_protocol


@dataclass
class FakeProtocol:
    """Stands for whole runs: label B takes `honest` times as long, or as long as the injected slowdown says."""

    honest: dict[int, float] = field(default_factory=dict)  # seed -> that factor; 1 for the others
    misses: bool = False  # whether a slowdown does not show
    fails: bool = False
    runs: list[tuple[bool, Settings]] = field(default_factory=list)

    def measure(self, plan: Plan, record: Record, *_: Any) -> None:
        labels = {label: start for (_, label), start in plan.starts.items()}
        commands = [start.command for start in labels.values()]
        slowdown = float(commands[1][-1]) if commands[1] else 0.0
        settings = record.settings
        self.runs.append((bool(slowdown), settings))
        factor = self.honest.get(settings.seed, 1.0) + (0.0 if self.misses else slowdown)
        for framework in settings.frameworks:
            for variant in settings.variants or ():
                one, other = (case(framework, variant, label=label) for label in labels)
                record.results.append(steady(one, 0.001))
                record.results.append(ended(other, "failed", "killed") if self.fails else steady(other, 0.001 * factor))


def validated(monkeypatch: pytest.MonkeyPatch, protocol: FakeProtocol, *arguments: str) -> int:
    monkeypatch.setattr(validate_protocol, "measure", protocol.measure)
    return validate_protocol.main(arguments)


def test_every_case_is_compared_with_itself_by_the_protocol_that_users_get(monkeypatch):
    protocol = FakeProtocol()
    assert validated(monkeypatch, protocol, "--runs", "3", "--power-runs", "2") == 0
    assert [(slowed, settings.seed, settings.variants, settings.budget) for slowed, settings in protocol.runs] == [
        *((False, seed, ("wavefront", "fused"), 100.0) for seed in range(3)),
        *((True, seed, ("fused",), 450.0) for seed in range(2)),
    ]
    for _, settings in protocol.runs:
        fields_given = {name: getattr(settings, name) for name in ("input", "variants", "budget", "threads", "seed")}
        assert settings == replace(Settings(), **fields_given)


def test_comparisons_are_counted_printed_and_written(monkeypatch, tmp_path, capsys):
    path = tmp_path / "validation.json"
    protocol = FakeProtocol(honest={1: 1.03})
    assert validated(monkeypatch, protocol, "--runs", "2", "--power-runs", "1", "--json", str(path)) == 1
    out = capsys.readouterr().out
    assert "A/A test: 4 false positives in 8 comparisons\n  JAX wavefront score, seed 1: 1.0300, 95% interval " in out
    assert "power test, 5%: 2 of 2 detected; missed:\n" in out
    written = json.loads(path.read_text())
    assert [len(written[kind]) for kind in ("a_a", "power")] == [8, 2]
    row = written["a_a"][4]
    assert (row["case"], row["seed"], row["rounds"]) == ("JAX wavefront score", 1, [[1.03] * 5] * 4)
    assert [row["ratio"], row["low"], row["high"]] == pytest.approx([1.03, 1.0217, 1.0384], abs=1e-4)
    assert written["power"][0]["ratio"] == pytest.approx(1.05)


@pytest.mark.parametrize(("different", "code"), [(1, 0), (2, 1)])
def test_more_false_positives_than_one_in_ten_are_a_failure(monkeypatch, different, code):
    protocol = FakeProtocol(honest=dict.fromkeys(range(different), 0.97))  # four comparisons each
    assert validated(monkeypatch, protocol, "--runs", "10", "--power-runs", "0") == code


@pytest.mark.parametrize("factor", [1.0, 0.9])
def test_a_slowdown_that_is_not_found_is_a_failure(monkeypatch, factor):
    protocol = FakeProtocol(honest={0: factor}, misses=True)
    assert validated(monkeypatch, protocol, "--runs", "0", "--power-runs", "1") == 1


def test_a_case_that_fails_ends_the_validation_with_its_reason(monkeypatch):
    with pytest.raises(SystemExit, match="JAX wavefront score, B: killed"):
        validated(monkeypatch, FakeProtocol(fails=True), "--runs", "1")


def test_a_slowed_call_takes_its_fraction_more_and_gives_the_same_result(monkeypatch):
    reading, calling = 1e-9, 1e-6
    now = 0.0

    def pass_time(seconds: float) -> float:
        nonlocal now
        now += seconds
        return now

    for module in (clock, slowed_worker):
        monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: pass_time(reading)))
    seconds, result = clock.timed(slowed_worker.slowed(lambda: pass_time(calling) and "its result", 0.05))
    assert result == "its result" and seconds == pytest.approx(1.05 * calling, abs=10 * reading)


def test_a_slowed_worker_starts_like_any_other_and_slows_its_timed_calls(monkeypatch):
    started: list[Any] = []
    monkeypatch.setattr(case_runner, "timed", clock.timed)  # so that it is put back
    monkeypatch.setattr(worker, "limit_cores", started.append)
    monkeypatch.setattr(worker, "main", lambda: started.append(sys.argv[1:]))
    monkeypatch.setattr(sys, "argv", ["slowed_worker", "1.0", "jax", "cpu", "2", "0.450", "folder", "9"])
    monkeypatch.delitem(sys.modules, "tools.slowed_worker")  # or runpy warns
    runpy.run_module("tools.slowed_worker", run_name="__main__")
    assert started == [2, ["jax", "cpu", "2", "0.450", "folder", "9"]]
    assert case_runner.timed(lambda: time.sleep(0.02))[0] >= 0.04
