"""What the machine can do at most, measured in the same rounds as the competitors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

from prismem_core._native import LimitProbe

from .timing import Timing

PREFIX = "limit: "
"""Names of the probes among the calls of a round begin with this; no competitor's does."""

_MEBI = 1 << 20
DRAM_BYTES = 512 * _MEBI
QUICK_DRAM_BYTES = 128 * _MEBI
L3_BYTES = 8 * _MEBI
L2_BYTES = 256 << 10


@dataclass(frozen=True)
class Limits:
    """Rates a second of one measurement: bytes read from memory and caches, float operations, products of bytes.

    Each is that of the best of several ways to do it. `products` is 0 where the instruction set has none.
    """

    isa: str
    threads: int
    dram: float
    l3: float
    l2: float
    flops: float
    products: float

    def seconds(self, bytes_read: float, flops: float) -> float:
        """The least time for so many bytes from memory and so many float operations, which may overlap."""
        return max(bytes_read / self.dram, flops / self.flops)

    def as_dict(self) -> dict[str, object]:
        """For a record."""
        return asdict(self)


class Probes:
    """Calls that do fixed work, for `timing.interleaved`; about 15 ms each."""

    def __init__(self, threads: int, *, dram_bytes: int = DRAM_BYTES) -> None:
        self._probe = LimitProbe(dram_bytes, "", threads)
        self._threads = threads
        self._work: dict[str, int] = {}
        probe, rounds = self._probe, 4_000_000
        self._ways: dict[str, dict[str, Callable[[], int]]] = {
            "dram": {
                "one stream": lambda: probe.read(dram_bytes, 1, False),
                "four streams": lambda: probe.read(dram_bytes, 1, True),
            },
            "l3": {"one stream": lambda: probe.read(min(L3_BYTES, dram_bytes), 100, False)},
            "l2": {"one stream": lambda: probe.read(min(L2_BYTES * threads, dram_bytes), 4000, False)},
            "flops": {"float32": lambda: probe.multiply_floats(rounds)},
            "products": {
                "32-bit sums": lambda: probe.multiply_bytes(rounds, False),
                "16-bit sums": lambda: probe.multiply_bytes(rounds, True),
            },
        }

    def calls(self) -> dict[str, Callable[[], object]]:
        """The probes by name."""
        return {
            f"{PREFIX}{limit}, {way}": self._counted(f"{limit}, {way}", call)
            for limit, ways in self._ways.items()
            for way, call in ways.items()
        }

    def _counted(self, name: str, call: Callable[[], int]) -> Callable[[], object]:
        def count() -> None:
            self._work[name] = call()

        return count

    def limits(self, timings: Mapping[str, Timing], *, best: bool) -> Limits:
        """The rates by the medians of the rounds, or by the best round."""
        rates = {
            limit: max(self._rate(f"{limit}, {way}", timings, best) for way in self._ways[limit])
            for limit in self._ways
        }
        return Limits(isa=self._probe.isa, threads=self._threads, **rates)

    def _rate(self, name: str, timings: Mapping[str, Timing], best: bool) -> float:
        timing = timings[PREFIX + name]
        return self._work[name] / max(timing.best if best else timing.median, 1e-9)
