"""segment_max_similarity against loops of numpy and the late-interaction kernels of other libraries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismem_core import ops

from ..contest import OURS, Competitor, Contest, Finding, Goal, Job, Run, Work, require
from ..data import Floats, rows
from ..exact import float32_error

CODES = "prismem codes"
ROWS = "prismem float32"
LOOP = "numpy loop"
GROUP_LOOP = "numpy matmul a group"
MAXSIM_CPU = "maxsim-cpu"
NUMKONG = "numkong maxsim, prepacked"
SUM_ONLY = "sum only"

Offsets = NDArray[np.int64]


def _offsets(rng: np.random.Generator, low: int, high: int, count: int) -> Offsets:
    return np.concatenate([[0], np.cumsum(rng.integers(low, high + 1, count))]).astype(np.int64)


class _Check:
    """Values within the bound of the exact maxima, indices of items that reach them; sums where only those exist."""

    def __init__(self, evidence: Floats, items: Floats, owner: Offsets, bounds: Offsets) -> None:
        self._maxima = np.empty(len(evidence))
        self._scores = []
        for row, group in enumerate(owner):
            scores = items[bounds[group] : bounds[group + 1]].astype(np.float64) @ evidence[row].astype(np.float64)
            self._scores.append(scores)
            self._maxima[row] = scores.max()
        self._sums = np.bincount(owner, self._maxima, len(bounds) - 1)
        self._counts = np.bincount(owner, minlength=len(bounds) - 1)
        self._slack = 2.0 * float32_error(evidence.shape[1])

    def __call__(self, competitor: Competitor, found: Any) -> Finding:
        if competitor.accuracy == SUM_ONLY:
            off = np.abs(np.asarray(found, np.float64).reshape(-1) - self._sums) / self._counts
            return Finding("", {"largest_error": float(off.max())})
        values = np.asarray(found.values if isinstance(found, ops.SegmentMax) else found, np.float64).reshape(-1)
        off = np.abs(values - self._maxima)
        figures = {"largest_error": float(off.max())}
        if off.max() > self._slack:
            worst = int(off.argmax())
            return Finding(f"evidence {worst}: {values[worst]:.7f}, expected {self._maxima[worst]:.7f}", figures)
        if isinstance(found, ops.SegmentMax):
            for row, (scores, index) in enumerate(zip(self._scores, found.indices.tolist(), strict=True)):
                if scores[index] < self._maxima[row] - self._slack:
                    return Finding(f"evidence {row}: item {index} has {scores[index]:.7f}, not the largest", figures)
        return Finding("", figures)


def _ours(evidence: Floats, items: Floats | ops.EncodedRows, segments: ops.Segments) -> Run:
    return lambda: ops.segment_max_similarity(evidence, items, segments)


def _both(evidence: Floats, items: Floats, segments: ops.Segments) -> list[Competitor]:
    return [
        Competitor(CODES, OURS, lambda: _ours(evidence, ops.encode(items), segments)),
        Competitor(ROWS, OURS, lambda: _ours(evidence, items, segments)),
    ]


def _numpy_loop(evidence: Floats, items: Floats, bounds: Offsets) -> Run:
    return lambda: np.array(
        [(items[bounds[i] : bounds[i + 1]] @ evidence[i]).max() for i in range(len(evidence))], np.float32
    )


def _numpy_reduceat(evidence: Floats, items: Floats, bounds: Offsets) -> Run:
    owner = np.repeat(np.arange(len(evidence)), np.diff(bounds))

    def run(step: int = 20_000) -> Floats:
        scores = np.empty(len(items), np.float32)
        for at in range(0, len(items), step):
            np.einsum("ij,ij->i", items[at : at + step], evidence[owner[at : at + step]], out=scores[at : at + step])
        return np.maximum.reduceat(scores, bounds[:-1])

    return run


def _variable(module: str, distribution: str, evidence: Floats, items: Floats, bounds: Offsets) -> Run:
    library = require(module, distribution)
    sets = [items[bounds[i] : bounds[i + 1]] for i in range(len(bounds) - 1)]
    return lambda: np.array(
        [library.maxsim_scores_variable(evidence[i : i + 1], [sets[i]])[0] for i in range(len(evidence))], np.float32
    )


def _numkong_ragged(evidence: Floats, items: Floats, bounds: Offsets) -> Run:
    numkong = require("numkong", "numkong")
    packed = [numkong.dots_pack(items[bounds[i] : bounds[i + 1]], dtype="f32") for i in range(len(evidence))]
    return lambda: np.array(
        [np.asarray(numkong.dots_packed(evidence[i : i + 1], packed[i])).max() for i in range(len(evidence))],
        np.float32,
    )


def _torch_padded(evidence: Floats, items: Floats, bounds: Offsets) -> Run:
    torch = require("torch", "torch", extra=False)
    pad = torch.nn.utils.rnn.pad_sequence
    stored, asked, lengths = torch.from_numpy(items), torch.from_numpy(evidence), np.diff(bounds)
    order = np.argsort(lengths, kind="stable")

    def run() -> Any:
        found = torch.empty(len(evidence))
        for at in range(0, len(evidence), 256):
            batch = order[at : at + 256]
            padded = pad([stored[bounds[i] : bounds[i + 1]] for i in batch], batch_first=True)
            scores = torch.bmm(padded, asked[batch][:, :, None])[:, :, 0]
            beyond = torch.arange(scores.shape[1])[None] >= torch.from_numpy(lengths[batch])[:, None]
            found[batch] = scores.masked_fill_(beyond, -torch.inf).max(1).values
        return found.numpy()

    return run


def _numpy_groups(evidence: Floats, of: Offsets, items: Floats, bounds: Offsets) -> Run:
    return lambda: np.concatenate(
        [(evidence[of[g] : of[g + 1]] @ items[bounds[g] : bounds[g + 1]].T).max(axis=1) for g in range(len(bounds) - 1)]
    )


def _torch_groups(evidence: Floats, of: Offsets, items: Floats, bounds: Offsets) -> Run:
    torch = require("torch", "torch", extra=False)
    asked, stored = torch.from_numpy(evidence), torch.from_numpy(items)
    return lambda: torch.cat(
        [
            torch.mm(asked[of[g] : of[g + 1]], stored[bounds[g] : bounds[g + 1]].t()).amax(1)
            for g in range(len(bounds) - 1)
        ]
    ).numpy()


def _variable_groups(
    module: str, distribution: str, evidence: Floats, of: Offsets, items: Floats, bounds: Offsets
) -> Run:
    library = require(module, distribution)
    asked = [evidence[of[g] : of[g + 1]] for g in range(len(bounds) - 1)]
    sets = [items[bounds[g] : bounds[g + 1]] for g in range(len(bounds) - 1)]
    return lambda: np.array([library.maxsim_scores_variable(q, [s])[0] for q, s in zip(asked, sets, strict=True)])


def _numkong_groups(evidence: Floats, of: Offsets, items: Floats, bounds: Offsets) -> Run:
    numkong = require("numkong", "numkong")
    asked = [numkong.maxsim_pack(evidence[of[g] : of[g + 1]], dtype="f32") for g in range(len(bounds) - 1)]
    sets = [numkong.maxsim_pack(items[bounds[g] : bounds[g + 1]], dtype="f32") for g in range(len(bounds) - 1)]
    return lambda: np.array([numkong.maxsim_packed(q, s) for q, s in zip(asked, sets, strict=True)])


def _ragged(kind: str, count: int, dim: int, quick: bool) -> Contest:
    count = 100 if quick else count
    rng = np.random.default_rng(1)
    bounds = _offsets(rng, 5, 200, count)
    made = rows(kind, int(bounds[-1]), dim)
    items, evidence = made.keys, made.queries[rng.integers(0, len(made.queries), count)]
    segments = ops.Segments(bounds)
    work = Work(4.0 * items.size, 2.0 * items.size)

    def way(name: str, library: str, make: Callable[[], Run]) -> Competitor:
        return Competitor(name, library, make, work=work)

    return Contest(
        f"each evidence with its own set of 5 to 200 items: {made.description}",
        {"evidences": count, "items": int(bounds[-1]), "dim": dim},
        [
            *_both(evidence, items, segments),
            way(LOOP, "numpy", lambda: _numpy_loop(evidence, items, bounds)),
            way("numpy einsum + reduceat", "numpy", lambda: _numpy_reduceat(evidence, items, bounds)),
            way("torch padded bmm", "torch", lambda: _torch_padded(evidence, items, bounds)),
            way(MAXSIM_CPU, "maxsim-cpu", lambda: _variable("maxsim_cpu", "maxsim-cpu", evidence, items, bounds)),
            way("fast-maxsim", "fast-maxsim", lambda: _variable("fast_maxsim", "fast-maxsim", evidence, items, bounds)),
            way("numkong dots, prepacked", "numkong", lambda: _numkong_ragged(evidence, items, bounds)),
        ],
        _Check(evidence, items, np.arange(count, dtype=np.int64), bounds),
        work,
    )


def _grouped(groups: int, dim: int, quick: bool) -> Contest:
    groups = 10 if quick else groups
    rng = np.random.default_rng(1)
    bounds, of = _offsets(rng, 5, 200, groups), _offsets(rng, 20, 80, groups)
    made = rows("mixture", int(bounds[-1]), dim)
    items, evidence = made.keys, made.queries[rng.integers(0, len(made.queries), int(of[-1]))]
    owner = np.repeat(np.arange(groups), np.diff(of))
    segments = ops.Segments(bounds, owner)
    pairs = float((np.diff(of) * np.diff(bounds)).sum())
    work = Work(4.0 * (items.size + evidence.size), 2.0 * pairs * dim)

    def sums(name: str, library: str, make: Callable[[], Run]) -> Competitor:
        return Competitor(name, library, make, SUM_ONLY)

    return Contest(
        f"groups of 20 to 80 evidences that share 5 to 200 items: {made.description}",
        {"groups": groups, "evidences": int(of[-1]), "items": int(bounds[-1]), "dim": dim},
        [
            *_both(evidence, items, segments),
            Competitor(GROUP_LOOP, "numpy", lambda: _numpy_groups(evidence, of, items, bounds), work=work),
            Competitor("torch mm a group", "torch", lambda: _torch_groups(evidence, of, items, bounds), work=work),
            sums(NUMKONG, "numkong", lambda: _numkong_groups(evidence, of, items, bounds)),
            sums(
                MAXSIM_CPU,
                "maxsim-cpu",
                lambda: _variable_groups("maxsim_cpu", "maxsim-cpu", evidence, of, items, bounds),
            ),
            sums(
                "fast-maxsim",
                "fast-maxsim",
                lambda: _variable_groups("fast_maxsim", "fast-maxsim", evidence, of, items, bounds),
            ),
        ],
        _Check(evidence, items, owner, bounds),
        work,
    )


def _ragged_job(dim: int, times_loop: float, times_maxsim: float, kind: str = "mixture") -> Job:
    suffix = "" if kind == "mixture" else f"-{kind}"
    return Job(
        f"segment_max_similarity/ragged-{dim}{suffix}",
        f"1,500 evidences, each with its own set of {kind} rows of {dim}",
        partial(_ragged, kind, 1500, dim),
        (Goal(CODES, LOOP, times_loop), Goal(CODES, MAXSIM_CPU, times_maxsim)),
    )


def _grouped_job(dim: int) -> Job:
    return Job(
        f"segment_max_similarity/grouped-{dim}",
        f"60 groups that share their items, rows of {dim}",
        partial(_grouped, 60, dim),
        (Goal(CODES, NUMKONG, 2.5), Goal(CODES, GROUP_LOOP, 5.0)),
    )


JOBS: Sequence[Job] = (
    _ragged_job(384, 5.0, 8.0),
    _ragged_job(1024, 4.0, 12.0),
    _ragged_job(384, 5.0, 8.0, "isotropic"),
    _grouped_job(384),
    _grouped_job(1024),
)
