"""top_k and similarity against torch, cuVS and faiss."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping
from typing import Any

from prismem_core import ops

from .. import floors
from .bad_inputs import rows
from .cases import Contest, Goal, Timed
from .session import NotHere
from .stage import Stage
from .timing import Call


def corpus(stage: Stage, m: int, n: int, d: int, kind: str, seed: int = 0) -> tuple[Any, Any]:
    """Queries (m, d) and keys (n, d) of length about 1, made in pieces."""
    torch = stage.torch
    keys = torch.empty(n, d, device=stage.device, dtype=getattr(torch, kind))
    for start in range(0, n, 100_000):
        piece = keys[start : start + 100_000]
        piece.copy_(rows(stage, len(piece), d, seed + start) / d**0.5)
    return (rows(stage, m, d, seed + 7) / d**0.5).to(keys.dtype), keys


def float32_scores(stage: Stage, queries: Any, keys: Any) -> Any:
    """torch's product with sums handed out in float32, as all versions can that have it; else widened afterwards."""
    torch = stage.torch
    if queries.dtype == torch.float32 or stage.dry:
        return queries.float() @ keys.float().T
    try:
        return torch.mm(queries, keys.T, out_dtype=torch.float32)
    except (TypeError, RuntimeError):
        return (queries @ keys.T).float()


def same_hits(
    stage: Stage, queries: Any, keys: Any, first: int
) -> Callable[[Mapping[str, Any]], dict[str, str | None]]:
    """A check of hits: each score is that of its key in float64, and the last is no worse than the best left out."""
    torch = stage.torch
    few = queries[:first].double()
    exact = torch.cat([few @ keys[start : start + 100_000].double().T for start in range(0, len(keys), 100_000)], 1)
    room = 4e-6 * float(few.norm(dim=1).max()) * float(keys[:1000].double().norm(dim=1).max()) * 1.5

    def agree(results: Mapping[str, Any]) -> dict[str, str | None]:
        return {name: complaint(*result) for name, result in results.items()}

    def complaint(scores: Any, indices: Any) -> str | None:
        scores, indices = torch.as_tensor(scores)[:first], torch.as_tensor(indices)[:first]
        scores, indices = scores.to(stage.device).double(), indices.to(stage.device).long()
        k = indices.shape[1]
        if bool((indices < 0).any()) or bool((indices >= len(keys)).any()):
            return "an index is out of range"
        if any(len(set(row)) != k for row in indices.tolist()):
            return "an index repeats"
        own = exact.gather(1, indices)
        if not bool(((own - scores).abs() <= room).all()):
            return f"a score is off by {float((own - scores).abs().max()):.2g}"
        best = exact.topk(k, dim=1).values
        worst = float((best - own.sort(dim=1, descending=True).values).max())
        return None if worst <= 2 * room else f"a key better by {worst:.2g} was left out"

    return agree


def top_k_contest(m: int, d: int, hits: int, kind: str = "float16") -> Callable[[Stage], Contest]:
    """Ours against torch with float32 and with narrow scores, and against libraries that are installed."""

    def make(stage: Stage) -> Contest:
        if stage.dry and kind == "bfloat16":
            raise NotHere("the interpreter multiplies the bits of bfloat16 as if they were numbers")
        torch = stage.torch
        n, k = (256, 5) if stage.dry else (10**6, hits)
        size, width = (min(m, 4), 32) if stage.dry else (m, d)
        queries, keys = corpus(stage, size, n, width, kind)

        def ours(_: int) -> Any:
            with ops.use("triton"):
                return ops.top_k(queries, keys, k, nonfinite="skip")[:2]

        competitors: dict[str, Call] = {
            "triton": ours,
            "torch": lambda _: torch.topk(float32_scores(stage, queries, keys), k),
        }
        lossy: dict[str, Call] = {}
        if kind != "float32":
            lossy["torch, narrow scores"] = lambda _: torch.topk(queries @ keys.T, k)
        missing: dict[str, str] = {}
        for name, maker in (("cuVS brute force", _cuvs), ("faiss knn_gpu", _faiss)):
            call = maker(stage, queries, keys, k)
            if isinstance(call, str):
                missing[name] = call
            else:
                competitors[name] = call
        check = same_hits(stage, queries, keys, min(size, 4))

        def agree(results: Mapping[str, Any]) -> dict[str, str | None]:
            return check({name: result for name, result in results.items() if name not in lossy})

        everyone = {**competitors, **lossy}
        return Contest(everyone, agree, missing, capturable=("triton",), matrix_bytes=4 * size * n)

    return make


def _cuvs(stage: Stage, queries: Any, keys: Any, k: int) -> Call | str:
    if stage.dry or importlib.util.find_spec("cuvs") is None:
        return "cuvs is not installed"
    brute_force = importlib.import_module("cuvs.neighbors.brute_force")
    index = brute_force.build(keys, metric="inner_product")

    def call(_: int) -> Any:
        scores, indices = brute_force.search(index, queries, k)
        torch = stage.torch
        return torch.as_tensor(scores, device=stage.device), torch.as_tensor(indices, device=stage.device)

    return call


def _faiss(stage: Stage, queries: Any, keys: Any, k: int) -> Call | str:
    if stage.dry or importlib.util.find_spec("faiss") is None:
        return "faiss is not installed"
    faiss = importlib.import_module("faiss")
    if not hasattr(faiss, "StandardGpuResources"):
        return "faiss is installed without its GPU part"
    importlib.import_module("faiss.contrib.torch_utils")
    resources = faiss.StandardGpuResources()
    return lambda _: faiss.knn_gpu(resources, queries, keys, k, metric=faiss.METRIC_INNER_PRODUCT)


def similarity_contest(stage: Stage) -> Contest:
    """All scores of a batch."""
    m, n, d = (8, 64, 32) if stage.dry else (1024, 100_000, 1024)
    x, y = corpus(stage, m, n, d, "float16")
    exact = x[:4].double() @ y.double().T

    def ours(_: int) -> Any:
        with ops.use("triton"):
            return ops.similarity(x, y, nonfinite="skip")

    def agree(results: Mapping[str, Any]) -> dict[str, str | None]:
        errors = {name: float((result[:4].double() - exact).abs().max()) for name, result in results.items()}
        return {name: None if error < 1e-5 else f"a score is off by {error:.2g}" for name, error in errors.items()}

    competitors: dict[str, Call] = {"triton": ours, "torch": lambda _: float32_scores(stage, x, y)}
    return Contest(competitors, agree, capturable=("triton",), matrix_bytes=4 * m * n)


def _top_k_case(m: int, d: int, k: int, *goals: Goal, kind: str = "float16", seconds: float = 12.0) -> Timed:
    name = f"top_k, {m} {'query' if m == 1 else 'queries'}, d={d}, k={k}{'' if kind == 'float16' else f', {kind}'}"
    work = floors.top_k(m, 10**6, d, k, kind)
    tiny = floors.top_k(min(m, 4), 256, 32, 5, kind)
    return Timed(name, lambda dry: tiny if dry else work, top_k_contest(m, d, k, kind), goals, seconds)


MEMORY = Goal("triton", "memory", 0.01)

CASES = (
    _top_k_case(1, 1024, 10, Goal("triton", "bandwidth", 0.85)),
    _top_k_case(64, 1024, 10, Goal("triton", "torch", 1.4), MEMORY),
    _top_k_case(1024, 1024, 10, Goal("triton", "torch", 1.8), MEMORY),
    _top_k_case(64, 1024, 100, Goal("triton", "torch", 1.4)),
    _top_k_case(1024, 1024, 100, Goal("triton", "torch", 1.8)),
    _top_k_case(64, 1024, 10, kind="bfloat16"),
    _top_k_case(64, 1024, 10, kind="float32", seconds=15.0),
    Timed(
        "similarity, 1024 x 100,000, d=1024",
        lambda dry: floors.similarity(8, 64, 32) if dry else floors.similarity(1024, 10**5, 1024),
        similarity_contest,
    ),
)
