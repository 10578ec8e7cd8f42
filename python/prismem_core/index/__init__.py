"""Growable stores that are searched exactly: what is inserted is found at once."""

from prismem_core._native import PreparedFilter
from prismem_core.index.fusion import fuse_reciprocal_rank, fuse_weighted
from prismem_core.index.lexical import LexicalIndex, LexicalStats
from prismem_core.index.results import SearchResult
from prismem_core.index.tokens import Tokenizer, tokens
from prismem_core.index.vector import IndexStats, VectorIndex

__all__ = [
    "IndexStats",
    "LexicalIndex",
    "LexicalStats",
    "PreparedFilter",
    "SearchResult",
    "Tokenizer",
    "VectorIndex",
    "fuse_reciprocal_rank",
    "fuse_weighted",
    "tokens",
]
