"""Entries carried from one cache to another, and those chosen by stage, run, program or age."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path

from prismem_core import _native
from prismem_core.cache.manifests import Manifest, entry_id, name_id
from prismem_core.cache.reports import Entry
from prismem_core.errors import ArgumentError, CacheError

# What is held in memory at a time while entries are copied.
_BATCH_ENTRIES = 1024
_BATCH_BYTES = 8 << 20

Chosen = tuple[str, bytes, int, float, int, int]
"""An entry as the engine lists it: stage, key, bytes of the value, cost, when it was stored, when it was used."""


def check_is_cache(directory: Path) -> None:
    """CacheError for a directory that is absent or holds no cache; nothing is made or changed."""
    if not directory.is_dir():
        raise CacheError(f"no directory at {directory}: name that of an execution cache")
    if not (directory / "prismem-cache").is_file():
        raise CacheError(f"{directory} is not an execution cache: it has no file prismem-cache")


def folder_beside(path: Path) -> Path:
    """A new folder that can be renamed to `path`; CacheError where none can be made."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=f"{path.name}.", suffix=".new", dir=path.parent))
    except OSError as error:
        raise CacheError(f"{path} cannot be written: {error.strerror}; name another place") from error


def chosen(
    native: _native.ExecutionCache,
    manifests: dict[str, Manifest],
    *,
    stage: str | None,
    run: str | None,
    program: str | None,
) -> Iterator[Chosen]:
    """Entries of a stage, used by a run, by a program (of that run, or of any); None does not choose."""
    listed = native.entries(stage)
    if run is None and program is None:
        return iter(listed)
    used = used_by(manifests, list(manifests) if run is None else [run], program)
    ids = _Ids()
    return (entry for entry in listed if ids.of(entry) in used)


def missing(entries: Iterable[Chosen], there: set[bytes]) -> list[Chosen]:
    """Those whose ids are not among `there`."""
    ids = _Ids()
    return [entry for entry in entries if ids.of(entry) not in there]


def used_by(manifests: dict[str, Manifest], runs: Sequence[str], program: str | None = None) -> set[bytes]:
    """Ids of the entries that any of the runs used; ArgumentError for a run that has noted nothing."""
    used: set[bytes] = set()
    for run in runs:
        if run not in manifests:
            known = ", ".join(map(repr, sorted(manifests))) or "none"
            raise ArgumentError(f"no run {run!r} has used this cache; those that have: {known}")
        used |= manifests[run].entries(program)
    return used


def prunable(
    native: _native.ExecutionCache,
    manifests: dict[str, Manifest],
    *,
    runs: Sequence[str],
    stage: str | None,
    unused_since: float | None,
) -> dict[str, list[bytes]]:
    """Keys by stage of the entries that all conditions given choose; with `runs`, of those that no other run used."""
    candidates: set[bytes] | None = None
    if runs:
        others = [run for run in manifests if run not in runs]
        candidates = used_by(manifests, runs) - used_by(manifests, others)
    ids = _Ids()
    keys: dict[str, list[bytes]] = {}
    for entry in native.entries(stage):
        if candidates is not None and ids.of(entry) not in candidates:
            continue
        if unused_since is not None:
            # One that was never read counts from when it was stored; one of which neither is known stays.
            last = max(entry[4], entry[5])
            if last == 0 or last >= unused_since:
                continue
        keys.setdefault(entry[0], []).append(entry[1])
    return keys


def copy(
    source: _native.ExecutionCache, target: _native.ExecutionCache, entries: Iterable[Chosen], *, replace: bool
) -> tuple[int, set[bytes]]:
    """Puts entries with their costs into `target`, batch by batch; those it has already only if they `replace` them.

    How many were put, and the ids of all that `target` has now. What fails its checksum is left out.
    """
    ids = _Ids()
    put = 0
    there: set[bytes] = set()
    for stage, batch in _batches(entries):
        if not replace:
            known = target.contains(stage, [entry[1] for entry in batch])
            there.update(ids.of(entry) for entry, have in zip(batch, known, strict=True) if have)
            batch = [entry for entry, have in zip(batch, known, strict=True) if not have]
        values = source.get_many(stage, [entry[1] for entry in batch])
        found = [(entry, value) for entry, value in zip(batch, values, strict=True) if value is not None]
        if found:
            keys, costs = [entry[1] for entry, _ in found], [entry[3] for entry, _ in found]
            target.put_many(stage, keys, [value for _, value in found], costs)
            put += len(found)
            there.update(ids.of(entry) for entry, _ in found)
    return put, there


def to_entry(listed: Chosen) -> Entry:
    """The public form of an entry."""
    return Entry(listed[0], listed[1].hex(), *listed[2:])


def timestamp(moment: float | datetime) -> float:
    """Unix seconds; ArgumentError for what is no moment."""
    if isinstance(moment, datetime):
        return moment.timestamp()
    if isinstance(moment, bool) or not isinstance(moment, int | float) or moment != moment:
        raise ArgumentError(f"unused_since must be a datetime or Unix seconds, got {moment!r}")
    return float(moment)


def _batches(entries: Iterable[Chosen]) -> Iterator[tuple[str, list[Chosen]]]:
    stages: dict[str, list[Chosen]] = {}
    sizes: dict[str, int] = {}
    for entry in entries:
        batch = stages.setdefault(entry[0], [])
        batch.append(entry)
        sizes[entry[0]] = sizes.get(entry[0], 0) + entry[2]
        if len(batch) >= _BATCH_ENTRIES or sizes[entry[0]] >= _BATCH_BYTES:
            yield entry[0], stages.pop(entry[0])
            del sizes[entry[0]]
    yield from stages.items()


class _Ids:
    """Ids of entries; those of their few stages are computed once."""

    def __init__(self) -> None:
        self._stages: dict[str, bytes] = {}

    def of(self, entry: Chosen) -> bytes:
        stage = self._stages.get(entry[0]) or self._stages.setdefault(entry[0], name_id(entry[0]))
        return entry_id(stage, entry[1])
