"""The memory interface in words, for those who write programs."""

from __future__ import annotations

from prismem_core.program.interface import (
    ALLOWED_IMPORTS,
    FIELD_TYPES,
    INSTRUCTION_NAMES,
    OUT_CHAR_BUDGET,
    Interface,
)
from prismem_core.program.sandbox.limits import CollectionLimits
from prismem_core.prompts.catalog import render


def interface_prompt(interface: Interface, limits: CollectionLimits | None = None) -> str:
    """What a program may use and must define; collections are described for interface "engine" alone."""
    _, text = render(
        "memory_interface",
        interface=interface,
        limits=limits or CollectionLimits(),
        field_types=FIELD_TYPES,
        instructions=INSTRUCTION_NAMES,
        imports=ALLOWED_IMPORTS,
        budget=OUT_CHAR_BUDGET,
    )
    return text
