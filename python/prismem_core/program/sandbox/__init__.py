"""Confined processes that run memory programs; the engine itself never imports, forks or unpickles one."""

from __future__ import annotations

from prismem_core.program.sandbox.failures import InvalidResult
from prismem_core.program.sandbox.layers import LAYERS, Layer, Required, Tier
from prismem_core.program.sandbox.limits import (
    BackendHandler,
    CallReport,
    CollectionBackend,
    CollectionLimits,
    Limits,
)
from prismem_core.program.sandbox.memory_worker import MemoryWorker
from prismem_core.program.sandbox.sandbox import Sandbox

__all__ = [
    "LAYERS",
    "BackendHandler",
    "CallReport",
    "CollectionBackend",
    "CollectionLimits",
    "InvalidResult",
    "Layer",
    "Limits",
    "MemoryWorker",
    "Required",
    "Sandbox",
    "Tier",
]
