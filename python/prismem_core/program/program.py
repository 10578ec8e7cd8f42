"""A memory program: one Python module's text with the digests that name it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from prismem_core.digests import digest_bytes
from prismem_core.program.components import Components


@dataclass(frozen=True)
class Program:
    """The source of a memory program; nothing of it is run here."""

    source: str

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the source text, 64 hex digits; a comment changes it."""
        return digest_bytes(self.source.encode("utf-8", "surrogatepass"))

    @cached_property
    def components(self) -> Components:
        """The parts execution reuse compares; raises ProgramError (`syntax_error`) where the source does not parse."""
        return Components.parse(self.source)
