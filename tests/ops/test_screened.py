"""Searches that a device screens: whatever last bits it computes, the result is the host's."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from prismem_core import ops
from prismem_core.errors import SettingsError
from prismem_core.ops import Segments
from prismem_core.ops.inputs import unit_rows
from prismem_core.ops.screened import Screen, score_error
from prismem_core.ops.segments import ranges_of
from prismem_core.ops.top_k import TopK


class NoisyScreen(Screen):
    """A device whose scores are off by nearly what the bound allows, with the last rounding: up or down."""

    def __init__(self, seed: int, share: float = 0.98) -> None:
        super().__init__()
        self.rng = np.random.default_rng(seed)
        self.share = share
        self.launches = 0

    @property
    def screens(self) -> bool:
        return True

    def _on_device(self, queries: Any, keys: Any, k: int, segments: Segments | None, mask: Any) -> TopK:
        self.launches += 1
        exact = queries.astype(np.float64) @ keys.astype(np.float64).T
        lengths = (
            np.linalg.norm(queries.astype(np.float64), axis=1) * np.linalg.norm(keys.astype(np.float64), axis=1).max()
        )
        noise = self.share * score_error(queries.shape[1], lengths)[:, None]
        scores = (exact + noise * self.rng.choice([-1.0, 1.0], exact.shape)).astype(np.float32)
        found: list[tuple[NDArray[np.float32], NDArray[np.int64]]] = []
        for row, (begin, end) in enumerate(ranges_of(segments, len(queries), len(keys))):
            own = scores[row, begin:end]
            allowed = (
                np.ones(end - begin, np.bool_) if mask is None else (mask if mask.ndim == 1 else mask[row])[begin:end]
            )
            index = np.flatnonzero(allowed)
            order = index[np.argsort(-own[index], kind="stable")][:k]
            found.append((own[order], order))
        width = max(len(order) for _, order in found)
        values, indices = np.full((len(found), width), -np.inf, np.float32), np.full((len(found), width), -1)
        for row, (own, order) in enumerate(found):
            values[row, : len(own)], indices[row, : len(order)] = own, order
        return TopK(values, indices, np.array([len(order) for _, order in found]))


def rows_with_near_ties(rng: np.random.Generator, count: int, dim: int) -> NDArray[np.float32]:
    """Rows of which many are equal or differ in the last bits."""
    rows = unit_rows(rng, max(1, count // 4), dim)[rng.integers(0, max(1, count // 4), count)]
    flips = rng.random((count, dim)) < 0.05
    return np.where(flips, np.nextafter(rows, np.float32(2)), rows).astype(np.float32)


@given(
    seed=st.integers(0, 2**32 - 1), k=st.integers(0, 40), kind=st.sampled_from(["dense", "mask", "masks", "segments"])
)
@settings(max_examples=150, deadline=None)
def test_hits_are_those_of_the_host_bit_for_bit(seed: int, k: int, kind: str) -> None:
    rng = np.random.default_rng(seed)
    m, n, dim = int(rng.integers(1, 9)), int(rng.integers(1, 120)), int(rng.integers(1, 40))
    queries, keys = rows_with_near_ties(rng, m, dim), rows_with_near_ties(rng, n, dim)
    mask = {"mask": rng.random(n) < 0.4, "masks": rng.random((m, n)) < 0.4}.get(kind)
    cuts = np.sort(rng.integers(0, n + 1, 4))
    segments = Segments(cuts, rng.integers(0, 3, m)) if kind == "segments" else None
    found = NoisyScreen(seed).top_k(queries, keys, k, segments=segments, mask=mask)
    expected = ops.top_k(queries, keys, k, segments=segments, mask=mask)
    assert [part.tobytes() for part in found] == [part.tobytes() for part in expected]
    closest = NoisyScreen(seed).segment_max_similarity(queries, keys, segments)
    assert [part.tobytes() for part in closest] == [
        part.tobytes() for part in ops.segment_max_similarity(queries, keys, segments)
    ]


def test_few_keys_are_left_for_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    queries, keys = unit_rows(rng, 20, 64), unit_rows(rng, 4000, 64)
    seen: list[int] = []
    plain = ops.top_k

    def counted(queries: Any, keys: Any, k: int, **rest: Any) -> Any:
        seen.append(len(keys))
        return plain(queries, keys, k, **rest)

    monkeypatch.setattr("prismem_core.ops.screened.top_k", counted)
    screen = NoisyScreen(1)
    found = screen.top_k(queries, keys, 10)
    assert screen.launches == 1
    assert seen[0] <= 20 * 12
    assert found.indices.tolist() == plain(queries, keys, 10).indices.tolist()


def test_a_device_beyond_its_bound_would_be_noticed_here() -> None:
    rng = np.random.default_rng(2)
    queries = unit_rows(rng, 8, 24)
    keys = rows_with_near_ties(rng, 400, 24)
    wild = NoisyScreen(3, share=1e5).top_k(queries, keys, 5)
    assert wild.indices.tolist() != ops.top_k(queries, keys, 5).indices.tolist()


def test_the_device_chooses_its_own_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(4)
    queries, keys = unit_rows(rng, 3, 8), unit_rows(rng, 90, 8)
    monkeypatch.setattr("prismem_core.ops.screened.check_device", lambda device: None)
    screen = Screen("cuda")
    screen.device = torch.device("cpu")  # what the host would screen, through the same calls
    found = screen.top_k(queries, keys, 5)
    assert [part.tobytes() for part in found] == [part.tobytes() for part in ops.top_k(queries, keys, 5)]


def test_devices_that_are_not_there() -> None:
    for wrong in ("gpu", "cuda:", "cuda:x", "cuda:-1", ""):
        with pytest.raises(SettingsError, match="device: expected cpu, cuda or cuda:N"):
            Screen(wrong)
    missing = "needs torch" if importlib.util.find_spec("torch") is None else "is not there"
    with pytest.raises(SettingsError, match=f"device: cuda:99 {missing}"):
        Screen("cuda:99")
    assert not Screen("cpu").screens


def test_searches_on_a_device_are_measured_and_may_be_refused() -> None:
    rng = np.random.default_rng(7)
    queries, keys = unit_rows(rng, 3, 16), unit_rows(rng, 50, 16)
    inside: list[str] = []

    @contextlib.contextmanager
    def measured() -> Iterator[None]:
        if len(inside) >= 4:
            raise SettingsError("no time is left")
        inside.append("begun")
        yield
        inside.append("ended")

    screen = NoisyScreen(1)
    screen._measured = measured
    screen.top_k(queries, keys, 2)
    screen.segment_max_similarity(queries, keys)
    assert inside == ["begun", "ended"] * 2 and screen.launches == 2
    with pytest.raises(SettingsError, match="no time"):
        screen.top_k(queries, keys, 2)
    assert screen.launches == 2
    Screen(measured=measured).top_k(queries, keys, 2)
