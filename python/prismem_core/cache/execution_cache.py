"""The face of the execution cache: arguments checked, uses noted; the engine is the C++ extension."""

from __future__ import annotations

import os
import shutil
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from prismem_core import _native
from prismem_core.cache import transfer
from prismem_core.cache.arguments import Rows, checked_cost, checked_costs, checked_path, count_of, rows_for, shown
from prismem_core.cache.codecs import stack_rows
from prismem_core.cache.manifests import checked_name
from prismem_core.cache.reports import CacheStats, Entry, StageCounters, VerifyReport
from prismem_core.cache.tags import Tags
from prismem_core.cache.typed_values import Key, TypedValues
from prismem_core.errors import ArgumentError, CacheError

# More than any disk holds: what is exported stays whole.
_NO_BOUND = 1 << 50


class CacheWarning(UserWarning):
    """The cache goes on with less than was asked for: its disk cannot be written."""


class DamageWarning(CacheWarning):
    """What was read from another cache is damaged in part; the rest was taken."""


class ExecutionCache(TypedValues):
    """A thread-safe cache of stage outputs that processes share; a context manager that closes itself.

    `directory`: where values live, made when absent; None keeps them in memory only. Any number of processes may read
    and write it at a time. With `read_only=True` nothing is written and puts stay in memory. `memory_bytes` bounds the
    values in memory (of a cache without a directory, and those that the disk does not take), `disk_bytes` the files;
    at a bound those entries go whose cost of computing by byte is least, the longest unused first. `segment_bytes` (at
    most 128 MiB) is the size at which a new file is begun.

    `durability` says what a put that has returned survives. "process": the end of the process, however sudden, because
    the system has the bytes; a loss of power may take what was put since the last `flush()` or `close()`. "power": that
    too, because the disk has them; puts at the same time share one fsync, and `put_many` needs one for all its values.

    A `cost` is that of computing the value again in any unit, the same for all of a cache: tokens, seconds, money; 0
    stands for not known. Where the disk is full or read-only the cache goes on in memory and says so once
    (CacheWarning). After a fork the child must open its own.

    Raises ArgumentError for a stage that is not 1 to 64 printable ASCII characters, a key that is not 64 lowercase hex
    digits or 32 bytes, or a value that is not bytes; CacheError for a directory that is no cache or of another format,
    for use after close (`counters` and `damaged` stay) or fork, and for values that must not be stored (not finite, no
    JSON).
    """

    def __init__(
        self,
        directory: str | Path | None = None,
        *,
        memory_bytes: int = 256 << 20,
        disk_bytes: int = 16 << 30,
        read_only: bool = False,
        segment_bytes: int = 64 << 20,
        durability: Literal["process", "power"] = "process",
    ) -> None:
        sizes = {"memory_bytes": memory_bytes, "disk_bytes": disk_bytes, "segment_bytes": segment_bytes}
        for name, size in sizes.items():
            if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size < 1 << 63:
                raise ArgumentError(f"{name} must be a number of bytes, 0 or more, got {size!r}")
        if durability not in ("process", "power"):
            raise ArgumentError(f'durability must be "process" or "power", got {durability!r}')
        if directory is None and read_only:
            raise ArgumentError("read_only=True needs a directory: a cache in memory has nothing to read")
        # Absolute: the process may go to another folder while the cache is open.
        self._directory = (
            None if directory is None else checked_path(directory, "directory must be a path or None").absolute()
        )
        self._closed = False
        path = None if self._directory is None else os.fsencode(self._directory)
        durable = durability == "power"
        self._native = _native.ExecutionCache(path, memory_bytes, disk_bytes, read_only, segment_bytes, durable)
        self._tags = Tags(self._directory, read_only)
        self._tagging = threading.Lock()
        self._tagged: list[tuple[str | None, str | None]] = []  # the blocks that are running
        self._run: str | None = None
        self._program: str | None = None
        self._told = False
        self._shorten()
        self._tell()

    @property
    def directory(self) -> Path | None:
        """Where values live; None for a cache in memory."""
        return self._directory

    def __enter__(self) -> ExecutionCache:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def get(self, stage: str, key: Key) -> bytes | None:
        """The stored bytes, or None."""
        value = self._native.get(stage, key)
        if value is not None and self._run is not None:
            self._tags.note(self._run, self._program, stage, (key,), at_once=False)
        return value

    def get_many(self, stage: str, keys: Sequence[Key]) -> list[bytes | None]:
        """`get` for each key, in their order."""
        values = self._native.get_many(stage, keys)
        if self._run is not None:
            used = [key for key, value in zip(keys, values, strict=True) if value is not None]
            self._tags.note(self._run, self._program, stage, used, at_once=False)
        return values

    def put(self, stage: str, key: Key, value: bytes, *, cost: float = 0.0) -> None:
        """Stores `value`, in place of an older one; `durability` says what it survives once this returns."""
        self._native.put(stage, key, value, cost if cost == 0.0 else checked_cost(cost))
        self._stored(stage, (key,))

    def put_many(
        self, stage: str, keys: Sequence[Key], values: Sequence[bytes], *, cost: float | Sequence[float] = 0.0
    ) -> None:
        """`put` of each value with one write for all; `cost` is one for all or one a value."""
        count = count_of("keys", keys)
        if count_of("values", values) != count:
            raise ArgumentError(f"values must be as many as keys: got {len(values)} for {count} keys")
        self._native.put_many(stage, keys, values, checked_costs(cost, count))
        self._stored(stage, keys)

    def get_or_compute(self, stage: str, key: Key, compute: Callable[[], bytes], *, cost: float | None = None) -> bytes:
        """The stored bytes, or what `compute` returns, stored; `cost` None stands for the seconds it took.

        Of all threads and processes that ask for an entry at a time one computes and the others wait. An exception
        reaches all threads that wait and nothing is stored; another process then computes itself. CacheError where a
        compute function asks, directly or through other threads, for the entry it computes.
        """
        if not callable(compute):
            raise ArgumentError(f"compute must be a function without arguments, got {type(compute).__name__}")
        computed = False

        def noted() -> bytes:
            nonlocal computed
            computed = True
            return compute()

        seconds_or_cost = None if cost is None else checked_cost(cost)
        value = self._native.get_or_compute(stage, key, compute if self._run is None else noted, seconds_or_cost)
        self._stored(stage, (key,), at_once=computed)
        return value

    @contextmanager
    def lease(self, stage: str, keys: Sequence[Key]) -> Iterator[_native.Lease]:
        """Keeps every other thread and process that asks for a lease of an entry waiting while the block runs.

        Waits until it has them all; look again inside, because another may have stored them. `held` of what it yields
        are the positions of the keys it has: all, except where the thread holds another lease already (two that wait
        for each other would wait for ever). `waited` says whether there was a wait.
        """
        lease = self._native.lease(stage, keys)
        try:
            yield lease
        finally:
            lease.release()

    def get_rows(
        self,
        stage: str,
        keys: Sequence[Key],
        dimension: int | None = None,
        *,
        out: Rows | None = None,
        verify: bool = True,
    ) -> tuple[Rows, NDArray[np.bool_]]:
        """Entries put as float32 arrays of `dimension` elements: rows (n, d) float32, and found (n,) bool.

        Rows not found are zeros. `out`, a writable (n, d) float32 array in C order, takes the rows in place of a new
        one. Without either, the dimension is that of the first row found (0 where there is none), at the price of one
        more copy. `verify=False` leaves out the checksums of the values. ArgumentError for an entry that is no such
        row.
        """
        if out is None and dimension is None:
            return stack_rows(self.get_arrays(stage, keys), stage, keys)
        rows = rows_for(count_of("keys", keys), dimension, out)
        found = np.empty(len(keys), np.bool_)
        self._native.get_rows(stage, keys, rows, found, verify)
        if self._run is not None:
            used = [key for key, there in zip(keys, found, strict=True) if there]
            self._tags.note(self._run, self._program, stage, used, at_once=False)
        return rows, found

    def put_rows(self, stage: str, keys: Sequence[Key], rows: Rows, *, cost: float | Sequence[float] = 0.0) -> None:
        """`put_array` of every row of a float32 matrix (n, d), one write for all; CacheError for NaN and infinities."""
        masked = isinstance(rows, np.ma.MaskedArray)
        if masked or not isinstance(rows, np.ndarray) or rows.dtype != np.float32 or rows.ndim != 2:
            raise ArgumentError(f"rows must be a float32 array of shape (n, d), got {shown(rows)}")
        if len(rows) != count_of("keys", keys):
            raise ArgumentError(f"rows must be as many as keys: got {len(rows)} for {len(keys)} keys")
        if not np.isfinite(rows).all():
            row, column = (int(index[0]) for index in np.nonzero(~np.isfinite(rows)))
            raise CacheError(f"rows hold a value that is not finite at ({row}, {column}): only finite ones are stored")
        self._native.put_rows(stage, keys, np.ascontiguousarray(rows, np.float32), checked_costs(cost, len(keys)))
        self._stored(stage, keys)

    def contains(self, stage: str, keys: Sequence[Key]) -> NDArray[np.bool_]:
        """Which of the keys are there, (n,) bool; counts nothing."""
        return np.array(self._native.contains(stage, keys), np.bool_)

    def remove(self, stage: str, keys: Sequence[Key]) -> int:
        """Removes entries; how many of them were there."""
        removed = self._native.remove(stage, keys)
        self._tell()
        return removed

    @contextmanager
    def tagged(self, run: str | None = None, program: str | None = None) -> Iterator[None]:
        """Notes the entries that are put or found inside the block, by any thread, as used by that run and program.

        Names are texts of up to 200 characters; what is not given is that of the block around it, and of blocks that
        run at the same time the last one counts. Nothing is noted without a run. Keys and values do not depend on it.
        Notes of puts are on disk when the put returns, those of hits at the end of the block at the latest.
        """
        self._check_open()
        run = self._run if run is None else checked_name("run", run)
        program = self._program if program is None else checked_name("program", program)
        with self._tagging:
            self._tagged.append((run, program))
            self._shorten()
        try:
            yield
        finally:
            with self._tagging:
                self._tagged.remove((run, program))
                self._shorten()
            self._tags.write_out()

    @contextmanager
    def collecting(self) -> Iterator[Mapping[str, Set[bytes]]]:
        """The keys of the entries that this thread puts or finds inside the block, by stage, where they are noted."""
        with self._tags.collecting() as uses:
            yield uses

    def note(self, uses: Mapping[str, Set[bytes]]) -> None:
        """Notes entries that were `collecting` before as used once more, by the present run and program."""
        if self._run is not None:
            for stage, keys in uses.items():
                self._tags.note(self._run, self._program, stage, keys, at_once=False)

    def runs(self) -> dict[str, int]:
        """The runs that used this cache, by name, and how many entries each has used (some may be gone by now)."""
        self._check_open()
        return {run: len(manifest.entries()) for run, manifest in sorted(self._tags.manifests().items())}

    def entries(
        self, *, stage: str | None = None, run: str | None = None, program: str | None = None
    ) -> Iterator[Entry]:
        """Every entry, or those of a stage, used by a run, by a program; in no particular order."""
        manifests = {} if run is None and program is None else self._tags.manifests()
        return map(transfer.to_entry, transfer.chosen(self._native, manifests, stage=stage, run=run, program=program))

    def export(
        self,
        destination: str | Path,
        *,
        run: str | None = None,
        program: str | None = None,
        stage: str | None = None,
    ) -> int:
        """Makes a new cache of these entries and of what was noted about them; how many it has.

        `destination` must be absent or empty; CacheError otherwise. Damaged entries are left out.
        """
        self._check_open()
        path = checked_path(destination, "destination must be a path").absolute()
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise CacheError(f"{path} is there already: name a directory that does not exist or is empty")
        manifests = self._tags.manifests()
        choice = {"stage": stage, "run": run, "program": program}
        unfinished = transfer.folder_beside(path)
        try:
            with self._undisturbed() as source, ExecutionCache(unfinished, disk_bytes=_NO_BOUND) as target:
                chosen = list(transfer.chosen(source._native, manifests, **choice))
                count, there = transfer.copy(source._native, target._native, chosen, replace=True)
                left_out = len(chosen) - count
                if source is not self and self._native.stats()["memory_entries"]:
                    # Values that the disk has not taken.
                    more = transfer.missing(transfer.chosen(self._native, manifests, **choice), there)
                    added, also = transfer.copy(self._native, target._native, more, replace=True)
                    count, there = count + added, there | also
                for name, manifest in manifests.items():
                    if run is None or run == name:
                        target._tags.adopt(manifest, there, program)
                notice = target._native.take_notice() or target._tags.failure
                if notice is not None or target._told:
                    raise CacheError(f"{path} cannot be written{f': {notice}' if notice else ''}; name another place")
            # Whole, or not there: a kill leaves a folder `....new` beside it.
            unfinished.rename(path)
        except OSError as error:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise CacheError(f"{path} cannot be written: {error.strerror}; name another place") from error
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise
        if left_out:
            message = f"{left_out} entries could not be read (damaged, or removed meanwhile) and were left out"
            warnings.warn(message, DamageWarning, stacklevel=2)
        return count

    def import_from(self, source: str | Path) -> int:
        """Takes over the entries of another cache that this one has not, with costs and notes; how many they were.

        Everything taken is checked; damaged entries are left out and counted in a DamageWarning.
        """
        self._check_open()
        path = checked_path(source, "source must be a path")
        transfer.check_is_cache(path)
        with ExecutionCache(path, read_only=True, memory_bytes=0) as other:
            manifests = other._tags.manifests()
            count, there = transfer.copy(other._native, self._native, other._native.entries(None), replace=False)
            damaged = other._native.damaged() + sum(manifest.damaged for manifest in manifests.values())
        for manifest in manifests.values():
            self._tags.adopt(manifest, there)
        self._tell()
        if damaged:
            warnings.warn(f"{damaged} damaged entries or notes of {path} were left out", DamageWarning, stacklevel=2)
        return count

    def prune(
        self,
        *,
        runs: Iterable[str] = (),
        stage: str | None = None,
        unused_since: float | datetime | None = None,
    ) -> int:
        """Removes the entries that all the conditions given choose; how many.

        `runs`: used by these runs and by no other; `stage`: of that stage; `unused_since`: not used since then (a
        datetime or Unix seconds). Where `runs` alone are given nothing is left of them, their notes included. Do not
        prune a run that is under way: what it uses afterwards is noted anew, what it used before is not.
        """
        if isinstance(runs, str):
            raise ArgumentError(f"runs must be a list of names, got the text {runs!r}; write [{runs!r}]")
        names = [checked_name("a run", name) for name in runs]
        if not names and stage is None and unused_since is None:
            raise ArgumentError("prune needs runs, a stage or unused_since; clear() removes everything")
        since = None if unused_since is None else transfer.timestamp(unused_since)
        manifests = self._tags.manifests() if names else {}
        keys = transfer.prunable(self._native, manifests, runs=names, stage=stage, unused_since=since)
        removed = sum(self._native.remove(own, found) for own, found in keys.items())
        if names and stage is None and unused_since is None:
            self._tags.forget(names)
        self._tell()
        return removed

    def counters(self) -> dict[str, StageCounters]:
        """What each stage has counted, by stage name in ascending order; stages never used are left out."""
        return {stage: StageCounters(*counts) for stage, counts in self._native.counters().items()}

    def stats(self) -> CacheStats:
        """Sizes in memory and on disk."""
        return CacheStats(**self._native.stats())

    @property
    def damaged(self) -> int:
        """Damage met on disk: damaged entries of every stage, and stretches of files that are no entry."""
        return self._native.damaged()

    def verify(self) -> VerifyReport:
        """Reads everything and checks every checksum; what is damaged is from then on not there, and is counted."""
        notes = sum(manifest.damaged for manifest in self._tags.manifests().values())
        return VerifyReport(**self._native.verify(), damaged_notes=notes)

    def compact(self) -> int:
        """Gives back the room of what was replaced, removed or evicted; the bytes freed."""
        freed = self._native.compact()
        self._tell()
        return freed

    def clear(self) -> None:
        """Removes every entry and every note of a run."""
        self._native.clear()
        self._tags.forget()
        self._tell()

    def flush(self) -> None:
        """Brings every put to the disk itself (fsync)."""
        self._tags.write_out()
        self._native.flush()
        self._tell()

    def close(self) -> None:
        """Flushes and ends the use; calling it again does nothing."""
        self._tags.write_out()
        self._closed = True
        self._native.close()

    @contextmanager
    def _undisturbed(self) -> Iterator[ExecutionCache]:
        """A cache of the same entries whose reads count nothing here and leave every time of use as it is."""
        if self._directory is None:
            yield self
            return
        with ExecutionCache(self._directory, read_only=True, memory_bytes=0) as reader:
            yield reader

    def _check_open(self) -> None:
        self._native.damaged()  # CacheError in a forked child, whose locks other threads of the parent may hold
        if self._closed:
            raise CacheError("this execution cache is closed: open a new one")

    def _shorten(self) -> None:
        self._run, self._program = self._tagged[-1] if self._tagged else (None, None)
        # While nothing is noted `get` and `get_many` are the engine's own functions: a call of Python less.
        own = self.__dict__
        if self._run is None and type(self) is ExecutionCache:
            own["get"], own["get_many"] = self._native.get, self._native.get_many
        else:
            own.pop("get", None)
            own.pop("get_many", None)

    def _stored(self, stage: str, keys: Sequence[Key], *, at_once: bool = True) -> None:
        if self._run is not None:
            self._tags.note(self._run, self._program, stage, keys, at_once=at_once)
        notice = self._native.take_notice()
        if notice is not None or self._tags.failure is not None:
            self._tell(notice)

    def _tell(self, notice: str | None = None) -> None:
        notice = notice or self._native.take_notice()
        if notice is None and self._tags.failure is not None and not self._told:
            notice = f"what runs use is noted in memory only from now on: {self._tags.failure}"
        if notice is not None:
            self._told = True
            warnings.warn(notice, CacheWarning, stacklevel=4)
