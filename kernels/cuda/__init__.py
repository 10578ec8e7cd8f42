"""CUDA C++ twins of the ops: launchers over a shared library with a C interface (include/prismem/cuda.h).

Importing this needs neither a driver nor a library of arrays; the shared library is loaded by the first call.
"""

from prismem_core.kernels.cuda.launchers import (
    mmr_select,
    row_scales,
    segment_max_similarity,
    segment_mean,
    similarity,
    top_k,
    top_k_merge,
)
from prismem_core.kernels.cuda.library import DeviceMemoryError, KernelError, architectures, available, is_emulator

__all__ = [
    "DeviceMemoryError",
    "KernelError",
    "architectures",
    "available",
    "is_emulator",
    "mmr_select",
    "row_scales",
    "segment_max_similarity",
    "segment_mean",
    "similarity",
    "top_k",
    "top_k_merge",
]
