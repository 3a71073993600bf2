"""The folder through which a run passes inputs and reference results to its workers."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from shared.problems import PROBLEMS, Inputs


def save_inputs(problem: str, inputs: Inputs, folder: Path, name: str) -> None:
    """Write one input: the arrays, and the rest as JSON."""
    np.savez(folder / f"{name}.npz", allow_pickle=False, **inputs.arrays)
    rest = {"text": inputs.text, "parameters": inputs.parameters, "options": inputs.options, "seed": inputs.seed}
    rest["repeats"] = inputs.repeats
    (folder / f"{name}.json").write_text(json.dumps({"problem": problem, "rest": rest}))


def load_inputs(folder: Path, name: str) -> Inputs:
    """Read what `save_inputs` wrote."""
    stored = json.loads((folder / f"{name}.json").read_text())
    return PROBLEMS[stored["problem"]].load(_arrays(folder / f"{name}.npz"), stored["rest"])


def save_reference(answer: Any, folder: Path, name: str) -> None:
    """Write the reference results of one input."""
    arrays = {key: value for key, value in answer._asdict().items() if value is not None}
    np.savez(_reference_path(folder, name), allow_pickle=False, **arrays)


def load_reference(problem: str, folder: Path, name: str) -> Any:
    """Read what `save_reference` wrote."""
    return PROBLEMS[problem].load_answer(_arrays(_reference_path(folder, name)))


def _reference_path(folder: Path, name: str) -> Path:
    return folder / f"{name}-reference.npz"


def _arrays(path: Path) -> dict[str, np.ndarray]:
    with np.load(path) as stored:
        return dict(stored)
