"""Rows with certified codes: searched in a fraction of the time, with the same result."""

from __future__ import annotations

from typing import Any

from prismem_core.arrays import Place, Rows, common_place, rows
from prismem_core.errors import ArgumentError
from prismem_core.ops import checks, on_device
from prismem_core.ops.registry import choose, native, thread_count


class EncodedRows:
    """Rows (n, d) and their codes, as `encode` makes them; passed as `keys` to `top_k`.

    The rows stay in the caller's memory and must not change: codes of other values would hide hits. Codes take about
    d + 10 bytes a row beside the rows. They prove which rows cannot be hits; the rest is scored as without codes, so
    scores, order and ties are the same, bit for bit (docs/numerics.md).
    """

    def __init__(self, array: Any, held: Rows, place: Place, codes: Any, normalize: bool) -> None:
        self._array = array
        self.rows = held
        self.place = place
        self.codes = codes
        self.normalize = normalize

    @property
    def array(self) -> Any:
        """The rows as they were given."""
        return self._array

    @property
    def bytes(self) -> int:
        """Memory of the codes, beside that of the rows."""
        return 0 if self.codes is None else int(self.codes.bytes)

    @property
    def build_seconds(self) -> float:
        """How long encoding took; 0.0 on a device, which is not waited for."""
        return float(getattr(self.codes, "build_seconds", 0.0))

    def __len__(self) -> int:
        return self.rows.count

    def __repr__(self) -> str:
        metric = "cosine" if self.normalize else "inner product"
        return (
            f"EncodedRows({self.rows.count} x {self.rows.dim} {self.rows.kind}, {metric}, {self.bytes} bytes of codes)"
        )


def encode(array: Any, *, normalize: bool = False, dtype: str | None = None, bits: int | None = None) -> EncodedRows:
    """Codes of rows (n, d) for searches by inner product or, with `normalize`, by cosine; other searches run without.

    float32, float16 or bfloat16 (dtype="bfloat16" for uint16 bits). On the CPU codes have two stages, of 4 and of 8
    bits; on a device (with Triton) they have `bits` 8 (default) or 4, which is half the memory to read but proves less,
    and hits are those without codes up to the rounding of scores. Encoding on the CPU takes about as long as twenty
    or thirty searches for one query without codes (`build_seconds`), so it is for rows that are searched more often.
    Rows with NaN or infinity are allowed, but then searches run without codes; so do rows of more than 16384
    dimensions. Errors: ArgumentError, NoImplementation.
    """
    place = common_place(rows=array)
    held = rows(array, "rows", dtype=dtype)
    normalize = checks.flag(normalize, "normalize")
    choice = choose("top_k", place)
    if bits not in (None, 4, 8) or (bits is not None and choice.backend not in on_device.BACKENDS):
        raise ArgumentError(
            f"bits: expected 8 or 4 for rows on a device, and None on the CPU, got {bits!r} for {place}"
        )
    codes = None
    if choice.backend == "triton":
        codes = on_device.encoded(held, bits or 8, normalize, place)
    if choice.backend == "cpu" and native().RowCodes.supports(held.dim):
        codes = native().RowCodes(held.data, normalize, isa=choice.variant, threads=thread_count())
    return EncodedRows(array, held, place, codes, normalize)
