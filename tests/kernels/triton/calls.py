"""Checked calls of ops, run by launchers of Triton kernels on tensors of the CPU, with garbage in outputs before."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from prismem_core import ops  # noqa: E402
from prismem_core.arrays import Rows  # noqa: E402
from prismem_core.arrays.device import TorchDevice  # noqa: E402
from prismem_core.arrays.places import Place  # noqa: E402
from prismem_core.kernels.triton import mmr_select, segment_max_similarity, segment_mean  # noqa: E402
from prismem_core.ops.mmr_select import MmrSelection  # noqa: E402
from prismem_core.ops.segment_max_similarity import SegmentMax  # noqa: E402
from prismem_core.ops.top_k import TopK  # noqa: E402

DEVICE = TorchDevice(Place("torch", "cpu"))
UNTOUCHED = np.iinfo(np.int64).max
"""What a flag holds while every score is finite."""


def tensor(rows: Rows) -> Any:
    """The rows as a tensor; what torch cannot view is copied."""
    data = rows.data
    if min(data.strides, default=0) < 0 or not data.flags.writeable:
        data = data.copy()
    if rows.kind == "bfloat16":
        return torch.from_numpy(data.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(data)


def of_kind(values: NDArray[Any], kind: str) -> Any:
    """A tensor of float32, float16 or bfloat16."""
    return torch.from_numpy(np.ascontiguousarray(values, np.float32)).to(getattr(torch, kind))


def garbage(*shape: int, kind: str = "int64") -> Any:
    """Memory that nobody has written to yet."""
    return torch.full(shape, -7777 if kind == "int64" else float("nan"), dtype=getattr(torch, kind))


def flag() -> Any:
    return torch.full((1,), UNTOUCHED, dtype=torch.int64)


def pieces_of(segments: ops.Segments | None) -> tuple[Any, Any]:
    return (None, None) if segments is None else (segments.ranges, segments.groups)


def best_items(call: Any, noted: Any | None = None, **keywords: Any) -> SegmentMax:
    """What segment_max_similarity finds for a checked call."""
    values, indices = garbage(call.evidence.count, kind="float32"), garbage(call.evidence.count)
    segment_max_similarity.segment_max_similarity(
        tensor(call.evidence), tensor(call.items), *pieces_of(call.segments), call.normalize, values, indices, noted,
        device=DEVICE, **keywords,
    )  # fmt: skip
    return SegmentMax(values.numpy(), indices.numpy())


def means(call: Any) -> NDArray[np.float64]:
    """What segment_mean gives for a checked call."""
    found = garbage(len(call.offsets) - 1, kind="float64")
    segment_mean.segment_mean(torch.from_numpy(call.values.copy()), call.offsets, found, device=DEVICE)
    return found.numpy()


def picks(call: Any, noted: Any | None = None) -> MmrSelection:
    """What mmr_select picks for a checked call."""
    shape = (call.queries.count, call.width)
    indices, scores, counts = garbage(*shape), garbage(*shape, kind="float32"), garbage(shape[0])
    mask = None if call.mask is None else torch.from_numpy(np.ascontiguousarray(call.mask))
    mmr_select.mmr_select(
        tensor(call.queries), tensor(call.keys), *pieces_of(call.segments), mask, call.width, call.relevance_weight,
        call.min_relevance, call.normalize, indices, scores, counts, noted, device=DEVICE,
    )  # fmt: skip
    used = int(counts.max()) if shape[0] else call.width
    return MmrSelection(indices.numpy()[:, :used], scores.numpy()[:, :used], counts.numpy())


def hits_of_codes(queries: Any, keys: Any, codes: Any, k: int, *, mask: Any = None, min_score: float | None = None,
                  noted: Any | None = None) -> TopK:  # fmt: skip
    """What a search with codes finds."""
    from prismem_core.kernels.triton import codes as module

    count = queries.shape[0]
    scores, indices, counts = garbage(count, k, kind="float32"), garbage(count, k), garbage(count)
    module.search(queries, keys, codes, mask, k, min_score, scores, indices, counts, noted, device=DEVICE)
    used = int(counts.max())
    return TopK(scores.numpy()[:, :used], indices.numpy()[:, :used], counts.numpy())
