"""similarity on a GPU with Triton: all inner products, or cosines, of two sets of rows."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from prismem_core.kernels.triton import launch, table
from prismem_core.kernels.triton.launch import Config, Variant
from prismem_core.kernels.triton.row_scales import extremes, row_scales
from prismem_core.kernels.triton.scoring import note_nonfinite, scores_of_rows

GROUP: tl.constexpr = tl.constexpr(8)
"""Blocks of x that run beside each other, so that the blocks of y which they share stay in the cache."""


@triton.jit(do_not_specialize=("num_x", "num_y"))
def similarity_kernel(
    x, y, described_x, described_y, x_powers, x_inverse, y_powers, y_inverse, rescaled, out, flag,
    num_x, num_y, dim, x_stride, y_stride, out_stride,
    BQ: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """Scores (num_x, num_y) float32 of rows x (num_x, dim) and y (num_y, dim), a tile (BQ, BN) a program.

    What is None is not done: tensor descriptors, powers of two (needed where `rescaled` (1,) int32 is not 0), inverse
    lengths (which make cosines), `flag`, which becomes the least x * num_y + y of a score that is not finite.
    """
    x_blocks, y_blocks = tl.cdiv(num_x, BQ), tl.cdiv(num_y, BN)
    program = tl.program_id(0)
    group = program // (GROUP * y_blocks)
    group_blocks = tl.minimum(x_blocks - group * GROUP, GROUP)
    x_block = group * GROUP + (program % (GROUP * y_blocks)) % group_blocks
    y_block = (program % (GROUP * y_blocks)) // group_blocks
    x_row = (x_block * BQ + tl.arange(0, BQ)).to(tl.int64)
    y_row = (y_block * BN + tl.arange(0, BN)).to(tl.int64)
    x_inside, y_inside = x_row < num_x, y_row < num_y
    scores = scores_of_rows(
        x, y, described_x, described_y, x_row, y_row, x_inside, y_inside, x_block * BQ, y_block * BN,
        x_powers, y_powers, x_inverse, y_inverse, rescaled, dim, x_stride, y_stride, BQ, BN, BD, EVEN,
    )  # fmt: skip
    counted = x_inside[:, None] & y_inside[None, :]
    if flag is not None:
        note_nonfinite(flag, scores, counted, x_row * num_y + y_block * BN, tl.arange(0, BN))
    tl.store(out + x_row[:, None] * out_stride + y_row[None, :], scores, mask=counted)


def similarity(
    x: Any,
    y: Any,
    normalize: bool,
    out: Any,
    flag: Any,
    *,
    device: Any,
    key_scales: tuple[Any, Any] | None = None,
) -> None:
    """Fill `out` (m, n) float32 for x (m, d) and y (n, d); `flag` (1,) int64 or None is lowered to the first
    row * n + column that is not finite. `key_scales` are the `row_scales` of y, where they are known.
    """
    num_x, num_y = int(x.shape[0]), int(y.shape[0])
    if num_x == 0 or num_y == 0:
        return
    scales = rescaled = None
    if normalize:
        scales = (*row_scales(x, device=device), *(key_scales or row_scales(y, device=device)))
        if {launch.kind_of(x), launch.kind_of(y)} != {"float16"}:
            rescaled = extremes((scales[0], scales[2]), device=device)
    config, arguments = _arguments(x, y, scales, rescaled, out, flag, launch.sm_of(device))
    programs = -(-num_x // config.block_queries) * -(-num_y // config.block_keys)
    with launch.on(device):
        launch.start(similarity_kernel, (programs,), arguments, config)


def _arguments(
    x: Any, y: Any, scales: tuple[Any, Any, Any, Any] | None, rescaled: Any, out: Any, flag: Any, sm: int
) -> tuple[Config, dict[str, Any]]:
    """The configuration and the arguments of the kernel."""
    dim = int(x.shape[1])
    one_kind = launch.kind_of(x) == launch.kind_of(y)
    described = one_kind and launch.is_describable(x) and launch.is_describable(y)
    kind = launch.kind_of(x) if one_kind else "float32"
    op = "similarity" if described or (launch.is_aligned(x) and launch.is_aligned(y)) else "similarity unaligned"
    config = table.config_of(sm, op, kind, dim, int(x.shape[0]), described)
    values: dict[str, Any] = {"x": x, "y": y, "rescaled": rescaled, "out": out, "flag": flag, "dim": dim}
    values |= {"num_x": int(x.shape[0]), "num_y": int(y.shape[0]), "out_stride": out.stride(0)}
    values |= {"x_stride": x.stride(0), "y_stride": y.stride(0)}
    values |= {"BQ": config.block_queries, "BN": config.block_keys, "BD": config.block_dim}
    values["EVEN"] = dim % config.block_dim == 0
    if scales is not None:
        values |= dict(zip(("x_powers", "x_inverse", "y_powers", "y_inverse"), scales, strict=True))
    if config.loads == "descriptor":
        values["described_x"] = launch.described(x, config.block_queries, config.block_dim)
        values["described_y"] = launch.described(y, config.block_keys, config.block_dim)
    return config, values


_CASES = (
    ("", "float16", 1024, 1024, False),
    (" cosines", "bfloat16", 1024, 1024, True),
    (" few", "float16", 64, 1024, False),
    (" cosines", "float32", 1024, 1024, True),
    (" unaligned cosines", "bfloat16", 1024, 1001, True),
    (" unaligned cosines", "float32", 1024, 1001, True),
)


def variants(sm: int) -> list[Variant]:
    """What the launcher compiles for a compute capability."""
    found = []
    for name, kind, count, dim, normalize in _CASES:
        x, y = (torch.empty(rows, dim, dtype=getattr(torch, kind), device="meta") for rows in (count, 10**5))
        floats, flag = torch.empty(10**5, device="meta"), torch.empty(1, dtype=torch.int64, device="meta")
        scales = (floats, floats, floats, floats) if normalize else None
        rescaled = flag.to(torch.int32) if normalize and kind != "float16" else None
        out = torch.empty(count, 10**5, device="meta")
        config, arguments = _arguments(x, y, scales, rescaled, out, flag, sm)
        notes = {"loads": "rows are not aligned"} if dim % 16 else {}
        if sm >= 90 and config.block_queries < 64:
            notes["mma"] = "fewer than 64 rows do not fill the tile of a warp group"
        title = f"similarity/{kind}{name}"
        found.append(
            launch.variant(title, "similarity", similarity_kernel, arguments, config, batched=True, notes=notes)
        )
    return found
