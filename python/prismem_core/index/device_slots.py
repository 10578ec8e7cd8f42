"""What an index on a device keeps on the host: ids, which slots are alive, where an id lies. No rows, no locks."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from prismem_core.errors import ArgumentError
from prismem_core.index.id_table import IdTable

Integers = NDArray[np.int64]

_LARGEST_ID = (1 << 63) - 1
_FEWEST_DEAD = 256


class Slots:
    """Places of rows, filled in the order of adding; a removed row leaves a dead slot until gaps are closed.

    Checks come before changes, and changes cannot fail but for memory of the host, which leaves all as it was.
    `membership` changes when rows are added or removed, `layout` also when slots are.
    """

    def __init__(self) -> None:
        self._ids: Integers = np.empty(0, np.int64)
        self._alive: NDArray[np.bool_] = np.empty(0, np.bool_)
        self._table = IdTable()
        self.count = 0
        self.dead = 0
        self.next_id = 0
        self.membership = 0
        self.layout = 0

    @property
    def live(self) -> int:
        """Rows that are there."""
        return self.count - self.dead

    @property
    def ids(self) -> Integers:
        """The id of every slot, also of dead ones."""
        return self._ids[: self.count]

    @property
    def alive(self) -> NDArray[np.bool_] | None:
        """Which slots hold rows, or None while all do."""
        return self._alive[: self.count] if self.dead else None

    @property
    def bytes(self) -> int:
        """Memory of ids, marks and table."""
        return int(self._ids.nbytes + self._alive.nbytes) + self._table.bytes

    @property
    def is_sparse(self) -> bool:
        """Whether so many slots are dead that closing the gaps pays."""
        return self.dead > _FEWEST_DEAD and self.dead > self.count // 4

    def live_slots(self) -> Integers:
        """The slots that hold rows, ascending."""
        return np.arange(self.count) if not self.dead else np.flatnonzero(self._alive[: self.count])

    def find(self, wanted: Integers) -> Integers:
        """The slot of each id, or -1."""
        return self._table.find(wanted, self._ids)

    def find_all(self, wanted: Integers, *, once: bool) -> Integers:
        """The slots of ids; ArgumentError names one that is unknown or, with `once`, stands there twice."""
        found = self.find(wanted)
        if found.size and int(found.min()) < 0:
            position = int(np.argmax(found < 0))
            raise ArgumentError(f"ids: there is no row with id {int(wanted[position])} (position {position})")
        if once:
            in_order = np.sort(found)
            twice = np.flatnonzero(in_order[1:] == in_order[:-1])
            if twice.size:
                id = int(self._ids[in_order[twice[0]]])
                raise ArgumentError(f"ids: id {id} is given twice; name each row once")
        return found

    def check_automatic(self, count: int) -> None:
        """ArgumentError where so many automatic ids are not left."""
        if count > _LARGEST_ID - self.next_id:
            raise ArgumentError(f"ids: no automatic id is left after {self.next_id - 1}; pass ids")

    def new_ids(self, given: Integers | None, count: int) -> Integers:
        """The ids that `count` rows will have; ArgumentError where a given one is taken or stands there twice."""
        if given is None:
            return self.next_id + np.arange(count)
        taken = self.find(given) >= 0
        first = np.zeros(count, np.bool_)
        first[np.unique(given, return_index=True)[1]] = True
        wrong = taken | ~first
        if wrong.any():
            position = int(np.argmax(wrong))
            raise ArgumentError(
                f"ids: id {int(given[position])} is in the index already; use update() to change its row"
                if taken[position]
                else f"ids: id {int(given[position])} is given twice; ids are unique"
            )
        return given

    def reserve(self, count: int) -> None:
        """Make room for `count` slots in all."""
        self._table.reserve(max(0, count - self.live), self._ids)
        if count > self._ids.shape[0]:
            size = max(count, self._ids.shape[0] * 3 // 2, 64)
            ids, alive = np.empty(size, np.int64), np.ones(size, np.bool_)
            ids[: self.count], alive[: self.count] = self._ids[: self.count], self._alive[: self.count]
            self._ids, self._alive = ids, alive

    def append(self, ids: Integers) -> None:
        """Take checked ids in at the end."""
        count = ids.shape[0]
        if not count:
            return
        self.reserve(self.count + count)
        end = self.count + count
        self._ids[self.count : end] = ids
        self._alive[self.count : end] = True
        self._table.insert(np.arange(self.count, end), self._ids)
        self.count = end
        self.next_id = max(self.next_id, min(int(ids.max()), _LARGEST_ID - 1) + 1)
        self.membership += 1
        self.layout += 1

    def remove(self, slots: Integers) -> None:
        """Leave dead slots where rows were."""
        if not slots.shape[0]:
            return
        self._table.erase(self._ids[slots], self._ids)
        self._alive[slots] = False
        self.dead += slots.shape[0]
        self.membership += 1
        self.layout += 1

    def compact(self) -> None:
        """Close the gaps; the order stays. Rows are moved by their owner, as `live_slots` said before."""
        kept = self._ids[self.live_slots()]
        self._table.rebuild(kept.shape[0], kept)
        self._ids[: kept.shape[0]] = kept
        self._alive[: self.count] = True
        self.count, self.dead = kept.shape[0], 0
        self.layout += 1

    def adopt(self, ids: Integers, next_id: int) -> int | None:
        """Take over the ids of a file; returns one that stands there twice, and then nothing was taken over."""
        in_order = np.sort(ids)
        twice = np.flatnonzero(in_order[1:] == in_order[:-1])
        if twice.size:
            return int(in_order[twice[0]])
        self.append(ids)
        self.next_id = next_id
        return None
