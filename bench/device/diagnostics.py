"""segment_max_similarity, as evidence diagnostics call it, against a padded batch of products in torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from prismem_core import ops

from .. import floors
from .cases import Contest, Goal, Timed
from .search import corpus
from .selection import on_each_backend
from .stage import Stage
from .timing import Call

SETS_OF_ITEMS = 3
LENGTHS = (5, 200)


def contest(share: int) -> Callable[[Stage], Contest]:
    """Each piece of evidence against three ragged sets; `share` pieces have the same three."""

    def make(stage: Stage) -> Contest:
        evidence, d = (8, 32) if stage.dry else (1000 // share * share, 1024)
        sharing = min(share, evidence)
        groups = evidence // sharing * SETS_OF_ITEMS
        low, high = (2, 9) if stage.dry else LENGTHS
        lengths = np.random.default_rng(0).integers(low, high + 1, groups)
        copies = 1 if share == 1 or stage.dry else 4
        left = [corpus(stage, evidence, int(lengths.sum()), d, "float16", seed) for seed in range(copies)]
        # Row 3 * i + j is evidence i against its set j.
        owner = np.repeat(np.arange(evidence) // sharing, SETS_OF_ITEMS) * SETS_OF_ITEMS
        segments = ops.Segments.from_lengths(lengths, owner + np.tile(np.arange(SETS_OF_ITEMS), evidence))
        inputs = [(rows.repeat_interleave(SETS_OF_ITEMS, dim=0), items) for rows, items in left]
        padded = padding(stage, lengths)

        def ours(backend: str) -> Call:
            def call(number: int) -> Any:
                rows, items = inputs[number % copies]
                with ops.use(backend):
                    return ops.segment_max_similarity(rows, items, segments, nonfinite="skip")

            return call

        competitors, missing = on_each_backend(stage, "segment_max_similarity", ours)
        competitors["torch padded bmm"] = lambda number: padded_bmm(stage, *left[number % copies], *padded, sharing)

        def agree(results: Mapping[str, Any]) -> dict[str, str | None]:
            wanted = results["torch padded bmm"][0]
            found = {}
            for name, result in results.items():
                off = float((result[0].double() - wanted.double()).abs().max())
                found[name] = (
                    None if off < 2e-3 else f"a maximum is off by {off:.2g}"
                )  # torch rounds its sums to halves
            return found

        return Contest(competitors, agree, missing, copies)

    return make


def padding(stage: Stage, lengths: Any) -> tuple[Any, Any]:
    """Rows (groups, longest) of the items of each set, and which of them are none."""
    torch = stage.torch
    ends = np.cumsum(lengths)
    columns = np.arange(int(lengths.max()))
    rows = np.minimum((ends - lengths)[:, None] + columns, ends[-1] - 1)
    none = columns[None, :] >= lengths[:, None]
    return torch.from_numpy(rows).to(stage.device), torch.from_numpy(none).to(stage.device)


def padded_bmm(stage: Stage, evidence: Any, items: Any, rows: Any, none: Any, share: int) -> tuple[Any, Any]:
    """The usual way: sets padded to the longest, products in a batch, maxima; in the order of our rows."""
    torch = stage.torch
    groups = len(rows) // SETS_OF_ITEMS
    d = evidence.shape[1]
    sets = items[rows].view(groups, SETS_OF_ITEMS, rows.shape[1], d)
    scores = torch.matmul(evidence.view(groups, 1, share, d), sets.transpose(2, 3)).float()
    best = scores.masked_fill(none.view(groups, SETS_OF_ITEMS, 1, -1), -torch.inf).max(dim=3)
    return tuple(part.transpose(1, 2).reshape(-1) for part in best)


def _case(share: int, name: str, *goals: Goal) -> Timed:
    work = floors.segment_max_similarity(1000 // share * share, SETS_OF_ITEMS, 102.5, 1024, share)
    tiny = floors.segment_max_similarity(8, SETS_OF_ITEMS, 5.5, 32, min(share, 8))
    return Timed(f"segment_max_similarity, {name}", lambda dry: tiny if dry else work, contest(share), goals, 8.0)


CASES = (
    _case(1, "private sets", Goal("best", "bandwidth", 0.8)),
    _case(16, "16 share", Goal("best", "torch padded bmm", 3.0)),
    _case(100, "100 share", Goal("best", "torch padded bmm", 3.0)),
)
