"""Every kernel on the examples of its op, whichever way the call is run, against the definition."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from prismem_core import ops
from prismem_core.errors import ArgumentError
from prismem_core.ops.mmr_select import MMR_SELECT
from prismem_core.ops.registry import Op
from prismem_core.ops.segment_max_similarity import SEGMENT_MAX_SIMILARITY
from prismem_core.ops.segment_mean import SEGMENT_MEAN
from prismem_core.ops.similarity import SIMILARITY
from prismem_core.ops.top_k import TOP_K
from tests.kernels.cuda import emulated

WAYS: list[tuple[Op[Any, Any], dict[str, Any]]] = [
    (TOP_K, {}),
    (TOP_K, {"span": 37}),
    (TOP_K, {"path": "rows"}),
    (TOP_K, {"path": "rows_batch"}),
    (SEGMENT_MAX_SIMILARITY, {}),
    (SEGMENT_MAX_SIMILARITY, {"span": 5}),
    (SEGMENT_MAX_SIMILARITY, {"path": "rows"}),
    (SEGMENT_MAX_SIMILARITY, {"path": "rows_batch"}),
    (SIMILARITY, {}),
    (SIMILARITY, {"span": 50}),
    (MMR_SELECT, {}),
    (MMR_SELECT, {"path": "steps"}),
    (SEGMENT_MEAN, {}),
]


@pytest.mark.parametrize("seed", (1, 2))
@pytest.mark.parametrize(("op", "how"), WAYS, ids=[f"{op.name} {how}" for op, how in WAYS])
def test_the_examples_of_an_op_agree_with_its_definition(op: Op[Any, Any], how: dict[str, Any], seed: int) -> None:
    complaints = []
    for example in op.examples(np.random.default_rng(seed)):
        with emulated.machine(seed):
            result, call = emulated.call(op, dict(example.arguments), **how)
        complaint = op.agrees(result, call)
        if complaint:
            complaints.append(f"{example.label}: {complaint}")
    assert complaints == []


@pytest.mark.parametrize(
    "op", (TOP_K, SIMILARITY, SEGMENT_MAX_SIMILARITY, MMR_SELECT, SEGMENT_MEAN), ids=lambda op: op.name
)
def test_the_public_functions_take_the_kernels(op: Op[Any, Any]) -> None:
    for example in itertools.islice(op.examples(np.random.default_rng(3)), 0, None, 3):
        with ops.use("cuda"):
            result = op.function(**example.arguments)
        assert op.agrees(result, op.check(**example.arguments)) is None, example.label


def test_a_row_that_is_not_finite_is_named() -> None:
    x, y = np.ones((3, 9), np.float32), np.ones((40, 9), np.float32)
    y[17, 4] = np.inf
    for op, arguments in ((TOP_K, {"queries": x, "keys": y, "k": 3}), (SIMILARITY, {"x": x, "y": y})):
        with pytest.raises(ArgumentError, match="row 17 holds NaN or infinity"):
            emulated.call(op, arguments)
