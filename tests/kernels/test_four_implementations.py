"""Reference, C++, Triton and CUDA give the same scores and indices, bit for bit, where every sum is exact.

Rows are whole numbers so small that sums of products, and weights that are powers of two, are exact in float32 in any
order. What is left is selection: the order of equal scores, masks, segments, thresholds, unused cells.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from prismem_core import ops
from prismem_core.arrays import Place
from prismem_core.ops import Segments, on_device

IMPLEMENTATIONS = ("cpu", "triton", "cuda")


@pytest.fixture(scope="module", autouse=True)
def emulator() -> Iterator[None]:
    """The CUDA library is that of the emulator, where there is a compiler for it."""
    before = os.environ.get("PRISMEM_CUDA_LIBRARY")
    if shutil.which("g++") and importlib.util.find_spec("prismem_core.kernels.cuda"):
        from tests.kernels.cuda import emulated

        os.environ["PRISMEM_CUDA_LIBRARY"] = str(emulated.build(name="libprismem_cuda_emulator.so"))
    yield
    os.environ.pop("PRISMEM_CUDA_LIBRARY", None)
    if before is not None:
        os.environ["PRISMEM_CUDA_LIBRARY"] = before


def rows(rng: np.random.Generator, count: int, dim: int, kind: str = "float32") -> np.ndarray[Any, Any]:
    """Whole numbers from -4 to 4: 4 * 4 * dim is far below 2**24, and there are many ties."""
    return rng.integers(-4, 5, (count, dim)).astype(kind)


def cases() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Calls by op and words."""
    rng = np.random.default_rng(5)
    for kind in ("float32", "float16"):
        x, y = rows(rng, 5, 16, kind), rows(rng, 330, 16, kind)
        copies = y[rng.integers(0, 9, 330)]
        mask = rng.random(330) < 0.4
        masks = rng.random((5, 330)) < 0.4
        ragged = Segments([0, 0, 1, 90, 91, 330])
        groups = Segments.grouped([(0, 200), (100, 330), (7, 7)], [1, 0, 2, 1, 1])
        for op, more in (("top_k", {}), ("mmr_select", {"relevance_weight": 0.75})):
            yield op, f"{kind} ties", {"queries": x, "keys": copies, "k": 40, **more}
            yield op, f"{kind} one query", {"queries": x[:1], "keys": y, "k": 17, **more}
            yield op, f"{kind} mask", {"queries": x, "keys": y, "k": 9, "mask": mask, **more}
            yield op, f"{kind} masks", {"queries": x, "keys": y, "k": 9, "mask": masks, **more}
            yield op, f"{kind} ragged", {"queries": x, "keys": y, "k": 12, "segments": ragged, **more}
            yield op, f"{kind} groups", {"queries": x, "keys": y, "k": 12, "segments": groups, **more}
        yield "top_k", f"{kind} all", {"queries": x, "keys": y, "k": 1000}
        yield "top_k", f"{kind} threshold", {"queries": x, "keys": y, "k": 50, "min_score": 12.0}
        yield "top_k", f"{kind} nothing reaches it", {"queries": x, "keys": y, "k": 3, "min_score": 1e6}
        for weight in (0.0, 0.5, 1.0):
            words = f"{kind} weight {weight}"
            yield "mmr_select", words, {"queries": x, "keys": copies[:60], "k": 60, "relevance_weight": weight}
        limited = {"queries": x, "keys": y, "k": 9, "relevance_weight": 0.5, "min_relevance": 12.0}
        yield "mmr_select", f"{kind} threshold", limited
        for words, segments in (("", None), ("ragged", ragged), ("groups", groups)):
            yield "segment_max_similarity", f"{kind} {words}", {"evidence": x, "items": copies, "segments": segments}
    # Scores of 0.0 and -0.0 are equal, so the lower index comes first.
    signs = np.array([[0.0], [-0.0], [0.0], [-0.0]], np.float32)
    yield "top_k", "signs of zero", {"queries": signs[1:3], "keys": signs, "k": 4}


def usable(op: str, implementation: str) -> str | None:
    """Why an implementation cannot take part, None where it can."""
    if (op, implementation) not in ops.IMPLEMENTATIONS:
        return f"{implementation} has no {op}"
    if implementation in on_device.BACKENDS:
        return on_device.why_not(implementation, Place("numpy", "cpu"))
    return None


def parts(result: Any) -> list[np.ndarray[Any, Any]]:
    """The arrays of a result, without columns that no row uses, which only some implementations cut."""
    named = {name: np.asarray(part) for name, part in zip(result._fields, result, strict=True)}
    if "counts" in named:
        used = int(named["counts"].max(initial=0))
        named |= {name: part[:, :used] for name, part in named.items() if part.ndim == 2}
    return list(named.values())


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize(("op", "arguments"), [pytest.param(op, a, id=f"{op} {words}") for op, words, a in cases()])
def test_scores_and_indices_are_those_of_the_reference(op: str, arguments: dict[str, Any], implementation: str) -> None:
    if (why := usable(op, implementation)) is not None:
        pytest.skip(f"{implementation}: {why}")
    with ops.use("reference"):
        expected = ops.OPS[op].function(**arguments)
    with ops.use(implementation):
        actual = ops.OPS[op].function(**arguments)
    for name, wanted, got in zip(expected._fields, parts(expected), parts(actual), strict=True):
        np.testing.assert_array_equal(got, wanted, err_msg=f"{implementation}: {name}", strict=True)


def test_where_all_four_took_part() -> None:
    """The comparison is one of four only where nothing is missing; this says what is."""
    missing = [
        f"{op}: {why}"
        for op in ("top_k", "segment_max_similarity", "mmr_select")
        for implementation in IMPLEMENTATIONS
        if (why := usable(op, implementation)) is not None
    ]
    if missing:
        pytest.skip("; ".join(missing))
