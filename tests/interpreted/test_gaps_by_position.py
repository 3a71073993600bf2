"""Gaps by position: the kernels give what the reference gives, and beside it derivatives that agree with each other."""

from typing import Any

import numpy as np
import pytest
import torch
from frameworks import ragged
from kernel_calls import SMALL

from shared import reference
from shared.kernels import cpp
from shared.kernels.triton.kernels import KERNELS
from shared.kernels.triton.programs import Program, gradients_program, score_program, tangents_program

# one option of each kind, and of an affine gap, whose turns may be either's, all of them
CASES = [
    ("smith_waterman", {"end": "any"}, ("gap",), "float64"),
    ("smith_waterman", {"end": "match"}, ("gap",), "float32"),
    ("needleman_wunsch", {}, ("gap",), "float64"),
    ("smith_waterman_affine", {"restrict_turns": True, "penalize_turns": True}, ("gap_open",), "float32"),
    ("smith_waterman_affine", {"restrict_turns": False, "penalize_turns": True}, ("gap_open", "gap_extend"), "float64"),
    ("smith_waterman_affine", {"restrict_turns": False, "penalize_turns": False}, ("gap_extend",), "float64"),
]
BUFFERS = {"gap": "gap_open", "gap_open": "gap_open", "gap_extend": "gap_extend"}


def run(program: Program, given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    buffers = {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in given.items()}
    like = buffers["similarity"]
    for name, shape in (program.results | program.scratch).items():
        buffers[name] = torch.full(shape, torch.nan, dtype=like.dtype)
    for launch in program.launches:
        arguments = [buffers[own] if isinstance(own, str) else own for own in launch.arguments]
        KERNELS[launch.kernel.name][(launch.grid,)](*arguments, **dict(launch.kernel.constants), num_warps=1)
    return {name: buffers[name].numpy() for name in program.results}


@pytest.mark.parametrize(("problem", "options", "by_position", "dtype"), CASES)
def test_first(problem: str, options: dict, by_position: tuple[str, ...], dtype: str):
    inputs = ragged(6, 5, problem=problem)
    random = np.random.default_rng(5)
    similarity, lengths = inputs.similarity, inputs.lengths
    parameters = dict(inputs.parameters)
    outside = np.isnan(similarity) | np.isinf(similarity)
    for name in by_position:
        parameters[name] = np.where(outside, np.nan, random.normal(size=similarity.shape)).astype("float32").astype(float)
    call = cpp.call_of(problem, options, by_position)
    values = np.stack([np.full(6, np.nan) if n in by_position else v for n, v in parameters.items()], -1)
    given = {"similarity": similarity.astype(dtype), "lengths": lengths, "values": values.astype(dtype)}
    given |= {BUFFERS[name]: parameters[name].astype(dtype) for name in by_position}
    shape = similarity.shape
    strides = (30, 5)
    score = run(score_program(call, dtype, shape, strides, True, SMALL), given)["scores"]
    wanted = getattr(reference, problem)(similarity, lengths, **parameters, **options)
    tol = 1e-12 if dtype == "float64" else 2e-5
    np.testing.assert_allclose(score, wanted, rtol=tol, atol=tol)
    found = run(gradients_program(call, dtype, shape, strides, True, SMALL, True), given)
    np.testing.assert_array_equal(found["scores"], score)
    own = reference.gradients(problem, similarity, lengths, **parameters, **options)
    np.testing.assert_allclose(found["d_similarity"], own["similarity"], rtol=tol, atol=tol)
    for k, name in enumerate(parameters):
        if name in by_position:
            np.testing.assert_allclose(found[f"d_{BUFFERS[name]}"], own[name], rtol=tol, atol=tol)
            assert not found["d_values"][:, k].any()
        else:
            np.testing.assert_allclose(found["d_values"][:, k], own[name], rtol=tol, atol=tol)
    # tangents
    towards = {f"t_{name}": random.normal(size=given[name].shape).astype(dtype) for name in given if name != "lengths"}
    for name in towards:
        if name != "t_values":
            towards[name] = np.where(outside, np.nan, towards[name])
    tangents = run(tangents_program(call, dtype, shape, (*strides, *strides), True, SMALL), given | towards)
    if dtype == "float32":
        return
    eps = 1e-5
    def moved(sign):
        g = {n: a if n == "lengths" else a + sign * eps * towards[f"t_{n}"] for n, a in given.items()}
        return run(gradients_program(call, dtype, shape, strides, True, SMALL, True), g)
    up, down = moved(1), moved(-1)
    for name in tangents:
        np.testing.assert_allclose(tangents[name], (up[name] - down[name]) / (2 * eps), rtol=1e-6, atol=1e-7, err_msg=name)
