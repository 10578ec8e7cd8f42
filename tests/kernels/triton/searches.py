"""Checked calls of top_k and similarity, run by launchers of Triton kernels, with outputs that hold garbage before."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from prismem_core.kernels.triton import similarity, top_k
from prismem_core.ops.top_k import TopK
from tests.kernels.triton.calls import DEVICE, garbage, pieces_of, tensor


def mask_of(call: Any) -> Any:
    """The mask as a tensor, at the strides it has where torch can have them."""
    if call.mask is None:
        return None
    mask = call.mask
    return torch.from_numpy(mask if min(mask.strides, default=0) >= 0 and mask.flags.writeable else mask.copy())


def hits(call: Any, noted: Any = None, **keywords: Any) -> TopK:
    """What top_k finds for a checked call, with all columns."""
    count, k = call.queries.count, call.width
    scores, indices, counts = garbage(count, k, kind="float32"), garbage(count, k), garbage(count)
    top_k.top_k(
        tensor(call.queries), tensor(call.keys), *pieces_of(call.segments), mask_of(call), k, call.normalize,
        call.min_score, scores, indices, counts, noted, device=DEVICE, **keywords,
    )  # fmt: skip
    return TopK(scores.numpy(), indices.numpy(), counts.numpy())


def cut(found: TopK) -> TopK:
    """Without the columns that no row uses."""
    used = int(found.counts.max(initial=0)) if len(found.counts) else found.scores.shape[1]
    return TopK(found.scores[:, :used], found.indices[:, :used], found.counts)


def scores(call: Any, noted: Any = None) -> NDArray[np.float32]:
    """What similarity gives for a checked call."""
    out = garbage(call.x.count, call.y.count, kind="float32")
    similarity.similarity(tensor(call.x), tensor(call.y), call.normalize, out, noted, device=DEVICE)
    found: NDArray[np.float32] = out.numpy()
    return found


def identical(found: TopK, expected: TopK) -> None:
    """The same counts, scores and indices, bit for bit, and nothing in cells past the counts."""
    np.testing.assert_array_equal(found.counts, expected.counts)
    used = expected.scores.shape[1]
    np.testing.assert_array_equal(found.scores[:, :used], expected.scores)
    np.testing.assert_array_equal(found.indices[:, :used], expected.indices)
    assert (found.indices[:, used:] == -1).all()
    assert (found.scores[:, used:] == -np.inf).all()
