"""Memory of one device through torch: how much of it an index may take, and what to do when there is none."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np

from prismem_core.arrays.device import CupyDevice, TorchDevice
from prismem_core.arrays.foreign import own_library, torch_stream
from prismem_core.arrays.places import Place
from prismem_core.errors import ArgumentError, NoImplementation
from prismem_core.ops.on_device import hold_device

DTYPES = ("float32", "float16", "bfloat16")
_LEAST_RESERVE = 512 << 20
_MOST = 1 << 62


def element_bytes(dtype: str) -> int:
    """Bytes of one number of a row."""
    return 4 if dtype == "float32" else 2


class DeviceMemory:
    """Tensors on one device and in host memory that it can read.

    `bound` is the most bytes that rows and codes take on the device; None: what is free at the time, but for a
    sixteenth of all, or 512 MiB, which searches need.
    """

    def __init__(self, device: str, bound: int | None = None) -> None:
        self.torch: Any = importlib.import_module("torch")
        self.device: Any = self.torch.device(device)
        self.bound = bound
        self.held = 0

    @property
    def place(self) -> Place:
        """The place of tensors here."""
        return Place("torch", str(self.device.type), self.device.index or 0)

    @property
    def on_gpu(self) -> bool:
        """False where an interpreter executes the kernels on the CPU."""
        return bool(self.device.type == "cuda")

    def dtype(self, name: str) -> Any:
        """The dtype of torch with this name."""
        return getattr(self.torch, name)

    def launch_device(self) -> TorchDevice:
        """The device as launchers take it, with the current stream."""
        return TorchDevice(self.place)

    def room(self) -> int:
        """Bytes that rows and codes may still take."""
        if self.bound is not None:
            return max(0, self.bound - self.held)
        if not self.on_gpu:
            return _MOST
        free, total = self.torch.cuda.mem_get_info(self.device)
        unused = self.torch.cuda.memory_reserved(self.device) - self.torch.cuda.memory_allocated(self.device)
        return max(0, int(free + unused) - max(_LEAST_RESERVE, int(total) // 16))

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """A tensor on the device, without values."""
        return self.torch.empty(shape, dtype=dtype, device=self.device)

    def pinned(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """A tensor in host memory from which copies to the device run beside other work."""
        return self.torch.empty(shape, dtype=dtype, pin_memory=self.on_gpu)

    def upload(self, values: Any) -> Any:
        """A copy of a numpy array on the device."""
        return self.torch.from_numpy(np.ascontiguousarray(values)).to(self.device)

    def tensor_of(self, array: Any) -> Any:
        """An array of torch or cupy on the device as a tensor over the same memory; bits of bfloat16 become that."""
        tensor = array if hasattr(array, "data_ptr") else self.torch.from_dlpack(array)
        return tensor.view(self.torch.bfloat16) if tensor.dtype == self.torch.uint16 else tensor

    def collect(self) -> None:
        """Give back what is cached but not in use."""
        if self.on_gpu:
            self.torch.cuda.empty_cache()

    def settle(self) -> None:
        """Wait until the device has done what was asked of it in the current stream."""
        if self.on_gpu:
            self.torch.cuda.current_stream(self.device).synchronize()

    def is_shortage(self, error: BaseException) -> bool:
        """Whether an error says that there is not enough memory."""
        kinds = (MemoryError, getattr(self.torch, "OutOfMemoryError", self.torch.cuda.OutOfMemoryError))
        words = ("out of memory", "can't allocate memory")
        return isinstance(error, kinds) or (
            isinstance(error, RuntimeError) and any(word in str(error) for word in words)
        )

    @contextmanager
    def working(self, place: Place | None = None) -> Iterator[None]:
        """Make the device current, and the stream of a caller whose arrays are of another library than torch.

        A shortage of memory inside becomes a MemoryError.
        """
        try:
            with self._current(place):
                yield
        except MemoryError:
            raise
        except Exception as error:
            if not self.is_shortage(error):
                raise
            raise MemoryError(
                f"{self.device} has not enough free memory ({str(error).splitlines()[0]}); the index is as it was: "
                "give memory back, or pass fewer rows at a time"
            ) from error

    @contextmanager
    def _current(self, place: Place | None) -> Iterator[None]:
        if not self.on_gpu:
            yield
            return
        hold_device()
        stream: Any = nullcontext()
        if place is not None and place.device != "cpu" and own_library(place) == "cupy":
            stream = self.torch.cuda.stream(torch_stream(self.torch, CupyDevice(place).stream, place.index))
        with self.torch.cuda.device(self.device), stream:
            yield


def gpu_named(device: Any) -> str | None:
    """The GPU that `device` names, as "cuda:0", or None for the CPU; the error says what is missing."""
    name = str(device) if type(device).__module__.split(".")[0] == "torch" else device
    if name is None or name == "cpu":
        return None
    kind, colon, number = name.partition(":") if isinstance(name, str) else ("", "", "")
    if kind != "cuda" or (colon and not (number.isascii() and number.isdigit())):
        raise ArgumentError(f'device: expected None or "cpu", "cuda", "cuda:1" or a device of torch, got {device!r}')
    try:
        torch = importlib.import_module("torch")
    except ImportError as error:
        raise NoImplementation(
            f"device: rows on {name} are held through torch, which cannot be imported ({error}); "
            "install torch with CUDA, or leave out device"
        ) from error
    if not torch.cuda.is_available():
        why = "this build of torch is for the CPU alone" if torch.version.cuda is None else "torch finds no usable GPU"
        raise NoImplementation(f"device: no rows can be held on {name}: {why}; `prismem doctor` says more")
    index = int(number) if colon else int(torch.cuda.current_device())
    if index >= int(torch.cuda.device_count()):
        raise ArgumentError(
            f"device: expected one of the {torch.cuda.device_count()} GPUs from cuda:0 on, got {name!r}"
        )
    return f"cuda:{index}"
