"""Arrays that say they are on a device, for tests without one: their memory is numpy's.

`install` puts libraries named torch and cupy into sys.modules that adopt them as the real ones would.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

KINDS = {np.dtype(np.uint16): "uint16"}


class DeviceArray:
    """What all of them share: a shape, a dtype, and a place that DLPack names."""

    library = ""

    def __init__(self, values: Any, device: tuple[int, int] = (2, 0), kind: str | None = None) -> None:
        self.values = np.asarray(values)
        self.device_of_dlpack = device
        self.shape = self.values.shape
        self.ndim = self.values.ndim
        self.itemsize = self.values.itemsize
        self.dtype: Any = kind or self.values.dtype.name

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device_of_dlpack

    def __dlpack__(self, **options: Any) -> Any:
        return self.values

    def __len__(self) -> int:
        return len(self.values)


class CupyArray(DeviceArray):
    """As cupy.ndarray: strides in bytes, `get` copies to the host."""

    @property
    def strides(self) -> tuple[int, ...]:
        return self.values.strides

    def get(self) -> np.ndarray:
        return self.values.copy()


class TorchArray(DeviceArray):
    """As torch.Tensor: strides in elements, a layout, perhaps a gradient."""

    requires_grad = False
    layout = "torch.strided"

    def __init__(self, values: Any, device: tuple[int, int] = (2, 0), kind: str | None = None) -> None:
        super().__init__(values, device, kind)
        self.dtype = f"torch.{self.dtype}"

    def stride(self) -> tuple[int, ...]:
        return tuple(step // self.itemsize for step in self.values.strides)

    def data_ptr(self) -> int:
        return int(self.values.ctypes.data)


class JaxArray(DeviceArray):
    """An array of a library that speaks DLPack alone."""


class StubbornArray(DeviceArray):
    """One whose library does not hand it over."""

    def __dlpack__(self, **options: Any) -> Any:
        raise BufferError("it is being donated")


class NumbaArray:
    """As numba's device array on the sixth GPU: __cuda_array_interface__ alone, which does not say where it is."""

    index = 5

    def __init__(self, values: Any, stream: int | None = None) -> None:
        self.values = np.asarray(values)
        self.shape = self.values.shape
        self.stream = stream

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self.values.shape,
            "typestr": self.values.dtype.str,
            "data": (int(self.values.ctypes.data), False),
            "version": 3,
            "stream": self.stream,
        }


CupyArray.__module__ = "cupy._core.core"
TorchArray.__module__ = "torch"
JaxArray.__module__ = "jaxlib._jax"
StubbornArray.__module__ = "jaxlib._jax"
NumbaArray.__module__ = "numba.cuda.cudadrv.devicearray"


def _as_tensor(adopt: Any) -> Any:
    """torch's as_tensor: a view of what lies on the device that is named, a copy of anything else."""

    def as_tensor(array: Any, device: str) -> Any:
        index = int(device[5:])
        return adopt(array.values if index == array.index else array.values.copy(), (2, index))

    return as_tensor


def install(monkeypatch: pytest.MonkeyPatch, *names: str) -> dict[str, Any]:
    """Make the named ones of torch and cupy importable, as stand-ins, and the others absent."""
    made: dict[str, Any] = {}
    waited: list[tuple[int, int]] = []
    for name in ("torch", "cupy"):
        if name not in names:
            monkeypatch.setitem(sys.modules, name, None)
            continue
        module: Any = types.ModuleType(name)
        module.__spec__ = importlib.machinery.ModuleSpec(name, None)
        adopt = TorchArray if name == "torch" else CupyArray
        module.from_dlpack = _from_dlpack(adopt)
        module.asarray = lambda array, adopt=adopt: adopt(array.values)
        module.as_tensor = _as_tensor(adopt)
        module.device = lambda kind, index: f"{kind}:{index}"
        module.cuda = types.SimpleNamespace(
            current_device=lambda: 3,
            device_count=lambda: 6,
            default_stream=lambda device: types.SimpleNamespace(handle=0),
            ExternalStream=lambda handle, device: types.SimpleNamespace(handle=handle),
            current_stream=lambda device: types.SimpleNamespace(
                wait_stream=lambda other: waited.append((int(device[5:]), other.handle))
            ),
            runtime=types.SimpleNamespace(pointerGetAttributes=lambda pointer: types.SimpleNamespace(device=5)),
        )
        module.waited = waited
        made[name] = module
        monkeypatch.setitem(sys.modules, name, module)
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, package=None: (
            (made[name].__spec__ if name in made else None) if name in ("torch", "cupy") else real(name, package)
        ),
    )
    return made


def _from_dlpack(adopt: type[DeviceArray]) -> Callable[[Any], Any]:
    def from_dlpack(array: Any) -> Any:
        values = array.__dlpack__()
        return adopt(values, array.__dlpack_device__())

    return from_dlpack
