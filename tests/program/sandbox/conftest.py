"""A shared sandbox, a backend that counts, and programs made of two method bodies."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from prismem_core.program.sandbox import Limits, Sandbox

_PROGRAM = """\
from dataclasses import dataclass, field
{imports}

MemoryExtractionInstruction = "Extract the key information from the text."
QueryPlanningInstruction = "Write a query that finds the relevant memory."
AnswerInstruction = "Answer from the memory."


@dataclass
class MemoryUnit:
    memory_text: str = field(metadata={{"description": "One piece of information"}})


@dataclass
class Query:
    query_text: str = field(metadata={{"description": "What to look for"}})


class Memory:
    def __init__(self, backend):
        self.backend = backend
        self.texts = []

    def index(self, units, raw_text):
{index}

    def retrieve(self, query):
{retrieve}
"""


class StubBackend:
    """Answers without a model; keeps what it was asked."""

    def __init__(self) -> None:
        self.prompts: list[str] = []
        self.texts: list[str] = []

    def ask(self, prompt: str, system_prompt: str | None, json_object: bool) -> str:
        self.prompts.append(prompt)
        return "stub"

    def embed(self, texts: list[str]) -> NDArray[np.float32]:
        self.texts.extend(texts)
        return np.array([[len(text), 1.0, 0.0] for text in texts], dtype=np.float32).reshape(len(texts), 3)


@pytest.fixture
def backend() -> StubBackend:
    return StubBackend()


@pytest.fixture
def program() -> Callable[..., str]:
    def build(
        index: str = "self.texts.extend(unit.memory_text for unit in units)",
        retrieve: str = "return ''",
        imports: str = "",
    ) -> str:
        bodies = {"index": textwrap.indent(index, " " * 8), "retrieve": textwrap.indent(retrieve, " " * 8)}
        return _PROGRAM.format(imports=imports, **bodies)

    return build


@pytest.fixture(scope="session")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox() as shared:
        yield shared


@pytest.fixture(scope="session")
def bare_sandbox() -> Iterator[Sandbox]:
    """Programs get all builtins and loaded modules here: what holds, holds because of the process."""
    with Sandbox(restrict_names=False) as shared:
        yield shared


@pytest.fixture
def tight() -> Limits:
    """Limits small enough to meet in a test."""
    return Limits(
        index_cpu_seconds=1.0,
        index_wall_seconds=5.0,
        retrieve_cpu_seconds=1.0,
        retrieve_wall_seconds=5.0,
        memory_bytes=1 << 30,
        index_ask_calls=2,
        retrieve_ask_calls=1,
        index_embed_texts=10,
        retrieve_embed_texts=3,
    )
