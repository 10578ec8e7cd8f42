"""Growable stores that are searched exactly: what is inserted is found at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prismem_core.index.device_filter import PreparedDeviceFilter
from prismem_core.index.fusion import fuse_reciprocal_rank, fuse_weighted
from prismem_core.index.lexical import LexicalIndex, LexicalStats
from prismem_core.index.results import SearchResult
from prismem_core.index.store import IndexStats
from prismem_core.index.tokens import Tokenizer, tokens
from prismem_core.index.vector import VectorIndex

if TYPE_CHECKING:
    from prismem_core._native import PreparedFilter

__all__ = [
    "IndexStats",
    "LexicalIndex",
    "LexicalStats",
    "PreparedDeviceFilter",
    "PreparedFilter",
    "SearchResult",
    "Tokenizer",
    "VectorIndex",
    "fuse_reciprocal_rank",
    "fuse_weighted",
    "tokens",
]


def __getattr__(name: str) -> Any:
    if name == "PreparedFilter":  # of the C++ core, without which an index on a device works
        from prismem_core import _native

        return _native.PreparedFilter
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
