"""Which runs and programs used an entry: noted while a cache is tagged, in files beside its segments or in memory."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from pathlib import Path

from prismem_core.cache import manifests
from prismem_core.cache.manifests import NO_PROGRAM, Manifest, name_id

_BUFFER_BYTES = 4096
# How long hits may go on before it is looked whether the manifest is still there; puts look each time.
_LOOK_SECONDS = 1.0
# Notes remembered so that none is written twice; a session that has more forgets them and may repeat some.
_REMEMBERED = 1 << 19


class _Session:
    """What this process has noted for one run."""

    def __init__(self, run: str, path: Path | None) -> None:
        self.run = run
        self.path = path
        self.seen: set[bytes] = set()
        self.named: set[str] = set()
        self.pending = bytearray()
        self.file: tuple[int, int] | None = None  # the manifest written to last
        self.looked_at = 0.0

    def forget(self) -> None:
        """What was written is gone with its file."""
        self.seen.clear()
        self.named.clear()
        self.file = None


class Tags:
    """The notes of one cache; thread-safe, and of no effect in a forked child.

    With a `directory` that is written to they go to its manifests. Without one they stay in memory, as do those of a
    disk that cannot be written, and `failure` says why.
    """

    def __init__(self, directory: Path | None, read_only: bool) -> None:
        self.failure: str | None = None
        self._directory = directory
        self._writes = directory is not None and not read_only
        self._lock = threading.Lock()
        self._collected = threading.local()
        self._process = os.getpid()
        self._sessions: dict[str, _Session] = {}
        # By run, program and stage: the session, and what notes of the three begin with.
        self._heads: dict[tuple[str, str | None, str], tuple[_Session, bytes]] = {}

    def note(self, run: str, program: str | None, stage: str, keys: Iterable[str | bytes], *, at_once: bool) -> None:
        """Notes that a run and program used entries; what waits is written `at_once`, or when a few KiB wait."""
        session, head = self._heads.get((run, program, stage)) or self._head(run, program, stage)
        # Most uses are of what has been noted already: those take no lock.
        plain = [key if isinstance(key, bytes) else bytes.fromhex(key) for key in keys]
        notes = [head + key for key in plain]
        uses: dict[str, set[bytes]] | None = getattr(self._collected, "uses", None)
        if uses is not None:
            uses.setdefault(stage, set()).update(plain)
        self._look(session, at_once)
        if session.seen.issuperset(notes) and not (at_once and session.pending):
            return
        if os.getpid() != self._process:
            return
        with self._lock:
            self._name(session, program)
            self._add(session, notes)
            if session.pending and (at_once or len(session.pending) >= _BUFFER_BYTES):
                self._write(session)

    @contextmanager
    def collecting(self) -> Iterator[Mapping[str, Set[bytes]]]:
        """The entries that this thread notes inside the block, by stage."""
        before = getattr(self._collected, "uses", None)
        uses: dict[str, set[bytes]] = {}
        self._collected.uses = uses
        try:
            yield uses
        finally:
            self._collected.uses = before

    def _look(self, session: _Session, at_once: bool) -> None:
        """Notices when another process has removed the manifest: what it held is to be noted anew."""
        if session.file is None or session.path is None:
            return
        now = time.monotonic()
        if not at_once and now - session.looked_at < _LOOK_SECONDS:
            return
        session.looked_at = now
        if manifests.identity(session.path) != session.file:
            with self._lock:
                session.forget()

    def adopt(self, manifest: Manifest, entries: set[bytes], program: str | None = None) -> None:
        """Takes over the notes of another cache's manifest about these entries."""
        wanted = None if program is None else name_id(program)
        with self._lock:
            session = self._session(manifest.run)
            notes = [
                note
                for note in sorted(manifest.notes)
                if (wanted is None or note[8:16] == wanted) and note[:8] + note[16:] in entries
            ]
            for own in sorted({note[8:16] for note in notes} - {NO_PROGRAM}):
                self._name(session, manifest.programs.get(own))
            self._add(session, notes)
            self._write(session)

    def write_out(self) -> None:
        """Writes what waits."""
        if os.getpid() != self._process:
            return
        with self._lock:
            for session in self._sessions.values():
                self._write(session)

    def manifests(self) -> dict[str, Manifest]:
        """What every run used, by name: the files of all processes and what this one keeps in memory."""
        self.write_out()
        found = [] if self._directory is None else [manifest for _, manifest in manifests.read_all(self._directory)]
        with self._lock:
            if not self._writes:
                found += [
                    Manifest(s.run, set(s.seen), {name_id(name): name for name in s.named})
                    for s in self._sessions.values()
                    if s.seen
                ]
        return manifests.merged(found)

    def forget(self, runs: Sequence[str] | None = None) -> None:
        """Removes the manifests of these runs, or of all."""
        with self._lock:
            for run in list(self._sessions) if runs is None else runs:
                self._sessions.pop(run, None)
            self._heads.clear()
            if self._directory is not None:
                for path, manifest in list(manifests.read_all(self._directory)):
                    if runs is None or manifest.run in runs:
                        try:
                            path.unlink(missing_ok=True)
                        except OSError as error:
                            self.failure = f"{error.strerror} ({path})"

    def _head(self, run: str, program: str | None, stage: str) -> tuple[_Session, bytes]:
        if os.getpid() != self._process:
            return _Session(run, None), bytes(16)
        with self._lock:
            head = self._session(run), name_id(stage) + (NO_PROGRAM if program is None else name_id(program))
            self._heads[run, program, stage] = head
            return head

    def _session(self, run: str) -> _Session:
        session = self._sessions.get(run)
        if session is None:
            path = None
            if self._directory is not None:
                path = self._directory / manifests.FOLDER / manifests.file_name(run)
            session = self._sessions[run] = _Session(run, path)
        return session

    def _name(self, session: _Session, program: str | None) -> None:
        """Gives the name behind a program's id, once."""
        if program is not None and program not in session.named:
            session.named.add(program)
            if self._writes:
                session.pending += manifests.program_rows(program)

    def _add(self, session: _Session, notes: Iterable[bytes]) -> None:
        for note in notes:
            if note not in session.seen:
                if self._writes:
                    if len(session.seen) >= _REMEMBERED:
                        session.seen.clear()
                    session.pending += manifests.note_row(note)
                session.seen.add(note)

    def _write(self, session: _Session) -> None:
        if not session.pending or not self._writes or session.path is None:
            return
        try:
            session.file = manifests.append(session.path, session.run, bytes(session.pending))
        except OSError as error:
            # What was remembered is kept from now on: notes live as long as the values that memory keeps.
            self._writes = False
            self.failure = f"{error.strerror or error} ({session.path})"
        session.pending.clear()
