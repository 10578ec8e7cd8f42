"""Growable stores that are searched exactly: what is inserted is found at once."""

from prismem_core._native import PreparedFilter
from prismem_core.index.results import SearchResult
from prismem_core.index.vector import IndexStats, VectorIndex

__all__ = ["IndexStats", "PreparedFilter", "SearchResult", "VectorIndex"]
