"""What makes a row a unit vector, robust against squares that overflow or vanish: a pass before kernels of cosines."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from prismem_core.kernels.triton import launch
from prismem_core.kernels.triton.launch import Variant


@triton.jit(do_not_specialize=("num_rows",))
def row_scales_kernel(
    rows, powers, inverse, num_rows, dim, row_stride,
    BN: tl.constexpr, BD: tl.constexpr, EVEN: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Powers of two and inverse lengths (rows,) float32 of BN rows a program; WIDE: the kind has float32's exponents.

    Rows whose largest element lies between 2**-30 and 2**30 keep 1.0, so most rows are read once.
    """
    row = tl.program_id(0).to(tl.int64) * BN + tl.arange(0, BN)
    inside = row < num_rows
    starts = rows + row * row_stride
    largest = tl.zeros((BN, BD // 8), tl.float32)
    squares = tl.zeros((BN, BD // 8), tl.float32)
    for start in range(0, dim, BD):
        columns = start + tl.arange(0, BD)
        cells = inside[:, None] if EVEN else inside[:, None] & (columns < dim)[None, :]
        values = tl.load(starts[:, None] + columns[None, :], mask=cells, other=0.0).to(tl.float32)
        values = tl.reshape(values, (BN, BD // 8, 8))
        largest = tl.maximum(largest, tl.max(tl.abs(values), 2))
        squares += tl.sum(values * values, 2)
    greatest = tl.max(largest, 1)
    total = tl.sum(squares, 1)
    power = tl.full((BN,), 1.0, tl.float32)
    if WIDE:
        exponent = (greatest.to(tl.int32, bitcast=True) >> 23) & 0xFF
        extreme = (greatest > 0.0) & (greatest < float("inf")) & ((exponent < 97) | (exponent > 157))
        if tl.max(extreme.to(tl.int32), 0) > 0:
            fitting = (tl.maximum(254 - exponent, 1) << 23).to(tl.float32, bitcast=True)
            power = tl.where(extreme, fitting, 1.0)
            squares = tl.zeros((BN, BD // 8), tl.float32)
            for start in range(0, dim, BD):
                columns = start + tl.arange(0, BD)
                cells = inside[:, None] if EVEN else inside[:, None] & (columns < dim)[None, :]
                values = tl.load(starts[:, None] + columns[None, :], mask=cells, other=0.0).to(tl.float32)
                values = tl.reshape(values * power[:, None], (BN, BD // 8, 8))
                squares += tl.sum(values * values, 2)
            total = tl.sum(squares, 1)
    length = tl.sqrt_rn(tl.where(total == 0.0, 1.0, total))
    inverted = tl.where(total == 0.0, 0.0, tl.div_rn(tl.full((BN,), 1.0, tl.float32), length))
    inverted = tl.where(greatest < float("inf"), inverted, float("nan"))
    tl.store(powers + row, power, mask=inside)
    tl.store(inverse + row, inverted, mask=inside)


@triton.jit(do_not_specialize=("count",))
def extremes_kernel(powers, extremes, count, BN: tl.constexpr):
    """Set `extremes` (1,) int32 to 1 where a power (count,) is not 1."""
    row = tl.program_id(0).to(tl.int64) * BN + tl.arange(0, BN)
    power = tl.load(powers + row, mask=row < count, other=1.0)
    found = tl.max((power != 1.0).to(tl.int32), 0)
    if found > 0:
        tl.atomic_max(extremes, found)


def row_scales(rows: Any, *, device: Any) -> tuple[Any, Any]:
    """A power of two p and the inverse length of p * row, (n,) float32 each, of rows (n, d) float32/float16/bfloat16.

    The inverse is 0 for a zero row and NaN for a row with NaN or infinity; p is 1 unless the largest element lies
    outside 2**-30 to 2**30 (always 1 for float16).
    """
    count, dim = rows.shape
    powers, inverse = device.empty((count,), "float32"), device.empty((count,), "float32")
    if count:
        kind = launch.kind_of(rows)
        block_rows, block_dim = _tile(kind)
        with launch.on(device):
            row_scales_kernel[(-(-count // block_rows),)](
                rows, powers, inverse, count, dim, rows.stride(0),
                BN=block_rows, BD=block_dim, EVEN=dim % block_dim == 0, WIDE=kind != "float16",
                num_warps=4, maxnreg=255,
            )  # fmt: skip
    return powers, inverse


def extremes(powers: tuple[Any, ...], *, device: Any) -> Any:
    """int32 (1,): 1 where one of the powers of `row_scales` is not 1, so that rows must be multiplied by theirs."""
    result = device.full((1,), "int32", 0)
    block = 4096
    with launch.on(device):
        for values in powers:
            if values.shape[0]:
                grid = (-(-values.shape[0] // block),)
                extremes_kernel[grid](values, result, values.shape[0], BN=block, num_warps=4, maxnreg=255)
    return result


def _tile(kind: str) -> tuple[int, int]:
    if launch.INTERPRETED:
        return 512, 128
    return (16, 256) if kind == "float32" else (16, 512)


def variants(sm: int) -> list[Variant]:
    """What the launcher compiles for a compute capability."""
    found = []
    for kind in ("float32", "bfloat16"):
        block_rows, block_dim = _tile(kind)
        found.append(
            Variant(
                f"row_scales/{kind}",
                "row_scales",
                row_scales_kernel,
                {
                    "rows": launch.POINTERS[kind],
                    "powers": "*fp32",
                    "inverse": "*fp32",
                    "num_rows": "i32",
                    "dim": "i32",
                    "row_stride": "i32",
                },
                {"BN": block_rows, "BD": block_dim, "EVEN": True, "WIDE": True},
                aligned=("rows", "powers", "inverse", "dim", "row_stride"),
                registers=255,
            )
        )
    found.append(
        Variant(
            "row_scales/extremes",
            "row_scales",
            extremes_kernel,
            {"powers": "*fp32", "extremes": "*i32", "count": "i32"},
            {"BN": 4096},
            aligned=("powers", "extremes"),
            registers=255,
            notes={"loads": "one number beside each row, and any number of them"},
        )
    )
    return found
