"""What triton's interpreter gets wrong of bfloat16, put right for tests.

It multiplies raw bits in products, widens numbers below 2**-126 wrongly, and rounds towards zero. On a device tensor
cores multiply and add as after widening to float32, which is exact, and rounding is to the nearest, ties to even.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter

_product = interpreter.InterpreterBuilder.create_dot
_cast = interpreter.InterpreterBuilder.cast_impl


def widened(handle: Any) -> Any:
    """A tensor of bfloat16 as float32, others as they are."""
    if handle.dtype.scalar != tl.bfloat16:
        return handle
    return interpreter.TensorHandle((handle.data.astype(np.uint32) << 16).view(np.float32), tl.float32)


def _create_dot(self: Any, left: Any, right: Any, *rest: Any) -> Any:
    return _product(self, widened(left), widened(right), *rest)


def _cast_impl(self: Any, source: Any, kind: Any) -> Any:
    if (source.dtype.scalar, kind.scalar) == (tl.bfloat16, tl.float32):
        return widened(source)
    if (source.dtype.scalar, kind.scalar) == (tl.float32, tl.bfloat16):
        bits = np.asarray(source.data, np.float32).view(np.uint32)
        rounded = (bits + (((bits >> 16) & 1) + 0x7FFF)) >> 16
        numbers = np.where(np.isnan(source.data), 0x7FC0, rounded).astype(np.uint16)
        return interpreter.TensorHandle(numbers, tl.bfloat16)
    return _cast(self, source, kind)


def install() -> None:
    """Let products and conversions of bfloat16 be right."""
    interpreter.InterpreterBuilder.create_dot = _create_dot
    interpreter.InterpreterBuilder.cast_impl = _cast_impl
