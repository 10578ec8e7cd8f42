"""Ops find their Triton twins: every example, for arrays of numpy and of torch, through the public functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from prismem_core import ops
from prismem_core.errors import ArgumentError, NoImplementation
from prismem_core.ops.inputs import unit_rows
from prismem_core.ops.on_device import BACKENDS
from prismem_core.ops.screened import Screen

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

NAMES = sorted(name for name, backend in ops.IMPLEMENTATIONS if backend == "triton")


def tensors(arguments: Any) -> dict[str, Any]:
    """Arrays as tensors of torch; those that torch cannot hold in place are copied."""

    def tensor(value: Any) -> Any:
        if not isinstance(value, np.ndarray) or value.dtype.kind not in "fb":
            return value
        plain = value if min(value.strides, default=0) >= 0 and value.flags.aligned else value.copy()
        return torch.from_numpy(plain)

    return {key: tensor(value) for key, value in arguments.items()}


def within_float32(arguments: Any) -> dict[str, Any]:
    """The arguments with the largest numbers made smaller: kernels of a device add in float32, and a sum whose parts
    leave its range is infinite or NaN there, although the exact sum would fit.
    """
    largest = np.finfo(np.float32).max
    return {
        key: np.where(np.abs(value) == largest, np.sign(value) * np.float32(1e18), value)
        if isinstance(value, np.ndarray) and value.dtype == np.float32
        else value
        for key, value in arguments.items()
    }


@pytest.mark.parametrize("name", NAMES)
def test_examples_of_numpy_and_torch(name: str) -> None:
    op = ops.OPS[name]
    for position, example in enumerate(op.examples(np.random.default_rng(7))):
        plain = within_float32(example.arguments) if example.label.startswith("special") else example.arguments
        arguments = dict(plain) if position % 2 else tensors(plain)
        with ops.use("triton"):
            found = op.function(**arguments)
        first = found[0] if isinstance(found, tuple) else found
        assert isinstance(first, np.ndarray if position % 2 else torch.Tensor), example.label
        assert op.agrees(found, op.check(**plain)) is None, example.label


def test_a_row_without_a_finite_score_is_named_as_on_the_cpu() -> None:
    rng = np.random.default_rng(1)
    queries, keys = unit_rows(rng, 4, 8), unit_rows(rng, 60, 8)
    keys[[17, 40], 3] = np.nan, np.inf
    calls: list[tuple[Any, dict[str, Any]]] = [
        (ops.top_k, {"queries": queries, "keys": keys, "k": 3}),
        (ops.similarity, {"x": queries, "y": keys}),
        (ops.mmr_select, {"queries": queries, "keys": keys, "k": 3, "relevance_weight": 0.5}),
        (ops.segment_max_similarity, {"evidence": queries, "items": keys}),
    ]
    for function, arguments in calls:
        messages = []
        for backend in ("cpu", "triton"):
            with pytest.raises(ArgumentError) as caught, ops.use(backend):
                function(**arguments)
            messages.append(str(caught.value))
        assert messages[0] == messages[1]
        assert "row 17" in messages[0]


def test_codes_give_the_hits_without_them() -> None:
    rng = np.random.default_rng(2)
    centres = unit_rows(rng, 12, 40)
    keys = (centres[rng.integers(0, 12, 1500)] + 0.2 * unit_rows(rng, 1500, 40)).astype(np.float32)
    queries = torch.from_numpy((centres[:3] + 0.05 * unit_rows(rng, 3, 40)).astype(np.float32))
    mask = torch.from_numpy(rng.random(1500) < 0.9)
    with ops.use("triton"):
        for bits in (8, 4):
            encoded = ops.encode(torch.from_numpy(keys), bits=bits, normalize=bits == 4)
            assert encoded.bytes > 0
            plain = ops.top_k(queries, encoded.array, 6, normalize=bits == 4, mask=mask)
            coded = ops.top_k(queries, encoded, 6, normalize=bits == 4, mask=mask)
            assert coded.indices.tolist() == plain.indices.tolist()
            np.testing.assert_allclose(coded.scores.numpy(), plain.scores.numpy(), rtol=0, atol=1e-6)
        with pytest.raises(ArgumentError, match="bits: expected 8 or 4"):
            ops.encode(torch.from_numpy(keys), bits=2)
    with pytest.raises(ArgumentError, match="None on the CPU"):
        ops.encode(keys, bits=8)


def test_what_a_device_screens_is_settled_on_the_host_bit_for_bit() -> None:
    rng = np.random.default_rng(3)
    queries, keys = unit_rows(rng, 6, 24), unit_rows(rng, 700, 24)
    keys[100:140] = keys[:40]
    segments = ops.Segments([0, 300, 300, 700], rng.integers(0, 3, 6))
    screen = Screen("cpu", backend="triton")
    for own in (None, segments):
        for found, expected in (
            (screen.top_k(queries, keys, 5, segments=own), ops.top_k(queries, keys, 5, segments=own)),
            (
                screen.segment_max_similarity(queries, keys, own),
                ops.segment_max_similarity(queries, keys, own),
            ),
        ):
            assert [part.tobytes() for part in found] == [part.tobytes() for part in expected]


def test_ops_without_a_twin_say_what_exists() -> None:
    with pytest.raises(NoImplementation, match="there is cpu, reference"), ops.use("triton"):
        ops.choose("token_overlap", ops.registry.Place("numpy", "cpu"))
    assert set(BACKENDS) <= set(ops.backends())
    with ops.use("triton"):
        assert "runs on 'triton' (prismem_core.kernels.triton.top_k:top_k)" in ops.explain("top_k", np.zeros((1, 2)))
