"""Arrays on a device as libraries hand them over: torch, cupy, or any that speaks DLPack or the CUDA array interface.

An array of another library is read through a view that torch, or cupy where there is no torch, makes of it without a
copy; results go back to that library the same way.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismem_core.arrays.places import Place
from prismem_core.errors import ArgumentError, NoImplementation

_CUDA = (2, 13)  # kinds of devices in DLPack: memory of the device and memory managed by the driver
_KINDS = {"float32": "float32", "float16": "float16", "bfloat16": "bfloat16", "uint16": "bfloat16"}


def place_on_device(array: Any) -> Place | None:
    """The place of an array on a CUDA device, None for anything else."""
    library = type(array).__module__.split(".")[0]
    device = getattr(array, "__dlpack_device__", None)
    if device is not None and hasattr(array, "shape"):
        kind, index = device()
        return Place(library, "cuda", int(index)) if int(kind) in _CUDA else None
    if hasattr(array, "__cuda_array_interface__"):
        return Place(library, "cuda", _device_of_pointer(array))
    return None


def _device_of_pointer(array: Any) -> int:
    """The device that holds the memory of a CUDA array interface, which does not name it."""
    interface = array.__cuda_array_interface__
    if importlib.util.find_spec("cupy") is not None:
        cupy = importlib.import_module("cupy")
        return int(cupy.cuda.runtime.pointerGetAttributes(int(interface["data"][0])).device)
    if importlib.util.find_spec("torch") is not None:
        torch = importlib.import_module("torch")
        current, count = torch.cuda.current_device(), torch.cuda.device_count()
        for index in (current, *range(count)) if count > 1 else ():
            # torch reads in place what lies on the device that it is told, and copies anything else.
            if int(torch.as_tensor(array, device=f"cuda:{index}").data_ptr()) == int(interface["data"][0]):
                return int(index)
        return int(current)
    return 0


def own_library(place: Place) -> str:
    """Which of torch and cupy reads arrays at `place` and makes memory for results."""
    if place.library in ("torch", "cupy"):
        return place.library
    for library in ("torch", "cupy"):
        if importlib.util.find_spec(library) is not None:
            return library
    raise NoImplementation(
        f"{place}: reading them and making memory for results needs torch or cupy; install one of them"
    )


def adopted(array: Any, name: str) -> Any:
    """The same memory as an array of torch or cupy; ArgumentError where the library cannot hand it over."""
    place = place_on_device(array)
    if place is None:
        raise ArgumentError(f"{name}: expected an array on a device")
    if place.library == "torch":
        if array.requires_grad:
            raise ArgumentError(
                f"{name}: the tensor requires a gradient, which these ops do not carry; pass {name}.detach()"
            )
        if "strided" not in str(array.layout):
            raise ArgumentError(f"{name}: expected a dense tensor, got one of layout {array.layout}")
        return array
    if place.library == "cupy":
        return array
    library = own_library(place)
    module = importlib.import_module(library)
    try:
        if hasattr(array, "__dlpack__"):
            return module.from_dlpack(array)
        if library == "cupy":
            return module.asarray(array)
        _wait_for(array.__cuda_array_interface__.get("stream"), module, place.index)
        return module.as_tensor(array, device=f"cuda:{place.index}")
    except (TypeError, RuntimeError, ValueError, BufferError) as error:
        raise ArgumentError(f"{name}: {place} could not be read in place ({error})") from error


def _wait_for(stream: int | None, torch: Any, index: int) -> None:
    """Make torch's current stream wait for the stream that an interface names; None: there is nothing to wait for."""
    if stream is None:
        return
    torch.cuda.current_stream(torch.device("cuda", index)).wait_stream(torch_stream(torch, int(stream), index))


def torch_stream(torch: Any, handle: int, index: int) -> Any:
    """torch's name for a stream of another library; 0, 1 and 2 are default streams, 0 being no handle to torch."""
    device = torch.device("cuda", index)
    if handle in (0, 1, 2):
        return torch.cuda.default_stream(device)
    return torch.cuda.ExternalStream(handle, device=device)


def dtype_name(array: Any) -> str:
    """The type of the elements of an array of torch or cupy, as numpy names it."""
    return str(array.dtype).removeprefix("torch.")


def element_strides(array: Any) -> tuple[int, ...]:
    """The distances of an array of torch, cupy or numpy, in elements."""
    if hasattr(array, "stride"):
        return tuple(int(step) for step in array.stride())
    return tuple(int(step) // int(array.itemsize) for step in array.strides)


def rows_on_device(array: Any, name: str, dtype: str | None) -> tuple[Any, str]:
    """A matrix (n, d) on a device and the kind of its elements; ArgumentError for what kernels cannot read in place."""
    view = adopted(array, name)
    if view.ndim != 2:
        hint = f"; for one row pass {name}[None, :]" if view.ndim == 1 else ""
        raise ArgumentError(f"{name}: expected two axes (rows, dimensions), got shape {tuple(view.shape)}{hint}")
    if dtype not in (None, "bfloat16"):
        raise ArgumentError(f'dtype: expected None or "bfloat16" (what the bits of a uint16 array mean), got {dtype!r}')
    held = dtype_name(view)
    if held == "uint16" and dtype != "bfloat16":
        raise ArgumentError(f'{name}: uint16 could mean anything; pass dtype="bfloat16" if these are bfloat16 bits')
    if held not in _KINDS:
        raise ArgumentError(
            f"{name}: expected float32, float16 or bfloat16, got {held}; convert it where you make it: "
            "a cast here would copy the corpus in each call"
        )
    steps = element_strides(view)
    if view.shape[1] > 1 and view.shape[0] > 0 and steps[1] != 1:
        raise ArgumentError(
            f"{name}: the elements of a row must be neighbours in memory on a device, got strides {steps}; "
            "make the array contiguous once, where you make it"
        )
    if view.shape[0] > 1 and steps[0] < 0:
        raise ArgumentError(f"{name}: rows in reverse order (strides {steps}) are not read in place; copy the array")
    return view, _KINDS[held]


def to_host(array: Any) -> NDArray[Any]:
    """The values on the host, of bfloat16 as float32; an array of numpy as it is."""
    if isinstance(array, np.ndarray):
        return array
    if hasattr(array, "detach"):
        tensor = array.detach()
        if str(tensor.dtype) in ("torch.bfloat16", "torch.uint16"):
            torch = importlib.import_module("torch")
            tensor = tensor.view(torch.bfloat16).float()
        host: NDArray[Any] = tensor.cpu().numpy()
        return host
    values: NDArray[Any] = array.get()
    if values.dtype == np.uint16 or values.dtype.name == "bfloat16":
        return (values.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)
    return values


def returned(array: Any, place: Place) -> Any:
    """A result in the caller's library: as it is for torch and cupy, else through that library's from_dlpack.

    A library without one (numba, say) gets the array of torch or cupy, which it can read as it gave its own.
    """
    if place.library in ("torch", "cupy"):
        return array
    for module in (place.library, f"{place.library}.numpy", f"{place.library}.dlpack"):
        try:
            convert = getattr(importlib.import_module(module), "from_dlpack", None)
        except ImportError:
            continue
        if convert is not None:
            return convert(array)
    return array


def cast(array: Any, dtype: str) -> Any:
    """The array of torch, cupy or numpy with elements of another type, where it lies."""
    if hasattr(array, "detach"):
        return array.detach().to(getattr(importlib.import_module("torch"), dtype))
    return array.astype(dtype)


def taken(array: Any, rows: NDArray[np.int64]) -> Any:
    """A copy of some rows of an array of torch, cupy or numpy, where it lies."""
    if isinstance(array, np.ndarray):
        return array[rows]
    if hasattr(array, "detach"):
        return array.index_select(0, importlib.import_module("torch").as_tensor(rows, device=array.device))
    return array.take(importlib.import_module("cupy").asarray(rows), axis=0)
