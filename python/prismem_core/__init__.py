"""An engine for agent memory that improves itself; public names are resolved when first used."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_HOMES = {
    "VectorIndex": "prismem_core.index",
    "ExecutionCache": "prismem_core.cache",
    "Task": "prismem_core.tasks.task",
    "History": "prismem_core.tasks.history",
    "Dataset": "prismem_core.tasks.task",
    "Capability": "prismem_core.tasks.capability",
    "load": "prismem_core.tasks.datasets",
    "Program": "prismem_core.program.program",
    "validate": "prismem_core.program.validation",
    "Chat": "prismem_core.roles.protocols",
    "Embedder": "prismem_core.roles.protocols",
    "Judge": "prismem_core.roles.protocols",
    "Designer": "prismem_core.evolution.designer",
    "Roles": "prismem_core.roles.roles",
    "Pipeline": "prismem_core.pipeline.pipeline",
    "Evaluator": "prismem_core.evaluation.evaluate",
    "evolve": "prismem_core.evolution.engine",
    "Recipe": "prismem_core.evolution.recipes",
    "PRISMEM": "prismem_core.evolution.recipes",
    "HOLISTIC": "prismem_core.evolution.recipes",
    "Run": "prismem_core.runs.run",
    "Memory": "prismem_core.memory",
}
_MODULES = ("errors", "ops")

__all__ = ["__version__", *_MODULES, *_HOMES]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name in _MODULES:
        return import_module(f"prismem_core.{name}")
    raise AttributeError(f"module 'prismem_core' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
