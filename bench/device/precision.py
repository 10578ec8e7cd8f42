"""How far scores of a device are from exact ones, by the kind of rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prismem_core import ops
from prismem_core.ops.similarity import TOLERANCE

from .stage import Stage


def errors(stage: Stage, kind: str, dim: int) -> Mapping[str, Any]:
    """The largest error of `similarity` relative to the lengths of the rows, beside that of torch's matmul."""
    torch = stage.torch
    m, n = (16, 64) if stage.dry else (512, 8192)
    generator = torch.Generator(device=stage.device).manual_seed(dim)
    x, y = (
        torch.randn(count, dim, device=stage.device, generator=generator).to(getattr(torch, kind)) for count in (m, n)
    )
    exact = x.double() @ y.double().T
    lengths = x.double().norm(dim=1)[:, None] * y.double().norm(dim=1)[None, :]
    with ops.use("triton"):
        ours = ops.similarity(x, y)

    def error(scores: Any) -> float:
        return float(((scores.double() - exact).abs() / lengths).max())

    found: dict[str, Any] = {"error": error(ours), "allowed": TOLERANCE[kind], "matmul": error(x @ y.T)}
    if kind == "float32" and not stage.dry:
        torch.backends.cuda.matmul.allow_tf32 = True
        try:
            found["matmul_tf32"] = error(x @ y.T)
        finally:
            torch.backends.cuda.matmul.allow_tf32 = False
    wrong = not found["error"] <= TOLERANCE[kind]
    return {**found, "complaint": f"error {found['error']:.2g}, allowed {TOLERANCE[kind]:.2g}" if wrong else None}
