"""The GPU kernels behind both frameworks' calls, on the CPU, beside the native kernels."""

import ctypes
import dataclasses
from collections import namedtuple
from typing import Any

import gpu_programs
import jax
import numpy as np
import pytest
import torch
from triton import language as tl
from triton.language.semantic import TritonSemantic
from triton.runtime import interpreter

import jax_impl.kernels.triton_binding as jax_calls
import torch_impl.kernels.triton_binding as torch_calls
from shared.kernels import cpp
from shared.kernels.triton.kernels import KERNELS
from shared.kernels.triton.programs import TYPES, Kernel, Layout
from torch_impl.kernels import cpp_binding, exact_pairs

# few lanes: small matrices have several strips, which the interpreter runs slowly
torch_calls.forced_layout = jax_calls.forced_layout = Layout(4, 1)
torch_calls.wrap_triton = lambda kernel: kernel  # PyTorch 2.11 wraps nothing that is interpreted

# Triton's interpreter takes most of its time for what is the same at each call: it is computed once
_patch_lang, _make = interpreter._patch_lang, tl.tensor.__init__
_agree, _broadcast = TritonSemantic.binary_op_type_checking_impl, TritonSemantic.broadcast_impl_value
_patched: set[str] = set()  # names of modules
_shapes: dict[Any, tuple[Any, Any]] = {}  # shape -> the same and its size, as Triton's language has them
_numbers: dict[Any, Any] = {}  # number, and what it is combined with -> the number as a block


def _patch_once(function: Any) -> Any:
    """Patch each module once: Triton would search its whole language at each call of a function in a kernel."""
    if function.__module__ not in _patched:
        _patch_lang(function)
        _patched.add(function.__module__)
    return interpreter._LangPatchScope()  # nothing is put back


def _shape_once(self: Any, handle: Any, type: Any) -> None:
    key = tuple(type.shape) if type.is_block() else ()
    if key not in _shapes:
        _make(self, handle, type)
        _shapes[key] = self.shape, self.numel
    self.handle, self.type, self.dtype = handle, type, type.scalar
    self.shape, self.numel = _shapes[key]


def _agree_quickly(self: Any, lhs: Any, rhs: Any, *rest: Any, **options: Any) -> Any:
    """Two blocks of one type need no conversion; a number becomes the same block each time."""
    place = 0 if isinstance(lhs, tl.tensor) else 1  # of a block
    block, other = (lhs, rhs)[place], (lhs, rhs)[1 - place]
    key = None
    if isinstance(block, tl.tensor) and block.dtype in (tl.float32, tl.float64, tl.int32, tl.int64):
        if not isinstance(other, tl.tensor):
            key = repr(other), block.dtype, id(block.shape), rest, *options.items()
        elif block.shape is other.shape and block.dtype is other.dtype:
            return lhs, rhs
    if key not in _numbers:
        agreed = _agree(self, lhs, rhs, *rest, **options)
        if key is None or agreed[place] is not block:  # it is converted too
            return agreed
        _numbers[key] = agreed[1 - place]
    return (block, _numbers[key]) if place == 0 else (_numbers[key], block)


def _broadcast_quickly(self: Any, lhs: Any, rhs: Any) -> Any:
    return (lhs, rhs) if lhs.shape is rhs.shape else _broadcast(self, lhs, rhs)


interpreter._patch_lang, tl.tensor.__init__ = _patch_once, _shape_once
TritonSemantic.binary_op_type_checking_impl = _agree_quickly
TritonSemantic.broadcast_impl_value = _broadcast_quickly
# whether integers overflow is computed with each sum, and then told to nobody without Triton's option debug
_builder = interpreter.interpreter_builder
_builder.options = dataclasses.replace(_builder.options, sanitize_overflow=False)


def take_for_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Public functions take every tensor and array for one on a GPU; a kernel for CPUs that is called is an error."""

    def never(*_: Any) -> Any:
        raise AssertionError("a kernel for CPUs was called")

    gpu_programs.take_for_a_gpu(monkeypatch)
    monkeypatch.setattr(exact_pairs, "is_on_gpu", lambda _: True)
    for name in ("score", "gradients", "tangents", "best"):
        monkeypatch.setattr(cpp_binding, name, never)


# of an operator, as NumPy arrays: arguments, of which values are (pairs, parameters), and results, or tangents of these
Given = namedtuple("Given", "similarity lengths values")
Derivatives = namedtuple("Derivatives", "scores d_similarity d_values")


def run(call: cpp.Call, arrays: Given, towards: tuple | None = None, operators: Any = torch_calls) -> Derivatives:
    """The kernels' gradients, or with a direction their tangents."""
    tensors, directions = (
        [torch.from_numpy(np.ascontiguousarray(array)) for array in one] for one in (arrays, towards or ())
    )
    if towards is None:
        *results, _ = operators.gradients(*tensors, [], *call, True)
    else:
        *results, _ = operators.tangents(*tensors, [], *directions, [], *call)
    return Derivatives(*(tensor.numpy() for tensor in results))


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
    namespace: dict[str, Any] = {}
    for name, (is_buffer, value, size) in zip(names, arguments, strict=True):
        if is_buffer:
            dtype = np.dtype("int32" if name == "lengths" else TYPES.get(name, kernel.dtype))
            memory: Any = (ctypes.c_char * size).from_address(value) if size else bytearray()
            namespace[name] = torch.from_numpy(np.frombuffer(memory, dtype))
        else:
            namespace[name] = value
    function[(grid,)](**namespace, **constants, num_warps=kernel.warps)


jax_calls.interpreter = interpret
jax.config.update("jax_enable_x64", True)
