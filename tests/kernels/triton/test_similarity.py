"""similarity with Triton: the examples of the op, all kinds of rows, tiles of a device, and what is flagged."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

from prismem_core import ops
from prismem_core.kernels.triton import table
from prismem_core.ops.inputs import bfloat16_bits, special_rows, unit_rows
from tests.kernels.triton import calls, searches

EXAMPLES = [
    example
    for example in ops.SIMILARITY.examples(np.random.default_rng(8))
    if example.label != "special" or example.arguments["normalize"]
]


@pytest.mark.parametrize("example", EXAMPLES, ids=[example.label for example in EXAMPLES])
def test_agrees_with_the_definition(example: ops.Example) -> None:
    call = ops.SIMILARITY.check(**example.arguments)
    noted = calls.flag() if call.raises else None
    assert ops.SIMILARITY.agrees(searches.scores(call, noted), call) is None
    assert noted is None or noted.item() == calls.UNTOUCHED


def test_special_values() -> None:
    special = np.delete(special_rows(), [7, 8], axis=0)  # without sums that leave float32's range on the way
    call = ops.SIMILARITY.check(special, special, nonfinite="skip")
    assert ops.SIMILARITY.agrees(searches.scores(call), call) is None


@pytest.mark.parametrize("config", [(16, 32, 16), (64, 64, 32, 4, 3, "descriptor")])
@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("normalize", [False, True])
def test_many_tiles_of_whole_numbers_are_exact(
    kind: str, normalize: bool, config: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    for op in ("similarity", "similarity unaligned"):
        monkeypatch.setitem(table.INTERPRETED, op, table.Config(*config))
    rng = np.random.default_rng(9)
    # Ten blocks of x, more than a group of them.
    x, y = (rng.integers(-3, 4, (count, 40)).astype(np.float32) for count in (150, 100))
    if normalize:
        x, y = np.float32(1e20 if kind != "float16" else 1) * unit_rows(rng, 150, 40), unit_rows(rng, 100, 40)
    if kind == "bfloat16":
        call = ops.SIMILARITY.check(bfloat16_bits(x), bfloat16_bits(y), normalize=normalize, dtype=kind)
    else:
        call = ops.SIMILARITY.check(x.astype(kind), y.astype(kind), normalize=normalize)
    found = searches.scores(call, calls.flag())
    assert ops.SIMILARITY.agrees(found, call) is None
    if not normalize:
        np.testing.assert_array_equal(found, ops.SIMILARITY.reference(call))


def test_the_first_pair_without_a_finite_score_is_flagged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(table.INTERPRETED, "similarity unaligned", table.Config(16, 32, 16))
    x, y = np.ones((40, 8), np.float32), np.ones((70, 8), np.float32)
    noted = calls.flag()
    searches.scores(ops.SIMILARITY.check(x, y), noted)
    assert noted.item() == calls.UNTOUCHED
    x[33, 2], y[[5, 60], 1] = np.inf, np.nan
    y[5, 1] = 1.0
    searches.scores(ops.SIMILARITY.check(x, y), noted)
    assert noted.item() == 60
