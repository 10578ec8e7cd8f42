"""A small memory on the embedded default, the same with and without the extra `offline`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from prismem_core.memory import Memory

SETTINGS = {"embedder": "hashing", "reranker": False}
MAY = {
    "time": "8 May 2023",
    "turns": [
        {"speaker": "Ana", "text": "I paint lakes in the rain."},
        {"speaker": "Ben", "text": "My cat is called Miso."},
    ],
}
JUNE = {"time": "9 June 2023", "turns": [{"speaker": "Ana", "text": "I bought a red bicycle in Porto."}]}


@pytest.fixture
def make() -> Callable[..., Memory]:
    """A memory with cheap roles."""

    def new(program: Any = "naive_rag", **options: Any) -> Memory:
        return Memory(program, settings={**SETTINGS, **options.pop("settings", {})}, **options)

    return new
