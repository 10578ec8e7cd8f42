"""mmr_select against a loop of torch over the picks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from prismem_core import ops
from prismem_core.ops import on_device
from prismem_core.ops.registry import IMPLEMENTATIONS

from .. import floors
from .cases import Contest, Goal, Timed
from .search import corpus
from .stage import Stage
from .timing import Call

WEIGHT = 0.7
SETS = 3
"""Sets of inputs that calls go round, together larger than the second-level cache."""


def loop(stage: Stage, queries: Any, keys: Any, pool: int, k: int) -> tuple[Any, Any]:
    """The usual way: products of each pool with itself at once, then one step a pick; indices and scores (m, k)."""
    torch = stage.torch
    m, d = queries.shape
    pools = keys.view(m, pool, d)
    relevance = torch.bmm(pools, queries[:, :, None])[:, :, 0].float()
    products = torch.bmm(pools, pools.transpose(1, 2)).float()
    every = torch.arange(m, device=stage.device)
    closest = torch.full_like(relevance, -torch.inf)
    taken = torch.zeros_like(relevance, dtype=torch.bool)
    indices, scores = [], []
    value = WEIGHT * relevance
    for _ in range(k):
        best = value.masked_fill(taken, -torch.inf).max(dim=1)
        indices.append(best.indices)
        scores.append(best.values)
        taken[every, best.indices] = True
        closest = torch.maximum(closest, products[every, best.indices])
        value = WEIGHT * relevance - (1 - WEIGHT) * closest
    return torch.stack(indices, 1), torch.stack(scores, 1)


def contest(d: int) -> Callable[[Stage], Contest]:
    """Ours, of every backend, against the loop."""

    def make(stage: Stage) -> Contest:
        m, pool, k, width = (3, 20, 4, 32) if stage.dry else (256, 200, 25, d)
        sets = [corpus(stage, m, m * pool, width, "float16", seed) for seed in range(SETS)]
        segments = ops.Segments.from_lengths([pool] * m)

        def ours(backend: str) -> Call:
            def call(number: int) -> Any:
                queries, keys = sets[number % SETS]
                with ops.use(backend):
                    return ops.mmr_select(
                        queries, keys, k, relevance_weight=WEIGHT, segments=segments, nonfinite="skip"
                    )

            return call

        competitors, missing = on_each_backend(stage, "mmr_select", ours)
        competitors["torch loop"] = lambda number: loop(stage, *sets[number % SETS], pool, k)

        def agree(results: Mapping[str, Any]) -> dict[str, str | None]:
            wanted = scores_of(stage, *sets[0], pool, results["torch loop"][0])
            return {
                name: _complaint(stage, scores_of(stage, *sets[0], pool, result[0]), wanted)
                for name, result in results.items()
                if name != "torch loop"
            }

        return Contest(competitors, agree, missing, SETS)

    return make


def on_each_backend(stage: Stage, op: str, ours: Callable[[str], Call]) -> tuple[dict[str, Call], dict[str, str]]:
    """The calls that `ours` makes of the backends that can run an op here, and why the others cannot."""
    calls: dict[str, Call] = {}
    missing: dict[str, str] = {}
    for backend in on_device.BACKENDS:
        why = stage.why_not(backend) if (op, backend) in IMPLEMENTATIONS else f"{backend} has no {op}"
        if why is None:
            calls[backend] = ours(backend)
        else:
            missing[backend] = why
    return calls, missing


def scores_of(stage: Stage, queries: Any, keys: Any, pool: int, picks: Any) -> Any:
    """The exact scores (m, k) that picks had when they were taken, in float64."""
    torch = stage.torch
    m, d = queries.shape
    pools = keys.view(m, pool, d).double()
    chosen = pools[torch.arange(m, device=stage.device)[:, None], picks.to(stage.device).long()]
    relevance = (chosen @ queries.double()[:, :, None])[:, :, 0]
    products = chosen @ chosen.transpose(1, 2)
    k = chosen.shape[1]
    earlier = torch.ones(k, k, device=stage.device).tril(-1).bool()
    closest = products.masked_fill(~earlier, -torch.inf).amax(dim=2)
    closest[:, 0] = 0.0
    weight = torch.full((k,), 1 - WEIGHT, device=stage.device, dtype=torch.float64)
    weight[0] = 0.0
    return WEIGHT * relevance - weight * closest


def _complaint(stage: Stage, ours: Any, wanted: Any) -> str | None:
    """Near-ties may fall either way, after which selections differ; most must be the same to the last pick."""
    same = ((ours - wanted).abs() < 1e-5).all(dim=1)
    share = float(same.double().mean())
    return None if share >= 0.95 else f"only {share:.0%} of the selections are those of the loop"


def _case(d: int, *goals: Goal) -> Timed:
    work, tiny = floors.mmr_select(256, 200, d, 25), floors.mmr_select(3, 20, 32, 4)
    return Timed(f"mmr_select, 256 x 200 to 25, d={d}", lambda dry: tiny if dry else work, contest(d), goals, 8.0)


CASES = (_case(1024, Goal("best", "torch loop", 4.0)), _case(4096))
