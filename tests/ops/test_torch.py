"""torch tensors on the CPU: read in place, results are tensors."""

from __future__ import annotations

import numpy as np
import pytest

from prismem_core import ops
from prismem_core.errors import ArgumentError

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_results_are_tensors_and_agree(dtype: str) -> None:
    rng = np.random.default_rng(1)
    queries = torch.from_numpy(rng.standard_normal((3, 20)).astype(np.float32)).to(getattr(torch, dtype))
    keys = torch.from_numpy(rng.standard_normal((50, 20)).astype(np.float32)).to(getattr(torch, dtype))
    mask = torch.from_numpy(rng.random(50) < 0.5)
    found = ops.top_k(queries, keys, 4, mask=mask)
    assert all(isinstance(part, torch.Tensor) for part in found)
    expected = ops.top_k(queries.float().numpy(), keys.float().numpy(), 4, mask=mask.numpy())
    assert found.indices.tolist() == expected.indices.tolist()
    np.testing.assert_allclose(found.scores.numpy(), expected.scores, rtol=1e-5, atol=1e-5)
    turned = keys.T.contiguous().T
    assert ops.top_k(queries, turned, 4, mask=mask).indices.tolist() == expected.indices.tolist()


def test_what_is_refused() -> None:
    rows = torch.zeros(2, 3)
    with pytest.raises(ArgumentError, match="requires a gradient"):
        ops.similarity(rows.requires_grad_(), torch.zeros(2, 3))
    with pytest.raises(ArgumentError, match="got numpy arrays on the CPU"):
        ops.similarity(torch.zeros(2, 3), np.zeros((2, 3), np.float32))
    with pytest.raises(ArgumentError, match="x: expected float32, float16 or bfloat16, got float64"):
        ops.similarity(torch.zeros(2, 3, dtype=torch.float64), torch.zeros(2, 3))
