"""The programs that the jobs run, and a backend that answers from vectors made once."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismem_core.program.library import source
from prismem_core.program.sandbox.namespace import load

_HEAD = """\
from dataclasses import dataclass, field

import numpy as np

MemoryExtractionInstruction = "Extract the key information from the text."
QueryPlanningInstruction = "Write a query that finds the relevant memory."
AnswerInstruction = "Answer from the memory."


@dataclass
class MemoryUnit:
    memory_text: str = field(metadata={"description": "One piece of information"})


@dataclass
class Query:
    query_text: str = field(metadata={"description": "What to look for"})


class Memory:
    def __init__(self, backend):
        self.backend = backend
        self.texts = []
        self.rows = []

    def index(self, units, raw_text):
        texts = [unit.memory_text for unit in units]
        self.texts.extend(texts)
        self.rows.extend(self.backend.embed(texts))
"""

ECHO = f"""{_HEAD}
    def retrieve(self, query):
        return query.query_text
"""
"""Holds rows and does nothing with them: what a query takes is the sandbox's."""

DENSE = f"""{_HEAD}
    def retrieve(self, query):
        vector = self.backend.embed([query.query_text])[0]
        rows = np.stack(self.rows)
        scores = rows @ vector / (np.linalg.norm(rows, axis=1) * np.linalg.norm(vector) + 1e-9)
        best = np.argsort(-scores, kind="stable")[:20]
        return "\\n".join(self.texts[int(number)] for number in best)[:OUT_CHAR_BUDGET]
"""
"""Dense retrieval as models write it: the rows are stacked and measured at every query."""

BLOCKS = source("naive_rag")
"""Dense retrieval that keeps the blocks of rows as they came and multiplies them in place: the least a program does."""


class Vectors:
    """A backend without a model; `seconds` is its own processor time, which is left out of what is measured.

    Each text has a random unit vector of its own, made once, so that most of its time is a copy.
    """

    def __init__(self, dimension: int) -> None:
        self._dimension = dimension
        self._known: dict[str, NDArray[np.float32]] = {}
        self.seconds = 0.0

    def ask(self, prompt: str, system_prompt: str | None = None, json_object: bool = False) -> str:
        return "{}" if json_object else "stub"

    def embed(self, texts: list[str]) -> NDArray[np.float32]:
        started = time.process_time()
        rows = np.empty((len(texts), self._dimension), np.float32)
        for row, text in zip(rows, texts, strict=True):
            if text not in self._known:
                self._known[text] = self._made(text)
            row[:] = self._known[text]
        self.seconds += time.process_time() - started
        return rows

    def _made(self, text: str) -> NDArray[np.float32]:
        seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
        row = np.random.default_rng(seed).standard_normal(self._dimension, dtype=np.float32)
        return row / np.float32(np.linalg.norm(row))


def executed(program: str, backend: Any) -> tuple[Any, Callable[..., Any], Callable[..., Any]]:
    """The program's memory in this process, without any confinement, and the classes of its units and queries."""
    module = load(program, restrict_names=True)
    return module.Memory(backend), module.MemoryUnit, module.Query
