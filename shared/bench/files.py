"""The folder through which a run hands its inputs and answers to the workers."""

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


def save_answer(answer: Any, folder: Path, name: str) -> None:
    """Write what an input's results are gated against."""
    arrays = {key: value for key, value in answer._asdict().items() if value is not None}
    np.savez(_answer_path(folder, name), allow_pickle=False, **arrays)


def load_answer(problem: str, folder: Path, name: str) -> Any:
    """Read what `save_answer` wrote."""
    return PROBLEMS[problem].load_answer(_arrays(_answer_path(folder, name)))


def _answer_path(folder: Path, name: str) -> Path:
    return folder / f"{name}-answer.npz"


def _arrays(path: Path) -> dict[str, np.ndarray]:
    with np.load(path) as stored:
        return dict(stored)
