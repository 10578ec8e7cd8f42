"""What the shipped launches read, write and multiply, counted: near the floors, and no matrix of scores."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from prismem_core.kernels.triton import launch, similarity, top_k  # noqa: E402
from tests.kernels.triton import calls  # noqa: E402
from tests.kernels.triton.counting import counted  # noqa: E402

PROCESSORS = 2


@pytest.fixture(params=[80, 90])
def sm(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """The configurations of a device with few processors."""
    monkeypatch.setattr(launch, "sm_of", lambda device: request.param)
    monkeypatch.setattr(launch, "processors", lambda device: PROCESSORS)
    return int(request.param)


def rows(count: int, dim: int, kind: str) -> object:
    return calls.of_kind(np.random.default_rng(count).standard_normal((count, dim)), kind)


@pytest.mark.parametrize(
    ("kind", "count", "num_keys"),
    [("float16", 1, 1000), ("float16", 64, 4096), ("bfloat16", 130, 1500), ("float32", 16, 1100)],
)
@pytest.mark.parametrize("normalize", [False, True])
def test_top_k_reads_the_keys_once_for_a_block_of_queries(
    kind: str, count: int, num_keys: int, normalize: bool, sm: int
) -> None:
    dim, k = 256, 10
    queries, keys = rows(count, dim, kind), rows(num_keys, dim, kind)
    outputs = (calls.garbage(count, k, kind="float32"), calls.garbage(count, k), calls.garbage(count))
    scales = None
    if normalize:
        from prismem_core.kernels.triton.row_scales import row_scales

        scales = row_scales(keys, device=calls.DEVICE)
    with counted(queries=queries, keys=keys) as counts:
        top_k.top_k(
            queries, keys, None, None, None, k, normalize, None, *outputs, calls.flag(), device=calls.DEVICE,
            key_scales=scales,
        )  # fmt: skip
    block = (
        1 if count == 1 else 16 if count <= 16 else 32 if kind == "float32" else 64 if sm == 80 or count == 64 else 128
    )
    blocks = -(-count // block)
    nbytes = num_keys * dim * queries.element_size()
    assert nbytes <= counts.loaded["keys"] <= 1.1 * nbytes * blocks
    assert sum(counts.stored.values()) < 0.1 * 4 * count * num_keys + 2**14
    if count > 1:
        floor = 2 * count * num_keys * dim
        padded = (blocks * block / count) * (-(-num_keys // 128) * 128 / num_keys)
        assert floor <= counts.flops <= 1.1 * padded * floor
    else:
        assert counts.flops == 0


@pytest.mark.parametrize("groups", [1, 40])
def test_queries_that_share_a_segment_share_its_reads(groups: int, sm: int) -> None:
    dim, length = 64, 150
    count = 40
    queries, keys = rows(count, dim, "float16"), rows(groups * length, dim, "float16")
    ranges = np.arange(groups)[:, None] * length + np.array([[0, length]])
    group = np.arange(count) % groups
    outputs = (calls.garbage(count, 5, kind="float32"), calls.garbage(count, 5), calls.garbage(count))
    with counted(keys=keys) as counts:
        top_k.top_k(queries, keys, ranges, group, None, 5, False, None, *outputs, None, device=calls.DEVICE)
    nbytes = groups * length * dim * 2
    assert nbytes <= counts.loaded["keys"] <= 1.1 * nbytes


def test_similarity_writes_each_score_once(sm: int) -> None:
    x, y = rows(70, 128, "float16"), rows(300, 128, "float16")
    out = calls.garbage(70, 300, kind="float32")
    with counted(x=x, y=y, out=out) as counts:
        similarity.similarity(x, y, False, out, None, device=calls.DEVICE)
    assert counts.stored["out"] == 70 * 300 * 4
    assert counts.stored["other"] == 0
    assert counts.loaded["y"] == 300 * 128 * 2  # 70 rows are one block
