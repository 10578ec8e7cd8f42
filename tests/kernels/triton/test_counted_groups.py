"""What launches of grouped ops and of codes read, write and multiply: near their floors, and no matrix of scores."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from prismem_core import ops  # noqa: E402
from prismem_core.kernels.triton import codes, launch, mmr_select, segment_max_similarity, segment_mean  # noqa: E402
from tests.kernels.triton import calls  # noqa: E402
from tests.kernels.triton.counting import counted  # noqa: E402


@pytest.fixture(params=[80, 90])
def sm(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """The configurations of a device with few processors."""
    monkeypatch.setattr(launch, "sm_of", lambda device: request.param)
    monkeypatch.setattr(launch, "processors", lambda device: 2)
    return int(request.param)


def rows(count: int, dim: int, kind: str) -> Any:
    return calls.of_kind(np.random.default_rng(count).standard_normal((count, dim)), kind)


@pytest.mark.parametrize("kind", ["float16", "float32"])
def test_private_items_are_read_once(kind: str, sm: int) -> None:
    lengths = np.array([5, 200, 0, 33, 16, 1, 64, 17])
    evidence, items = rows(8, 256, kind), rows(int(lengths.sum()), 256, kind)
    segments = ops.Segments.from_lengths(lengths)
    values, indices = calls.garbage(8, kind="float32"), calls.garbage(8)
    with counted(evidence=evidence, items=items) as counts:
        segment_max_similarity.segment_max_similarity(
            evidence, items, segments.ranges, None, False, values, indices, calls.flag(), device=calls.DEVICE
        )
    assert counts.loaded["items"] == items.numel() * items.element_size()
    assert counts.flops == 0
    assert sum(counts.stored.values()) == 8 * (4 + 8)
    assert counts.loaded["other"] < 2000  # tables of work


@pytest.mark.parametrize("kind", ["float16", "float32"])
@pytest.mark.parametrize("count", [16, 130])
def test_shared_items_are_read_once_for_a_block_of_evidence(kind: str, count: int, sm: int) -> None:
    evidence, items = rows(count, 128, kind), rows(640, 128, kind)
    values, indices = calls.garbage(count, kind="float32"), calls.garbage(count)
    with counted(evidence=evidence, items=items) as counts:
        segment_max_similarity.segment_max_similarity(
            evidence, items, None, None, False, values, indices, None, device=calls.DEVICE
        )
    block = 16 if count == 16 else 32 if kind == "float32" and sm == 80 else 64
    blocks = -(-count // block)
    assert counts.loaded["items"] == blocks * items.numel() * items.element_size()
    assert counts.flops == 2 * blocks * block * 640 * 128
    assert sum(counts.stored.values()) == count * (4 + 8)


def test_values_are_added_up_in_one_reading() -> None:
    values = torch.from_numpy(np.random.default_rng(1).standard_normal(3000))
    offsets, means = np.array([0, 10, 10, 900, 2990, 3000]), calls.garbage(5, kind="float64")
    with counted(values=values) as counts:
        segment_mean.segment_mean(values, offsets, means, device=calls.DEVICE)
    assert counts.loaded["values"] == 8 * 3000


@pytest.mark.parametrize("given", [True, False])
def test_a_selection_reads_similarities_or_keys_for_each_pick(
    given: bool, sm: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mmr_select, "LONGEST_GIVEN", 512 if given else 0)
    queries, keys, k = rows(2, 128, "float16"), rows(120, 128, "float16"), 3
    segments = ops.Segments([0, 60, 120])
    indices, scores, counts_out = calls.garbage(2, k), calls.garbage(2, k, kind="float32"), calls.garbage(2)
    with counted(queries=queries, keys=keys) as counts:
        mmr_select.mmr_select(
            queries, keys, segments.ranges, None, None, k, 0.5, None, False, indices, scores, counts_out, None,
            device=calls.DEVICE,
        )  # fmt: skip
    relevance = keys.numel() * 2
    if given:
        assert counts.loaded["keys"] == 3 * relevance  # rows and columns of one tile a segment
    else:
        # All keys against each pick but the last, and the picks themselves, once for a block of candidates.
        assert k * relevance <= counts.loaded["keys"] <= 1.1 * k * relevance
        assert counts.flops == 0


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("count", [1, 16])
def test_codes_are_read_in_place_of_rows(bits: int, count: int, sm: int) -> None:
    rng = np.random.default_rng(5)
    centres = rng.standard_normal((110, 256))
    keys = calls.of_kind(centres[np.arange(2200) // 20] + 0.01 * rng.standard_normal((2200, 256)), "float16")
    queries = keys[rng.integers(0, 2200, count)].clone()
    made = codes.encode(keys, bits, normalize=False, device=calls.DEVICE)
    outputs = (calls.garbage(count, 5, kind="float32"), calls.garbage(count, 5), calls.garbage(count))
    with counted(keys=keys, values=made.values) as counts:
        codes.search(queries, keys, made, None, 5, None, *outputs, None, device=calls.DEVICE)
    assert made.values.numel() * made.values.element_size() == 2200 * 256 * bits // 8
    assert counts.loaded["values"] == 2200 * 256 * bits // 8
    assert counts.loaded["keys"] == count * 64 * 256 * 2  # those with the best bounds, and nothing is searched again
    assert counts.flops >= 2 * 2 * count * 2200 * 256
