"""The interpreter multiplies matrices of bfloat16 as the bits of whole numbers: here they are widened first, as tensor
cores do.
"""

from __future__ import annotations

from typing import Any

try:
    import numpy as np
    import triton.language as tl
    from triton.runtime import interpreter
except ImportError:
    pass
else:
    _product = interpreter.InterpreterBuilder.create_dot

    def _widened(handle: Any) -> Any:
        if handle.dtype.scalar != tl.bfloat16:
            return handle
        return interpreter.TensorHandle((handle.data.astype(np.uint32) << 16).view(np.float32), tl.float32)

    def _create_dot(self: Any, left: Any, right: Any, *rest: Any) -> Any:
        return _product(self, _widened(left), _widened(right), *rest)

    interpreter.InterpreterBuilder.create_dot = _create_dot
