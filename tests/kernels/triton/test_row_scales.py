"""The pass before cosines: powers of two and inverse lengths of rows of any size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from prismem_core.kernels.triton.row_scales import extremes, row_scales  # noqa: E402
from tests.kernels.triton import calls  # noqa: E402


def scales(rows: Any) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    powers, inverse = row_scales(rows, device=calls.DEVICE)
    return powers.numpy(), inverse.numpy()


@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("dim", [1, 37, 128, 300])
def test_lengths_of_rows(kind: str, dim: int) -> None:
    rng = np.random.default_rng(21)
    rows = calls.of_kind(rng.standard_normal((700, dim)).astype(np.float32), kind)
    powers, inverse = scales(rows)
    np.testing.assert_array_equal(powers, 1.0)
    np.testing.assert_allclose(inverse, 1 / np.linalg.norm(rows.to(torch.float64).numpy(), axis=1), rtol=3e-7)


@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
def test_powers_of_two_keep_squares_in_range(kind: str) -> None:
    rng = np.random.default_rng(22)
    values = rng.standard_normal((90, 20)) * 10.0 ** np.linspace(-44, 37, 90)[:, None]
    rows = calls.of_kind(values.astype(np.float32), kind)
    powers, inverse = scales(rows)
    exact = rows.to(torch.float64).numpy()
    fraction, _ = np.frexp(powers)
    np.testing.assert_array_equal(fraction, 0.5)
    scaled = exact * powers[:, None].astype(np.float64)
    assert (np.abs(scaled).max(axis=1) < 2.0**31).all()
    some = exact.any(axis=1)
    assert (np.abs(scaled[some]).max(axis=1) >= 2.0**-30).all()
    np.testing.assert_allclose(inverse[some], 1 / np.linalg.norm(scaled[some], axis=1), rtol=3e-7)
    assert (powers != 1).any()
    assert extremes((torch.ones(5000), torch.from_numpy(powers)), device=calls.DEVICE).item() == 1
    assert extremes((torch.ones(5000), torch.ones(3)), device=calls.DEVICE).item() == 0


@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16"])
def test_rows_without_a_length(kind: str) -> None:
    rows = np.zeros((5, 9), np.float32)
    rows[1, 3], rows[2, 8], rows[3, 0] = np.nan, np.inf, -np.inf
    rows[4] = -0.0
    powers, inverse = scales(calls.of_kind(rows, kind))
    np.testing.assert_array_equal(powers, 1.0)
    np.testing.assert_array_equal(inverse, np.float32([0, np.nan, np.nan, np.nan, 0]))


def test_rows_at_any_distance_and_none_at_all() -> None:
    wide = torch.arange(60, dtype=torch.float32).reshape(6, 10) + 1
    for rows in (wide[:, 2:7], wide[::2], wide[:1].expand(4, 10)):
        np.testing.assert_allclose(scales(rows)[1], 1 / np.linalg.norm(rows.numpy(), axis=1), rtol=3e-7)
    assert scales(wide[:0])[0].shape == (0,)
    np.testing.assert_array_equal(scales(wide[:, :0])[1], 0.0)
