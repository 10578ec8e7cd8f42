"""An index on a device with the kernels of Triton, which triton's interpreter executes on the CPU."""

from __future__ import annotations

import pytest

from tests.house.absent import run_without

pytest.importorskip("torch", reason="an index on a device holds its rows through torch, which is missing")
pytest.importorskip("triton", reason="the kernels are Triton's, which is missing")

SCRIPT = """
import numpy as np
import torch
from prismem_core import VectorIndex, ops
from prismem_core.index.device_blocks import BlockSizes
from prismem_core.index.device_store import DeviceStore

def compare(dtype, metric, codes, rows, sizes, memory_bytes):
    rng = np.random.default_rng(0)
    dim = rows.shape[1]
    with ops.use("triton"):
        store = DeviceStore(dim, dtype, metric, "cpu", memory_bytes, codes=codes, sizes=sizes)
    device, core = VectorIndex._around(store), VectorIndex(dim, dtype=dtype, metric=metric, codes="never")
    with ops.use("triton"):
        device.add(torch.from_numpy(rows).to(getattr(torch, dtype)))
        device.remove(np.arange(0, len(rows) // 3, 9))
        device.update([1, 2], rows[5:7])
    core.add(rows)
    core.remove(np.arange(0, len(rows) // 3, 9))
    core.update([1, 2], rows[5:7])
    queries = rng.integers(-3, 4, (3, dim)).astype(np.float32)
    for filter in (None, core.ids[100:120], rng.random((3, len(core))) < 0.3):
        for some in (queries, queries[:1]):
            allowed = filter[: len(some)] if filter is not None and filter.ndim == 2 else filter
            with ops.use("triton"):
                found = device.search(some, 7, filter=allowed)
            wanted = core.search(some, 7, filter=allowed)
            np.testing.assert_array_equal(found.ids, wanted.ids)
            np.testing.assert_array_equal(found.counts, wanted.counts)
            np.testing.assert_allclose(found.scores, wanted.scores, rtol=0, atol=0 if metric != "cosine" else 3e-7)
    if dtype != "bfloat16":  # whose products the interpreter takes for those of other numbers
        with ops.use("triton"):
            found = device.mmr(queries, 4, relevance_weight=0.5)
        wanted = core.mmr(queries, 4, relevance_weight=0.5)
        np.testing.assert_array_equal(found.ids, wanted.ids)
        np.testing.assert_allclose(found.scores, wanted.scores, atol=3e-7)
    return device.stats()
"""

IN_PARTS = """
rows = np.random.default_rng(1).integers(-3, 4, (400, 24)).astype(np.float32)
sizes = BlockSizes(8000, 20000, 10000)
for dtype, metric in (("float32", "cosine"), ("float16", "inner_product"), ("bfloat16", "cosine")):
    stats = compare(dtype, metric, "never", rows, sizes, 16000)
    print(stats.row_bytes > stats.streamed_bytes > 0)
"""

WITH_CODES = """
rows = np.random.default_rng(2).integers(-3, 4, (1500, 32)).astype(np.float32)
sizes = BlockSizes(1 << 20, 1 << 20, 1 << 20)
for dtype, metric, codes in (("float16", "inner_product", "int8"), ("float32", "cosine", "int4")):
    print(compare(dtype, metric, codes, rows, sizes, None).coded)
"""


def test_blocks_and_streamed_pieces_give_what_the_core_gives() -> None:
    output = run_without((), SCRIPT + IN_PARTS, TRITON_INTERPRET="1")
    assert output.split() == ["True"] * 3


def test_codes_give_what_the_core_gives() -> None:
    output = run_without((), SCRIPT + WITH_CODES, TRITON_INTERPRET="1")
    assert output.split() == ["True"] * 2


def test_a_backend_that_reads_other_arrays_cannot_search_it() -> None:
    script = """
import numpy as np
from prismem_core import VectorIndex, ops
from prismem_core.errors import NoImplementation
from prismem_core.index.device_store import DeviceStore
index = VectorIndex._around(DeviceStore(4, "float32", "cosine", "cpu"))
index.add(np.eye(4, dtype=np.float32))
with ops.use("triton"):
    assert index.search(np.eye(4, dtype=np.float32), 1).ids.ravel().tolist() == [0, 1, 2, 3]
for backend, words in (
    ("cuda", "no implementation for torch arrays on the CPU on 'cuda'"),
    ("cpu", "its rows lie on a device, which the backend 'cpu' cannot search (ops.use asks for 'cpu')"),
    ("reference", "which the backend 'reference' cannot search"),
):
    try:
        with ops.use(backend):
            index.search(np.eye(4, dtype=np.float32), 1)
    except NoImplementation as error:
        print(words in str(error))
"""
    assert run_without((), script, TRITON_INTERPRET="1", PRISMEM_CUDA_LIBRARY="/absent.so").split() == ["True"] * 3
