"""Every implementation of every op against the definition, on the examples that the ops themselves name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from prismem_core import ops
from prismem_core.ops import on_device
from prismem_core.ops.registry import IMPLEMENTATIONS

CASES = [
    pytest.param(name, index, id=f"{name}-{example.label}")
    for name, op in ops.OPS.items()
    for index, example in enumerate(op.examples(np.random.default_rng(7)))
]


def parts(result: Any) -> tuple[Any, ...]:
    return tuple(result) if isinstance(result, tuple) else (result,)


@pytest.mark.parametrize(("name", "index"), CASES)
@pytest.mark.usefixtures("poisoned")
def test_agrees_with_the_definition(backend: str, name: str, index: int) -> None:
    op = ops.OPS[name]
    arguments = list(op.examples(np.random.default_rng(7)))[index].arguments
    before = {key: value.copy() for key, value in arguments.items() if isinstance(value, np.ndarray)}
    assert op.agrees(op.function(**arguments), op.check(**arguments)) is None
    for key, value in before.items():
        np.testing.assert_array_equal(arguments[key], value, err_msg=f"{key} was written to")


def big_calls() -> dict[str, dict[str, Any]]:
    """Calls with enough work for several threads, for each op."""
    rng = np.random.default_rng(3)
    queries = rng.standard_normal((50, 96)).astype(np.float32)
    keys = rng.standard_normal((9000, 96)).astype(np.float32)
    keys[4000:4500] = keys[:500]
    groups = ops.Segments([0, 100, 100, 5000, 9000], rng.integers(0, 4, 50))
    mask = rng.random(9000) < 0.8
    relevance = queries @ keys[:1500].T
    return {
        "similarity": {"x": queries, "y": keys},
        "top_k": {"queries": queries, "keys": keys, "k": 60, "normalize": True, "mask": mask},
        "mmr_select": {"queries": queries, "keys": keys, "k": 9, "relevance_weight": 0.7, "segments": groups},
        "mmr_select_from": {
            "relevance": relevance,
            "similarity": keys[:1500] @ keys[:1500].T,
            "k": 30,
            "relevance_weight": 0.7,
        },
        "segment_max_similarity": {"evidence": queries, "items": keys, "segments": groups},
        "segment_mean": {"values": rng.standard_normal(9_000_000), "offsets": np.arange(0, 9_000_001, 1000)},
        "token_overlap": {
            "queries": rng.integers(0, 500, 3000, np.int32),
            "query_offsets": np.arange(0, 3001, 10),
            "keys": rng.integers(0, 500, 90_000, np.int32),
            "key_offsets": np.arange(0, 90_001, 9),
        },
    }


@pytest.mark.parametrize("name", list(ops.OPS))
@pytest.mark.parametrize("variant", ["cpu/portable", "cpu/avx2", "cpu/avx512"])
def test_same_bits_for_any_number_of_threads(name: str, variant: str) -> None:
    if variant.partition("/")[2] not in ops.instruction_sets():
        pytest.skip("not on this CPU")
    arguments = big_calls()[name]
    results = []
    for threads in (1, 2, 5):
        with ops.use(variant, threads=threads):
            results.append([part.tobytes() for part in parts(ops.OPS[name].function(**arguments))])
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("variant", ["cpu/portable", "cpu/avx2", "cpu/avx512"])
def test_few_queries_are_split_by_keys_without_a_change(count: int, variant: str) -> None:
    if variant.partition("/")[2] not in ops.instruction_sets():
        pytest.skip("not on this CPU")
    rng = np.random.default_rng(5)
    keys = rng.standard_normal((100_003, 64)).astype(np.float32)
    keys[60_000:70_000] = keys[:10_000]
    queries = rng.standard_normal((count, 64)).astype(np.float32)
    with ops.use(variant, threads=1):
        expected = ops.top_k(queries, keys, 300)
    with ops.use(variant, threads=3):
        found = ops.top_k(queries, keys, 300)
    assert [part.tobytes() for part in found] == [part.tobytes() for part in expected]


@pytest.mark.parametrize("name", list(ops.OPS))
def test_a_batch_is_its_rows_one_by_one(name: str, backend: str) -> None:
    if name in ("segment_mean", "token_overlap"):
        pytest.skip("its rows are pieces of a list, taken one by one in its own tests")
    rng = np.random.default_rng(11)
    rows = rng.standard_normal((7, 19)).astype(np.float32)
    keys = rng.standard_normal((40, 19)).astype(np.float32)
    if backend == "reference":
        rows, keys = np.round(4 * rows), np.round(4 * keys)
    first, second, rest = {
        "similarity": ("x", "y", {}),
        "top_k": ("queries", "keys", {"k": 6}),
        "mmr_select": ("queries", "keys", {"k": 6, "relevance_weight": 0.5}),
        "mmr_select_from": ("relevance", "similarity", {"k": 6, "relevance_weight": 0.5}),
        "segment_max_similarity": ("evidence", "items", {}),
    }[name]
    if name == "mmr_select_from":
        rows, keys = np.ascontiguousarray(rows @ keys.T), keys @ keys.T
    function = ops.OPS[name].function
    whole = parts(function(**{first: rows, second: keys}, **rest))
    for row in range(len(rows)):
        alone = parts(function(**{first: rows[row : row + 1], second: keys}, **rest))
        for together, single in zip(whole, alone, strict=True):
            assert together[row : row + 1].tobytes() == single.tobytes()


@pytest.mark.parametrize("name", list(ops.OPS))
@pytest.mark.parametrize("dtype", [np.float64, np.int64, np.int8, np.uint16, np.complex64, ">f4", object])
def test_other_dtypes_are_refused(name: str, dtype: Any) -> None:
    example = next(iter(ops.OPS[name].examples(np.random.default_rng(1)))).arguments
    arrays = [key for key in example if isinstance(example[key], np.ndarray) and not key.endswith("offsets")]
    if name == "segment_mean" and dtype is np.float64:
        assert ops.segment_mean(np.array([1.0, 2.0]), [0, 2]).tolist() == [1.5]
        return
    for key in arrays:
        with pytest.raises(ops_error(), match=rf"{key}: .*(expected|uint16)"):
            ops.OPS[name].function(**{**example, key: np.zeros_like(example[key]).astype(dtype)})


def ops_error() -> type[Exception]:
    from prismem_core.errors import ArgumentError

    return ArgumentError


def test_the_table_names_functions_that_exist() -> None:
    import importlib

    for (name, backend), target in IMPLEMENTATIONS.items():
        if backend in on_device.BACKENDS:  # imported in tests/kernels, where their libraries are there
            continue
        module, _, function = target.partition(":")
        assert callable(getattr(importlib.import_module(module), function)), name
    assert {name for name, _ in IMPLEMENTATIONS} == set(ops.OPS)
