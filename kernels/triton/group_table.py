"""Tile sizes of codes and of ops that score rows with the keys of their groups, as rows of `table.TABLE`; queries are
the rows of a group.
"""

from __future__ import annotations

from prismem_core.kernels.triton.launch import Config

_HALVES = ("float16", "bfloat16")
_FLOAT = ("float32",)
_ALL_DIMS = (128, 512, 2048, 1 << 30)

RULES: tuple[tuple[int, str, tuple[str, ...], tuple[int, ...], tuple[int, ...], Config], ...] = (
    tuple(
        (sm, op, kinds, dims, queries, config)
        for sm in (80, 90)
        for op in ("segment_max_similarity", "mmr_select")
        for kinds, dims, queries, config in (
            # Alone: as many rows at a time as keep 32 products a thread, so that loads are in flight.
            (_HALVES, _ALL_DIMS, (1,), Config(1, 16, 256, warps=4, stages=1)),
            (_HALVES, (128,), (1,), Config(1, 32, 128, warps=4, stages=1)),
            (_FLOAT, _ALL_DIMS, (1,), Config(1, 32, 128, warps=4, stages=1)),
            # In blocks: eight warps, for four have too few registers for the maxima of 64 rows.
            (_HALVES, _ALL_DIMS, (16,), Config(16, 128, 64, warps=4, stages=3)),
            (_HALVES, _ALL_DIMS, (64, 1 << 30), Config(64, 64, 64, warps=8, stages=3)),
            (_FLOAT, _ALL_DIMS, (16,), Config(16, 64, 32, warps=4, stages=3)),
            (_FLOAT, _ALL_DIMS, (64, 1 << 30), Config(64, 128, 32, 8, 3) if sm == 90 else Config(32, 64, 32, 4, 3)),
        )
    )
    + tuple(
        (sm, "mmr_select picks", kinds, _ALL_DIMS, (1,), config)
        for sm in (80, 90)
        for kinds, config in (
            # One program a query has a multiprocessor to itself, so it takes twice the rows at a time.
            (_HALVES, Config(1, 32, 256, warps=8, stages=1)),
            (_FLOAT, Config(1, 64, 128, warps=8, stages=1)),
        )
    )
    + tuple(
        (sm, op, kinds, _ALL_DIMS, queries, config)
        for sm in (80, 90)
        for op, kinds, queries, config in (
            # Two accumulators and a long list a query: sm_80 has registers for 32 queries.
            ("codes", ("int8",), (1, 16), Config(16, 128, 128, warps=8, stages=3)),
            ("codes", ("int8",), (64, 1 << 30), Config(64, 64, 64, 8, 3) if sm == 90 else Config(32, 128, 128, 8, 3)),
            ("codes encode", (*_HALVES, *_FLOAT), (1,), Config(1, 16, 128, warps=4, stages=1)),
            ("codes score", _HALVES, (1,), Config(1, 16, 256, warps=4, stages=1)),
            ("codes score", _FLOAT, (1,), Config(1, 32, 128, warps=4, stages=1)),
            ("codes score", _HALVES, (16,), Config(16, 64, 64, warps=4, stages=3)),
            ("codes score", _FLOAT, (16,), Config(16, 64, 32, warps=4, stages=3)),
        )
    )
)

INTERPRETED = {
    "segment_max_similarity": Config(64, 1024, 256),
    "mmr_select": Config(64, 512, 512),
    "mmr_select picks": Config(1, 512, 512),
    "codes": Config(16, 1024, 128),
    "codes encode": Config(1, 1024, 128),
    "codes score": Config(16, 256, 128),
}
