"""Kernels of Triton run in its interpreter here, on the CPU; a test is skipped, saying why, where triton or torch is missing."""

from __future__ import annotations

import os

os.environ.setdefault("TRITON_INTERPRET", "1")

try:
    import numpy as np
    import triton.language as tl
    from triton.runtime import interpreter
except ImportError:
    pass
else:
    _product = interpreter.InterpreterBuilder.create_dot

    def _widened(handle):
        if handle.dtype.scalar != tl.bfloat16:
            return handle
        return interpreter.TensorHandle((handle.data.astype(np.uint32) << 16).view(np.float32), tl.float32)

    def _create_dot(self, left, right, *rest):
        return _product(self, _widened(left), _widened(right), *rest)

    interpreter.InterpreterBuilder.create_dot = _create_dot
