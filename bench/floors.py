"""Paper floors of the ops on a GPU: the bytes and operations that no implementation can do without, and their time.

`python -m bench.floors` prints the table of docs/gpu.md. Bytes count each input read once and each output written once;
operations count a multiplication and an addition of each product. A floor is the larger of bytes over bandwidth and
operations over the rate of the unit that does them; float32 products by tensor cores take three passes of tf32.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Gpu:
    """Rates of a GPU by its data sheet, dense: bytes and operations a second."""

    name: str
    bandwidth: float
    half: float
    tf32: float
    float32: float
    int8: float


A100 = Gpu("A100 80 GB", 2.04e12, 312e12, 156e12, 19.5e12, 624e12)
H200 = Gpu("H200", 4.8e12, 989e12, 494e12, 67e12, 1979e12)


@dataclass(frozen=True)
class Work:
    """What a call cannot do without: `bytes` moved, `operations`, and the `unit` that does them.

    The units are "half" (products of float16 or bfloat16), "tf32x3", "int8" and "float32" (no tensor cores).
    """

    bytes: float
    operations: float
    unit: str

    def seconds(self, gpu: Gpu) -> float:
        """The floor on a GPU."""
        return max(self.bytes / gpu.bandwidth, self.operations / self.rate(gpu))

    def bound(self, gpu: Gpu) -> str:
        """What decides: "bytes" or "operations"."""
        return "bytes" if self.bytes / gpu.bandwidth >= self.operations / self.rate(gpu) else "operations"

    def rate(self, gpu: Gpu) -> float:
        """Operations a second."""
        return {"half": gpu.half, "tf32x3": gpu.tf32 / 3, "int8": gpu.int8, "float32": gpu.float32}[self.unit]


def unit_of(kind: str) -> str:
    """The unit that multiplies rows of this kind in batches."""
    return "tf32x3" if kind == "float32" else "half"


def item_bytes(kind: str) -> float:
    """Bytes of one number of a kind; of codes, "int8" and "int4", without what a row needs besides."""
    return {"float32": 4, "float16": 2, "bfloat16": 2, "int8": 1, "int4": 0.5}[kind]


def top_k(m: int, n: int, d: int, k: int, kind: str = "float16") -> Work:
    """m queries among n keys: keys once, queries once, k scores and indices; scores never leave the chip."""
    moved = item_bytes(kind) * d * (n + m) + 12.0 * m * k + 8.0 * m
    return Work(moved, 2.0 * m * n * d, "float32" if m == 1 else unit_of(kind))


def similarity(m: int, n: int, d: int, kind: str = "float16") -> Work:
    """All m x n scores in float32, which are the output here."""
    return Work(item_bytes(kind) * d * (n + m) + 4.0 * m * n, 2.0 * m * n * d, unit_of(kind))


def top_k_codes(n: int, d: int, k: int, bits: int) -> Work:
    """One query among n coded keys: codes, scale, error and length of each, then max(4 k, 64) float16 rows in full."""
    survivors = max(4 * k, 64)
    return Work(n * (bits / 8 * d + 12.0) + 2.0 * d * survivors + 12.0 * k, 2.0 * n * d, "int8")


def mmr_select(m: int, pool: int, d: int, k: int, kind: str = "float16") -> Work:
    """m queries with a pool of their own: rows once, relevance, and the similarity row of each pick but the last."""
    return Work(item_bytes(kind) * d * m * (pool + 1) + 12.0 * m * k + 8.0 * m, 2.0 * m * pool * d * k, unit_of(kind))


def segment_max_similarity(evidence: int, sets: int, mean: float, d: int, share: int, kind: str = "float16") -> Work:
    """Each piece of evidence against `sets` sets of `mean` items; `share` pieces have the same sets."""
    items = evidence * sets * mean / share
    moved = item_bytes(kind) * d * (items + evidence) + 12.0 * evidence * sets
    return Work(moved, 2.0 * evidence * sets * mean * d, "float32" if share == 1 else unit_of(kind))


def segment_mean(n: int, segments: int) -> Work:
    """n float32 values; a compensated sum takes about eight additions a value."""
    return Work(4.0 * n + 16.0 * segments, 8.0 * n, "float32")


TABLE: dict[str, Work] = {
    "top_k, 1 query, d=1024": top_k(1, 10**6, 1024, 100),
    "top_k, 64 queries, d=1024": top_k(64, 10**6, 1024, 100),
    "top_k, 1024 queries, d=1024": top_k(1024, 10**6, 1024, 100),
    "top_k, 1024 queries, d=1024, float32": top_k(1024, 10**6, 1024, 100, "float32"),
    "top_k, 1 query, d=4096": top_k(1, 10**6, 4096, 100),
    "top_k, 64 queries, d=4096": top_k(64, 10**6, 4096, 100),
    "top_k, 1024 queries, d=4096": top_k(1024, 10**6, 4096, 100),
    "top_k of int8 codes, 1 query, d=1024, k=10": top_k_codes(10**6, 1024, 10, 8),
    "top_k of int4 codes, 1 query, d=1024, k=10": top_k_codes(10**6, 1024, 10, 4),
    "similarity, 1024 x 100,000, d=1024": similarity(1024, 10**5, 1024),
    "mmr_select, 256 x 200 to 25, d=1024": mmr_select(256, 200, 1024, 25),
    "mmr_select, 256 x 200 to 25, d=4096": mmr_select(256, 200, 4096, 25),
    "segment_max_similarity, 1000 x 3 private sets of 102.5, d=1024": segment_max_similarity(1000, 3, 102.5, 1024, 1),
    "segment_max_similarity, the same, 16 share, d=1024": segment_max_similarity(1000, 3, 102.5, 1024, 16),
    "segment_max_similarity, 10,000 x 3 private sets, d=4096": segment_max_similarity(10**4, 3, 102.5, 4096, 1),
    "segment_max_similarity, the same, 100 share, d=4096": segment_max_similarity(10**4, 3, 102.5, 4096, 100),
    "segment_mean, 10 million values": segment_mean(10**7, 10**4),
}
"""The calls whose floors docs/gpu.md tells; n is a million and rows are float16 where nothing else is said."""


def markdown() -> str:
    """The table of docs/gpu.md."""
    lines = ["| call | GB | Gop | unit | A100, ms | H200, ms |", "| --- | --- | --- | --- | --- | --- |"]
    for name, work in TABLE.items():
        cells = [name, amount(work.bytes / 1e9), amount(work.operations / 1e9), work.unit]
        cells += [f"{amount(work.seconds(gpu) * 1e3)} ({work.bound(gpu)})" for gpu in (A100, H200)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def amount(value: float) -> str:
    """Three digits that count."""
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"


if __name__ == "__main__":
    print(markdown(), end="")
