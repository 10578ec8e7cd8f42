"""Searches over arrays on the host that a device screens and the host settles: the host's results, bit for bit.

Sums in another order give other last bits, so a device alone would change journals and caches. Here it only proves
which keys cannot be hits: both sides compute a score within `score_error` of the exact one, so a key whose score on the
device lies more than twice that below the k-th best cannot be among the k best of the host. The few keys that are left
are scored on the host.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismem_core.errors import SettingsError
from prismem_core.ops.registry import use
from prismem_core.ops.segment_max_similarity import SegmentMax, segment_max_similarity
from prismem_core.ops.segments import Segments, ranges_of
from prismem_core.ops.top_k import TopK, top_k

Matrix = NDArray[np.float32]
Integers = NDArray[np.int64]

Measured = Callable[[], AbstractContextManager[None]]

_log = logging.getLogger(__name__)
_SPARE = 16  # keys beyond k that a device returns, so that near ties of the k-th are seen


def score_error(dim: int, lengths: NDArray[np.float64]) -> NDArray[np.float64]:
    """A bound on how far a score in float32 is from the exact one, for products of rows of these `lengths`.

    Any order of summation of d products, each rounded, errs by at most d 2**-24 / (1 - d 2**-24) times the product of
    the lengths; products of three tf32 parts err by 2**-20 more. The bound is four times that, for tensor cores that
    cut where others round.
    """
    return (dim + 32.0) * 2.0**-22 * lengths


class Screen:
    """Ops for arrays of numpy, screened on a device: "cpu" (nothing is screened), "cuda" or "cuda:N".

    Each search on a device is made inside of what `measured` gives, which may measure it or refuse it.
    """

    def __init__(
        self, device: str = "cpu", *, backend: str | None = None, measured: Measured = contextlib.nullcontext
    ) -> None:
        self.device = device
        self._backend = backend
        self._measured = measured
        if device != "cpu":
            check_device(device)

    @property
    def screens(self) -> bool:
        """Whether a device is asked at all."""
        return self.device != "cpu" or self._backend is not None

    def top_k(
        self, queries: Matrix, keys: Matrix, k: int, *, segments: Segments | None = None, mask: Any = None
    ) -> TopK:
        """`ops.top_k` of float32 rows, with a mask (n,) or (m, n)."""
        if not self.screens or not len(queries) or not len(keys) or k == 0:
            return top_k(queries, keys, k, segments=segments, mask=mask)
        chosen, complete = self._candidates(queries, keys, k, segments, mask)
        ranges = ranges_of(segments, len(queries), len(keys))
        for row in np.flatnonzero(~complete).tolist():
            begin, end = ranges[row]
            allowed = (
                np.ones(end - begin, np.bool_) if mask is None else (mask if mask.ndim == 1 else mask[row])[begin:end]
            )
            chosen[row] = np.flatnonzero(allowed)
        found = top_k(queries, _gathered(keys, chosen, ranges), k, segments=_segments(chosen))
        indices = found.indices.copy()
        for row, own in enumerate(chosen):
            count = int(found.counts[row])
            indices[row, :count] = own[indices[row, :count]]
        return TopK(found.scores, indices, found.counts)

    def segment_max_similarity(self, evidence: Matrix, items: Matrix, segments: Segments | None = None) -> SegmentMax:
        """`ops.segment_max_similarity` of float32 rows."""
        if not self.screens or not len(evidence) or not len(items):
            return segment_max_similarity(evidence, items, segments)
        chosen, complete = self._candidates(evidence, items, 1, segments, None)
        ranges = ranges_of(segments, len(evidence), len(items))
        for row in np.flatnonzero(~complete).tolist():
            begin, end = ranges[row]
            chosen[row] = np.arange(end - begin)
        found = segment_max_similarity(evidence, _gathered(items, chosen, ranges), _segments(chosen))
        indices = found.indices.copy()
        for row, own in enumerate(chosen):
            if indices[row] >= 0:
                indices[row] = own[indices[row]]
        return SegmentMax(found.values, indices)

    def _candidates(
        self, queries: Matrix, keys: Matrix, k: int, segments: Segments | None, mask: Any
    ) -> tuple[list[Integers], NDArray[np.bool_]]:
        """For each query the keys that can be hits, rising, and whether the device could prove that there are no
        others.
        """
        with self._measured():
            found = self._on_device(queries, keys, k + _SPARE, segments, mask)
        scores, indices, counts = (_host(part) for part in found)
        longest = float(np.sqrt((keys.astype(np.float64) ** 2).sum(axis=1)).max())
        lengths = np.sqrt((queries.astype(np.float64) ** 2).sum(axis=1)) * longest
        slack = 2.0 * score_error(queries.shape[1], lengths)
        chosen: list[Integers] = []
        complete = np.zeros(len(queries), np.bool_)
        for row, count in enumerate(counts.tolist()):
            own = scores[row, :count].astype(np.float64)
            least = own[k - 1] - slack[row] if count >= k else -np.inf
            kept = own >= least
            complete[row] = count < k + _SPARE or not bool(kept[-1])
            chosen.append(np.sort(indices[row, :count][kept]))
        return chosen, complete

    def _on_device(self, queries: Matrix, keys: Matrix, k: int, segments: Segments | None, mask: Any) -> TopK:
        """The best keys by the device's own scores; fewer queries at a time where its memory is short."""
        torch = importlib.import_module("torch")
        rows = torch.from_numpy(np.ascontiguousarray(keys)).to(self.device)
        step, parts, first = len(queries), [], 0
        while first < len(queries):
            last = min(first + step, len(queries))
            own = None if segments is None else Segments.grouped(segments.ranges, _groups(segments, first, last))
            allowed = mask if mask is None or mask.ndim == 1 else mask[first:last]
            try:
                with contextlib.nullcontext() if self._backend is None else use(self._backend):
                    part = top_k(
                        torch.from_numpy(np.ascontiguousarray(queries[first:last])).to(self.device),
                        rows,
                        k,
                        segments=own,
                        mask=None
                        if allowed is None
                        else torch.from_numpy(np.ascontiguousarray(allowed)).to(self.device),
                    )
                parts.append(tuple(_host(piece) for piece in part))
            except torch.cuda.OutOfMemoryError:
                if step == 1:
                    raise
                step = (step + 1) // 2
                _log.warning("%s is short of memory: %d queries a launch from here on", self.device, step)
                continue
            first = last
        width = max(part[0].shape[1] for part in parts)
        return TopK(
            np.concatenate([_widened(scores, width, -np.inf) for scores, _, _ in parts]),
            np.concatenate([_widened(indices, width, -1) for _, indices, _ in parts]),
            np.concatenate([counts for _, _, counts in parts]),
        )


def check_device(device: str) -> None:
    """SettingsError where a device is not there, with what is missing."""
    name, _, number = device.partition(":")
    if name != "cuda" or (number and not number.isdecimal()) or device.endswith(":"):
        raise SettingsError(f"device: expected cpu, cuda or cuda:N, got {device!r}")
    if importlib.util.find_spec("torch") is None:
        raise SettingsError(
            f"device: {device} needs torch (pip install 'prismem-core[gpu]'); `prismem doctor` says more"
        )
    torch = importlib.import_module("torch")
    count = int(torch.cuda.device_count()) if torch.cuda.is_available() else 0
    if int(number or 0) >= count:
        raise SettingsError(
            f"device: {device} is not there, torch {torch.__version__} sees {count} CUDA devices; use device=cpu, "
            "or see `prismem doctor`"
        )


def _host(part: Any) -> Any:
    return part if isinstance(part, np.ndarray) else part.cpu().numpy()


def _groups(segments: Segments, first: int, last: int) -> Any:
    return (np.arange(len(segments.ranges)) if segments.groups is None else segments.groups)[first:last]


def _gathered(keys: Matrix, chosen: list[Integers], ranges: Any) -> Matrix:
    """The rows chosen for all queries, one after the other."""
    places = np.concatenate([own + ranges[row][0] for row, own in enumerate(chosen)])
    return np.ascontiguousarray(keys[places])


def _segments(chosen: list[Integers]) -> Segments:
    return Segments.from_lengths([len(own) for own in chosen])


def _widened(array: NDArray[Any], width: int, value: float) -> NDArray[Any]:
    return np.pad(array, ((0, 0), (0, width - array.shape[1])), constant_values=value)
