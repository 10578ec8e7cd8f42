"""Arrays on a device, as launchers of kernels see them: where memory for results comes from, and on which stream.

Nothing here is imported before an array of a device is met.
"""

from __future__ import annotations

import importlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from prismem_core.arrays.foreign import dtype_name, element_strides, own_library, torch_stream
from prismem_core.arrays.places import Place
from prismem_core.errors import ArgumentError


class Device(Protocol):
    """One device and the caller's current stream on it; makes arrays of the caller's library.

    `stream` is the raw handle (0 for the default stream and on the CPU).
    """

    index: int
    stream: int

    def empty(self, shape: tuple[int, ...], dtype: str) -> Any:
        """An array without values; `dtype` is a name of numpy's."""
        ...

    def full(self, shape: tuple[int, ...], dtype: str, value: float) -> Any:
        """An array of one value."""
        ...

    def upload(self, values: NDArray[Any]) -> Any:
        """A copy of an array of the host, which nobody writes to: equal tables may share it."""
        ...


_Key = tuple[Hashable, tuple[int, ...], str, bytes]


class _Tables:
    """Copies of small tables on devices, by content.

    A launch of the same shape needs the same table again; and while a CUDA graph is captured nothing can be copied from
    the host, so a captured call takes what the same call before it left here. That stays for good, since the graph
    reads it whenever it is replayed.
    """

    LARGEST = 1 << 20
    MOST = 1 << 26
    """Bytes of one table, and of all that no graph reads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._recent: OrderedDict[_Key, Any] = OrderedDict()
        self._bytes = 0
        self._captured: dict[_Key, Any] = {}

    def copy(self, where: Hashable, values: NDArray[Any], upload: Callable[[], Any], capturing: bool) -> Any:
        """The copy of `values` at `where`, made by `upload` unless there is one."""
        if values.nbytes > self.LARGEST and not capturing:
            return upload()
        key = (where, values.shape, values.dtype.str, values.tobytes())
        with self._lock:
            found = self._captured.get(key, self._recent.get(key))
            if found is not None:
                if capturing:
                    self._captured[key] = found
                elif key in self._recent:
                    self._recent.move_to_end(key)
                return found
        if capturing:
            raise ArgumentError(
                "a table of this call cannot be copied while a CUDA graph is captured; make the same call once before "
                f"the capture (tables of segments may have {self.LARGEST} bytes then)"
            )
        made = upload()
        with self._lock:
            if key not in self._recent:
                self._bytes += values.nbytes
            self._recent[key] = made
            while self._bytes > self.MOST:
                (_, shape, dtype, _), _ = self._recent.popitem(last=False)
                self._bytes -= int(np.prod(shape)) * np.dtype(dtype).itemsize
        return made


_tables = _Tables()


class TorchDevice:
    """Memory from torch, on its current stream."""

    def __init__(self, place: Place) -> None:
        self._torch = importlib.import_module("torch")
        self.index = place.index
        self._device = self._torch.device("cpu") if place.device == "cpu" else self._torch.device("cuda", place.index)
        self.stream = 0 if place.device == "cpu" else int(self._torch.cuda.current_stream(self._device).cuda_stream)

    def empty(self, shape: tuple[int, ...], dtype: str) -> Any:
        return self._torch.empty(shape, dtype=getattr(self._torch, dtype), device=self._device)

    def full(self, shape: tuple[int, ...], dtype: str, value: float) -> Any:
        return self._torch.full(shape, value, dtype=getattr(self._torch, dtype), device=self._device)

    def upload(self, values: NDArray[Any]) -> Any:
        plain = np.ascontiguousarray(values)
        if self._device.type == "cpu":
            return self._torch.from_numpy(plain)
        with self._torch.cuda.device(self._device):
            capturing = bool(self._torch.cuda.is_current_stream_capturing())
        table = _tables.copy(
            ("torch", self.index),
            plain,
            # The copy from pageable memory is on the device when this returns, whatever stream reads it later.
            lambda: self._torch.from_numpy(plain).to(self._device),
            capturing,
        )
        if not capturing:
            # The memory is not given to others before what is now on this stream has read it, should the table go.
            table.record_stream(self._torch.cuda.current_stream(self._device))
        return table


class CupyDevice:
    """Memory from cupy, on its current stream."""

    def __init__(self, place: Place) -> None:
        self._cupy = importlib.import_module("cupy")
        self.index = place.index
        self.stream = int(self._cupy.cuda.get_current_stream(place.index).ptr)

    def empty(self, shape: tuple[int, ...], dtype: str) -> Any:
        with self._cupy.cuda.Device(self.index):
            return self._cupy.empty(shape, np.dtype(dtype))

    def full(self, shape: tuple[int, ...], dtype: str, value: float) -> Any:
        with self._cupy.cuda.Device(self.index):
            return self._cupy.full(shape, value, np.dtype(dtype))

    def upload(self, values: NDArray[Any]) -> Any:
        with self._cupy.cuda.Device(self.index):
            return self._cupy.asarray(np.ascontiguousarray(values))


class HostDevice:
    """Memory of numpy, for kernels that an emulator executes."""

    index = 0
    stream = 0

    def empty(self, shape: tuple[int, ...], dtype: str) -> Any:
        return np.empty(shape, np.dtype(dtype))

    def full(self, shape: tuple[int, ...], dtype: str, value: float) -> Any:
        return np.full(shape, value, np.dtype(dtype))

    def upload(self, values: NDArray[Any]) -> Any:
        return np.ascontiguousarray(values)


def device_of(place: Place) -> Device:
    """The device of arrays at `place`."""
    if place.device == "cpu":
        return TorchDevice(place) if place.library == "torch" else HostDevice()
    return TorchDevice(place) if own_library(place) == "torch" else CupyDevice(place)


@dataclass(frozen=True, slots=True)
class DeviceView:
    """An array as a kernel that takes pointers sees it: strides in elements, `kind` a name of numpy's or "bfloat16".

    `owner` keeps the memory alive.
    """

    pointer: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    kind: str
    owner: Any


def view_of(array: Any) -> DeviceView:
    """The view of an array of numpy, torch or cupy."""
    if hasattr(array, "data_ptr"):
        pointer = int(array.data_ptr())
    else:
        pointer = int(array.ctypes.data) if isinstance(array, np.ndarray) else int(array.data.ptr)
    kind = dtype_name(array)
    return DeviceView(
        pointer, tuple(array.shape), element_strides(array), "bfloat16" if kind == "uint16" else kind, array
    )


@contextmanager
def torch_views(place: Place, *arrays: Any) -> Iterator[tuple[Any, ...]]:
    """The same memory as torch tensors, with torch's current stream set to that of the arrays' library; None stays.

    Kernels of Triton take tensors of torch and run on torch's current stream. Bits of bfloat16 become bfloat16.
    """
    torch = importlib.import_module("torch")

    def tensor(array: Any) -> Any:
        if array is None or hasattr(array, "data_ptr"):
            made = array
        elif isinstance(array, np.ndarray):
            made = torch.from_numpy(np.ascontiguousarray(array) if min(array.strides, default=0) < 0 else array)
        else:
            made = torch.from_dlpack(array)
        return made.view(torch.bfloat16) if made is not None and made.dtype == torch.uint16 else made

    if place.device == "cpu" or own_library(place) == "torch":
        yield tuple(tensor(array) for array in arrays)
        return
    stream = torch_stream(torch, CupyDevice(place).stream, place.index)
    with torch.cuda.device(place.index), torch.cuda.stream(stream):
        yield tuple(tensor(array) for array in arrays)
