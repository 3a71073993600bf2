"""The folder through which a run hands its inputs and answers to the workers."""

import json
from pathlib import Path

import numpy as np

from shared.problems import Inputs


def answer_path(folder: Path, name: str) -> Path:
    """Where the answer for an input lies."""
    return folder / f"{name}-answer.npz"


def save_inputs(inputs: Inputs, folder: Path, name: str) -> None:
    """Write one input: the arrays, and the rest as JSON."""
    arrays = {"similarity": inputs.similarity}
    if inputs.lengths is not None:
        arrays["lengths"] = inputs.lengths
    np.savez(folder / f"{name}.npz", allow_pickle=False, **arrays)
    rest = {"text": inputs.text, "parameters": inputs.parameters, "options": inputs.options, "seed": inputs.seed}
    (folder / f"{name}.json").write_text(json.dumps(rest))


def load_inputs(folder: Path, name: str) -> Inputs:
    """Read what `save_inputs` wrote."""
    with np.load(folder / f"{name}.npz") as stored:
        arrays = dict(stored)
    rest = json.loads((folder / f"{name}.json").read_text())
    return Inputs(similarity=arrays["similarity"], lengths=arrays.get("lengths"), **rest)
