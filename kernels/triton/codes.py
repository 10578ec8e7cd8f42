"""Certified codes on a GPU with Triton: rows as 8-bit or 4-bit numbers that are read in their stead, with the same
hits.

`search` reads the codes of all rows and computes from them an upper bound B of each score S. It scores the keys with
the largest bounds, and where the k-th best of those scores is greater than every bound that is left, nothing better is
left either. A query for which that is not so is searched again without codes. No step waits for the device.

A key x has the codes c and r = x - scale c, of length at most `error`; |x| is at most `length`. A query q has the codes
h and l of two digits, q' = step (128 h + l), at most E away from q, and |q| <= L. By Cauchy and Schwarz

    <q, x> = <q', scale c> + <q - q', scale c> + <q, r>
          <= step scale (128 <h, c> + <l, c>) + E (length + error) + L error

<h, c> and <l, c> are whole numbers computed exactly. With u = 2^-24, a score in float32 of d products, added in any
order, also with the truncation of tensor cores and the three products of 3xTF32, misses <q, x> by at most 4 (d + 16) u
|q| |x|, a cosine by at most (5 d + 80) u; and the float32 arithmetic of the bound itself loses at most 40 u (L + E)
(length + error), since 128 |h_j| + |l_j| sums up to at most 4 L / step against scale |c|, for d up to 65536. So with
g = (8 d + 512) u

    B = step scale (128 <h, c> + <l, c>) + length (E + g L) + error (E + L + g L) + 2^-100  >=  S

where the last term pays for what lies below the normal range. Lengths and errors are sums of squares in float32, raised
by (d + 16) u and by u times the largest element, which is above all that rounding and underflow lose. With `normalize`
x and q are unit vectors, (d + 16) u off at most. B is infinite for rows that are not finite, for products of lengths
from 2^100 on and, without `normalize`, for queries far from 1 (row_scales), so such pairs are scored or searched again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from prismem_core.arrays.device import Device
from prismem_core.kernels.triton import candidates, codes_kernel, group_scores, launch, table, top_k, work
from prismem_core.kernels.triton.candidates import LARGEST_LIST
from prismem_core.kernels.triton.group_scores import Operands, operands
from prismem_core.kernels.triton.launch import Config, Variant
from prismem_core.kernels.triton.row_scales import row_scales
from prismem_core.kernels.triton.top_k_kernel import best_of_batch

OP = "codes"
ALIGNMENT = 128
"""Codes of a row fill whole multiples of so many bytes."""
LARGEST_DIM = 1 << 16
LEVELS = {8: 127, 4: 7}
FEWEST = 64
"""Keys that are scored for a query, at least; also four times its hits."""


@dataclass(frozen=True)
class Codes:
    """Codes of rows (n, d), in the order of the rows.

    `values` (n, width): int8 with 8 `bits`; uint8 with 4, where byte j holds the codes of dimensions j, in its lower
    half, and width + j, both increased by 8. `scale`, `error` and `length` (n,) float32. With `normalize` they are
    those of the unit vectors.
    """

    bits: int
    dim: int
    normalize: bool
    values: Any
    scale: Any
    error: Any
    length: Any

    @property
    def count(self) -> int:
        """Rows that have codes here."""
        return int(self.values.shape[0])

    @property
    def bytes(self) -> int:
        """Memory on the device."""
        return self.count * row_bytes(self.dim, self.bits)

    def of(self, first: int, last: int) -> Codes:
        """The codes of some neighbouring rows, in the same memory."""
        parts = (part[first:last] for part in (self.values, self.scale, self.error, self.length))
        return Codes(self.bits, self.dim, self.normalize, *parts)


def row_bytes(dim: int, bits: int) -> int:
    """Bytes of the codes of a row."""
    return _width(dim, bits) + 12


def _width(dim: int, bits: int) -> int:
    needed = dim if bits == 8 else -(-dim // 2)
    return -(-needed // ALIGNMENT) * ALIGNMENT


def supports(dim: int) -> bool:
    """Whether rows of so many dimensions can have codes."""
    return 0 < dim <= LARGEST_DIM


def empty(count: int, dim: int, bits: int, normalize: bool, *, device: Device) -> Codes:
    """Memory for the codes of `count` rows, without values; `bits` is 8 or 4."""
    values = device.empty((count, _width(dim, bits)), "int8" if bits == 8 else "uint8")
    scale, error, length = (device.empty((count,), "float32") for _ in range(3))
    return Codes(bits, dim, normalize, values, scale, error, length)


def encode(rows: Any, bits: int, *, normalize: bool, device: Device, scales: tuple[Any, Any] | None = None) -> Codes:
    """Codes of rows (n, d) float32, float16 or bfloat16 with 8 or 4 bits; `scales` are their `row_scales`, if known."""
    codes = empty(int(rows.shape[0]), int(rows.shape[1]), bits, normalize, device=device)
    encode_into(rows, codes, 0, device=device, scales=scales)
    return codes


def encode_into(
    rows: Any, codes: Codes, first_row: int, *, device: Device, scales: tuple[Any, Any] | None = None
) -> None:
    """Write the codes of rows (n, d) as those of rows first_row to first_row + n of `codes`."""
    count = int(rows.shape[0])
    if count == 0:
        return
    scales = scales or row_scales(rows, device=device)
    config = table.config_of(launch.sm_of(device), "codes encode", launch.kind_of(rows), codes.dim, 1)
    with launch.on(device):
        arguments = _encoding(rows, scales, codes, first_row, config)
        launch.start(codes_kernel.encode_rows, (-(-count // config.block_keys),), arguments, config)


def search(
    queries: Any,
    keys: Any,
    codes: Codes,
    mask: Any | None,
    k: int,
    min_score: float | None,
    scores: Any,
    indices: Any,
    counts: Any,
    flag: Any | None,
    *,
    device: Device,
    key_scales: tuple[Any, Any] | None = None,
) -> None:
    """As `top_k.top_k` without segments, with the metric of `codes`, which are those of `keys` (n, d).

    The hits are those of `top_k` up to the rounding of scores. More hits than 64, fewer keys than 16 times those that
    are scored for a query, and dimensions without codes are searched without codes. `flag` reports the first pair, of
    those that were scored, without a finite score; pairs that were not scored have finite ones.
    """
    num_queries, num_keys = int(queries.shape[0]), int(keys.shape[0])
    many = max(4 * k, FEWEST)
    if not (num_queries and k and many <= LARGEST_LIST and 16 * many <= num_keys <= top_k.LARGEST_PIECE):
        top_k.top_k(
            queries, keys, None, None, mask, k, codes.normalize, min_score, scores, indices, counts, flag,
            device=device, key_scales=key_scales,
        )  # fmt: skip
        return
    pair = operands(queries, keys, codes.normalize, device, key_scales)
    with launch.on(device):
        bounds, chosen, numbers = _largest_bounds(pair, codes, mask, many, min_score, device)
        _score(pair, chosen, k, min_score, flag, (scores, indices, counts), device)
        order, total = device.empty((num_queries,), "int64"), device.full((1,), "int64", 0)
        arguments = {"bounds": bounds, "counts": numbers, "scores": scores, "hits": counts, "order": order}
        arguments |= {"total": total, "num_queries": num_queries, "many": many, "k": k, "min_score": min_score}
        blocks = -(-num_queries // _JUDGING.block_keys)
        launch.start(codes_kernel.judge, (blocks,), arguments | {"BN": _JUDGING.block_keys}, _JUDGING)
        _search_again(pair, order, total, mask, k, min_score, flag, (scores, indices, counts), device)


_JUDGING = Config(1, 256, 1, warps=4, stages=1)


def _encoding(rows: Any, scales: tuple[Any, Any], codes: Codes, first_row: int, config: Config) -> dict[str, Any]:
    return {
        "rows": rows,
        "powers": scales[0],
        "inverse": scales[1],
        "values": codes.values,
        "scale": codes.scale,
        "error": codes.error,
        "length": codes.length,
        "num_rows": int(rows.shape[0]),
        "first_row": first_row,
        "dim": codes.dim,
        "row_stride": rows.stride(0),
        "value_stride": int(codes.values.shape[1]),
        "BN": config.block_keys,
        "BD": config.block_dim,
        "LEVELS": LEVELS[codes.bits],
        "UNIT": codes.normalize,
    }


def encode_queries(queries: Any, codes: Codes, scales: Any, device: Device) -> tuple[Any, Any, Any, Any]:
    """Upper and lower digits of queries (m, d), constants of their bounds and sums: see `codes_kernel.encode_queries`.

    `scales` are the `row_scales` of the queries.
    """
    count, width = int(queries.shape[0]), int(codes.values.shape[1]) * (2 if codes.bits == 4 else 1)
    high, low = device.empty((count, width), "int8"), device.empty((count, width), "int8")
    constants, sums = device.empty((4, count), "float32"), device.empty((2, count), "int32")
    config = table.config_of(launch.sm_of(device), "codes encode", launch.kind_of(queries), codes.dim, 1)
    values = {"rows": queries, "powers": scales[0], "inverse": scales[1], "high": high, "low": low}
    values |= {"constants": constants, "sums": sums, "num_rows": count, "dim": codes.dim}
    values |= {"row_stride": queries.stride(0), "value_stride": width, "UNIT": codes.normalize}
    values |= {"BN": config.block_keys, "BD": config.block_dim}
    with launch.on(device):
        launch.start(codes_kernel.encode_queries, (-(-count // config.block_keys),), values, config)
    return high, low, constants, sums


def _largest_bounds(
    pair: Operands, codes: Codes, mask: Any | None, many: int, min_score: float | None, device: Device
) -> tuple[Any, Any, Any]:
    """The keys of each query with the largest bounds: bounds (m, many), indices (m, many), counts (m,)."""
    count, sm = int(pair.rows.shape[0]), launch.sm_of(device)
    scales = pair.scales[:2] if pair.scales is not None else row_scales(pair.rows, device=device)
    encoded = encode_queries(pair.rows, codes, scales, device)
    config = table.config_of(sm, OP, "int8", codes.dim, max(count, 2) if many <= FEWEST else 2)
    blocks = -(-count // config.block_queries)
    splits = work.split_count(codes.count, blocks, _programs(device), 4 * config.block_keys)
    length = work.split_length(codes.count, splits, config.block_keys)
    splits = -(-codes.count // length)
    lists = device.empty((count * splits, many), "int64")
    thresholds = device.full((count,), "int32", -(2**31))
    arguments = _bounding(codes, encoded, mask, thresholds, lists, min_score, config)
    arguments |= {"split_length": length, "splits": splits, "query_blocks": blocks}
    launch.start(codes_kernel.best_bounds, (blocks * splits,), arguments, config)
    bounds, chosen = device.empty((count, many), "float32"), device.empty((count, many), "int64")
    numbers = device.empty((count,), "int64")
    candidates.merge(lists, None, splits, count, many, bounds, chosen, numbers, device)
    return bounds, chosen, numbers


def _programs(device: Device) -> int:
    return int(launch.processors(device) * top_k.PROGRAMS_PER_PROCESSOR)


def _bounding(
    codes: Codes,
    query: tuple[Any, Any, Any, Any],
    mask: Any,
    thresholds: Any,
    lists: Any,
    min_score: Any,
    config: Config,
) -> dict[str, Any]:
    values = dict(zip(("high", "low", "constants", "sums"), query, strict=True))
    values |= {"values": codes.values, "scale": codes.scale, "error": codes.error, "length": codes.length}
    values |= {"thresholds": thresholds, "lists": lists, "num_queries": int(query[2].shape[1])}
    values |= {"width": int(codes.values.shape[1]), "k": int(lists.shape[1]), "min_score": min_score}
    values |= {"key_begin": 0, "key_end": codes.count, "split_length": codes.count, "splits": 1, "query_blocks": 1}
    if mask is not None:
        strides = (0, mask.stride(0)) if mask.dim() == 1 else mask.stride()
        values |= {"mask": mask.view(torch.uint8), "mask_query_stride": strides[0], "mask_key_stride": strides[1]}
    values |= {"BQ": config.block_queries, "BN": config.block_keys, "BD": config.block_dim}
    values |= {"K": launch.power_of_two(int(lists.shape[1])), "PACKED": codes.bits == 4}
    return values | {"PRIVATE_MASK": mask is not None and mask.dim() == 2}


def _score(
    pair: Operands,
    chosen: Any,
    k: int,
    min_score: float | None,
    flag: Any | None,
    hits: tuple[Any, Any, Any],
    device: Device,
) -> None:
    """Score the chosen keys (m, many) of each query and write the k best as `hits`."""
    count, many = (int(size) for size in chosen.shape)
    config = _scoring_config(pair, launch.sm_of(device))
    found = device.empty((count, many), "int64")
    arguments = _scoring(pair, config, chosen, found, min_score, flag)
    grid = (count, -(-many // config.block_keys))
    launch.start(codes_kernel.score_candidates, grid, arguments, config)
    candidates.merge(found, None, 1, count, k, *hits, device)


def _scoring_config(pair: Operands, sm: int) -> Config:
    queries = 1 if int(pair.rows.shape[0]) == 1 else 16
    return table.config_of(sm, "codes score", pair.kind, pair.dim, queries)


def _scoring(
    pair: Operands, config: Config, chosen: Any, found: Any, min_score: float | None, flag: Any | None
) -> dict[str, Any]:
    values: dict[str, Any] = pair.arguments(config) | {
        "indices": chosen,
        "found": found,
        "flag": flag,
        "min_score": min_score,
    }
    values |= {"num_keys": int(pair.keys.shape[0]), "many": int(chosen.shape[1])}
    return values | {"ALONE": int(pair.rows.shape[0]) == 1}


def _search_again(
    pair: Operands,
    order: Any,
    total: Any,
    mask: Any | None,
    k: int,
    min_score: float | None,
    flag: Any | None,
    hits: tuple[Any, Any, Any],
    device: Device,
) -> None:
    """Search the first `total` queries of `order` without codes; programs that have none of them end at once."""
    count, num_keys = int(pair.rows.shape[0]), int(pair.keys.shape[0])
    # As one group, whose queries come in an order that is known on the device alone.
    ranges = np.array([[0, num_keys]])
    exact = top_k.Search(pair.rows, pair.keys, pair.scales, pair.extremes, ranges, None, mask, min_score, flag, device)
    config, _ = top_k.configs_of(exact, k, launch.sm_of(device))
    blocks = -(-count // config.block_queries)
    splits = work.split_count(num_keys, blocks, _programs(device), 4 * config.block_keys)
    length = work.split_length(num_keys, splits, config.block_keys)
    splits = -(-num_keys // length)
    programs = blocks * splits
    items = device.empty((programs, 6), "int64")
    planning = {"total": total, "items": items, "num_programs": programs, "blocks": blocks, "split_length": length}
    planning |= {"num_keys": num_keys, "BQ": config.block_queries, "BN": _JUDGING.block_keys}
    launch.start(codes_kernel.plan, (-(-programs // _JUDGING.block_keys),), planning, _JUDGING)
    lists = device.full((count * splits, k), "int64", candidates.EMPTY)
    thresholds = device.full((count,), "int32", -(2**31))
    first_list = torch.arange(0, count * splits, splits, dtype=torch.int64, device=order.device)
    arguments = top_k.arguments_of(exact, config, (items, order), first_list, thresholds, lists, None, k)
    launch.start(best_of_batch, (programs,), arguments, config)
    again = device.empty((count, k), "float32"), device.empty((count, k), "int64"), device.empty((count,), "int64")
    candidates.merge(lists, None, splits, count, k, *again, device)
    names = ("scores", "indices", "counts", "new_scores", "new_indices", "new_counts")
    replacing = dict(zip(names, (*hits, *again), strict=True)) | {"order": order, "total": total, "k": k}
    replacing["BN"] = _REPLACING.block_keys
    launch.start(codes_kernel.replace, (count,), replacing, _REPLACING)


_REPLACING = Config(1, 64, 1, warps=1, stages=1)


def variants(sm: int) -> list[Variant]:
    """Launches worth checking ahead of time: encoding, bounds of few and of many queries, scores of candidates."""
    found = []
    meta = torch.device("meta")
    integers = torch.empty(1000, 64, dtype=torch.int64, device=meta)
    numbers = torch.empty(4, 1000, device=meta)
    for bits, normalize in ((8, True), (4, False)):
        kind = torch.int8 if bits == 8 else torch.uint8
        values = torch.empty(1024, _width(1024, bits), dtype=kind, device=meta)
        codes = Codes(bits, 1024, normalize, values, numbers[0], numbers[0], numbers[0])
        rows = group_scores.example("float16", 1024, False).rows
        config = table.config_of(sm, "codes encode", "float16", 1024, 1)
        arguments = _encoding(rows, (numbers[0], numbers[0]), codes, 0, config)
        found.append(launch.variant(f"{OP}/encode {bits} bits", OP, codes_kernel.encode_rows, arguments, config))
        query = torch.empty(1000, 1024, dtype=torch.int8, device=meta)
        sums = torch.empty(2, 1000, dtype=torch.int32, device=meta)
        for queries, many in ((16, 64), (64, 64), (16, 256)):
            config = table.config_of(sm, OP, "int8", 1024, queries)
            lists = torch.empty(1000, many, dtype=torch.int64, device=meta)
            arguments = _bounding(codes, (query, query, numbers, sums), None, sums[0], lists, None, config)
            name = f"{OP}/bounds {bits} bits, {queries} queries, {many} kept"
            notes = {"mma": "blocks of 16 queries do not fill a warp group's product"} if queries == 16 else {}
            found.append(
                launch.variant(name, OP, codes_kernel.best_bounds, arguments, config, batched=True, notes=notes)
            )
    for queries in (1, 16):
        pair = group_scores.example("float16", 1024, True)
        config = table.config_of(sm, "codes score", "float16", 1024, queries)
        arguments = _scoring(pair, config, integers, integers, None, integers[0]) | {"ALONE": queries == 1}
        name = group_scores.label(f"{OP}/score", "float16", queries, True)
        notes = {"mma": "one query a program fills no warp group's product"} if queries > 1 else {}
        found.append(
            launch.variant(name, OP, codes_kernel.score_candidates, arguments, config, batched=queries > 1, notes=notes)
        )
    return found
