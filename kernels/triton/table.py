"""Tile sizes of every launch, checked in: by compute capability, op, kind of rows, dimensions and queries.

No launch measures anything. PRISMEM_KERNEL_TABLE may name a JSON file with configurations measured on the machine at
hand, which win over those here: {"configs": [{"sm": 90, "op": "top_k", "dtype": "float16", "dim": 1024, "queries": 64,
"config": {"block_queries": 64, "block_keys": 128, "block_dim": 64, "warps": 4, "stages": 3, "loads": "pointer"}}]}.
`dim` and `queries` are the upper ends of their buckets.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from prismem_core.errors import SettingsError
from prismem_core.kernels.triton import group_table
from prismem_core.kernels.triton.launch import Config

DIMS = (128, 512, 2048, 1 << 30)
QUERIES = (1, 16, 64, 1 << 30)
Key = tuple[int, str, str, int, int]

_HALVES = ("float16", "bfloat16")
_FLOAT = ("float32",)
_ALL = DIMS
_FEW, _MORE, _MANY = QUERIES[:2], QUERIES[2:3], QUERIES[3:]
_RULES: tuple[tuple[int, str, tuple[str, ...], tuple[int, ...], tuple[int, ...], Config], ...] = (
    # Registers decide: a tile of scores, the lists of its rows and a round of insertion must fit without a spill.
    (80, "top_k", _HALVES, _ALL, _FEW, Config(16, 128, 64, 4, 3)),
    (80, "top_k", _HALVES, _ALL, _MORE + _MANY, Config(64, 128, 64, 8, 3)),
    (80, "top_k", _FLOAT, _ALL, _FEW, Config(16, 64, 32, 8, 4)),
    (80, "top_k", _FLOAT, _ALL, _MORE + _MANY, Config(32, 64, 32, 8, 3)),
    # A mask for each query costs an address for each score, and rows that are not aligned one for each element.
    (80, "top_k masked", _HALVES, _ALL, QUERIES, Config(32, 64, 64, 8, 3)),
    (80, "top_k masked", _FLOAT, _ALL, QUERIES, Config(16, 64, 32, 8, 4)),
    (80, "top_k unaligned", _HALVES, _ALL, QUERIES, Config(16, 64, 64, 8, 3)),
    (80, "top_k unaligned", _FLOAT, _ALL, QUERIES, Config(16, 64, 32, 8, 4)),
    (80, "top_k long", _HALVES, _ALL, _FEW, Config(16, 64, 64, 4, 3)),
    (80, "top_k long", _HALVES, _ALL, _MORE + _MANY, Config(64, 64, 64, 8, 3)),
    (80, "top_k long", _FLOAT, _ALL, QUERIES, Config(16, 64, 32, 8, 4)),
    (80, "top_k longest", _HALVES, _ALL, QUERIES, Config(16, 64, 32, 8, 3)),
    (80, "top_k longest", _FLOAT, _ALL, QUERIES, Config(16, 64, 32, 8, 4)),
    (80, "top_k sorted", _HALVES, _ALL, QUERIES, Config(64, 64, 64, 8, 3)),
    (80, "top_k sorted", _FLOAT, _ALL, QUERIES, Config(32, 64, 32, 8, 3)),
    (80, "top_k one", _HALVES, DIMS[:1], QUERIES, Config(1, 64, 128, 4, 1)),
    (80, "top_k one", _HALVES, DIMS[1:], QUERIES, Config(1, 32, 256, 4, 1)),
    (80, "top_k one", _FLOAT, _ALL, QUERIES, Config(1, 32, 128, 4, 1)),
    (80, "similarity", _HALVES, _ALL, QUERIES[:3], Config(64, 128, 64, 8, 3)),
    (80, "similarity", _HALVES, _ALL, _MANY, Config(128, 64, 64, 8, 3)),
    (80, "similarity", _FLOAT, _ALL, QUERIES, Config(64, 64, 32, 8, 3)),
    (80, "similarity unaligned", _HALVES, _ALL, QUERIES, Config(64, 64, 64, 8, 3)),
    (80, "similarity unaligned", _FLOAT, _ALL, QUERIES, Config(32, 64, 32, 8, 3)),
    (90, "top_k", _HALVES, _ALL, _FEW, Config(16, 128, 64, 4, 4, "descriptor")),
    (90, "top_k", _HALVES, _ALL, _MORE, Config(64, 128, 64, 4, 4, "descriptor")),
    (90, "top_k", _HALVES, _ALL, _MANY, Config(128, 128, 64, 8, 4, "descriptor")),
    (90, "top_k", _FLOAT, _ALL, _FEW, Config(16, 64, 32, 4, 4, "descriptor")),
    (90, "top_k", _FLOAT, _ALL, _MORE, Config(64, 64, 32, 4, 3, "descriptor")),
    (90, "top_k", _FLOAT, _ALL, _MANY, Config(128, 64, 32, 8, 3, "descriptor")),
    (90, "top_k long", _HALVES, _ALL, _FEW, Config(16, 64, 64, 4, 4, "descriptor")),
    (90, "top_k long", _HALVES, _ALL, _MORE + _MANY, Config(64, 128, 64, 8, 4, "descriptor")),
    (90, "top_k long", _FLOAT, _ALL, QUERIES, Config(16, 64, 32, 8, 4, "descriptor")),
    (90, "similarity", _HALVES, _ALL, QUERIES[:3], Config(64, 128, 64, 4, 4, "descriptor")),
    (90, "similarity", _HALVES, _ALL, _MANY, Config(128, 128, 64, 8, 4, "descriptor")),
    (90, "similarity", _FLOAT, _ALL, QUERIES, Config(64, 64, 32, 4, 3, "descriptor")),
)
"""Rows (sm, op, kinds, dimensions, queries, configuration) of `TABLE`; a later one wins.

`top_k` has lists of up to 32 hits, `top_k long` up to 128, `top_k longest` up to 256, `top_k sorted` none, `top_k
masked` a mask for each query, `top_k unaligned` rows that cannot be loaded 16 bytes at a time, `top_k one` one query a
program.
"""

INTERPRETED = {
    "top_k": Config(16, 1024, 128),
    "top_k masked": Config(16, 1024, 128),
    "top_k unaligned": Config(16, 1024, 128),
    "top_k long": Config(16, 1024, 128),
    "top_k longest": Config(16, 1024, 128),
    "top_k sorted": Config(16, 1024, 128),
    "top_k one": Config(1, 1024, 128),
    "similarity": Config(128, 1024, 128),
    "similarity unaligned": Config(128, 1024, 128),
    **group_table.INTERPRETED,
}
"""Few programs with large tiles, by the op: the interpreter's time goes by operations, not by elements."""


def bucket(number: int, ends: Iterable[int]) -> int:
    """The end of the bucket that holds `number`."""
    return next(end for end in ends if number <= end)


def _expanded() -> dict[Key, Config]:
    return {
        (sm, op, kind, dim, queries): config
        for sm, op, kinds, dims, counts, config in (*_RULES, *group_table.RULES)
        for kind in kinds
        for dim in dims
        for queries in counts
    }


TABLE: Mapping[Key, Config] = _expanded()


def config_of(sm: int, op: str, kind: str, dim: int, queries: int, described: bool = False) -> Config:
    """The configuration of a launch; rows that are not `described` cannot be loaded through tensor descriptors.

    Capabilities that are not listed run with the configurations of 80, which use pointers and little shared memory.
    """
    if sm == 0:
        return INTERPRETED[op]
    key = (op, kind, bucket(dim, DIMS), bucket(queries, QUERIES))
    path = os.environ.get("PRISMEM_KERNEL_TABLE", "")
    found = (_measured(path).get((sm, *key)) if path else None) or TABLE.get((sm, *key))
    if found is None or (found.loads == "descriptor" and not described):
        return TABLE[(80, *key)]
    return found


@functools.lru_cache(maxsize=8)
def _measured(path: str) -> dict[Key, Config]:
    try:
        return read(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise SettingsError(
            f"PRISMEM_KERNEL_TABLE: {path} is no table of kernel configurations ({type(error).__name__}: {error}); "
            "unset it, or write the file again with `prismem kernels tune`"
        ) from error


def read(text: str) -> dict[Key, Config]:
    """The configurations of a measured table, JSON."""
    found: dict[Key, Config] = {}
    for row in json.loads(text)["configs"]:
        config = Config(**row["config"])
        _check(row, config)
        found[(row["sm"], row["op"], row["dtype"], row["dim"], row["queries"])] = config
    return found


def _check(row: dict[str, Any], config: Config) -> None:
    if row["dim"] not in DIMS or row["queries"] not in QUERIES:
        raise ValueError(f"dim is one of {DIMS} and queries one of {QUERIES}, got {row['dim']} and {row['queries']}")
    if type(row["sm"]) is not int or row["sm"] < 80:
        raise ValueError(f"sm is a whole number from 80 on, such as 90, got {row['sm']!r}")
    standard = TABLE.get((80, row["op"], row["dtype"], row["dim"], row["queries"]))
    if standard is None:
        raise ValueError(f"there is no {row['op']!r} over rows of {row['dtype']!r}")
    numbers = asdict(config)
    if numbers.pop("loads") not in ("pointer", "descriptor"):
        raise ValueError(f"loads is pointer or descriptor, got {config.loads!r}")
    for name, number in numbers.items():
        least, most = _BOUNDS[name]
        if type(number) is not int or not least <= number <= most:
            raise ValueError(f"{name} is a whole number from {least} to {most}, got {number!r}")
        if name not in ("stages", "registers") and number & (number - 1):
            raise ValueError(f"{name} is a power of two, got {number}")
    if (config.block_queries == 1) != (standard.block_queries == 1):
        raise ValueError(f"block_queries of {row['op']!r} is {'1' if standard.block_queries == 1 else 'at least 16'}")
    if config.loads == "descriptor" and max(config.block_queries, config.block_keys, config.block_dim) > 256:
        raise ValueError(f"a descriptor loads at most 256 rows or columns, got {config}")


_BOUNDS = {
    "block_queries": (1, 256),
    "block_keys": (16, 1024),
    "block_dim": (16, 1024),
    "warps": (1, 32),
    "stages": (1, 8),
    "registers": (24, 255),
}


def written(configs: Mapping[Key, Config]) -> str:
    """The JSON that `read` takes."""
    rows = [
        {"sm": sm, "op": op, "dtype": kind, "dim": dim, "queries": queries, "config": config.__dict__}
        for (sm, op, kind, dim, queries), config in configs.items()
    ]
    return json.dumps({"configs": rows}, indent=1)
