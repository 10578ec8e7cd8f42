"""Where an array lives: the library that made it and the device that holds it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    """The library that made an array and the device that holds it."""

    library: str
    device: str
    index: int = 0

    def __str__(self) -> str:
        device = "the CPU" if self.device == "cpu" else f"{self.device}:{self.index}"
        return f"{self.library} arrays on {device}"
