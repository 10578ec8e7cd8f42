"""Many embeddings by their keys into one matrix, against stores of bytes and against rows taken by number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..contest import OURS, Competitor, Contest, Finding, Goal, Job, Run, Work
from ..data import Floats, rows
from .stores import DICT, DISKCACHE, KINDS, LMDB, PLYVEL, PRISMEM, ROCKSDICT, SQLITE, STAGE, Dict, Lmdb, Places, Store
from .stores import Prismem as PrismemStore

VERIFIED = "prismem, verified"
FLOOR = "V[ids]"
LMDB_INTO = "lmdb, into the matrix"
LMDB_JOINED = "lmdb, joined"
DICT_INTO = "dict of bytes, into the matrix"
DICT_JOINED = "dict of bytes, joined"

_GROUP = 5000
"""Entries put at a time."""


class _Gather:
    """The asked keys, the rows they name, and a matrix of their shape for whoever can write into one."""

    def __init__(self, values: Floats, ids: NDArray[np.int64], keys: Sequence[bytes]) -> None:
        self.values, self.ids, self.keys = values, ids, keys
        self.asked = [keys[i] for i in ids]
        self.row_bytes = values.shape[1] * 4

    def matrix(self) -> Floats:
        """A matrix of the asked shape, its pages touched."""
        return np.zeros((len(self.ids), self.values.shape[1]), np.float32)

    def fill(self, store: Store) -> None:
        """Put every row as bytes."""
        for begin in range(0, len(self.keys), _GROUP):
            part = self.values[begin : begin + _GROUP]
            store.put_many(self.keys[begin : begin + _GROUP], [row.tobytes() for row in part])

    def joined(self, values: Sequence[bytes]) -> Floats:
        """The rows of these bytes in a new matrix."""
        return np.frombuffer(b"".join(values), np.float32).reshape(len(self.asked), -1)


def _copied(gather: _Gather, look_up: Callable[[bytes], Any], target: memoryview) -> None:
    size, at = gather.row_bytes, 0
    for key in gather.asked:
        target[at : at + size] = look_up(key)
        at += size


def _ours(gather: _Gather, places: Places) -> PrismemStore:
    """The cache, filled once for all its ways."""
    store = places.store(PRISMEM)
    assert isinstance(store, PrismemStore)
    if not store.cache.contains(STAGE, gather.asked[:1])[0]:
        for begin in range(0, len(gather.keys), _GROUP):
            store.cache.put_rows(STAGE, gather.keys[begin : begin + _GROUP], gather.values[begin : begin + _GROUP])
    return store


def _ours_into(gather: _Gather, places: Places, *, verify: bool) -> Run:
    cache, out, keys = _ours(gather, places).cache, gather.matrix(), gather.asked
    return lambda: cache.get_rows(STAGE, keys, out=out, verify=verify)[0]


def _ours_new(gather: _Gather, places: Places) -> Run:
    cache, keys, dim = _ours(gather, places).cache, gather.asked, gather.values.shape[1]
    return lambda: cache.get_rows(STAGE, keys, dim)[0]


def _lmdb(gather: _Gather, places: Places) -> Lmdb:
    store = places.store(LMDB)
    assert isinstance(store, Lmdb)
    if store.get(gather.asked[0]) is None:
        gather.fill(store)
        store.flush()
    return store


def _lmdb_into(gather: _Gather, places: Places) -> Run:
    begin, out = _lmdb(gather, places).environment.begin, gather.matrix()
    target = memoryview(out.data).cast("B")

    def run() -> Floats:
        with begin(buffers=True) as transaction:
            _copied(gather, transaction.get, target)
        return out

    return run


def _lmdb_joined(gather: _Gather, places: Places) -> Run:
    begin = _lmdb(gather, places).environment.begin

    def run() -> Floats:
        with begin(buffers=True) as transaction:
            get = transaction.get
            return gather.joined([get(key) for key in gather.asked])

    return run


def _lmdb_rows(gather: _Gather, places: Places) -> Run:
    begin, out = _lmdb(gather, places).environment.begin, gather.matrix()

    def run() -> Floats:
        with begin(buffers=True) as transaction:
            for i, key in enumerate(gather.asked):
                out[i] = np.frombuffer(transaction.get(key), np.float32)
        return out

    return run


def _dict(gather: _Gather, places: Places) -> Dict:
    store = places.store(DICT)
    assert isinstance(store, Dict)
    if not store.entries:
        gather.fill(store)
    return store


def _dict_into(gather: _Gather, places: Places) -> Run:
    look_up, out = _dict(gather, places).entries.__getitem__, gather.matrix()
    target = memoryview(out.data).cast("B")

    def run() -> Floats:
        _copied(gather, look_up, target)
        return out

    return run


def _dict_joined(gather: _Gather, places: Places) -> Run:
    look_up = _dict(gather, places).entries.__getitem__
    return lambda: gather.joined([look_up(key) for key in gather.asked])


def _each(gather: _Gather, places: Places, name: str) -> Run:
    store = places.store(name)
    gather.fill(store)
    get = store.get
    return lambda: gather.joined([get(key) for key in gather.asked])


def _rocksdict(gather: _Gather, places: Places) -> Run:
    store = places.store(ROCKSDICT)
    gather.fill(store)
    store.flush()
    get: Callable[[list[bytes]], list[bytes]] = store.get  # type: ignore[assignment]
    # A list of keys is one call of the library.
    return lambda: gather.joined(get(gather.asked))


def _sqlite(gather: _Gather, places: Places) -> Run:
    store = places.store(SQLITE)
    gather.fill(store)
    execute = store.connection.execute  # type: ignore[attr-defined]
    group = 500
    text = f"select key, value from entries where key in ({', '.join('?' * group)})"

    def run() -> Floats:
        found: dict[bytes, bytes] = {}
        for begin in range(0, len(gather.asked), group):
            found.update(execute(text, gather.asked[begin : begin + group]))
        return gather.joined([found[key] for key in gather.asked])

    return run


def _taken(gather: _Gather) -> Run:
    values, ids = gather.values, gather.ids
    return lambda: values[ids]


def _taken_into(gather: _Gather) -> Run:
    values, ids, out = gather.values, gather.ids, gather.matrix()
    # mode="clip" writes into `out` itself; the default checks in a copy.
    return lambda: np.take(values, ids, axis=0, out=out, mode="clip")


def _prepare(count: int, dim: int, asked: int, quick: bool) -> Contest:
    if quick:
        count, asked = 3000, 500
    made = rows("isotropic", count, dim)
    rng = np.random.default_rng(1)
    keys = random_keys(rng, count)
    gather = _Gather(made.keys, rng.permutation(count)[:asked], keys)
    places = Places()
    work = Work(4.0 * asked * dim)
    expected = made.keys[gather.ids].tobytes()

    def check(_: Competitor, found: Any) -> Finding:
        same = found.dtype == np.float32 and found.shape == (asked, dim) and found.tobytes() == expected
        return Finding("" if same else "the matrix is not that of the rows, bit for bit")

    def competitor(name: str, library: str, way: Callable[..., Run], *more: Any, **named: Any) -> Competitor:
        return Competitor(name, library, partial(way, gather, *more, **named), work=work)

    return Contest(
        f"{made.description}, under random keys of 32 bytes; in the file cache of the system, or in memory",
        {"rows": count, "dim": dim, "asked": asked},
        [
            competitor(PRISMEM, OURS, _ours_into, places, verify=False),
            competitor(VERIFIED, OURS, _ours_into, places, verify=True),
            competitor("prismem, verified, new matrix", OURS, _ours_new, places),
            competitor(LMDB_INTO, "lmdb", _lmdb_into, places),
            competitor(LMDB_JOINED, "lmdb", _lmdb_joined, places),
            competitor("lmdb, numpy row by row", "lmdb", _lmdb_rows, places),
            competitor(DICT_INTO, "python", _dict_into, places),
            competitor(DICT_JOINED, "python", _dict_joined, places),
            competitor(FLOOR, "numpy", _taken),
            competitor("numpy.take into the matrix", "numpy", _taken_into),
            competitor(PLYVEL, KINDS[PLYVEL].library, _each, places, PLYVEL),
            competitor(SQLITE, KINDS[SQLITE].library, _sqlite, places),
            competitor(DISKCACHE, KINDS[DISKCACHE].library, _each, places, DISKCACHE),
            competitor(ROCKSDICT, KINDS[ROCKSDICT].library, _rocksdict, places),
        ],
        check,
        work,
        places.finish,
    )


def random_keys(rng: np.random.Generator, count: int) -> list[bytes]:
    """So many keys of 32 bytes."""
    data = rng.bytes(32 * count)
    return [data[at : at + 32] for at in range(0, len(data), 32)]


JOBS: Sequence[Job] = (
    Job(
        "cache/rows-1000x1024",
        "1000 random embeddings of 1024 float32 of 100,000 stored ones into one matrix",
        partial(_prepare, 100_000, 1024, 1000),
        (
            Goal(PRISMEM, LMDB_INTO, 6.0),
            Goal(PRISMEM, LMDB_JOINED, 6.0),
            Goal(VERIFIED, LMDB_INTO, 4.0),
            Goal(VERIFIED, LMDB_JOINED, 4.0),
            Goal(PRISMEM, DICT_INTO, 3.0),
            Goal(PRISMEM, DICT_JOINED, 3.0),
            Goal(PRISMEM, FLOOR, 1 / 1.6),
        ),
    ),
)
