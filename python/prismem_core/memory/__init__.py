"""A memory to talk to: a program in service, with its sessions, that is asked, saved and loaded (docs/memory.md)."""

from __future__ import annotations

from prismem_core.memory.memory import Added, Answer, Memory

__all__ = ["Added", "Answer", "Memory"]
