"""Where arrays of a check live: a GPU, or in a dry run the CPU with kernels in the interpreter or the emulator."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismem_core.arrays import Place
from prismem_core.ops import on_device

from .session import NotHere


class OnlyDLPack:
    """An array that can do nothing but be handed over by DLPack."""

    def __init__(self, tensor: Any) -> None:
        self._tensor = tensor
        self.shape = tuple(tensor.shape)

    def __dlpack_device__(self) -> tuple[int, int]:
        kind, index = self._tensor.__dlpack_device__()
        return int(kind), int(index)

    def __dlpack__(self, **words: Any) -> Any:
        return self._tensor.__dlpack__(**words)


class OnlyInterface:
    """An array that can do nothing but describe its memory by the CUDA array interface."""

    def __init__(self, tensor: Any) -> None:
        self._tensor = tensor

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        described: dict[str, Any] = self._tensor.__cuda_array_interface__
        return described


@dataclass(frozen=True)
class Stage:
    """torch and the device that the checks run on; `dry` says that there is no GPU and sizes are tiny."""

    torch: Any
    dry: bool

    @property
    def device(self) -> Any:
        """The device as torch names it."""
        return self.torch.device("cpu" if self.dry else "cuda")

    def why_not(self, backend: str) -> str | None:
        """Why a backend cannot serve arrays of this stage; None where it can."""
        return on_device.why_not(backend, Place("torch", "cpu" if self.dry else "cuda", 0))

    @property
    def backends(self) -> tuple[str, ...]:
        """Backends that can be checked here."""
        return tuple(backend for backend in on_device.BACKENDS if self.why_not(backend) is None)

    def sync(self) -> None:
        """Wait for the device."""
        if not self.dry:
            self.torch.cuda.synchronize()

    def lenders(self, backend: str) -> dict[str, Callable[[Any], Any]]:
        """Makers of arrays that are handed in, by kind, each from a tensor of torch; those that work here."""
        if self.dry:
            as_numpy = {"numpy": lambda tensor: tensor.numpy()} if backend == "cuda" else {}
            return {"torch": lambda tensor: tensor, **as_numpy}
        makers: dict[str, Callable[[Any], Any]] = {"torch": lambda tensor: tensor}
        if importlib.util.find_spec("cupy") is not None:
            cupy = importlib.import_module("cupy")
            makers["cupy"] = lambda tensor: _to_cupy(cupy, self.torch, tensor)
        makers["DLPack"] = OnlyDLPack
        makers["interface"] = OnlyInterface
        return makers

    def place(self, values: NDArray[Any], kind: str | None = None) -> Any:
        """A tensor of these values with the same distance between rows, where kernels read that; else contiguous.

        `kind` "bfloat16" says that uint16 values are its bits.
        """
        if values.ndim == 2 and values.size and _rows_in_place(values):
            count, dim = values.shape
            step = values.strides[0] // values.itemsize
            if step == 0:
                return self.place(np.ascontiguousarray(values[:1]), kind).expand(count, dim)
            padded = np.zeros((count, max(step, dim)), values.dtype)
            padded[:, :dim] = values
            return self._moved(padded, kind)[:, :dim]
        return self._moved(np.array(values, order="C"), kind)

    def _moved(self, values: NDArray[Any], kind: str | None) -> Any:
        torch = self.torch
        if kind == "bfloat16":
            return torch.from_numpy(values.view(np.int16)).to(self.device).view(torch.bfloat16)
        return torch.from_numpy(values).to(self.device)

    @contextlib.contextmanager
    def poisoned(self, megabytes: int = 64) -> Iterator[None]:
        """Free memory holds NaN meanwhile, so that results nobody wrote show themselves."""
        cells = (1 if self.dry else megabytes) * 2**20 // 4
        sizes = [cells, *(2**power for power in range(7, 20, 2))]
        blocks = [self.torch.full((size,), float("nan"), device=self.device) for size in sizes]
        self.sync()
        del blocks
        yield


def stage(dry: bool) -> Stage:
    """The stage of this machine; NotHere where torch or, but in a dry run, a GPU is missing."""
    if importlib.util.find_spec("torch") is None:
        raise NotHere("torch is not installed; install it with: pip install 'prismem-core[gpu]'")
    torch = importlib.import_module("torch")
    if not dry and not torch.cuda.is_available():
        raise NotHere("torch sees no CUDA device; --dry-run goes through all steps on the CPU")
    return Stage(torch, dry)


def _rows_in_place(values: NDArray[Any]) -> bool:
    inner = values.shape[1] <= 1 or values.strides[1] == values.itemsize
    return inner and values.strides[0] >= 0 and values.strides[0] % values.itemsize == 0


def _to_cupy(cupy: Any, torch: Any, tensor: Any) -> Any:
    if tensor.dtype == torch.bfloat16:
        return cupy.from_dlpack(tensor.view(torch.int16)).view(cupy.uint16)
    return cupy.from_dlpack(tensor)


def to_host(array: Any) -> NDArray[Any]:
    """A copy on the host of an array of torch, cupy or numpy."""
    if isinstance(array, np.ndarray):
        return array
    values: NDArray[Any] = array.get() if hasattr(array, "get") else array.detach().cpu().numpy()
    return values
