"""Launchers of the CUDA kernels, one an op: they fill arrays that the caller's library has made, on its current stream.

A launcher neither waits for the device nor reads its memory. Tables of segments are copied to the device when they are
new; a call without segments copies nothing, so that it can be captured in a CUDA graph.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismem_core.arrays.device import Device, DeviceView, view_of
from prismem_core.errors import ArgumentError
from prismem_core.kernels.cuda.library import KINDS, OPS, PATHS, PlanStruct, RowsStruct, SearchStruct, call

Scales = tuple[Any, Any] | None
"""Powers of two and inverse lengths of rows, as `row_scales` fills them."""


def _rows(array: Any, name: str, scales: Scales = None) -> RowsStruct:
    view = view_of(array)
    if view.kind not in KINDS or len(view.shape) != 2:
        raise ArgumentError(
            f"{name}: expected two axes of float32, float16 or bfloat16, got {view.kind} of shape {view.shape}"
        )
    count, dim = view.shape
    if count and dim > 1 and view.strides[1] != 1:
        raise ArgumentError(
            f"{name}: the elements of a row must be neighbours, got strides {view.strides}; pass a contiguous copy"
        )
    stride = view.strides[0] if count > 1 and dim else dim
    powers, inverses = (None, None) if scales is None else (view_of(part).pointer for part in scales)
    return RowsStruct(view.pointer, count, dim, stride, KINDS[view.kind], powers, inverses)


def _output(array: Any, name: str, kind: str, shape: tuple[int, ...]) -> int:
    view: DeviceView = view_of(array)
    expected = tuple(int(np.prod(shape[axis + 1 :], dtype=np.int64)) for axis in range(len(shape)))
    steps = [(stride, wanted) for stride, wanted, size in zip(view.strides, expected, shape, strict=False) if size > 1]
    wrong = view.kind != kind or view.shape != shape
    if wrong or (0 not in shape and any(stride != wanted for stride, wanted in steps)):
        raise ArgumentError(f"{name}: expected contiguous {kind} of shape {shape}, got {view.kind} of {view.shape}")
    return view.pointer


def _host(array: NDArray[np.int64] | None) -> tuple[NDArray[np.int64] | None, int | None]:
    if array is None:
        return None, None
    values = np.ascontiguousarray(array, np.int64)
    return values, values.ctypes.data


class _Search:
    """A search as the C interface takes it: its arguments, its plan, and what must stay alive until it is launched."""

    def __init__(
        self,
        op: str,
        queries: RowsStruct,
        keys: RowsStruct,
        ranges: NDArray[np.int64] | None,
        groups: NDArray[np.int64] | None,
        device: Device,
        *,
        mask: Any = None,
        k: int = 0,
        normalize: bool = False,
        least: float | None = None,
        flag: Any = None,
        path: str = "auto",
        span: int = 0,
    ) -> None:
        self._ranges, ranges_pointer = _host(ranges)
        self._groups, groups_pointer = _host(groups)
        mask_pointer, mask_strides = None, (0, 0)
        if mask is not None:
            view = view_of(mask)
            mask_pointer = view.pointer
            mask_strides = (0, view.strides[0]) if len(view.shape) == 1 else (view.strides[0], view.strides[1])
        self.search = SearchStruct(
            queries=queries,
            keys=keys,
            ranges=ranges_pointer,
            segments=0 if self._ranges is None else len(self._ranges),
            groups=groups_pointer,
            mask=mask_pointer,
            mask_query_stride=mask_strides[0],
            mask_key_stride=mask_strides[1],
            k=k,
            normalize=int(normalize),
            has_least=int(least is not None),
            least=0.0 if least is None else least,
            device=device.index,
            flag=None if flag is None else view_of(flag).pointer,
            stream=device.stream or None,
        )
        self.plan = PlanStruct(path=PATHS[path], span=span)
        call("plan_search", ctypes.byref(self.search), OPS[op], ctypes.byref(self.plan))
        self._table = self._workspace = None
        if self.plan.table_length:
            table = np.empty(self.plan.table_length, np.int64)
            call("fill_table", ctypes.byref(self.search), ctypes.byref(self.plan), table.ctypes.data)
            self._table = device.upload(table)
        if self.plan.workspace_bytes:
            self._workspace = device.empty((self.plan.workspace_bytes,), "uint8")

    def arguments(self) -> tuple[Any, ...]:
        """What each launch begins with."""
        return ctypes.byref(self.search), ctypes.byref(self.plan)

    def memory(self) -> tuple[int | None, int | None]:
        """The table and the workspace."""
        table, workspace = self._table, self._workspace
        return (
            None if table is None else view_of(table).pointer,
            None if workspace is None else view_of(workspace).pointer,
        )


def row_scales(rows: Any, powers: Any, inverses: Any, *, device: Device) -> None:
    """Fill `powers` and `inverses` (n,) float32 for `rows` (n, d): a power of two and the inverse length of the row
    times it; 0 for a zero row, NaN for a row with NaN or infinity.
    """
    struct = _rows(rows, "rows")
    outputs = [_output(array, "powers and inverses", "float32", (struct.count,)) for array in (powers, inverses)]
    call("row_scales", ctypes.byref(struct), *outputs, device.index, device.stream or None)


def top_k(
    queries: Any,
    keys: Any,
    ranges: NDArray[np.int64] | None,
    groups: NDArray[np.int64] | None,
    mask: Any,
    k: int,
    normalize: bool,
    min_score: float | None,
    scores: Any,
    indices: Any,
    counts: Any,
    flag: Any,
    *,
    device: Device,
    key_scales: Scales = None,
    path: str = "auto",
    span: int = 0,
) -> None:
    """Fill the k best keys of each query: `scores` (m, k) float32, `indices` (m, k) int64, `counts` (m,) int64.

    `ranges` (s, 2) and `groups` (m,) are int64 on the host; `flag` (1,) int64 or None. `path` and `span` force a way to
    run it and the keys a block takes. Ties: the lowest index. Errors: ArgumentError, NoImplementation, MemoryError.
    """
    left, right = _rows(queries, "queries"), _rows(keys, "keys", key_scales)
    outputs = (
        _output(scores, "scores", "float32", (left.count, k)),
        _output(indices, "indices", "int64", (left.count, k)),
        _output(counts, "counts", "int64", (left.count,)),
    )
    if left.count == 0 or k == 0:
        counts[...] = 0
        return
    search = _Search(
        "top_k",
        left,
        right,
        ranges,
        groups,
        device,
        mask=mask,
        k=k,
        normalize=normalize,
        least=min_score,
        flag=flag,
        path=path,
        span=span,
    )
    call("top_k", *search.arguments(), *search.memory(), *outputs)


def top_k_merge(
    packed: Any, lists_a_query: int, scores: Any, indices: Any, counts: Any, *, device: Device, offsets: Any = None
) -> None:
    """Fill the best of the keys in `packed` (lists, width) int64 or uint64: `lists_a_query` lists a query, or those
    from offsets[i] to offsets[i + 1] of `offsets` (m + 1,) int64 on the device.

    A key is the float32 score, its bits made to sort, above the complement of the index; 0 is none. k <= 256 is that of
    `scores` (m, k).
    """
    view = view_of(packed)
    rows, k = view_of(scores).shape
    outputs = (
        _output(scores, "scores", "float32", (rows, k)),
        _output(indices, "indices", "int64", (rows, k)),
        _output(counts, "counts", "int64", (rows,)),
    )
    starts = None if offsets is None else view_of(offsets).pointer
    sizes = (lists_a_query, view.shape[1], rows, k)
    call("top_k_merge", view.pointer, starts, *sizes, *outputs, device.index, device.stream or None)


def similarity(
    x: Any,
    y: Any,
    normalize: bool,
    out: Any,
    flag: Any,
    *,
    device: Device,
    key_scales: Scales = None,
    path: str = "auto",
    span: int = 0,
) -> None:
    """Fill `out` (m, n) float32 with the inner products or cosines of the rows of `x` (m, d) and `y` (n, d)."""
    left, right = _rows(x, "x"), _rows(y, "y", key_scales)
    output = _output(out, "out", "float32", (left.count, right.count))
    if left.count == 0 or right.count == 0:
        return
    search = _Search(
        "similarity", left, right, None, None, device, normalize=normalize, flag=flag, path=path, span=span
    )
    call("similarity", *search.arguments(), *search.memory(), output)


def segment_max_similarity(
    evidence: Any,
    items: Any,
    ranges: NDArray[np.int64] | None,
    groups: NDArray[np.int64] | None,
    normalize: bool,
    values: Any,
    indices: Any,
    flag: Any,
    *,
    device: Device,
    key_scales: Scales = None,
    path: str = "auto",
    span: int = 0,
) -> None:
    """Fill the largest score of each piece of evidence over its segment, `values` (e,) float32, and where it was,
    `indices` (e,) int64; 0 and -1 for an empty segment. Ties: the lowest index.
    """
    left, right = _rows(evidence, "evidence"), _rows(items, "items", key_scales)
    outputs = (
        _output(values, "values", "float32", (left.count,)),
        _output(indices, "indices", "int64", (left.count,)),
    )
    if left.count == 0:
        return
    search = _Search(
        "segment_max_similarity",
        left,
        right,
        ranges,
        groups,
        device,
        normalize=normalize,
        flag=flag,
        path=path,
        span=span,
    )
    call("segment_max_similarity", *search.arguments(), *search.memory(), *outputs)


def segment_mean(values: Any, offsets: NDArray[np.int64], means: Any, *, device: Device) -> None:
    """Fill `means` (s,) float64 with the means of values[offsets[g] : offsets[g + 1]]; `values` (n,) float32 or float64
    is contiguous, `offsets` (s + 1,) int64 lies on the host. Sums are compensated; an empty piece gives NaN.
    """
    view = view_of(values)
    if view.kind not in ("float32", "float64") or len(view.shape) != 1 or (view.shape[0] > 1 and view.strides[0] != 1):
        raise ArgumentError(f"values: expected contiguous float32 or float64 with one axis, got {view.kind}")
    pieces = len(offsets) - 1
    output = _output(means, "means", "float64", (pieces,))
    if pieces <= 0:
        return
    table = device.upload(np.ascontiguousarray(offsets, np.int64))
    stream = device.stream or None
    wide = int(view.kind == "float64")
    call("segment_mean", view.pointer, wide, view_of(table).pointer, pieces, output, device.index, stream)


def mmr_select(
    queries: Any,
    keys: Any,
    ranges: NDArray[np.int64] | None,
    groups: NDArray[np.int64] | None,
    mask: Any,
    k: int,
    relevance_weight: float,
    min_relevance: float | None,
    normalize: bool,
    indices: Any,
    scores: Any,
    counts: Any,
    flag: Any,
    *,
    device: Device,
    key_scales: Scales = None,
    path: str = "auto",
    span: int = 0,
) -> None:
    """Fill the picks of each query in the order of selection: `indices` (m, k) int64, `scores` (m, k) float32, `counts`
    (m,) int64. Ties: the lowest index. `flag` covers the relevance of allowed pairs alone.
    """
    left, right = _rows(queries, "queries"), _rows(keys, "keys", key_scales)
    outputs = (
        _output(indices, "indices", "int64", (left.count, k)),
        _output(scores, "scores", "float32", (left.count, k)),
        _output(counts, "counts", "int64", (left.count,)),
    )
    if left.count == 0 or k == 0:
        counts[...] = 0
        return
    search = _Search(
        "mmr_select",
        left,
        right,
        ranges,
        groups,
        device,
        mask=mask,
        k=k,
        normalize=normalize,
        least=min_relevance,
        flag=flag,
        path=path,
        span=span,
    )
    call("mmr_select", *search.arguments(), float(relevance_weight), *search.memory(), *outputs)
