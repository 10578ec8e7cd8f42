"""Filters of an index on a device, brought into the order of slots."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismem_core.arrays import place_of, plain
from prismem_core.errors import ArgumentError
from prismem_core.index.arguments import checked_filter
from prismem_core.index.device_memory import DeviceMemory
from prismem_core.index.device_slots import Slots

Integers = NDArray[np.int64]

# Below this share of the slots, and this many bytes, reading the rows side by side costs less than walking over all.
_LISTED_SHARE = 16
_LISTED_BYTES = 256 << 20


@dataclass
class Selection:
    """The slots that a search may return: all, those that `marks` marks, or the ascending `listed`.

    `marks` is (slots,) or, one for each of `queries` queries, (queries, slots); of numpy or a tensor on the device.
    """

    marks: Any = None
    listed: Integers | None = None
    queries: int = 0

    def marks_of(self, begin: int, end: int, rows: slice, memory: DeviceMemory) -> Any:
        """The marks of the slots [begin, end) for the queries of `rows`, on the device; None: all may be returned."""
        if self.marks is None:
            return None
        if self.queries:
            part = self.marks[rows, begin:end]
            return memory.upload(part) if isinstance(part, np.ndarray) else part
        if isinstance(self.marks, np.ndarray):
            self.marks = memory.upload(self.marks)  # of several threads that do so one wins, with the same
        return self.marks[begin:end]


class PreparedDeviceFilter:
    """What `VectorIndex.prepare` made of a filter, for an index on a device; safe to use from several threads."""

    def __init__(self, owner: object, slots: Slots, filter: Any, row_bytes: int, memory: DeviceMemory) -> None:
        self._owner = owner
        self._filter = filter.clone() if is_on_device(filter) else np.array(filter)
        self._row_bytes = row_bytes
        self._memory = memory
        self._lock = threading.Lock()
        self._membership = slots.membership
        self._layout = slots.layout
        self._selection = select(slots, self._filter, row_bytes, memory)

    def at(self, owner: object, slots: Slots) -> Selection:
        """The selection for the index as it is now."""
        if owner is not self._owner:
            raise ArgumentError("filter: it was prepared by another index; prepare it with the one that is searched")
        if self._filter.dtype != np.int64 and self._membership != slots.membership:
            raise ArgumentError(
                "filter: its mask was prepared before rows were added or removed; prepare it again, "
                "or prepare one of ids, which lasts"
            )
        with self._lock:
            if self._layout != slots.layout:
                self._selection = select(slots, self._filter, self._row_bytes, self._memory)
                self._layout = slots.layout
            return self._selection


def is_on_device(filter: Any) -> bool:
    """Whether a filter is a tensor that is no numpy array."""
    return type(filter).__module__.split(".")[0] == "torch"


def device_filter(filter: Any, memory: DeviceMemory) -> Any:
    """A filter as `select` takes it: None, ids or a mask of numpy, a mask on the device, or a prepared one."""
    if filter is None or isinstance(filter, PreparedDeviceFilter):
        return filter
    place = place_of(filter, "filter") if hasattr(filter, "shape") else None
    if place is None or place.device == "cpu":
        found = checked_filter(filter)
        if found is not None and not isinstance(found, np.ndarray):
            raise ArgumentError("filter: it was prepared by another index; prepare it with the one that is searched")
        return found
    if (place.device, place.index) != (memory.place.device, memory.place.index):
        raise ArgumentError(
            f"filter: expected an array on the CPU or on {memory.device}, got {place}; move it, nothing is moved "
            "for you"
        )
    # Ids are looked up on the host, where they must be.
    return memory.tensor_of(plain(filter, "filter", ("bool",), (1, 2)))


def select(slots: Slots, filter: Any, row_bytes: int, memory: DeviceMemory) -> Selection:
    """The selection that a checked filter stands for; ArgumentError for a mask of the wrong length."""
    if filter is None:
        return Selection(slots.alive)
    if is_on_device(filter):
        return _spread_on_device(slots, filter, memory)
    if filter.dtype == np.bool_:
        return _select_marked(slots, filter, row_bytes)
    found = slots.find(filter)
    return _listed_or_marked(slots, np.unique(found[found >= 0]), row_bytes)


def _listed_or_marked(slots: Slots, chosen: Integers, row_bytes: int) -> Selection:
    if chosen.shape[0] <= slots.count // _LISTED_SHARE and chosen.shape[0] <= _LISTED_BYTES // row_bytes:
        return Selection(listed=chosen)
    marks = np.zeros(slots.count, np.bool_)
    marks[chosen] = True
    return Selection(marks)


def _check_length(slots: Slots, length: int) -> None:
    if length != slots.live:
        raise ArgumentError(
            f"filter: expected a mask with {slots.live} values a query, one for each row of the index in the order of "
            f"ids, got {length}"
        )


def _select_marked(slots: Slots, mask: NDArray[np.bool_], row_bytes: int) -> Selection:
    _check_length(slots, mask.shape[-1])
    if mask.ndim == 1:
        return _listed_or_marked(slots, slots.live_slots()[mask], row_bytes)
    if not slots.dead:
        return Selection(mask, queries=mask.shape[0])
    marks = np.zeros((mask.shape[0], slots.count), np.bool_)
    marks[:, slots.live_slots()] = mask
    return Selection(marks, queries=mask.shape[0])


def _spread_on_device(slots: Slots, mask: Any, memory: DeviceMemory) -> Selection:
    _check_length(slots, mask.shape[-1])
    queries = int(mask.shape[0]) if mask.ndim == 2 else 0
    if not slots.dead:
        return Selection(mask, queries=queries)
    marks = memory.torch.zeros((*mask.shape[:-1], slots.count), dtype=memory.torch.bool, device=memory.device)
    marks[..., memory.upload(slots.live_slots())] = mask
    return Selection(marks, queries=queries)
