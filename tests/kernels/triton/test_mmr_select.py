"""mmr_select with Triton: the examples of the op, whole numbers bit for bit, similarities known beforehand or not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from prismem_core import ops
from prismem_core.kernels.triton import launch
from tests.kernels.triton import calls

EXAMPLES = list(ops.MMR_SELECT.examples(np.random.default_rng(7)))
COMPUTED = ("ragged", "groups float16", "masks", "threshold", "17x63x17", "float16 rows", "row-padded")
"""Examples that are also run without known similarities, which takes the interpreter long."""


def take_similarities(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Similarities come from tiles, or are computed when a pick is made."""
    monkeypatch.setattr(calls.mmr_select, "LONGEST_GIVEN", 512 if way == "given" else 0)
    monkeypatch.setattr(calls.mmr_select, "GIVEN_WORTH", 1e9)


@pytest.fixture(params=["given", "computed"])
def similarities(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to have similarities, one after the other."""
    take_similarities(request.param, monkeypatch)
    return str(request.param)


CASES = [
    pytest.param(way, example, id=f"{way}-{example.label}")
    for way in ("given", "computed")
    for example in EXAMPLES
    if way == "given" or example.label.startswith(COMPUTED)
]


@pytest.mark.parametrize(("way", "example"), CASES)
def test_agrees_with_the_definition(way: str, example: ops.Example, monkeypatch: pytest.MonkeyPatch) -> None:
    take_similarities(way, monkeypatch)
    call = ops.MMR_SELECT.check(**example.arguments)
    noted = calls.flag()
    assert ops.MMR_SELECT.agrees(calls.picks(call, noted), call) is None
    assert noted.item() == calls.UNTOUCHED


def whole(rng: np.random.Generator, *shape: int) -> NDArray[np.float32]:
    return rng.integers(-2, 3, shape).astype(np.float32)


def exactly(call: Any, found: Any) -> None:
    expected = ops.MMR_SELECT.reference(call)
    for part, wanted in zip(found, expected, strict=True):
        np.testing.assert_array_equal(part, wanted)


@pytest.mark.parametrize("weight", [0.0, 0.25, 0.7, 1.0])
def test_whole_numbers_give_exactly_the_definition(weight: float, similarities: str) -> None:
    rng = np.random.default_rng(2)
    keys = whole(rng, 70, 9)
    keys[50:] = keys[:20]
    queries = whole(rng, 5, 9)
    ranges = [(0, 70), (3, 4), (5, 5), (20, 66)]
    for segments in (None, ops.Segments.grouped(ranges, [0, 1, 2, 3, 3]), ops.Segments([0, 7, 7, 40, 69, 70])):
        for mask in (None, rng.random(70) < 0.7, rng.random((5, 70)) < 0.7):
            call = ops.MMR_SELECT.check(
                queries, keys, 6, relevance_weight=weight, segments=segments, mask=mask, min_relevance=-3.0
            )
            exactly(call, calls.picks(call))


@pytest.mark.parametrize("sm", [80, 90])
def test_the_tiles_of_a_device_give_the_same(sm: int, similarities: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "sm_of", lambda device: sm)
    rng = np.random.default_rng(4)
    call = ops.MMR_SELECT.check(whole(rng, 3, 70), whole(rng, 150, 70), 4, relevance_weight=0.5)
    exactly(call, calls.picks(call))


def test_queries_are_taken_in_stretches(similarities: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls.mmr_select, "SCRATCH_BYTES", 1)
    rng = np.random.default_rng(5)
    keys = whole(rng, 40, 6)
    keys[30, 2] = np.nan
    segments = ops.Segments.grouped([(0, 40), (10, 35), (0, 0)], [0, 1, 1, 2])
    call = ops.MMR_SELECT.check(
        whole(rng, 4, 6), keys, 5, relevance_weight=0.5, segments=segments, mask=rng.random((4, 40)) < 0.8,
        nonfinite="skip",
    )  # fmt: skip
    noted = calls.flag()
    exactly(call, calls.picks(call, noted))
    allowed = [row * 40 + 30 for row in range(3) if call.mask is not None and call.mask[row, 30]]
    assert noted.item() == min(allowed, default=calls.UNTOUCHED)


def test_candidates_without_a_score_are_not_picked(similarities: str) -> None:
    keys = np.eye(6, dtype=np.float32)
    keys[2] = np.nan
    keys[4, 0] = np.inf
    keys[5, 0] = -np.inf
    queries = np.array([[0, 3, 1, 2, 0, 0], [1, 2, 3, 4, 0, 0]], np.float32)
    for weight in (0.0, 0.5):
        call = ops.MMR_SELECT.check(queries, keys, 6, relevance_weight=weight, nonfinite="skip")
        exactly(call, calls.picks(call))


def test_no_candidates_and_no_picks(similarities: str) -> None:
    keys = np.eye(4, dtype=np.float32)
    for count, k, mask in ((2, 3, np.zeros(4, np.bool_)), (0, 3, None), (2, 0, None)):
        call = ops.MMR_SELECT.check(keys[:count].copy(), keys, k, relevance_weight=0.5, mask=mask)
        exactly(call, calls.picks(call))
    call = ops.MMR_SELECT.check(keys[:2], np.zeros((0, 4), np.float32), 3, relevance_weight=0.5)
    exactly(call, calls.picks(call))


def test_known_similarities_are_used_where_they_pay() -> None:
    own = np.array([[0, 200]] * 256)
    assert calls.mmr_select.similarities_pay(own, np.arange(256), 25)
    assert calls.mmr_select.similarities_pay(own, np.zeros(256, np.int64), 2)
    assert not calls.mmr_select.similarities_pay(own, np.arange(256), 1)
    assert not calls.mmr_select.similarities_pay(np.array([[0, 500]]), np.zeros(1, np.int64), 2)
    assert not calls.mmr_select.similarities_pay(np.array([[0, 1000]]), np.zeros(1, np.int64), 500)
