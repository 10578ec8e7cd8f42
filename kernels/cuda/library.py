"""The shared library of CUDA kernels, beside this file or named by PRISMEM_CUDA_LIBRARY; loaded when it is needed."""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
from pathlib import Path
from typing import Any

from prismem_core.errors import ArgumentError, NoImplementation, PrismemError

FILE_NAME = "libprismem_cuda.so"
ENVIRONMENT = "PRISMEM_CUDA_LIBRARY"
KINDS = {"float32": 0, "float16": 1, "bfloat16": 2, "uint16": 2}
"""Kinds of rows in the C interface; uint16 holds the bits of bfloat16."""

OPS = {"top_k": 0, "segment_max_similarity": 1, "similarity": 2, "mmr_select": 3}
PATHS = {"auto": 0, "rows": 1, "rows_batch": 2, "tiles_small": 3, "tiles": 4, "pool": 5, "steps": 6}
"""Ways in which the kernels can run a call; what they are is said in cuda.h."""


class DeviceMemoryError(PrismemError, MemoryError):
    """A device has too little memory left for a kernel."""


class KernelError(PrismemError, RuntimeError):
    """A kernel could not be launched, or an earlier one on the device has failed."""


class RowsStruct(ctypes.Structure):
    """prismem_cuda_rows."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("count", ctypes.c_int64),
        ("dim", ctypes.c_int64),
        ("stride", ctypes.c_int64),
        ("kind", ctypes.c_int32),
        ("powers", ctypes.c_void_p),
        ("inverses", ctypes.c_void_p),
    )


class SearchStruct(ctypes.Structure):
    """prismem_cuda_search."""

    _fields_ = (
        ("queries", RowsStruct),
        ("keys", RowsStruct),
        ("ranges", ctypes.c_void_p),
        ("segments", ctypes.c_int64),
        ("groups", ctypes.c_void_p),
        ("mask", ctypes.c_void_p),
        ("mask_query_stride", ctypes.c_int64),
        ("mask_key_stride", ctypes.c_int64),
        ("k", ctypes.c_int64),
        ("normalize", ctypes.c_int32),
        ("has_least", ctypes.c_int32),
        ("least", ctypes.c_float),
        ("device", ctypes.c_int32),
        ("flag", ctypes.c_void_p),
        ("stream", ctypes.c_void_p),
    )


class PlanStruct(ctypes.Structure):
    """prismem_cuda_plan."""

    _fields_ = (
        ("path", ctypes.c_int32),
        ("block_queries", ctypes.c_int32),
        ("span", ctypes.c_int64),
        ("items", ctypes.c_int64),
        ("splits", ctypes.c_int64),
        ("lists", ctypes.c_int64),
        ("longest", ctypes.c_int64),
        ("width", ctypes.c_int64),
        ("table_length", ctypes.c_int64),
        ("workspace_bytes", ctypes.c_int64),
    )


_POINTER, _INT64, _INT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int
_SEARCH, _PLAN = ctypes.POINTER(SearchStruct), ctypes.POINTER(PlanStruct)
SIGNATURES: dict[str, tuple[Any, ...]] = {
    "available": (_INT,),
    "device_count": (),
    "is_emulator": (),
    "plan_search": (_SEARCH, _INT, _PLAN),
    "fill_table": (_SEARCH, _PLAN, _POINTER),
    "row_scales": (ctypes.POINTER(RowsStruct), _POINTER, _POINTER, _INT, _POINTER),
    "top_k": (_SEARCH, _PLAN, _POINTER, _POINTER, _POINTER, _POINTER, _POINTER),
    "top_k_merge": (*(_POINTER,) * 2, *(_INT64,) * 4, *(_POINTER,) * 3, _INT, _POINTER),
    "segment_max_similarity": (_SEARCH, _PLAN, _POINTER, _POINTER, _POINTER, _POINTER),
    "similarity": (_SEARCH, _PLAN, _POINTER, _POINTER, _POINTER),
    "mmr_select": (_SEARCH, _PLAN, ctypes.c_double, *(_POINTER,) * 5),
    "segment_mean": (_POINTER, _INT, _POINTER, _INT64, _POINTER, _INT, _POINTER),
}
"""Arguments of each function of the C interface, by its name without the prefix."""


def path() -> Path:
    """Where the library is looked for."""
    named = os.environ.get(ENVIRONMENT)
    if named:
        return Path(named)
    # The importer knows where an editable installation keeps what was built; the file is found, not imported.
    found = importlib.util.find_spec(f"{__package__}.{FILE_NAME.removesuffix('.so')}")
    return Path(found.origin) if found is not None and found.origin else Path(__file__).parent / FILE_NAME


def library() -> ctypes.CDLL:
    """The loaded library; NoImplementation, saying how to get one, where there is none."""
    return _loaded(str(path()))


@functools.cache
def _loaded(name: str) -> ctypes.CDLL:
    if not Path(name).is_file():
        raise NoImplementation(
            f"the CUDA kernels are not built: there is no {name}; install the package with nvcc in PATH and "
            f"-C cmake.define.PRISMEM_CUDA=ON, or set {ENVIRONMENT} to a {FILE_NAME}"
        )
    try:
        loaded = ctypes.CDLL(name)
        for function, arguments in SIGNATURES.items():
            getattr(loaded, f"prismem_cuda_{function}").argtypes = arguments
        for text in ("message", "architectures"):
            getattr(loaded, f"prismem_cuda_{text}").restype = ctypes.c_char_p
    except (OSError, AttributeError) as error:
        raise NoImplementation(
            f"the CUDA kernels in {name} cannot be loaded ({error}); install the package again"
        ) from error
    return loaded


def message() -> str:
    """What the library says of the last failure in this thread."""
    return (library().prismem_cuda_message() or b"").decode()


def architectures() -> str:
    """The GPU architectures that the library holds code for, or "emulator"."""
    return (library().prismem_cuda_architectures() or b"").decode()


def is_emulator() -> bool:
    """Whether the library runs its kernels on the CPU, over arrays there; False where there is no library."""
    try:
        return bool(library().prismem_cuda_is_emulator())
    except NoImplementation:
        return False


def call(function: str, *arguments: Any) -> None:
    """Call a function that returns a code, and raise the error that the code stands for."""
    code = getattr(library(), f"prismem_cuda_{function}")(*arguments)
    if code == 0:
        return
    text = f"{function} on CUDA: {message()}"
    if code == 1:
        raise ArgumentError(text)
    if code in (2, 3):
        raise NoImplementation(text)
    raise DeviceMemoryError(text) if code == 4 else KernelError(text)


def available(device: int = 0) -> tuple[bool, str]:
    """Whether the kernels can run on `device`, and one sentence on why or why not."""
    try:
        call("available", device)
    except PrismemError as error:
        return False, str(error)
    return True, f"{path()} for {architectures()}"
