"""Diagnostics over embeddings that a library other than numpy holds: they stay where they are and give the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from prismem_core.evaluation.diagnostics import EvidenceRows, TaskRows, diagnose_tasks, normalised

torch: Any = pytest.importorskip("torch")


def test_tensors_give_what_arrays_give() -> None:
    rng = np.random.default_rng(9)
    matrix = rng.standard_normal((60, 16)).astype(np.float32)
    matrix[7] = 0.0
    tasks = [
        TaskRows(tuple(EvidenceRows(e, (e + 1, 7), (e + 2, e + 3, e + 4)) for e in range(n)), (20, 21, 7)[:n])
        for n in range(4)
    ]
    expected, found = diagnose_tasks(tasks, matrix), diagnose_tasks(tasks, torch.from_numpy(matrix))
    for own, other in zip(found, expected, strict=True):
        assert (own is None) == (other is None)
        if own is not None and other is not None:
            values = [(own.d_ext, other.d_ext), (own.d_idx, other.d_idx), (own.d_ret, other.d_ret)]
            assert all(a == pytest.approx(b, abs=1e-6) for a, b in values)


def test_normalising_tensors_keeps_zero_rows() -> None:
    rows = normalised(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    assert rows.dtype == torch.float32
    assert torch.allclose(rows, torch.tensor([[0.6, 0.8], [0.0, 0.0]]))
