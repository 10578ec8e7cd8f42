"""Vectors of a caller on their way to the device: which arrays are taken, how they are rounded and checked."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from prismem_core.arrays import place_of, rows
from prismem_core.arrays.foreign import returned
from prismem_core.arrays.places import Place
from prismem_core.errors import ArgumentError
from prismem_core.index.device_memory import DeviceMemory

_CHUNK_BYTES = 32 << 20


@dataclass(frozen=True)
class Vectors:
    """Rows (n, d) where the caller has them: a numpy array on the CPU (bfloat16 as uint16 bits), else a tensor."""

    name: str
    data: Any
    kind: str
    place: Place

    @property
    def count(self) -> int:
        """n."""
        return int(self.data.shape[0])

    @property
    def dim(self) -> int:
        """d."""
        return int(self.data.shape[1])

    def tensor(self, begin: int, end: int, memory: DeviceMemory) -> Any:
        """Some rows as a tensor of their own dtype, where they are."""
        part = self.data[begin:end]
        if not isinstance(part, np.ndarray):
            return part
        part = np.ascontiguousarray(part)
        if not part.flags.writeable:
            part = part.copy()  # torch warns of memory that it might write to
        if self.kind == "bfloat16":
            return memory.torch.from_numpy(part.view(np.int16)).view(memory.torch.bfloat16)
        return memory.torch.from_numpy(part)

    def chunks(self) -> Iterator[tuple[int, int]]:
        """Ranges of rows that are copied at a time."""
        step = max(1, _CHUNK_BYTES // max(1, 4 * self.dim))
        for begin in range(0, self.count, step):
            yield begin, min(begin + step, self.count)


def vectors_of(array: Any, name: str, memory: DeviceMemory, dim: int, *, bits: bool) -> Vectors:
    """Rows on the CPU (numpy, torch), or of any library on this device; `bits`: uint16 stands for bfloat16."""
    place = place_of(array, name)
    held = rows(array, name, dtype="bfloat16" if bits else None)
    data = held.data
    if place.device != "cpu":
        if (place.device, place.index) != (memory.place.device, memory.place.index):
            raise ArgumentError(
                f"{name}: expected arrays on the CPU or on {memory.device}, where the rows of this index are, got "
                f"{place}; move them, nothing is moved for you"
            )
        data = memory.tensor_of(data)
    found = Vectors(name, data, held.kind, place)
    if found.dim != dim:
        raise ArgumentError(
            f"{name}: expected {dim} dimensions, as the rows of this index have, got {found.dim}; "
            "were they embedded by the same model?"
        )
    return found


def first_bad(tensor: Any) -> int:
    """The first row that holds NaN or infinity, or -1."""
    finite = tensor.isfinite().all(dim=1)
    if bool(finite.all()):
        return -1
    return int(finite.int().argmin())


def refuse_row(vectors: Vectors, row: int, dtype: str, memory: DeviceMemory) -> None:
    """ArgumentError for a row that an index of this dtype cannot keep."""
    finite = bool(vectors.tensor(row, row + 1, memory).isfinite().all())
    raise ArgumentError(
        f"vectors: row {row} "
        + (
            f"holds a number too large for {dtype}, in which this index keeps its rows; scale the row or make the "
            'index with dtype="float32"'
            if finite
            else "holds NaN or infinity; mend the row"
        )
    )


def refuse_query(row: int) -> None:
    """ArgumentError for a query without a score."""
    raise ArgumentError(f"queries: row {row} holds NaN or infinity; mend the row")


def handed_over(tensor: Any, place: Place) -> Any:
    """A result on the device, or on the CPU where the queries are, in the library of the queries."""
    if place.device == "cpu":
        return tensor.cpu().numpy() if place.library == "numpy" else tensor.cpu()
    if place.library == "torch":
        return tensor
    return returned(importlib.import_module("cupy").from_dlpack(tensor) if place.library == "cupy" else tensor, place)
