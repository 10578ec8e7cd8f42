"""What triton's interpreter gets wrong and tests need: products of bfloat16 rows, which it takes from the raw bits.

The tensor cores widen bfloat16 to float32 exactly, so that is what products of bfloat16 become here. Widening loads
(`.to(tl.float32)`) are right without this; stores of bfloat16, which it rounds towards zero, no kernel does.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter

_product = interpreter.InterpreterBuilder.create_dot


def widened(handle: Any) -> Any:
    """A tensor of bfloat16 as float32, others as they are."""
    if handle.dtype.scalar != tl.bfloat16:
        return handle
    return interpreter.TensorHandle((handle.data.astype(np.uint32) << 16).view(np.float32), tl.float32)


def _create_dot(self: Any, left: Any, right: Any, *rest: Any) -> Any:
    return _product(self, widened(left), widened(right), *rest)


def install() -> None:
    """Let products of bfloat16 be right."""
    interpreter.InterpreterBuilder.create_dot = _create_dot
