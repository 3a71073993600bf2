"""The GPU kernels behind both frameworks' calls, on the CPU, beside the native kernels."""

import ctypes
import dataclasses
import importlib
from collections import namedtuple
from typing import Any

import jax
import numpy as np
import pytest
import torch
from torch._C import _dispatch_keys
from triton.runtime import interpreter

import jax_impl.alignment
import jax_impl.kernels.triton_binding as jax_calls
import torch_impl.alignment
import torch_impl.kernels.triton_binding as torch_calls
from shared.kernels import cpp
from shared.kernels.triton.kernels import KERNELS
from shared.kernels.triton.programs import TYPES, Kernel, Layout
from torch_impl.kernels import cpp_binding, exact_pairs, fused, plain_calls

# few lanes: small matrices have several strips, which the interpreter runs slowly
torch_calls.forced_layout = jax_calls.forced_layout = Layout(4, 1)
torch_calls.wrap_triton = lambda kernel: kernel  # PyTorch 2.11 wraps nothing that is interpreted

_patch_lang = interpreter._patch_lang
_patched: set[str] = set()  # names of modules


def _patch_once(function: Any) -> Any:
    """It searches the whole language at each call of a function in a kernel: once for a module is enough."""
    if function.__module__ not in _patched:
        _patch_lang(function)
        _patched.add(function.__module__)
    return interpreter._LangPatchScope()  # nothing is put back


interpreter._patch_lang = _patch_once
# whether integers overflow is computed with each sum, and then told to nobody without Triton's option debug
_builder = interpreter.interpreter_builder
_builder.options = dataclasses.replace(_builder.options, sanitize_overflow=False)


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


# of an operator, as NumPy arrays: arguments, of which values are (pairs, parameters), and results, or tangents of these
Given = namedtuple("Given", "similarity lengths values")
Derivatives = namedtuple("Derivatives", "scores d_similarity d_values")


def run(call: cpp.Call, arrays: Given, towards: tuple | None = None, operators: Any = torch_calls) -> Derivatives:
    """The kernels' gradients, or with a direction their tangents."""
    tensors, directions = (
        [torch.from_numpy(np.ascontiguousarray(array)) for array in own] for own in (arrays, towards or ())
    )
    if towards is None:
        *found, _ = operators.gradients(*tensors, [], *call, True)
    else:
        *found, _ = operators.tangents(*tensors, [], *directions, [], *call)
    return Derivatives(*(tensor.numpy() for tensor in found))


def run_native(call: cpp.Call, arrays: Given, towards: np.ndarray | None = None) -> Derivatives:
    """The derivatives by the native kernels in float64; towards: a direction of the similarity alone."""
    exact = Given(arrays.similarity.astype(float), arrays.lengths, arrays.values.astype(float))
    direction = None if towards is None else (towards.astype(float), np.zeros_like(exact.values))
    return run(call, exact, direction, cpp_binding)


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
