"""Makes Triton's interpreter quicker: over half of its time it does for a value what is the same for all of a type.

What a kernel computes is left alone. Importing this is enough.
"""

import dataclasses
from typing import Any

import triton.language as tl
from triton.language.semantic import TritonSemantic
from triton.runtime import interpreter

_patch_lang, _get_np_dtype = interpreter._patch_lang, interpreter._get_np_dtype
_describe, _make = tl.block_type.__init__, tl.tensor.__init__
_agree, _broadcast = TritonSemantic.binary_op_type_checking_impl, TritonSemantic.broadcast_impl_value
_patched: set[str] = set()  # names of modules
_numpy_types: dict[str, Any] = {}  # name of a scalar type -> NumPy's
_described: dict[Any, dict[str, Any]] = {}  # name of a scalar type, shape -> what a type of blocks knows
_shapes: dict[Any, tuple[Any, Any]] = {}  # shape -> the same and its size, as Triton's language has them
_numbers: dict[Any, Any] = {}  # number, and what it is combined with -> the number as a block


def _patch_once(function: Any) -> Any:
    """It searches the whole language at each call of a function in a kernel: once for a module is enough."""
    if function.__module__ not in _patched:
        _patch_lang(function)
        _patched.add(function.__module__)
    return interpreter._LangPatchScope()  # nothing is put back


def _numpy_type(dtype: Any) -> Any:
    key = str(dtype.scalar)
    if key not in _numpy_types:
        _numpy_types[key] = _get_np_dtype(dtype)
    return _numpy_types[key]


def _describe_once(self: Any, element_ty: Any, shape: Any) -> None:
    key = str(element_ty), *(getattr(size, "value", size) for size in shape)
    if key not in _described:
        _describe(self, element_ty, shape)
        _described[key] = dict(self.__dict__)
    self.__dict__.update(_described[key])


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
    if isinstance(block, tl.tensor) and block.dtype in _PLAIN:
        if not isinstance(other, tl.tensor):
            key = repr(other), block.dtype, id(block.shape), rest, *options.items()
        elif block.shape is other.shape and block.dtype is other.dtype:
            return lhs, rhs
    if key not in _numbers:
        found = _agree(self, lhs, rhs, *rest, **options)
        if key is None or found[place] is not block:  # it is converted too
            return found
        _numbers[key] = found[1 - place]
    return (block, _numbers[key]) if place == 0 else (_numbers[key], block)


def _broadcast_quickly(self: Any, lhs: Any, rhs: Any) -> Any:
    return (lhs, rhs) if lhs.shape is rhs.shape else _broadcast(self, lhs, rhs)


_PLAIN = (tl.float32, tl.float64, tl.int32, tl.int64)
TritonSemantic.binary_op_type_checking_impl = _agree_quickly
TritonSemantic.broadcast_impl_value = _broadcast_quickly
interpreter._patch_lang, interpreter._get_np_dtype = _patch_once, _numpy_type
tl.block_type.__init__, tl.tensor.__init__ = _describe_once, _shape_once
# whether integers overflow is computed with each sum, and then told to nobody without Triton's option debug
_builder = interpreter.interpreter_builder
assert not _builder.options.debug
_builder.options = dataclasses.replace(_builder.options, sanitize_overflow=False)
