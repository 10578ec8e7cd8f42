"""Ops over arrays on a device: which backend can serve them, and how an implementation is handed its arrays."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismem_core.arrays import Place, Rows
from prismem_core.arrays.device import Device, TorchDevice, device_of, torch_views
from prismem_core.arrays.foreign import own_library
from prismem_core.errors import ArgumentError, NoImplementation
from prismem_core.ops.segments import Segments

BACKENDS = ("triton", "cuda")
"""Backends whose kernels run on a device."""

_PREFERRED: dict[str, tuple[str, ...]] = {"mmr_select": ("cuda", "triton")}
_NOTHING_FOUND = np.iinfo(np.int64).max
_interpreter = threading.Lock()
_holder: int | None = None  # the process that first launched on a device


def preferred(op: str) -> tuple[str, ...]:
    """Backends for an op over arrays on a device, the one to take first in front."""
    return _PREFERRED.get(op, BACKENDS)


def why_not(backend: str, place: Place) -> str | None:
    """Why a backend cannot serve arrays at `place`, with what to do; None where it can."""
    return _why_not_triton(place) if backend == "triton" else _why_not_cuda(place)


def _why_not_triton(place: Place) -> str | None:
    if importlib.util.find_spec("triton") is None:
        return "triton is not installed (pip install 'prismem-core[gpu]')"
    if importlib.util.find_spec("torch") is None:
        return "torch is not installed, whose tensors and streams triton needs (pip install 'prismem-core[gpu]')"
    if place.device == "cpu" and os.environ.get("TRITON_INTERPRET", "0") != "1":
        return "the arrays are on the CPU, where Triton kernels run in triton's interpreter only (TRITON_INTERPRET=1)"
    return None


def _why_not_cuda(place: Place) -> str | None:
    try:
        library = importlib.import_module("prismem_core.kernels.cuda")
    except ImportError as error:
        return f"the launchers of the CUDA library cannot be imported ({error})"
    usable, reason = library.available()
    emulator = bool(library.is_emulator())
    if place.device == "cpu" and not emulator:
        if not usable and "PRISMEM_CUDA_LIBRARY" in os.environ:
            return str(reason)
        return "the arrays are on the CPU, where CUDA kernels run in the emulator only (PRISMEM_CUDA_LIBRARY)"
    if place.device != "cpu" and emulator:
        return "PRISMEM_CUDA_LIBRARY names the emulator, which reads arrays on the CPU only"
    return None if usable else str(reason)


class HostArray:
    """An array of the host that stays one, such as the offsets of segments."""

    __slots__ = ("values",)

    def __init__(self, values: NDArray[Any] | None) -> None:
        self.values = values


def _refuse_bits(arguments: Sequence[Any]) -> None:
    """NoImplementation for bfloat16 in an interpreter that would multiply the bits as whole numbers."""
    if any(isinstance(argument, Rows) and argument.kind == "bfloat16" for argument in arguments):
        builder = importlib.import_module("triton.runtime.interpreter").InterpreterBuilder
        if builder.create_dot.__module__.startswith("triton."):
            raise NoImplementation(
                "triton's interpreter multiplies the bits of bfloat16 as whole numbers; pass float32 or float16 rows "
                "there, or arrays on a GPU"
            )


def hosted(segments: Segments | None) -> tuple[HostArray, HostArray]:
    """Ranges and groups of segments, which launchers read on the host."""
    if segments is None:
        return HostArray(None), HostArray(None)
    return HostArray(segments.ranges), HostArray(segments.groups)


@dataclass(frozen=True)
class Launcher:
    """An implementation of an op for arrays at `place`: `function(*arrays, device=...)` takes tensors of torch under
    Triton, arrays of the caller's library under CUDA, and launches without waiting for the device.
    """

    backend: str
    place: Place
    function: Callable[..., None]

    def with_codes(self) -> Launcher:
        """The launcher of a search through certified codes in place of plain `top_k`."""
        return replace(self, function=importlib.import_module("prismem_core.kernels.triton.codes").search)

    def __post_init__(self) -> None:
        if self.place.device != "cpu":
            hold_device()

    @property
    def device(self) -> Device:
        """Where results are allocated."""
        return device_of(self.place)

    def flag(self, raises: bool) -> Any:
        """A cell that kernels lower to row * n + key for pairs without a finite score; None where nobody asks."""
        if not raises:
            return None
        if self.place.device != "cpu" and _is_capturing(self.place):
            raise ArgumentError(
                'nonfinite: "raise" waits for the device, which the capture of a CUDA graph forbids; pass '
                'nonfinite="skip"'
            )
        return self.device.full((1,), "int64", _NOTHING_FOUND)

    def __call__(self, *arguments: Any) -> None:
        """Launch with arrays, `Rows` and plain values in the order of the implementation's arguments."""
        values = [argument.data if isinstance(argument, Rows) else argument for argument in arguments]
        hosted = [value.values if isinstance(value, HostArray) else value for value in values]
        if self.backend != "triton":
            self.function(*hosted, device=self.device)
            return
        places = [position for position, value in enumerate(values) if hasattr(value, "shape")]
        if self.place.device == "cpu":
            _refuse_bits(arguments)
        # The interpreter keeps the place in a grid in one variable for all threads.
        turn = _interpreter if self.place.device == "cpu" else contextlib.nullcontext()
        with turn, torch_views(self.place, *(values[position] for position in places)) as tensors:
            for position, tensor in zip(places, tensors, strict=True):
                hosted[position] = tensor
            self.function(*hosted, device=_torch_device(self.place))


def encoded(rows: Rows, bits: int, normalize: bool, place: Place) -> Any:
    """Certified codes of rows on a device, None for dimensions that have none (`kernels/triton/codes.py`)."""
    codes = importlib.import_module("prismem_core.kernels.triton.codes")
    if not codes.supports(rows.dim):
        return None
    with torch_views(place, rows.data) as (tensor,):
        return codes.encode(tensor, bits, normalize=normalize, device=_torch_device(place))


def _torch_device(place: Place) -> TorchDevice:
    """Where Triton's scratch comes from, whatever library the arrays are of."""
    return TorchDevice(Place("torch", place.device, place.index))


def hold_device() -> None:
    """Note that this process uses a device; NoImplementation in a child that was forked after its parent did.

    A driver's state does not survive a fork: without this the child would hang or fail with an error of the driver.
    """
    global _holder
    if _holder is None:
        _holder = os.getpid()
    elif _holder != os.getpid():
        raise NoImplementation(
            f"process {os.getpid()} was forked from process {_holder}, which holds a CUDA device, and cannot use it; "
            'start processes with multiprocessing.get_context("spawn"), or fork before the first use of a device'
        )


def _is_capturing(place: Place) -> bool:
    if own_library(place) == "cupy":
        stream = importlib.import_module("cupy").cuda.get_current_stream(place.index)
        return bool(stream.is_capturing())
    torch = importlib.import_module("torch")
    with torch.cuda.device(place.index):
        return bool(torch.cuda.is_current_stream_capturing())


def flagged(flag: Any, num_keys: int) -> tuple[int, int]:
    """The first (row, key) without a finite score, or (-1, -1); waits for the device."""
    if flag is None:
        return -1, -1
    place = int(flag.item())
    return (-1, -1) if place == _NOTHING_FOUND else divmod(place, num_keys)


def cut(place: Place, counts: Any, *arrays: Any) -> Sequence[Any]:
    """Columns that no row uses are cut on the CPU; on a device that would wait for it, and they stay."""
    if place.device != "cpu":
        return arrays
    used = int(np.asarray(counts).max(initial=0)) if len(counts) else int(arrays[0].shape[1])
    return [array[:, :used] for array in arrays]
