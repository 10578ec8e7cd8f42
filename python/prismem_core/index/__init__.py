"""Growable stores that are searched exactly: what is inserted is found at once."""

from prismem_core.index.results import SearchResult

__all__ = ["SearchResult"]
