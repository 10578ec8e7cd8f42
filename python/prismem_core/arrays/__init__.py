"""Where an array lives, and its rows as a view that kernels can read; nothing moves between devices or libraries.

Arrays of numpy and of torch on the CPU are read in place. Rows may have any distance from each other (also zero,
negative or padded), but the elements of a row must be neighbours: where they are not (a transposed or column-sliced
array), or where the memory is not aligned, the rows are copied once. On a device, where a copy could be of gigabytes,
such arrays are refused.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismem_core.arrays import foreign
from prismem_core.arrays.places import Place
from prismem_core.errors import ArgumentError

__all__ = ["Place", "Rows", "common_place", "handed_back", "neighbours", "place_of", "plain", "readable", "rows"]

_FLOAT32 = np.dtype(np.float32)
_NUMPY = Place("numpy", "cpu")


@dataclass(slots=True)  # not frozen, which would make it three times as slow to make: two are made in each call
class Rows:
    """A matrix (n, d) in the caller's memory.

    `kind` is `float32`, `float16` or `bfloat16`. On the CPU `data` is an array of numpy, which holds bfloat16 as its
    uint16 bits; on a device it is one of torch or cupy.
    """

    name: str
    data: Any
    kind: str

    @property
    def count(self) -> int:
        """n, the number of rows."""
        return int(self.data.shape[0])

    @property
    def dim(self) -> int:
        """d, the length of a row."""
        return int(self.data.shape[1])

    def float64(self) -> NDArray[np.float64]:
        """The exact values, copied to the host."""
        if not isinstance(self.data, np.ndarray):
            return foreign.to_host(self.data).astype(np.float64)
        if self.kind == "bfloat16":
            return (self.data.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)
        return self.data.astype(np.float64)


def place_of(array: Any, name: str) -> Place:
    """The place of one array; ArgumentError for what is not an array of a known library."""
    if type(array) is np.ndarray:
        return _NUMPY
    if isinstance(array, np.ma.MaskedArray):
        raise ArgumentError(f"{name}: a masked array would lose its mask; pass array.data and the mask argument")
    if isinstance(array, np.ndarray):
        return _NUMPY
    place = foreign.place_on_device(array)
    if place is not None:
        return place
    library = type(array).__module__.split(".")[0]
    if not hasattr(array, "__dlpack_device__") or not hasattr(array, "shape"):
        raise ArgumentError(
            f"{name}: expected an array of numpy, torch or cupy, got {type(array).__name__}; "
            "make one with numpy.asarray(values, numpy.float32)"
        )
    if library not in ("torch", "cupy"):
        raise ArgumentError(
            f"{name}: arrays of {library} are not supported; pass a view of it, as numpy.from_dlpack(array) makes one"
        )
    kind, index = array.__dlpack_device__()
    known = {1: "cpu", 3: "cpu"}  # 3: pinned memory of the host
    return Place(library, known.get(int(kind), f"device type {int(kind)}"), int(index))


def common_place(**arrays: Any) -> Place:
    """The one place of all named arrays (None is skipped); ArgumentError where they are in several."""
    first_name, first = "", _NUMPY
    for name, array in arrays.items():
        if array is None:
            continue
        place = place_of(array, name)
        if not first_name:
            first_name, first = name, place
        elif place is not first and place != first:
            raise ArgumentError(
                f"{name}: expected {first}, as {first_name} is, got {place}; move one of them, nothing is moved for you"
            )
    return first


def _as_numpy(array: Any, name: str) -> NDArray[Any]:
    """A numpy view of an array on the CPU; a torch bfloat16 tensor becomes its uint16 bits."""
    if isinstance(array, np.ndarray):
        return np.asarray(array)
    torch = _torch()
    if array.requires_grad:
        raise ArgumentError(
            f"{name}: the tensor requires a gradient, which these ops do not carry; pass {name}.detach()"
        )
    try:
        if array.dtype == torch.bfloat16:
            bits: NDArray[Any] = array.view(torch.int16).numpy().view(np.uint16)
            return bits
        view: NDArray[Any] = array.numpy()
        return view
    except (TypeError, RuntimeError) as error:
        raise ArgumentError(f"{name}: expected a dense tensor, got one that has no plain memory ({error})") from error


def _kind(array: Any, view: NDArray[Any], name: str, dtype: str | None) -> str:
    if dtype not in (None, "bfloat16"):
        raise ArgumentError(f'dtype: expected None or "bfloat16" (what the bits of a uint16 array mean), got {dtype!r}')
    if view.dtype == np.float32:
        return "float32"
    if view.dtype == np.float16:
        return "float16"
    if view.dtype.name == "bfloat16" or str(getattr(array, "dtype", "")) == "torch.bfloat16":
        return "bfloat16"
    if view.dtype == np.uint16:
        if dtype == "bfloat16":
            return "bfloat16"
        raise ArgumentError(f'{name}: uint16 could mean anything; pass dtype="bfloat16" if these are bfloat16 bits')
    raise ArgumentError(
        f"{name}: expected float32, float16 or bfloat16, got {view.dtype}; "
        f"convert it where you make it, as {name}.astype(numpy.float32) does"
    )


def rows(array: Any, name: str, *, dtype: str | None = None) -> Rows:
    """The rows (n, d) of an array.

    float32, float16 and bfloat16 (of torch, of ml_dtypes, or a uint16 array with dtype="bfloat16"). float64 and
    integers are refused: a silent cast would cost a copy of the corpus in each call and hide a loss of precision.
    Arrays on a device are taken as they are, where the elements of each row are neighbours.
    """
    if type(array) is np.ndarray and array.dtype is _FLOAT32 and dtype is None and array.ndim == 2:
        flags = array.flags
        if flags.c_contiguous and flags.aligned:
            return Rows(name, array, "float32")
    if place_of(array, name).device != "cpu":
        return Rows(name, *foreign.rows_on_device(array, name, dtype))
    view = _as_numpy(array, name)
    if view.ndim != 2:
        hint = f"; for one row pass {name}[None, :]" if view.ndim == 1 else ""
        raise ArgumentError(f"{name}: expected two axes (rows, dimensions), got shape {view.shape}{hint}")
    kind = _kind(array, view, name, dtype)
    if kind == "bfloat16":
        view = view.view(np.uint16)
    return Rows(name, readable(view), kind)


def readable(view: NDArray[Any]) -> NDArray[Any]:
    """The array itself where the elements of its last axis are neighbours and aligned, else a contiguous copy."""
    size = view.itemsize
    whole = all(stride % size == 0 for stride, length in zip(view.strides, view.shape, strict=True) if length > 1)
    inner = view.shape[-1] <= 1 or view.strides[-1] == size
    return view if view.size == 0 or (view.flags.aligned and whole and inner) else view.copy(order="C")


def plain(array: Any, name: str, dtypes: tuple[str, ...], axes: tuple[int, ...]) -> Any:
    """A view of an array, of numpy on the CPU, that must have one of `dtypes` and one of the numbers of `axes`."""
    if place_of(array, name).device != "cpu":
        view = foreign.adopted(array, name)
        dtype, native = foreign.dtype_name(view), True
    else:
        view = _as_numpy(array, name)
        dtype, native = str(view.dtype), view.dtype.isnative
    if dtype not in dtypes or not native:
        raise ArgumentError(f"{name}: expected {' or '.join(dtypes)}, got {dtype}; convert it where you make it")
    if view.ndim not in axes:
        wanted = " or ".join(str(count) for count in axes)
        raise ArgumentError(f"{name}: expected {wanted} axes, got shape {tuple(view.shape)}")
    return view


def neighbours(view: Any, name: str) -> None:
    """ArgumentError unless the elements of an array with one axis on a device are neighbours."""
    if len(view) > 1 and foreign.element_strides(view)[0] != 1:
        raise ArgumentError(
            f"{name}: the values must be neighbours in memory on a device; copy them once, where you make them"
        )


def _torch() -> Any:
    return importlib.import_module("torch")


def handed_back(array: Any, place: Place) -> Any:
    """The result in the caller's library: the array itself, or one of that library over the same memory."""
    if place.device != "cpu":
        return foreign.returned(array, place)
    if place.library == "torch" and isinstance(array, np.ndarray):
        return _torch().from_numpy(array)
    return array
