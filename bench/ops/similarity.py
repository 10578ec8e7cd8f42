"""similarity, the whole matrix of scores, against matrix products."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from prismem_core import ops

from ..contest import OURS, Competitor, Contest, Finding, Job, Run, Work, require
from ..data import Floats, rows
from ..exact import float32_error


def _torch(left: Floats, right: Floats) -> Run:
    torch = require("torch", "torch", extra=False)
    x, y = torch.from_numpy(left), torch.from_numpy(right)
    return lambda: torch.mm(x, y.t()).numpy()


def _numkong(left: Floats, right: Floats) -> Run:
    numkong = require("numkong", "numkong")
    packed = numkong.dots_pack(right, dtype="f32")
    return lambda: numkong.dots_packed(left, packed)


def _prepare(count: int, dim: int, quick: bool) -> Contest:
    count = 256 if quick else count
    made = rows("mixture", count, dim)
    left, right = np.ascontiguousarray(made.keys[: count // 2]), np.ascontiguousarray(made.keys[count // 2 :])
    expected = left.astype(np.float64) @ right.astype(np.float64).T
    slack = float32_error(dim)
    work = Work(4.0 * (left.size + right.size), 2.0 * left.size * len(right))

    def check(_: Competitor, scores: Any) -> Finding:
        off = float(np.abs(np.asarray(scores).reshape(expected.shape) - expected).max())
        return Finding("" if off <= slack else f"a score is off by {off:.3g}", {"largest_error": off})

    return Contest(
        made.description,
        {"left": len(left), "right": len(right), "dim": dim},
        [
            Competitor("prismem", OURS, lambda: lambda: ops.similarity(left, right), work=work),
            Competitor("numpy matmul", "numpy", lambda: lambda: left @ right.T, work=work),
            Competitor("torch mm", "torch", lambda: _torch(left, right), work=work),
            Competitor("numkong dots, prepacked", "numkong", lambda: _numkong(left, right), work=work),
        ],
        check,
        work,
    )


JOBS: Sequence[Job] = (
    Job("similarity/2k-2k-384", "2,048 rows against 2,048 rows of 384", partial(_prepare, 4096, 384)),
)
