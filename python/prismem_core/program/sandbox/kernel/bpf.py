"""Classic BPF as seccomp takes it: loads from `struct seccomp_data`, comparisons that jump forward, returns.

See seccomp(2) and the kernel's Documentation/networking/filter.rst.
"""

from __future__ import annotations

import struct

LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06

# Where struct seccomp_data keeps the number, the architecture and the six 64-bit arguments (low word first).
NUMBER, ARCHITECTURE, ARGUMENTS = 0, 4, 16


class Assembler:
    """Instructions whose jumps name places; the empty name is the next instruction."""

    def __init__(self) -> None:
        self._steps: list[tuple[int, int, str, str]] = []
        self._places: dict[str, int] = {}

    def place(self, name: str) -> None:
        """Name the next instruction; a jump reaches at most 255 further."""
        self._places[name] = len(self._steps)

    def load(self, offset: int) -> None:
        """Take a 32-bit word of the call's description, which the tests that follow look at."""
        self._steps.append((LOAD, offset, "", ""))

    def load_argument(self, index: int, word: int = 0) -> None:
        self.load(ARGUMENTS + 8 * index + 4 * word)

    def test(self, kind: int, value: int, *, then: str = "", otherwise: str = "") -> None:
        """Compare the loaded word (EQUAL, AT_LEAST, ANY_BIT) and jump."""
        self._steps.append((kind, value, then, otherwise))

    def expect_argument(self, index: int, value: int, *, otherwise: str) -> None:
        """Go on only if the whole argument is `value`, which fits the low word."""
        self.load_argument(index)
        self.test(EQUAL, value, otherwise=otherwise)
        self.load_argument(index, word=1)
        self.test(EQUAL, 0, otherwise=otherwise)

    def give(self, action: int) -> None:
        """End with an action."""
        self._steps.append((RETURN, action, "", ""))

    def assemble(self) -> bytes:
        """`struct sock_filter` of 8 bytes each; KeyError for a place that was not named."""
        return b"".join(
            struct.pack("=HBBI", code, self._distance(at, then), self._distance(at, otherwise), value)
            for at, (code, value, then, otherwise) in enumerate(self._steps)
        )

    def _distance(self, at: int, name: str) -> int:
        return self._places[name] - at - 1 if name else 0
