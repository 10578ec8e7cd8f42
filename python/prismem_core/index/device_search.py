"""Searching the blocks of an index on a device: piece by piece with the kernels of the ops, then merged in order."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismem_core.index.device_blocks import Blocks
from prismem_core.index.device_codes import DeviceCodes
from prismem_core.index.device_derived import Scales
from prismem_core.index.device_filter import Selection
from prismem_core.index.device_launchers import Launchers
from prismem_core.index.device_stream import Piece, Stream

Integers = NDArray[np.int64]

_LOGGER = logging.getLogger("prismem_core")
_NOTHING_BAD = (1 << 63) - 1
_MERGED_AT = 512  # cells of a query beside its hits before they are merged
_FEWEST_ROWS = 1 << 14  # a launch over fewer rows at a time saves no memory worth having


@dataclass(frozen=True)
class Request:
    """What a search looks for: `queries` (m, d) is a tensor on the device."""

    queries: Any
    k: int
    cosine: bool
    min_score: float | None


@dataclass
class Hits:
    """The best slots of each query on the host, `scores` (m, w) on the device; -1 and -infinity beyond `counts`.

    `bad_query` is the first query that holds NaN or infinity, or None; `bad` the first query and slot whose score is
    not finite, or None.
    """

    scores: Any
    slots: Integers
    counts: Integers
    bad_query: int | None = None
    bad: tuple[int, int] | None = None


class DeviceSearch:
    """Searches of one index. Several threads may be in it at a time; no change goes on meanwhile."""

    def __init__(
        self, blocks: Blocks, stream: Stream, scales: Scales, codes: DeviceCodes, launchers: Callable[[], Launchers]
    ) -> None:
        self._blocks = blocks
        self._memory = blocks.memory
        self._stream = stream
        self._launchers = launchers
        self._scales = scales
        self._codes = codes
        self._noted = False

    def best(self, request: Request, selection: Selection, slots: int) -> Hits:
        """The k best of the selected slots among the first `slots`."""
        step, rows = max(1, int(request.queries.shape[0])), None
        while True:
            try:
                with self._stream.reserved():
                    return self._attempt(request, selection, slots, step, rows)
            except Exception as error:
                if not self._memory.is_shortage(error):
                    raise
                shortage = error.with_traceback(None)  # whose frames hold what has to be given back
                shortage.__context__ = None
            self._memory.settle()
            self._memory.collect()
            if step > 1:
                step = -(-step // 2)
            elif (rows or max(slots, 1)) > _FEWEST_ROWS:
                rows = max(_FEWEST_ROWS, (rows or slots) // 4)
            else:
                raise MemoryError(
                    f"a search for one query over {rows or slots} rows at a time does not fit into what is free on "
                    f"{self._memory.device}; the index is as it was: give memory back, or make it with smaller "
                    "memory_bytes"
                ) from shortage
            self._note(step, rows)

    def _note(self, step: int, rows: int | None) -> None:
        if not self._noted:
            self._noted = True
            _LOGGER.warning(
                "%s is short of memory: searches there go on with at most %d queries%s at a time, which is slower",
                self._memory.device,
                step,
                f" and {rows} rows" if rows else "",
            )

    def _attempt(self, request: Request, selection: Selection, slots: int, step: int, rows: int | None) -> Hits:
        count = int(request.queries.shape[0])
        candidates = slots if selection.listed is None else selection.listed.shape[0]
        width = min(request.k, candidates)
        found = [
            self._some(request, slice(begin, min(begin + step, count)), selection, slots, width, rows)
            for begin in range(0, count, step)
        ]
        torch = self._memory.torch
        if not found:
            empty = np.empty((0, width), np.int64)
            return Hits(self._memory.empty((0, width), torch.float32), empty, np.empty(0, np.int64))
        scores = _joined(torch, [part[0] for part in found])
        finite = request.queries.isfinite().all(dim=1).to(torch.int64)
        flags = [flag for part in found for flag in part[3]]
        cells = [part[1].reshape(-1) for part in found] + [part[2] for part in found]
        # One copy, which waits for everything.
        host = torch.cat([*cells, finite, *(flag.cell for flag in flags)]).cpu().numpy()
        places, counts, finite, lowest = np.split(host, np.cumsum([count * width, count, count]))
        bad_query = None if finite.all() else int(np.argmin(finite))
        named = (flag.named(int(cell), selection.listed) for flag, cell in zip(flags, lowest, strict=True))
        bad = min((pair for pair in named if pair is not None), default=None)
        return Hits(scores, places.reshape(count, width), counts, bad_query, bad)

    def _some(
        self, request: Request, which: slice, selection: Selection, slots: int, width: int, rows: int | None
    ) -> tuple[Any, Any, Any, list[_Flag]]:
        """scores and slots (m, width), counts (m,) and a flag a piece of some queries."""
        torch, memory = self._memory.torch, self._memory
        queries = request.queries[which]
        count = int(queries.shape[0])
        launchers, merge = self._launchers(), _Merge(torch, width)
        flags: list[_Flag] = []
        listed = None if selection.listed is None else memory.upload(selection.listed)
        if width:
            pieces = (
                self._stream.pieces(slots, rows) if selection.listed is None else self._gathered(selection.listed, rows)
            )
            with closing(pieces):
                for piece in pieces:
                    marks = selection.marks_of(piece.start, piece.start + piece.count, which, memory)
                    scores, places, counts, cell = self._launch(
                        launchers, queries, piece, marks, listed is None, request, width
                    )
                    flags.append(_Flag(cell, which.start, piece.start, piece.count))
                    if listed is not None:
                        places = torch.where(places >= 0, listed[(places + piece.start).clamp(min=0)], places)
                    elif piece.start:
                        places = torch.where(places >= 0, places + piece.start, places)
                    merge.take(scores, places, counts)
        scores, places, counts = merge.result(count, memory)
        return scores, places, counts, flags

    def _gathered(self, listed: Integers, rows: int | None) -> Generator[Piece]:
        step = rows or max(1, listed.shape[0])
        for begin in range(0, listed.shape[0], step):
            yield Piece(begin, self._blocks.gather(listed[begin : begin + step]))

    def _launch(
        self,
        launchers: Launchers,
        queries: Any,
        piece: Piece,
        marks: Any,
        whole: bool,
        request: Request,
        width: int,
    ) -> tuple[Any, Any, Any, Any]:
        torch, memory = self._memory.torch, self._memory
        count, k = int(queries.shape[0]), min(width, piece.count)
        scores, places = memory.empty((count, k), torch.float32), memory.empty((count, k), torch.int64)
        counts = memory.empty((count,), torch.int64)
        flag = torch.full((1,), _NOTHING_BAD, dtype=torch.int64, device=memory.device)
        scales = self._scales.of(piece, launchers) if whole and request.cosine else None
        more = {"device": memory.launch_device(), **({} if scales is None else {"key_scales": scales})}
        hits = (scores, places, counts, flag)
        codes = self._codes.of(piece, count) if whole and launchers.codes is not None else None
        if codes is not None:
            launchers.codes.search(queries, piece.rows, codes, marks, k, request.min_score, *hits, **more)
        else:
            limits = (k, request.cosine, request.min_score)
            launchers.top_k(queries, piece.rows, None, None, marks, *limits, *hits, **more)
        return hits


@dataclass(frozen=True)
class _Flag:
    """The cell of a launch over `count` keys, the first of them at `start`, for the queries from `first_query` on."""

    cell: Any
    first_query: int
    start: int
    count: int

    def named(self, lowest: int, listed: Integers | None) -> tuple[int, int] | None:
        """The query and the slot that the value of the cell stands for, or None."""
        if lowest == _NOTHING_BAD:
            return None
        query, key = divmod(lowest, self.count)
        place = self.start + key
        return self.first_query + query, place if listed is None else int(listed[place])


def _joined(torch: Any, parts: list[Any]) -> Any:
    return parts[0] if len(parts) == 1 else torch.cat(parts)


class _Merge:
    """The best hits of pieces that come in the order of slots; equal scores keep it."""

    def __init__(self, torch: Any, width: int) -> None:
        self._torch = torch
        self._width = width
        self._scores: list[Any] = []
        self._places: list[Any] = []
        self._counts: Any = None

    def take(self, scores: Any, places: Any, counts: Any) -> None:
        """The hits of the next piece, best first."""
        self._scores.append(scores)
        self._places.append(places)
        self._counts = counts if self._counts is None else self._counts + counts
        if sum(part.shape[1] for part in self._scores) > self._width + max(self._width, _MERGED_AT):
            self._reduce()

    def _reduce(self) -> None:
        scores, places = self._torch.cat(self._scores, 1), self._torch.cat(self._places, 1)
        # Adding zero makes -0.0 equal to 0.0 for every kind of sort.
        order = self._torch.sort(scores + 0.0, dim=1, descending=True, stable=True).indices[:, : self._width]
        self._scores, self._places = [scores.gather(1, order)], [places.gather(1, order)]

    def result(self, count: int, memory: Any) -> tuple[Any, Any, Any]:
        """Scores and places (m, width) and counts (m,)."""
        torch = self._torch
        if self._counts is None:
            counts = torch.zeros((count,), dtype=torch.int64, device=memory.device)
            self._scores = [memory.empty((count, 0), torch.float32)]
            self._places = [memory.empty((count, 0), torch.int64)]
        else:
            counts = self._counts.clamp(max=self._width)
        if len(self._scores) > 1:
            self._reduce()
        return self._scores[0], self._places[0], counts
