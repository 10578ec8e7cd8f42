"""What makes a row a unit vector, robust against squares that overflow or vanish: a pass before kernels of cosines."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from prismem_core.kernels.triton import launch


@triton.jit
def row_scales_kernel(
    rows, powers, inverse, num_rows, dim, row_stride,
    BN: tl.constexpr, BD: tl.constexpr, EVEN: tl.constexpr, WIDE: tl.constexpr,
):
    """Powers of two and inverse lengths (rows,) float32 of BN rows a program; WIDE: the kind has float32's exponents.

    Rows whose largest element lies between 2**-30 and 2**30 keep 1.0, so most rows are read once.
    """
    row = tl.program_id(0).to(tl.int64) * BN + tl.arange(0, BN)
    inside = row < num_rows
    starts = rows + row * row_stride
    largest = tl.zeros((BN,), tl.float32)
    squares = tl.zeros((BN, BD), tl.float32)
    for start in range(0, dim, BD):
        columns = start + tl.arange(0, BD)
        cells = inside[:, None] if EVEN else inside[:, None] & (columns < dim)[None, :]
        values = tl.load(starts[:, None] + columns[None, :], mask=cells, other=0.0).to(tl.float32)
        largest = tl.maximum(largest, tl.max(tl.abs(values), 1))
        squares += values * values
    total = tl.sum(squares, 1)
    power = tl.full((BN,), 1.0, tl.float32)
    if WIDE:
        exponent = (largest.to(tl.int32, bitcast=True) >> 23) & 0xFF
        extreme = (largest > 0.0) & (largest < float("inf")) & ((exponent < 97) | (exponent > 157))
        if tl.max(extreme.to(tl.int32), 0) > 0:
            fitting = (tl.maximum(254 - exponent, 1) << 23).to(tl.float32, bitcast=True)
            power = tl.where(extreme, fitting, 1.0)
            squares = tl.zeros((BN, BD), tl.float32)
            for start in range(0, dim, BD):
                columns = start + tl.arange(0, BD)
                cells = inside[:, None] if EVEN else inside[:, None] & (columns < dim)[None, :]
                values = tl.load(starts[:, None] + columns[None, :], mask=cells, other=0.0).to(tl.float32)
                values = values * power[:, None]
                squares += values * values
            total = tl.sum(squares, 1)
    length = tl.sqrt_rn(total)
    inverted = tl.where(total == 0.0, 0.0, tl.div_rn(1.0, tl.where(total == 0.0, 1.0, length)))
    inverted = tl.where(largest < float("inf"), inverted, float("nan"))
    tl.store(powers + row, power, mask=inside)
    tl.store(inverse + row, inverted, mask=inside)


def row_scales(rows: Any, *, device: Any) -> tuple[Any, Any]:
    """A power of two p and the inverse length of p * row, (n,) float32 each, of rows (n, d) float32/float16/bfloat16.

    The inverse is 0 for a zero row and NaN for a row with NaN or infinity; p is 1 unless the largest element lies
    outside 2**-30 to 2**30 (always 1 for float16).
    """
    count, dim = rows.shape
    powers, inverse = device.empty((count,), "float32"), device.empty((count,), "float32")
    if count:
        block_rows, block_dim = (64, 1024) if launch.INTERPRETED else (16, 256)
        kind = launch.kind_of(rows)
        with launch.on(device):
            row_scales_kernel[(-(-count // block_rows),)](
                rows, powers, inverse, count, dim, rows.stride(0),
                BN=block_rows, BD=block_dim, EVEN=dim % block_dim == 0, WIDE=kind != "float16", num_warps=4,
            )
    return powers, inverse
