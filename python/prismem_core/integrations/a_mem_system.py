"""A-MEM (PyPI `a-mem`, extra `a-mem`): a note for each turn, with keywords, context and links that a model writes.

Its library is used as it is, but for model and embedder, which are those of the job: its own embedder would be a
sentence transformer that is fetched from the network.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from prismem_core.integrations.memory_system import Models
from prismem_core.integrations.systems import installed_version
from prismem_core.tasks.history import Session

TOP_K = 10
"""Notes that a search gives, each with the notes it is linked to: the number of A-MEM's own experiments."""


class AMem:
    """One system of A-MEM, its notes in a Chroma store in the folder."""

    identity = f"a-mem {installed_version('a-mem')} (top {TOP_K} with their links)"

    def __init__(self, models: Models, folder: Path) -> None:
        import agentic_memory.retrievers as retrievers
        from agentic_memory.memory_system import AgenticMemorySystem

        retrievers.SentenceTransformerEmbeddingFunction = lambda model_name: _embedding_function(models)
        self._system = AgenticMemorySystem(
            model_name=models.embedder_identity,
            llm_backend="openai",
            llm_model=models.chat_identity,
            api_key="none",
            storage_path=str(folder / "chroma"),
        )
        # The client that was made for this configuration has called nobody.
        self._system.llm_controller.llm = _ChatModel(models)
        self._notes = 0

    def add(self, session: Session) -> None:
        """One note a turn, the speaker named in the text, under the time of the session."""
        for turn in session.turns:
            # Names of its own making would be random, and stand in the prompts.
            self._notes += 1
            given = {"time": session.timestamp} if session.timestamp else {"time": "unknown"}
            self._system.add_note(f"{turn.speaker}: {turn.text}", id=f"note-{self._notes}", **given)

    def retrieve(self, question: str) -> str:
        """The notes with their context, keywords and tags, one a line, each followed by those it is linked to."""
        found: str = self._system.find_related_memories_raw(question, TOP_K)
        return found

    def close(self) -> None:
        """Nothing is left open but a store that goes with the process."""


class _ChatModel:
    """What A-MEM calls a language model."""

    def __init__(self, models: Models) -> None:
        self._models = models

    def get_completion(self, prompt: str, response_format: Mapping[str, Any], *_: Any, **__: Any) -> str:
        schema = response_format.get("json_schema", {}).get("schema", {"type": "object"})
        return self._models.chat(prompt, "You must respond with a JSON object.", schema)


def _embedding_function(models: Models) -> Any:
    """What Chroma calls an embedding function."""
    from chromadb import EmbeddingFunction

    class OfTheJob(EmbeddingFunction):  # type: ignore[misc, type-arg, unused-ignore]
        def __init__(self) -> None: ...

        def __call__(self, input: Sequence[str]) -> Any:
            return list(models.embed(list(input)))

        @staticmethod
        def name() -> str:
            return "prismem-core"

        def get_config(self) -> dict[str, Any]:
            return {"identity": json.dumps(models.embedder_identity)}

        @staticmethod
        def build_from_config(config: dict[str, Any]) -> Any:
            return OfTheJob()

    return OfTheJob()
