"""Arrays on a device, as launchers of kernels see them: where memory for results comes from, and on which stream.

Nothing here is imported before an array of a device is met, and no library that the caller has not imported.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from prismem_core.arrays.places import Place
from prismem_core.errors import NoImplementation


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
        """A copy of an array of the host."""
        ...


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
        # The copy from pageable memory is finished with `values` when it returns.
        return self._torch.from_numpy(np.ascontiguousarray(values)).to(self._device)


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
    if place.library == "torch":
        return TorchDevice(place)
    if place.library == "cupy":
        return CupyDevice(place)
    if place.device == "cpu":
        return HostDevice()
    raise NoImplementation(f"{place}: results on this device need torch or cupy; install one of them")


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
    library = type(array).__module__.split(".")[0]
    if library == "torch":
        kind = str(array.dtype).removeprefix("torch.")
        return DeviceView(int(array.data_ptr()), tuple(array.shape), tuple(array.stride()), kind, array)
    pointer = int(array.data.ptr) if library == "cupy" else int(array.ctypes.data)
    strides = tuple(stride // array.itemsize for stride in array.strides)
    return DeviceView(pointer, tuple(array.shape), strides, array.dtype.name, array)


@contextmanager
def torch_views(place: Place, *arrays: Any) -> Iterator[tuple[Any, ...]]:
    """The same memory as torch tensors, with torch's current stream set to that of the arrays' library; None stays.

    Kernels of Triton take tensors of torch and run on torch's current stream.
    """
    if place.library == "torch":
        yield arrays
        return
    torch = importlib.import_module("torch")
    if place.device == "cpu":
        yield tuple(array if array is None else torch.from_numpy(array) for array in arrays)
        return
    stream = torch.cuda.ExternalStream(device_of(place).stream, device=place.index)
    with torch.cuda.device(place.index), torch.cuda.stream(stream):
        yield tuple(array if array is None else torch.from_dlpack(array) for array in arrays)
