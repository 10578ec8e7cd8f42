"""Triton kernels run in the interpreter here: triton looks at the setting when a kernel is defined, so it comes first.

Tests of machine code compile in processes of their own, without it.
"""

from __future__ import annotations

import importlib.util
import os

if importlib.util.find_spec("triton") is not None:
    os.environ["TRITON_INTERPRET"] = "1"
