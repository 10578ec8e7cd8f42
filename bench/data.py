"""Rows to measure on, made on the spot from a seed: nothing is downloaded.

Every set has rows of length 1, float32. `mixture` is the ordinary case, `sentences` the nearest to a real corpus,
`isotropic` the worst case for anything that prunes: no row is closer to a query than chance.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

_CHUNK = 50_000
QUERIES = 1024
"""Every set brings so many queries, drawn like its keys; a job takes the first ones."""


TEXTS = 1500
"""Texts whose embeddings `sentences` mixes."""


@dataclass(frozen=True)
class RowSet:
    """Keys (n, d), queries (1024, d) and what they are."""

    keys: Floats
    queries: Floats
    description: str


@functools.lru_cache(maxsize=1)
def rows(kind: str, count: int, dim: int) -> RowSet:
    """The set of a kind ("mixture", "isotropic", "sentences"); the last one is kept for the next job."""
    if kind == "sentences":
        return _sentences(count, dim)
    return (_mixture if kind == "mixture" else _isotropic)(count, dim)


def scaled(values: Floats) -> Floats:
    """The rows at length 1, in place."""
    values /= np.maximum(np.linalg.norm(values, axis=1, keepdims=True), np.float32(1e-30))
    return values


def _isotropic(count: int, dim: int) -> RowSet:
    rng = np.random.default_rng(0)
    values = np.empty((count + QUERIES, dim), np.float32)
    for begin in range(0, len(values), _CHUNK):
        part = values[begin : begin + _CHUNK]
        rng.standard_normal(dtype=np.float32, out=part)
        scaled(part)
    return RowSet(values[:count], values[count:], f"isotropic random rows, {count} x {dim}, seed 0 (the worst case)")


def _mixture(count: int, dim: int) -> RowSet:
    rng = np.random.default_rng(0)
    spectrum = (1.0 + np.arange(dim)) ** -0.35
    spectrum = (spectrum / np.linalg.norm(spectrum)).astype(np.float32)
    rotation = np.linalg.qr(rng.standard_normal((dim, dim), dtype=np.float32))[0].astype(np.float32)
    centres = (rng.standard_normal((2000, dim), dtype=np.float32) * spectrum) @ rotation
    shared = rotation[0] * np.float32(0.35)
    values = np.empty((count + QUERIES, dim), np.float32)
    for begin in range(0, len(values), _CHUNK):
        part = values[begin : begin + _CHUNK]
        noise = rng.standard_normal(part.shape, dtype=np.float32) * spectrum
        np.matmul(noise, rotation, out=part)
        part += centres[rng.integers(0, len(centres), len(part))]
        part *= np.float32(0.8)
        part += shared
        scaled(part)
    return RowSet(
        values[:count],
        values[count:],
        f"mixture of 2000 anisotropic Gaussians with a common mean, {count} x {dim}, seed 0",
    )


def _sentences(count: int, dim: int) -> RowSet:
    try:
        base = _embedded_texts()
    except ImportError as error:
        stand_in = _mixture(count, dim)
        return RowSet(
            stand_in.keys,
            stand_in.queries,
            f"{stand_in.description}, standing in for sentence embeddings ({error})",
        )
    if base.shape[1] != dim:
        raise ValueError(f"the embedder has {base.shape[1]} dimensions, the job asks for {dim}")
    rng = np.random.default_rng(0)
    values = np.empty((count + QUERIES, dim), np.float32)
    for begin in range(0, len(values), _CHUNK):
        part = values[begin : begin + _CHUNK]
        weights = rng.dirichlet((1.0, 1.0, 1.0), len(part)).astype(np.float32)
        chosen = rng.integers(0, len(base), (len(part), 3))
        part[:] = 0
        for column in range(3):
            part += base[chosen[:, column]] * weights[:, column, None]
        scaled(part)
    return RowSet(
        values[:count],
        values[count:],
        f"convex mixes of three of {len(base)} sentence embeddings (bge-small), {count} x {dim}, seed 0",
    )


@functools.lru_cache(maxsize=1)
def _embedded_texts() -> Floats:
    """Embeddings of sentences of the packaged conversations; ImportError where the extra `offline` is missing."""
    from prismem_core.clients.offline.model_files import why_missing
    from prismem_core.tasks.datasets import load

    missing = why_missing()
    if missing:
        raise ImportError(missing)
    from prismem_core.clients.offline.embedders import BgeSmallEmbedder

    sessions = [session for history in load("sample").histories.values() for session in history.sessions]
    texts = sorted({turn.text for session in sessions for turn in session.turns})
    return BgeSmallEmbedder().embed(texts[:: max(1, len(texts) // TEXTS)][:TEXTS])
