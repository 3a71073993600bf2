"""What a run has found so far, and its JSON form."""

import datetime
import json
import os
import platform
import subprocess
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from shared.bench.plan import FRAMEWORKS, Absence, Case, Settings
from shared.bench.workers import Outcome, Worker
from shared.problems import Inputs

SCHEMA_VERSION = 2


@dataclass(frozen=True)
class Result:
    """A case and what became of it."""

    case: Case
    outcome: Outcome

    @property
    def steady_seconds(self) -> list[float]:
        """Samples of the calls after the first; empty unless the case passed its gate."""
        return self.outcome.details.get("steady_seconds", [])

    @property
    def median(self) -> float:
        """Median steady time in seconds."""
        return float(np.median(self.steady_seconds))

    @property
    def quartiles(self) -> tuple[float, float]:
        """First and third quartile of the steady times in seconds."""
        low, high = np.percentile(self.steady_seconds, [25, 75])
        return float(low), float(high)


@dataclass
class Record:
    """Filled while a run goes on; complete enough to be printed or written at any time."""

    command: str
    settings: Settings | None = None
    inputs: dict[bool, Inputs] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)  # framework -> why it is not measured
    absent: list[Absence] = field(default_factory=list)
    auto: dict[str, str] = field(default_factory=dict)
    results: list[Result] = field(default_factory=list)
    references: dict[tuple[bool, str], list[float]] = field(default_factory=dict)

    def start(
        self,
        settings: Settings,
        inputs: dict[bool, Inputs],
        team: dict[str, Worker],
        missing: dict[str, str],
        absent: list[Absence],
    ) -> None:
        """Note what the run is and where it runs."""
        self.settings, self.inputs, self.missing, self.absent = settings, inputs, missing, absent
        self.auto = {name: worker.abilities.auto for name, worker in team.items()}
        self.environment = machine() | {
            "threads": settings.threads,
            "frameworks": {name: worker.environment for name, worker in team.items()},
        }

    def add(self, result: Result) -> None:
        """Keep a finished case."""
        self.results.append(result)

    def add_reference(self, single: bool, pass_name: str, seconds: list[float]) -> None:
        """Keep the times of the NumPy reference on the single pair or the batch."""
        self.references[single, pass_name] = seconds

    @property
    def went_wrong(self) -> bool:
        """Whether a case failed, or was wrong."""
        return any(result.outcome.status in ("wrong", "failed") for result in self.results)

    def as_json(self) -> dict[str, Any]:
        """Everything, with all samples in seconds."""
        return {
            "schema_version": SCHEMA_VERSION,
            "command": self.command,
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "environment": self.environment,
            "settings": asdict(self.settings) if self.settings else None,
            "inputs": {
                "single" if single else "batch": {
                    "text": given.text,
                    "similarity_shape": list(given.similarity.shape),
                    "work_cells": given.work,
                    "parameters": given.parameters,
                    "options": given.options,
                }
                for single, given in self.inputs.items()
            },
            "missing": {FRAMEWORKS[name]: reason for name, reason in self.missing.items()},
            "absent": [row._asdict() for row in self.absent],
            "auto": self.auto,
            "numpy": [
                {"single": single, "pass": pass_name, "seconds": seconds}
                for (single, pass_name), seconds in self.references.items()
            ],
            "cases": [
                result.case.as_json()
                | {"status": result.outcome.status, "reason": result.outcome.reason}
                | result.outcome.details
                for result in self.results
            ],
        }

    def write(self, path: Path) -> None:
        """Write the JSON file in one step: a reader never sees half of it."""
        temporary = path.with_name(f".compare-{os.getpid()}.part")
        try:
            temporary.write_text(json.dumps(self.as_json(), indent=1) + "\n")
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


def machine() -> dict[str, Any]:
    """The computer, the system and the state of the code."""
    return {
        "cpu": _cpu_name(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "git_commit": _git_commit(),
    }


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _git_commit() -> str | None:
    """The commit of the code that runs, with "-dirty" when files differ from it; None outside a checkout."""
    here = Path(__file__).parent
    try:
        commit, status = (
            subprocess.run(["git", *arguments], cwd=here, capture_output=True, text=True, timeout=10, check=True).stdout
            for arguments in (("rev-parse", "HEAD"), ("status", "--porcelain", "--untracked-files=no"))
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return commit.strip() + ("-dirty" if status.strip() else "")
