"""The GPU kernels behind both frameworks' calls, on the CPU; and what a pair of arrays is compared by."""

import ctypes
import importlib
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import quick_interpreter  # noqa: F401 - it is imported for what it does
import torch
from frameworks import PROBLEMS, Inputs
from torch._C import _dispatch_keys

import jax_impl.alignment
import jax_impl.kernels.triton_binding as jax_calls
import torch_impl.alignment
import torch_impl.kernels.triton_binding as torch_calls
from shared.kernels import cpp
from shared.kernels.triton.kernels import KERNELS
from shared.kernels.triton.programs import TYPES, Kernel, Layout
from torch_impl.kernels import cpp_binding, exact_pairs, fused, plain_calls

# few lanes: small matrices have several strips, which the interpreter runs slowly
SMALL = Layout(4, 1)
EVERY = [(problem, options) for problem, (_, every) in PROBLEMS.items() for options in every]
DEFAULT = EVERY[0], EVERY[5]  # in the default tier: a linear and an affine recurrence

torch_calls.forced_layout = jax_calls.forced_layout = SMALL
torch_calls.wrap_triton = lambda kernel: kernel  # PyTorch 2.11 wraps nothing that is interpreted


def take_for_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Public functions take every tensor and array for one on a GPU; a kernel for CPUs that is called is an error."""

    def never(*_: Any) -> Any:
        raise AssertionError("a kernel for CPUs was called")

    # functions of the packages have the names of these modules
    jax_best, torch_best = (importlib.import_module(f"{name}_impl.best_alignment") for name in ("jax", "torch"))
    for module in (fused, torch_impl.alignment, torch_best, exact_pairs):
        monkeypatch.setattr(module, "is_on_gpu", lambda similarity: isinstance(similarity, torch.Tensor))
    for keys in ("_KEYS", "_KEYS_IN_INFERENCE_MODE"):  # no tensor is an ordinary one in this machine's memory
        monkeypatch.setattr(plain_calls, keys, _dispatch_keys(torch.empty(0, device="meta")))
    for name in ("score", "gradients", "tangents", "best"):
        monkeypatch.setattr(cpp_binding, name, never)
    for module in (jax_impl.alignment, jax_best):
        monkeypatch.setattr(module, "platform_of", lambda _: "cuda")


class Derivatives(NamedTuple):
    """Scores, and their derivatives; or the tangents of all three."""

    scores: np.ndarray
    d_similarity: np.ndarray
    d_values: np.ndarray


class Given(NamedTuple):
    """The arguments of an operator, as NumPy arrays."""

    similarity: np.ndarray
    lengths: np.ndarray
    values: np.ndarray  # (pairs, parameters)


def given(inputs: Inputs, dtype: str) -> Given:
    """The arrays of a ragged batch with parameters for each pair."""
    assert inputs.lengths is not None
    values = np.stack([np.broadcast_to(value, len(inputs.similarity)) for value in inputs.parameters.values()], -1)
    return Given(inputs.similarity.astype(dtype), inputs.lengths, values.astype(dtype))


def some(arrays: Given, *pairs: int) -> Given:
    """Some pairs of a batch: the interpreter takes them one after the other."""
    return Given(*(array[list(pairs)] for array in arrays))


def direction(arrays: Given, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A direction to go in, with poison where there is no cell."""
    random = np.random.default_rng(seed)
    similarity, lengths, values = arrays
    i, j = np.indices(similarity.shape[1:])
    outside = (i >= lengths[:, :1, None]) | (j >= lengths[:, 1:, None])
    own = np.where(outside, np.nan, random.normal(size=similarity.shape))
    return own.astype(similarity.dtype), random.normal(size=values.shape).astype(values.dtype)


def run(
    framework: str, call: cpp.Call, arrays: Given, towards: tuple | None = None, with_values: bool = True
) -> Derivatives:
    """The kernels' gradients, or with a direction their tangents, by a framework's calls."""
    if framework == "torch":
        return _torch_run(torch_calls, call, arrays, towards, with_values)
    similarity, lengths, values = (jnp.asarray(array) for array in arrays)
    parameters = tuple(values.T)
    if towards is None:
        found = jax_calls.gradients(call, with_values, similarity, lengths, parameters)
    else:
        t_similarity, t_values = (jnp.asarray(array) for array in towards)
        found = jax_calls.tangents(call, similarity, lengths, parameters, t_similarity, tuple(t_values.T))
    scores, d_similarity, rest = found
    return Derivatives(np.asarray(scores), np.asarray(d_similarity), np.stack([np.asarray(part) for part in rest], -1))


def run_native(call: cpp.Call, arrays: Given, towards: tuple | None = None) -> Derivatives:
    """The derivatives by the native kernels."""
    return _torch_run(cpp_binding, call, arrays, towards, True)


def _torch_run(operators: Any, call: cpp.Call, arrays: Given, towards: tuple | None, with_values: bool) -> Derivatives:
    tensors, directions = (
        [torch.from_numpy(np.ascontiguousarray(array)) for array in own] for own in (arrays, towards or ())
    )
    if towards is None:
        *found, _ = operators.gradients(*tensors, [], *call, with_values)
    else:
        *found, _ = operators.tangents(*tensors, [], *directions, [], *call)
    return Derivatives(*(tensor.numpy() for tensor in found))


def interpret(kernel: Kernel, grid: int, arguments: list[tuple[bool, int, int]]) -> None:
    """Run a kernel on memory that is given by address and size in bytes: what the C++ of JAX calls in place of CUDA."""
    function = KERNELS[kernel.name]
    constants = dict(kernel.constants)
    names = [name for name in function.arg_names if name not in constants]
    own: dict[str, Any] = {}
    for name, (is_buffer, value, size) in zip(names, arguments, strict=True):
        if is_buffer:
            dtype = np.dtype("int32" if name == "lengths" else TYPES.get(name, kernel.dtype))
            memory: Any = (ctypes.c_char * size).from_address(value) if size else bytearray()
            own[name] = torch.from_numpy(np.frombuffer(memory, dtype))
        else:
            own[name] = value
    function[(grid,)](**own, **constants, num_warps=kernel.warps)


jax_calls.interpreter = interpret
jax.config.update("jax_enable_x64", True)
