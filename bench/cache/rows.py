"""Many embeddings by their keys into one matrix, against stores of bytes and against rows taken by number."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
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
LMDB_ROWS = "lmdb, numpy row by row"
DICT_ROWS = "dict of bytes, numpy row by row"
DICT_INTO = "dict of bytes, into the matrix"
DICT_JOINED = "dict of bytes, joined"

_STEP = 37
"""How many parts lie between the beginnings of one competitor and of the next."""

_GROUP = 5000
"""Entries put at a time."""


@dataclass(frozen=True)
class _Asked:
    """What one call asks for: the numbers of rows, and their keys."""

    ids: NDArray[np.int64]
    keys: list[bytes]


Gathered = tuple[_Asked, Floats]


class _Gather:
    """The rows, their keys, what the calls ask for in turn, and a matrix for whoever can write into one."""

    def __init__(self, values: Floats, count: int) -> None:
        rng = np.random.default_rng(1)
        self.values, self.keys = values, random_keys(rng, len(values))
        self.row_bytes = values.shape[1] * 4
        parts = rng.permutation(len(values))[: len(values) // count * count].reshape(-1, count)
        self._users = 0
        self._asked = [_Asked(ids, [self.keys[i] for i in ids]) for ids in parts]

    def turns(self) -> Iterator[_Asked]:
        """Parts that share no row, in turn without end: no call finds in the caches what the call before left there.

        Each competitor begins elsewhere, because several read the same copy of the rows.
        """
        begin = self._users * _STEP % len(self._asked)
        self._users += 1
        return itertools.cycle([*self._asked[begin:], *self._asked[:begin]])

    def matrix(self) -> Floats:
        """A matrix of the asked shape, its pages touched."""
        return np.zeros((len(self._asked[0].ids), self.values.shape[1]), np.float32)

    def fill(self, store: Store) -> None:
        """Put every row as bytes."""
        for begin in range(0, len(self.keys), _GROUP):
            part = self.values[begin : begin + _GROUP]
            store.put_many(self.keys[begin : begin + _GROUP], [row.tobytes() for row in part])

    def each(self, gathered: Callable[[_Asked], Floats]) -> Run:
        """The call to time: the matrix of what is asked next."""
        turns = self.turns()

        def run() -> Gathered:
            asked = next(turns)
            return asked, gathered(asked)

        return run

    def joined(self, values: Sequence[bytes]) -> Floats:
        """The rows of these bytes in a new matrix."""
        return np.frombuffer(b"".join(values), np.float32).reshape(len(values), -1)

    def copier(self, out: Floats) -> Callable[[list[bytes], Callable[[bytes], Any]], Floats]:
        """Copies what a look-up gives for each key into `out`, by the cheapest means that Python has."""
        target, size = memoryview(out.data).cast("B"), self.row_bytes

        def copied(keys: list[bytes], look_up: Callable[[bytes], Any]) -> Floats:
            at = 0
            for key in keys:
                target[at : at + size] = look_up(key)
                at += size
            return out

        return copied


def _row_by_row(keys: list[bytes], look_up: Callable[[bytes], Any], out: Floats) -> Floats:
    """What most programs would write; it costs twice as much as the other ways."""
    for i, key in enumerate(keys):
        out[i] = np.frombuffer(look_up(key), np.float32)
    return out


def _ours(gather: _Gather, places: Places) -> PrismemStore:
    """The cache, filled once for all its ways."""
    store = places.store(PRISMEM)
    assert isinstance(store, PrismemStore)
    if not store.cache.contains(STAGE, gather.keys[:1])[0]:
        for begin in range(0, len(gather.keys), _GROUP):
            store.cache.put_rows(STAGE, gather.keys[begin : begin + _GROUP], gather.values[begin : begin + _GROUP])
    return store


def _ours_into(gather: _Gather, places: Places, *, verify: bool) -> Run:
    get_rows, out = _ours(gather, places).cache.get_rows, gather.matrix()
    return gather.each(lambda asked: get_rows(STAGE, asked.keys, out=out, verify=verify)[0])


def _ours_new(gather: _Gather, places: Places) -> Run:
    get_rows, dim = _ours(gather, places).cache.get_rows, gather.values.shape[1]
    return gather.each(lambda asked: get_rows(STAGE, asked.keys, dim)[0])


def _lmdb(gather: _Gather, places: Places) -> Any:
    """What begins a transaction of lmdb, filled once for all its ways."""
    store = places.store(LMDB)
    assert isinstance(store, Lmdb)
    if store.get(gather.keys[0]) is None:
        gather.fill(store)
        store.flush()
    return store.environment.begin


def _lmdb_into(gather: _Gather, places: Places) -> Run:
    begin, copied = _lmdb(gather, places), gather.copier(gather.matrix())

    def gathered(asked: _Asked) -> Floats:
        with begin(buffers=True) as transaction:
            return copied(asked.keys, transaction.get)

    return gather.each(gathered)


def _lmdb_joined(gather: _Gather, places: Places) -> Run:
    begin = _lmdb(gather, places)

    def gathered(asked: _Asked) -> Floats:
        with begin(buffers=True) as transaction:
            get = transaction.get
            return gather.joined([get(key) for key in asked.keys])

    return gather.each(gathered)


def _lmdb_rows(gather: _Gather, places: Places) -> Run:
    begin, out = _lmdb(gather, places), gather.matrix()

    def gathered(asked: _Asked) -> Floats:
        with begin(buffers=True) as transaction:
            return _row_by_row(asked.keys, transaction.get, out)

    return gather.each(gathered)


def _dict(gather: _Gather, places: Places) -> Callable[[bytes], bytes]:
    """What looks up in the dict, filled once for all its ways."""
    store = places.store(DICT)
    assert isinstance(store, Dict)
    if not store.entries:
        gather.fill(store)
    return store.entries.__getitem__


def _dict_into(gather: _Gather, places: Places) -> Run:
    look_up, copied = _dict(gather, places), gather.copier(gather.matrix())
    return gather.each(lambda asked: copied(asked.keys, look_up))


def _dict_rows(gather: _Gather, places: Places) -> Run:
    look_up, out = _dict(gather, places), gather.matrix()
    return gather.each(lambda asked: _row_by_row(asked.keys, look_up, out))


def _dict_joined(gather: _Gather, places: Places) -> Run:
    look_up = _dict(gather, places)
    return gather.each(lambda asked: gather.joined([look_up(key) for key in asked.keys]))


def _singly(gather: _Gather, places: Places, name: str) -> Run:
    store = places.store(name)
    gather.fill(store)
    get = store.get
    return gather.each(lambda asked: gather.joined([get(key) for key in asked.keys]))


def _rocksdict(gather: _Gather, places: Places) -> Run:
    store = places.store(ROCKSDICT)
    gather.fill(store)
    store.flush()
    get: Callable[[list[bytes]], list[bytes]] = store.get  # type: ignore[assignment]
    # A list of keys is one call of the library.
    return gather.each(lambda asked: gather.joined(get(asked.keys)))


def _sqlite(gather: _Gather, places: Places) -> Run:
    store = places.store(SQLITE)
    gather.fill(store)
    execute = store.connection.execute  # type: ignore[attr-defined]
    group = 500
    text = f"select key, value from entries where key in ({', '.join('?' * group)})"

    def gathered(asked: _Asked) -> Floats:
        found: dict[bytes, bytes] = {}
        for begin in range(0, len(asked.keys), group):
            found.update(execute(text, asked.keys[begin : begin + group]))
        return gather.joined([found[key] for key in asked.keys])

    return gather.each(gathered)


def _taken(gather: _Gather) -> Run:
    values = gather.values
    return gather.each(lambda asked: values[asked.ids])


def _taken_into(gather: _Gather) -> Run:
    values, out = gather.values, gather.matrix()
    # mode="clip" writes into `out` itself; the default checks in a copy.
    return gather.each(lambda asked: np.take(values, asked.ids, axis=0, out=out, mode="clip"))


def _prepare(count: int, dim: int, asked: int, quick: bool) -> Contest:
    if quick:
        count, asked = 3000, 500
    made = rows("isotropic", count, dim)
    gather = _Gather(made.keys, asked)
    places = Places()
    work = Work(4.0 * asked * dim)

    def check(_: Competitor, gathered: Any) -> Finding:
        part, found = gathered
        expected = made.keys[part.ids].tobytes()
        same = found.dtype == np.float32 and found.shape == (asked, dim) and found.tobytes() == expected
        return Finding("" if same else "the matrix is not that of the rows, bit for bit")

    def competitor(name: str, library: str, way: Callable[..., Run], *more: Any, **named: Any) -> Competitor:
        return Competitor(name, library, partial(way, gather, *more, **named), work=work)

    return Contest(
        f"{made.description}, under random keys of 32 bytes, other ones each call; in the "
        "file cache of the system, or in memory",
        {"rows": count, "dim": dim, "asked": asked},
        [
            competitor(PRISMEM, OURS, _ours_into, places, verify=False),
            competitor(VERIFIED, OURS, _ours_into, places, verify=True),
            competitor("prismem, verified, new matrix", OURS, _ours_new, places),
            competitor(LMDB_INTO, "lmdb", _lmdb_into, places),
            competitor(LMDB_JOINED, "lmdb", _lmdb_joined, places),
            competitor(LMDB_ROWS, "lmdb", _lmdb_rows, places),
            competitor(DICT_INTO, "python", _dict_into, places),
            competitor(DICT_JOINED, "python", _dict_joined, places),
            competitor(DICT_ROWS, "python", _dict_rows, places),
            competitor(FLOOR, "numpy", _taken),
            competitor("numpy.take into the matrix", "numpy", _taken_into),
            competitor(PLYVEL, KINDS[PLYVEL].library, _singly, places, PLYVEL),
            competitor(SQLITE, KINDS[SQLITE].library, _sqlite, places),
            competitor(DISKCACHE, KINDS[DISKCACHE].library, _singly, places, DISKCACHE),
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
            *(Goal(PRISMEM, way, 6.0) for way in (LMDB_ROWS, LMDB_INTO, LMDB_JOINED)),
            *(Goal(VERIFIED, way, 4.0) for way in (LMDB_ROWS, LMDB_INTO, LMDB_JOINED)),
            *(Goal(PRISMEM, way, 3.0) for way in (DICT_ROWS, DICT_INTO, DICT_JOINED)),
            Goal(PRISMEM, FLOOR, 1 / 1.6),
        ),
    ),
)
