"""A process that reads and writes one cache directory with others, and tells its parent what it has done.

Two kinds of entries, both known from their names alone: *facts*, which every process computes when it needs them, and
*notes*, each of which one slot of processes puts again and again in newer versions. Told, one line each, on standard
output: `start f` and `done f` around the computation of a fact, `seen f` where it was there, `note n v` once version v
of note n is stored, `wrong ...` for a value that should not be, `ready` at the beginning.

Arguments: directory, its bound in bytes, "keeps" or "evicts", slot, seconds since the epoch when facts began, how many
slots there are, then the version stored last of each own note. Where the bound is tight ("evicts") entries may be
missing; they are never wrong, and no older version comes back.
"""

from __future__ import annotations

import hashlib
import os
import random
import signal
import sys
import time
from pathlib import Path

import numpy as np

from prismem_core.cache import ExecutionCache

NOTES = 12
"""Notes of one slot."""

FACTS_PER_SECOND = 12
"""New facts that all processes together come to want."""

SEGMENT_BYTES = 512 << 10

ROW = 96
"""Elements of a fact that is a row of floats: every seventh is."""


def name_of(kind: str, number: int) -> bytes:
    return hashlib.sha256(f"{kind} {number}".encode()).digest()


def _filled(head: bytes, size: int) -> bytes:
    body = hashlib.sha256(head).digest()
    return head + (body * (size // 32 + 1))[:size]


def fact(number: int) -> bytes:
    """The value of a fact: of 0 to some 300,000 bytes, most of them short."""
    sizes = (0, 40, 200, 900, 2000, 5000, 9000, 20_000, 60_000, 300_000)
    chosen = name_of("size", number)[0]
    return _filled(b"fact %d " % number, sizes[min(chosen * 3 // 64, 9)] if chosen < 250 else sizes[9])


def row(number: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """The value of a fact that is a row."""
    return np.random.default_rng(number).standard_normal(ROW).astype(np.float32)


def is_row(number: int) -> bool:
    return number % 7 == 3


def note(number: int, version: int) -> bytes:
    """The value of a version of a note; its head says which it is, the rest is a digest of the head."""
    return _filled(b"note %d %d " % (number, version), name_of("size", number * 1000 + version)[0] * 40)


def version_of(number: int, value: bytes) -> int:
    """The version that this value is; ValueError where it is none whole."""
    words = value.split(b" ", 3)
    version = int(words[2])
    if value != note(number, version):
        raise ValueError(f"{value[:40]!r} is no version of note {number}")
    return version


class Worker:
    """The loop, step by step."""

    def __init__(
        self, directory: str, disk_bytes: int, evicts: bool, slot: int, began: float, slots: int, stored: list[int]
    ) -> None:
        self.cache = ExecutionCache(directory, segment_bytes=SEGMENT_BYTES, disk_bytes=disk_bytes)
        self.random = random.Random(os.getpid())
        self.evicts, self.began, self.slots = evicts, began, slots
        self.own = [slot * NOTES + i for i in range(NOTES)]
        self.stored = dict(zip(self.own, stored, strict=True))
        self.newest: dict[int, int] = {}
        self.known: set[int] = set()

    def tell(self, *words: object) -> None:
        os.write(1, (" ".join(map(str, words)) + "\n").encode())

    def wrong(self, *words: object) -> None:
        self.tell("wrong", *words)
        sys.exit(3)

    def check_own(self) -> None:
        """After a restart: each own note has the version acknowledged last, or the one that was being put."""
        for number in self.own:
            value = self.cache.get("notes", name_of("note", number))
            if value is None and self.evicts:
                continue
            version = 0 if value is None else version_of(number, value)
            if version not in (self.stored[number], self.stored[number] + 1):
                self.wrong("note", number, "has version", version, "after a restart, stored was", self.stored[number])

    def step(self) -> None:
        choice = self.random.random()
        if choice < 0.3:
            self.want_fact()
        elif choice < 0.5:
            self.put_notes()
        elif choice < 0.75:
            self.read_notes()
        elif choice < 0.9:
            self.read_facts()
        else:
            self.read_rows()

    def latest_fact(self) -> int:
        return int((time.time() - self.began) * FACTS_PER_SECOND)

    def want_fact(self) -> None:
        """One of the newest facts, which others want at this moment; any of them where room is what they fight for."""
        latest = self.latest_fact()
        number = max(0, latest - self.random.randrange(latest + 1 if self.evicts else 3))

        def compute() -> bytes:
            self.tell("start", number)
            computed.append(number)
            time.sleep(0 if self.evicts else self.random.choice((0.0, 0.002, 0.02)))
            return fact(number)

        computed: list[int] = []
        if is_row(number):
            if not self.cache.contains("rows", [name_of("fact", number)])[0]:
                with self.cache.lease("rows", [name_of("fact", number)]):
                    if not self.cache.contains("rows", [name_of("fact", number)])[0]:
                        self.tell("start", number)
                        self.cache.put_rows("rows", [name_of("fact", number)], row(number)[None])
                        computed.append(number)
        elif self.cache.get_or_compute("facts", name_of("fact", number), compute) != fact(number):
            self.wrong("fact", number, "from get_or_compute")
        self.tell("done" if computed else "seen", number)
        self.known.add(number)

    def put_notes(self) -> None:
        """New versions of some own notes, one by one or as a group, each read back at once."""
        chosen = self.random.sample(self.own, self.random.choice((1, 1, 4)))
        keys = [name_of("note", number) for number in chosen]
        values = [note(number, self.stored[number] + 1) for number in chosen]
        if len(chosen) == 1:
            self.cache.put("notes", keys[0], values[0])
        else:
            self.cache.put_many("notes", keys, values)
        for number in chosen:
            self.stored[number] += 1
        self.tell("note", *[word for number in chosen for word in (number, self.stored[number])])
        got = self.cache.get_many("notes", keys)
        if any(found != put and not (found is None and self.evicts) for found, put in zip(got, values, strict=True)):
            self.wrong("own notes", chosen, "are not what was just put")

    def read_notes(self) -> None:
        """Notes of any slot: whole, and never older than seen before."""
        for number in self.random.choices(range(self.slots * NOTES), k=5):
            value = self.cache.get("notes", name_of("note", number))
            if value is None and self.evicts:
                continue
            version = 0 if value is None else version_of(number, value)
            if version < self.newest.get(number, 0):
                self.wrong("note", number, "fell back to version", version, "from", self.newest[number])
            self.newest[number] = version

    def read_facts(self) -> None:
        """Facts of any age: right where they are there, and there where they were seen before."""
        numbers = [n for n in self.random.choices(range(self.latest_fact() + 1), k=8) if not is_row(n)]
        values = self.cache.get_many("facts", [name_of("fact", number) for number in numbers])
        for number, value in zip(numbers, values, strict=True):
            if value is None and number in self.known and not self.evicts:
                self.wrong("fact", number, "is lost")
            if value is not None and value != fact(number):
                self.wrong("fact", number, "is", value[:40])
            if value is not None:
                self.known.add(number)

    def read_rows(self) -> None:
        """Facts that are rows, into one matrix."""
        numbers = [n for n in self.random.choices(range(self.latest_fact() + 1), k=30) if is_row(n)]
        rows, found = self.cache.get_rows("rows", [name_of("fact", number) for number in numbers], ROW)
        for number, values, there in zip(numbers, rows, found, strict=True):
            if not there and number in self.known and not self.evicts:
                self.wrong("row", number, "is lost")
            if there and not np.array_equal(values, row(number)):
                self.wrong("row", number, "is", values[:4])
            if not there and values.any():
                self.wrong("row", number, "is not there and not zero")
            if there:
                self.known.add(number)


def main() -> None:
    """Work until killed, or until asked to end, in order."""
    stop: list[int] = []
    signal.signal(signal.SIGTERM, lambda *_: stop.append(1))
    directory, disk_bytes, what, slot, began, slots, *stored = sys.argv[1:]
    worker = Worker(
        directory, int(disk_bytes), what == "evicts", int(slot), float(began), int(slots), list(map(int, stored))
    )
    worker.check_own()
    worker.tell("ready")
    while not stop:
        worker.step()
    if worker.cache.damaged:
        worker.wrong("damage was met:", worker.cache.damaged)
    worker.cache.close()


if __name__ == "__main__":
    # The folder of this file must not stand before the standard library.
    sys.path[:] = [part for part in sys.path if Path(part or ".").resolve() != Path(__file__).resolve().parent]
    main()
