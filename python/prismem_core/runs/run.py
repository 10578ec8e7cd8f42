"""The run directory: manifest, journal and the files derived from it.

    run.json  journal.jsonl  programs/n07-3f2a91c0.py  patches/n05-n07.diff  evaluations/n07.jsonl

`run.json` says what the run is made of; only what confines its programs can change in it, when a later session is
confined less. The files in the three folders come from the journal: delete
them and they come back when the run is opened. A lock, which vanishes with its process, keeps a directory to one
process.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from filelock import FileLock, Timeout

from prismem_core.digests import canonical_json
from prismem_core.errors import RunError
from prismem_core.runs.events import Evaluated, Event, ProgramAdded, RunFinished
from prismem_core.runs.isolation import Isolation, isolation_from_json, weakest
from prismem_core.runs.journal import Journal, read_journal, utc_now

FORMAT = "prismem-run"
FORMAT_VERSION = 1
MANIFEST = "run.json"
JOURNAL = "journal.jsonl"
LOCK = "run.lock"
# In the order of Manifest's fields.
_MANIFEST_KEYS = {"version": str, "settings": dict, "data": dict, "roles": dict, "extra": dict}
_SECRET = re.compile(r"(api_?key|password|secret|authorization|bearer)$", re.IGNORECASE)


@dataclass(frozen=True)
class Manifest:
    """What a run is made of.

    `version` is that of this library, `settings` those of the evolution, `data` holds at least `digest`, `roles` maps
    each role to its identity. `extra` is the caller's (paths, split, recipe). No value may be a secret. `isolation` is
    that of the weakest session so far (`runs/isolation.py`).
    """

    version: str
    settings: Mapping[str, Any]
    data: Mapping[str, Any]
    roles: Mapping[str, str]
    extra: Mapping[str, Any] = field(default_factory=dict)
    isolation: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The object in run.json."""
        return {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "version": self.version,
            "settings": dict(self.settings),
            "data": dict(self.data),
            "roles": dict(self.roles),
            "extra": dict(self.extra),
            "isolation": dict(self.isolation),
        }


def read_manifest(directory: Path) -> Manifest:
    """The manifest of a run directory; RunError for a directory that is missing or is not one."""
    if not directory.is_dir():
        raise RunError(f"no run directory at {directory}; start one with `prismem evolve --run {directory}`")
    path = directory / MANIFEST
    try:
        value = json.loads(path.read_bytes().decode("utf-8"))
    except FileNotFoundError:
        raise RunError(
            f"{directory} is not a run directory: it has no {MANIFEST}; name the folder that was given to --run"
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise RunError(f"{path} cannot be read: {error}; mend its rights, or restore it from a copy") from error
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise RunError(
            f"{directory} is not a run directory: {MANIFEST} was not written by prismem; "
            "name the folder that was given to --run"
        )
    if value.get("format_version") != FORMAT_VERSION:
        raise RunError(
            f"{directory} has run format {value.get('format_version')!r}; this version reads format {FORMAT_VERSION}"
        )
    for key, kind in _MANIFEST_KEYS.items():
        if not isinstance(value.get(key), kind):
            raise RunError(f"{path} lacks a sound {key!r}; restore it from a copy or start a new run")
    isolation = value.get("isolation", {})
    isolation_from_json(isolation)
    return replace(Manifest(*(value[key] for key in _MANIFEST_KEYS)), isolation=isolation)


@dataclass(frozen=True)
class RunRecord:
    """What a finished, paused or running run has written so far."""

    directory: Path
    manifest: Manifest
    events: tuple[Event, ...]


def read_run(directory: str | Path) -> RunRecord:
    """Read a run without locking or changing it (for reports); RunError where it is none or is damaged."""
    directory = Path(directory)
    manifest = read_manifest(directory)
    events, _ = read_journal(directory / JOURNAL)
    return RunRecord(directory, manifest, tuple(events))


class Run:
    """A run directory that this process owns; a context manager.

    `create` wants a directory that is missing or empty, `open` one that `create` made. RunError says which of these
    failed.
    """

    def __init__(self, directory: Path, manifest: Manifest, lock: FileLock, clock: Callable[[], str]) -> None:
        self.directory = directory
        self.manifest = manifest
        self._lock = lock
        self._journal = Journal(directory / JOURNAL, clock=clock)

    @classmethod
    def create(cls, directory: str | Path, manifest: Manifest, *, clock: Callable[[], str] = utc_now) -> Run:
        """Make a new run directory."""
        directory = Path(directory)
        _refuse_secrets(manifest.to_json(), MANIFEST)
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(
                f"cannot make the run directory {directory}: {error.strerror}; name one in a folder you may write to"
            ) from error
        if not (directory / MANIFEST).exists():
            _check_empty(directory)  # before the lock, so that somebody else's directory stays as it was
        lock = _lock(directory)
        try:
            _check_empty(directory)
            # The journal comes first: a directory with a manifest is a whole run, one without can be made again.
            (directory / JOURNAL).write_bytes(b"")
            _write(directory / MANIFEST, _manifest_bytes(manifest))
            return cls(directory, manifest, lock, clock)
        except BaseException as error:
            lock.release()
            if isinstance(error, OSError):
                raise RunError(f"cannot write the run directory {directory}: {error.strerror}") from error
            raise

    @classmethod
    def open(
        cls,
        directory: str | Path,
        *,
        version: str | None = None,
        data_digest: str | None = None,
        roles: Mapping[str, str] | None = None,
        clock: Callable[[], str] = utc_now,
    ) -> Run:
        """Open a run to go on with it; a given `version`, `data_digest` or `roles` must be the run's own."""
        directory = Path(directory)
        manifest = read_manifest(directory)
        _compare("prismem-core version", manifest.version, version)
        _compare("data digest", manifest.data.get("digest"), data_digest)
        for role, identity in (roles or {}).items():
            _compare(f"{role} role", manifest.roles.get(role), identity)
        lock = _lock(directory)
        try:
            run = cls(directory, manifest, lock, clock)
        except BaseException:
            lock.release()
            raise
        try:
            run.restore()
        except BaseException:
            run.close()
            raise
        return run

    @property
    def events(self) -> tuple[Event, ...]:
        """All events of the journal."""
        return self._journal.events

    @property
    def finished(self) -> bool:
        """Whether the evolution has ended."""
        return any(isinstance(event, RunFinished) for event in self._journal.events)

    def confine(self, session: Isolation) -> None:
        """Note what confines the programs of this session, before any of them runs: the manifest keeps the weakest."""
        earlier = isolation_from_json(self.manifest.isolation)
        manifest = replace(self.manifest, isolation=weakest((earlier, session)).to_json())
        if manifest != self.manifest:
            self._write(self.directory / MANIFEST, _manifest_bytes(manifest))
            self.manifest = manifest

    def append(self, event: Event) -> None:
        """Write an event to the journal, then the files that derive from it."""
        self._journal.append(event)
        self._derive(event)

    def rewind(self) -> None:
        """Cut the events of an unfinished iteration, so that it can run again from its start.

        What follows the end of the run (test evaluations) is kept.
        """
        events = self._journal.events
        keep = len(events)
        if not self.finished:
            while keep and not events[keep - 1].checkpoint:
                keep -= 1
        for event in self._journal.cut(keep):
            for path, _ in self._files(event):
                path.unlink(missing_ok=True)

    def restore(self) -> None:
        """Write every derived file that is missing."""
        files = {path: data for event in self._journal.events for path, data in self._files(event)}
        for path, data in files.items():
            if not path.exists():
                self._write(path, data)

    def discard(self, *others: str) -> None:
        """Close the run and remove its files and `others` of its directory: for a run that came to nothing."""
        for name in (*others, JOURNAL, MANIFEST):
            path = self.directory / name
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
        self.close()
        (self.directory / LOCK).unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.directory.rmdir()

    def close(self) -> None:
        """Close the journal and give up the lock; closing twice does no harm."""
        self._journal.close()
        self._lock.release()

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _derive(self, event: Event) -> None:
        for path, data in self._files(event):
            self._write(path, data)

    def _files(self, event: Event) -> Iterator[tuple[Path, bytes]]:
        if isinstance(event, ProgramAdded):
            name = f"{event.program}-{event.digest[:8]}.py"
            yield self.directory / "programs" / name, event.source.encode("utf-8", "surrogatepass")
            if event.parent is not None:
                patch = self.directory / "patches" / f"{event.parent}-{event.program}.diff"
                yield patch, event.patch.encode("utf-8", "surrogatepass")
        elif isinstance(event, Evaluated) and event.failure is None:
            suffix = "" if event.purpose == "full" else f"-{event.purpose}"
            rows = (
                canonical_json({"task": task, "score": score}) + b"\n" for task, score in sorted(event.scores.items())
            )
            yield self.directory / "evaluations" / f"{event.program}{suffix}.jsonl", b"".join(rows)

    def _write(self, path: Path, data: bytes) -> None:
        try:
            _write(path, data)
        except OSError as error:
            raise RunError(
                f"cannot write {path}: {error.strerror}; the journal is whole, resume the run once there is room"
            ) from error


def _manifest_bytes(manifest: Manifest) -> bytes:
    return json.dumps(manifest.to_json(), indent=2, sort_keys=True).encode() + b"\n"


def _write(path: Path, data: bytes) -> None:
    """Write a file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    try:
        temporary.write_bytes(data)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _check_empty(directory: Path) -> None:
    """Refuse a directory that holds a run or anything else."""
    if (directory / MANIFEST).exists():
        raise RunError(f"{directory} already holds a run; go on with `prismem resume {directory}` or name another")
    try:
        others = sorted(path.name for path in directory.iterdir() if path.name not in (LOCK, JOURNAL))
    except OSError as error:
        raise RunError(f"cannot read the run directory {directory}: {error.strerror}") from error
    if others:
        raise RunError(f"{directory} is not empty (it holds {others[0]}); a new run needs an empty directory")


def _lock(directory: Path) -> FileLock:
    lock = FileLock(directory / LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise RunError(f"{directory} is in use by another process; wait for it to end or stop it") from None
    except OSError as error:
        raise RunError(f"cannot lock {directory}: {error.strerror}") from error
    return lock


def _compare(what: str, recorded: Any, current: str | None) -> None:
    if current is not None and recorded != current:
        raise RunError(
            f"the run was made with {what} {recorded!r}, now it is {current!r}; "
            "its history could not be continued faithfully: use the same or start a new run"
        )


def _refuse_secrets(value: Any, where: str) -> None:
    if isinstance(value, Mapping):
        for key, item in value.items():
            if _SECRET.search(str(key)):
                raise RunError(f"{where} must not hold secrets, but {key!r} looks like one; leave it out")
            _refuse_secrets(item, where)
    elif isinstance(value, (list, tuple)):
        for item in value:
            _refuse_secrets(item, where)
