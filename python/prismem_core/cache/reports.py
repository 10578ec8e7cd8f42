"""What a cache says of itself: counters of its stages, sizes, entries and the result of a check."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StageCounters:
    """What one stage has counted since the cache was opened.

    Every look-up is a hit (found), a miss (not found; in `get_or_compute` also: computed) or a wait (another thread or
    process was computing it), so `hits + waits` computations were saved, worth `saved_cost` in the unit of the costs
    given. `stores` are values put, `evictions` values dropped for want of room, `damaged` entries on disk that failed
    their checksum.
    """

    hits: int
    misses: int
    stores: int
    evictions: int
    waits: int
    damaged: int
    saved_cost: float


@dataclass(frozen=True, slots=True)
class CacheStats:
    """Sizes, in bytes where the name says so.

    On disk: `entries` that can be found, `live_bytes` of their records, `disk_bytes` of all `segments`, `index_bytes`
    of the index. In memory: `memory_entries` and `memory_bytes`.
    """

    entries: int
    live_bytes: int
    disk_bytes: int
    index_bytes: int
    segments: int
    memory_entries: int
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry: `key` is 64 hex digits, `cost` that of computing it again, 0 where it was not given.

    `stored_at` and `used_at` are Unix seconds, 0 where not known; `used_at` is no more exact than eviction needs.
    """

    stage: str
    key: str
    value_bytes: int
    cost: float
    stored_at: int
    used_at: int


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What reading everything found: sound `entries`, the `bytes` of their values, and what is not as it was written.

    `damaged` counts entries, stretches of files that are no record, and segments that cannot be read; `damaged_index`
    places in the index that name no entry; `damaged_notes` rows in the lists of what runs used.
    """

    entries: int
    bytes: int
    damaged: int
    damaged_index: int
    damaged_notes: int

    @property
    def clean(self) -> bool:
        """Whether all is as it was written."""
        return not (self.damaged or self.damaged_index or self.damaged_notes)
