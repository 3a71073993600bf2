"""The folder through which a run hands its inputs and answers to the workers."""

import json
from pathlib import Path

import numpy as np

from shared.problems import Inputs


def _stem(single: bool) -> str:
    return "single" if single else "batch"


def answer_path(folder: Path, single: bool) -> Path:
    """Where the answer for the single pair, or for the batch, lies."""
    return folder / f"{_stem(single)}-answer.npz"


def save_inputs(inputs: Inputs, folder: Path, single: bool) -> None:
    """Write one input: the arrays, and the rest as JSON."""
    arrays = {"similarity": inputs.similarity}
    if inputs.lengths is not None:
        arrays["lengths"] = inputs.lengths
    np.savez(folder / f"{_stem(single)}.npz", allow_pickle=False, **arrays)
    rest = {"text": inputs.text, "parameters": inputs.parameters, "options": inputs.options, "seed": inputs.seed}
    (folder / f"{_stem(single)}.json").write_text(json.dumps(rest))


def load_inputs(folder: Path, single: bool) -> Inputs:
    """Read what `save_inputs` wrote."""
    with np.load(folder / f"{_stem(single)}.npz") as stored:
        arrays = dict(stored)
    rest = json.loads((folder / f"{_stem(single)}.json").read_text())
    return Inputs(similarity=arrays["similarity"], lengths=arrays.get("lengths"), **rest)
