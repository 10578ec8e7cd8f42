"""The caches and key-value stores under one face, each in the best way its library offers."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from prismem_core.cache import ExecutionCache

from ..contest import OURS, require

STAGE = "bench"
"""The stage of every entry in the cache of this project."""

_MAP_BYTES = 16 << 30
"""What an lmdb file may grow to."""


class Store:
    """An open store of bytes under keys of 32 bytes.

    `get` and `put` are attributes, the calls of the library itself where it has such, so that the face costs nothing.
    A put outlives the process, however it ends; `flush` brings what was put to the disk.
    """

    get: Callable[[bytes], Any]
    put: Callable[[bytes, bytes], Any]

    def put_many(self, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        """Store all in one group."""
        raise NotImplementedError

    def flush(self) -> None:
        """Bring everything to the disk (fsync)."""

    def close(self) -> None:
        """Give back what the store holds."""


class Prismem(Store):
    """The execution cache."""

    def __init__(self, path: Path) -> None:
        self.cache = ExecutionCache(path)
        self.get = partial(self.cache.get, STAGE)
        self.put = partial(self.cache.put, STAGE)
        self.flush = self.cache.flush  # type: ignore[method-assign]
        self.close = self.cache.close  # type: ignore[method-assign]

    def put_many(self, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        self.cache.put_many(STAGE, keys, values)


class Dict(Store):
    """A dict of bytes: memory only."""

    def __init__(self, path: Path) -> None:
        self.entries: dict[bytes, bytes] = {}
        self.get = self.entries.get
        self.put = self.entries.__setitem__

    def put_many(self, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        self.entries.update(zip(keys, values, strict=True))

    def close(self) -> None:
        self.entries.clear()


class Lmdb(Store):
    """lmdb, a transaction a call; with sync each commit is on the disk when it returns."""

    def __init__(self, path: Path, *, sync: bool) -> None:
        lmdb = require("lmdb", "lmdb")
        path.mkdir(parents=True, exist_ok=True)
        self.environment: Any = lmdb.open(str(path), map_size=_MAP_BYTES, sync=sync, metasync=sync)
        begin = self.environment.begin
        # A read transaction ends with its last reference; `with` costs another third.
        self.get = lambda key: begin().get(key)
        self._sync = sync

        def put(key: bytes, value: bytes) -> None:
            with begin(write=True) as transaction:
                transaction.put(key, value)

        self.put = put

    def put_many(self, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        with self.environment.begin(write=True) as transaction, transaction.cursor() as cursor:
            cursor.putmulti(zip(keys, values, strict=True))

    def flush(self) -> None:
        if not self._sync:
            self.environment.sync(True)

    def close(self) -> None:
        self.environment.close()


class LmdbBlocks(Lmdb):
    """lmdb, a transaction in a `with` block a call, as its documentation shows."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, sync=False)
        begin = self.environment.begin

        def get(key: bytes) -> bytes | None:
            with begin() as transaction:
                found: bytes | None = transaction.get(key)
                return found

        self.get = get


class RocksDict(Store):
    """RocksDB with its write-ahead log, which a put hands to the system."""

    def __init__(self, path: Path) -> None:
        rocksdict = require("rocksdict", "rocksdict")
        options = rocksdict.Options(raw_mode=True)
        options.create_if_missing(True)
        self.database: Any = rocksdict.Rdict(str(path), options)
        self.get = self.database.get
        self.put = self.database.put
        self._batch = partial(rocksdict.WriteBatch, raw_mode=True)

    def put_many(self, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        batch = self._batch()
        for key, value in zip(keys, values, strict=True):
            batch.put(key, value)
        self.database.write(batch)

    def flush(self) -> None:
        self.database.flush_wal(True)

    def close(self) -> None:
        self.database.close()


class Plyvel(Store):
    """LevelDB."""

    def __init__(self, path: Path) -> None:
        plyvel = require("plyvel", "plyvel")
        self._path = path
        self.database: Any = plyvel.DB(str(path), create_if_missing=True)
        self.get = self.database.get
        self.put = self.database.put

    def put_many(self, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        with self.database.write_batch() as batch:
            for key, value in zip(keys, values, strict=True):
                batch.put(key, value)

    def flush(self) -> None:
        for log in self._path.glob("*.log"):
            _sync(log)

    def close(self) -> None:
        self.database.close()


class Sqlite(Store):
    """The standard library's sqlite3 with a log and synchronous=NORMAL: a commit does not wait for the disk."""

    def __init__(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self._log = path / "store.db-wal"
        self.connection = sqlite3.connect(path / "store.db", isolation_level=None, timeout=60)
        execute = self.connection.execute
        for pragma in ("journal_mode=wal", "synchronous=normal", f"mmap_size={_MAP_BYTES}"):
            execute(f"pragma {pragma}")
        execute("create table if not exists entries (key blob primary key, value blob) without rowid")

        def get(key: bytes) -> bytes | None:
            row = execute("select value from entries where key = ?", (key,)).fetchone()
            return None if row is None else row[0]

        self.get = get
        self.put = lambda key, value: execute("insert or replace into entries values (?, ?)", (key, value))

    def put_many(self, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        self.connection.execute("begin immediate")
        self.connection.executemany("insert or replace into entries values (?, ?)", zip(keys, values, strict=True))
        self.connection.execute("commit")

    def flush(self) -> None:
        if self._log.exists():
            _sync(self._log)

    def close(self) -> None:
        self.connection.close()


class DiskCache(Store):
    """diskcache without an eviction policy."""

    def __init__(self, path: Path) -> None:
        diskcache = require("diskcache", "diskcache")
        self._log = path / "cache.db-wal"
        self.cache: Any = diskcache.Cache(str(path), size_limit=1 << 40, eviction_policy="none")
        self.get = self.cache.get
        self.put = self.cache.set

    def put_many(self, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        with self.cache.transact():
            for key, value in zip(keys, values, strict=True):
                self.cache.set(key, value)

    def flush(self) -> None:
        if self._log.exists():
            _sync(self._log)

    def close(self) -> None:
        self.cache.close()


class Joblib(Store):
    """joblib.Memory: a function whose results are kept under its arguments."""

    def __init__(self, path: Path) -> None:
        joblib = require("joblib", "joblib")
        new: dict[bytes, bytes] = {}

        def produce(key: bytes) -> bytes:
            return new[key]

        self.get = joblib.Memory(str(path), verbose=0).cache(produce)

        def put(key: bytes, value: bytes) -> None:
            new[key] = value
            self.get(key)
            del new[key]

        self.put = put

    def put_many(self, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        for key, value in zip(keys, values, strict=True):
            self.put(key, value)


class LangchainSqlite(Store):
    """langchain's SQLiteCache of generations, with the bytes as text."""

    def __init__(self, path: Path) -> None:
        cache = require("langchain_community.cache", "langchain-community", extra=False)
        outputs = require("langchain_core.outputs", "langchain-core")
        path.mkdir(parents=True, exist_ok=True)
        store: Any = cache.SQLiteCache(str(path / "cache.db"))

        def get(key: bytes) -> bytes | None:
            found = store.lookup(key.hex(), "model")
            return bytes.fromhex(found[0].text) if found else None

        self.get = get
        self.put = lambda key, value: store.update(key.hex(), "model", [outputs.Generation(text=value.hex())])

    def put_many(self, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        for key, value in zip(keys, values, strict=True):
            self.put(key, value)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@dataclass(frozen=True)
class Kind:
    """A store that can be opened: its library and module, and whether it is too slow for more entries than are read."""

    library: str
    module: str
    open: Callable[[Path], Store]
    slow: bool = False


DICT = "dict of bytes"
LMDB = "lmdb, nosync"
LMDB_SYNC = "lmdb"
LMDB_BLOCKS = "lmdb, nosync, with blocks"
ROCKSDICT = "rocksdict"
PLYVEL = "plyvel"
SQLITE = "sqlite3 WAL NORMAL"
DISKCACHE = "diskcache"
JOBLIB = "joblib.Memory"
LANGCHAIN = "langchain SQLiteCache"
PRISMEM = "prismem"

KINDS: dict[str, Kind] = {
    PRISMEM: Kind(OURS, "prismem_core.cache", Prismem),
    DICT: Kind("python", "sys", Dict),
    LMDB: Kind("lmdb", "lmdb", partial(Lmdb, sync=False)),
    LMDB_SYNC: Kind("lmdb", "lmdb", partial(Lmdb, sync=True)),
    LMDB_BLOCKS: Kind("lmdb", "lmdb", LmdbBlocks),
    PLYVEL: Kind("plyvel", "plyvel", Plyvel),
    SQLITE: Kind("python", "sqlite3", Sqlite),
    DISKCACHE: Kind("diskcache", "diskcache", DiskCache),
    JOBLIB: Kind("joblib", "joblib", Joblib, slow=True),
    LANGCHAIN: Kind("langchain-community", "langchain_community", LangchainSqlite, slow=True),
    # Last: its threads go on after a call, and what follows pays for them.
    ROCKSDICT: Kind("rocksdict", "rocksdict", RocksDict),
}
"""Every store by its name."""


class Places:
    """A temporary directory with a store a name; `finish` closes and removes all."""

    def __init__(self) -> None:
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._open: dict[str, Store] = {}

    def path(self, name: str) -> Path:
        """Where the store of this name lives."""
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="prismem-bench-")
        return Path(self._folder.name) / name.replace(" ", "-").replace(",", "")

    def store(self, name: str) -> Store:
        """The store of this name, opened when first asked for; PeerMissing where its library is missing."""
        if name not in self._open:
            self._open[name] = KINDS[name].open(self.path(name))
        return self._open[name]

    def finish(self) -> None:
        """Close every store and remove what they left."""
        while self._open:
            self._open.popitem()[1].close()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None
