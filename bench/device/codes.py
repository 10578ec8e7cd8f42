"""Certified codes of 8 and 4 bits: the hits of top_k for a fraction of the bytes."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from prismem_core import ops
from prismem_core.arrays import Place
from prismem_core.arrays.device import TorchDevice

from .. import floors
from .bad_inputs import rows
from .cases import Contest, Goal, Timed
from .search import same_hits
from .stage import Stage
from .timing import Call

NAMES = {8: "int8 codes", 4: "int4 codes"}


def mixture(stage: Stage, m: int, n: int, d: int, kind: str = "float16") -> tuple[Any, Any]:
    """Keys (n, d) of length 1 around 2000 centres with a common mean, and queries (m, d) beside some of them.

    Embeddings of texts lie like that; rows in all directions alike are the worst case for anything that rules rows out.
    """
    torch = stage.torch
    centres = rows(stage, min(2000, n // 4), d, 1) + 0.7 * rows(stage, 1, d, 2)
    spread = torch.linspace(1.6, 0.1, d, device=stage.device)
    keys = torch.empty(n, d, device=stage.device, dtype=getattr(torch, kind))
    for start in range(0, n, 100_000):
        piece = keys[start : start + 100_000]
        owner = torch.arange(start, start + len(piece), device=stage.device) * 7919 % len(centres)
        values = centres[owner] + 0.6 * spread * rows(stage, len(piece), d, start + 3)
        piece.copy_(values / values.norm(dim=1, keepdim=True))
    picked = keys[torch.arange(m, device=stage.device) * 977 % n].float() + 0.02 * rows(stage, m, d, 4)
    return (picked / picked.norm(dim=1, keepdim=True)).to(keys.dtype), keys


def coded(stage: Stage, queries: Any, keys: Any, bits: int, k: int, normalize: bool = False) -> Callable[[], Any]:
    """A search of codes that are made here; the call returns scores, indices and counts."""
    module = importlib.import_module("prismem_core.kernels.triton.codes")
    device = TorchDevice(Place("torch", "cpu" if stage.dry else "cuda", 0))
    codes = module.encode(keys, bits, normalize=normalize, device=device)

    def call() -> Any:
        m = len(queries)
        found = device.empty((m, k), "float32"), device.empty((m, k), "int64"), device.empty((m,), "int64")
        module.search(queries, keys, codes, None, k, None, *found, None, device=device)
        return found

    return call


def check(stage: Stage, bits: int, data: str) -> Mapping[str, Any]:
    """The hits of codes are those of a search without them, up to the rounding of scores."""
    n, d, k = (1100, 32, 5) if stage.dry else (60_000, 384, 10)
    if data == "mixture":
        queries, keys = mixture(stage, 9, n, d)
    else:
        queries, keys = rows(stage, 9, d, 1), rows(stage, n, d, 2)
        if data == "near copies":
            keys = keys[:1] + 1e-3 * keys
    normalize = data != "mixture"
    with stage.poisoned(8):
        scores, indices, counts = coded(stage, queries, keys, bits, k, normalize)()
    with ops.use("triton"):
        exact = ops.top_k(queries, keys, k, normalize=normalize)
    off = float((scores - exact.scores).abs().max())
    room = 4e-6 if normalize else 4e-6 * float(queries.float().norm(dim=1).max() * keys.float().norm(dim=1).max())
    sharp = exact.scores[:, :-1] - exact.scores[:, 1:] > 2 * room
    moved = (indices != exact.indices)[:, :-1] & sharp & stage.torch.roll(sharp, 1, 1)
    wrong = not off <= room or counts.tolist() != [k] * 9 or bool(moved[:, 1:].any())
    return {"error": off, "complaint": f"scores off by {off:.2g}, {int(moved.sum())} hits moved" if wrong else None}


def contest(stage: Stage) -> Contest:
    """One query, without codes and with both."""
    n, d, k = (1100, 32, 5) if stage.dry else (10**6, 1024, 10)
    queries, keys = mixture(stage, 1, n, d)

    def plain(_: int) -> Any:
        with ops.use("triton"):
            return ops.top_k(queries, keys, k, nonfinite="skip")[:2]

    competitors: dict[str, Call] = {"triton": plain}
    for bits, name in NAMES.items():
        call = coded(stage, queries, keys, bits, k)
        competitors[name] = lambda _, call=call: call()[:2]  # type: ignore[misc]
    check_hits = same_hits(stage, queries, keys, 1)
    return Contest(competitors, check_hits, capturable=tuple(NAMES.values()), row_bytes=2.0 * n * d)


CASES = (
    Timed(
        "top_k of codes, 1 query, d=1024",
        lambda dry: floors.top_k_codes(1100, 32, 5, 4) if dry else floors.top_k_codes(10**6, 1024, 10, 4),
        contest,
        (Goal("int4 codes", "rows", 0.4), Goal("int8 codes", "rows", 0.6)),
    ),
)
