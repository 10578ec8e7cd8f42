"""Mem0 (PyPI `mem0ai`, extra `mem0`): facts that a model extracts from the talk, found by their embeddings.

Its library is used as it is, with two exceptions: model and embedder are those of the job, and the date of the session
takes the place of today's, from which Mem0 would count relative dates (its own parameter for it is refused outside its
platform).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from prismem_core.integrations.memory_system import Models
from prismem_core.integrations.systems import installed_version
from prismem_core.tasks.history import Session, Turn

TOP_K = 20
"""Memories that a search gives: Mem0's own default."""

PIECE_CHARS = 12_000
"""Characters of turns in one call of `add`, which extracts with one model call: a segment of the pipeline here."""

_SCOPE = "conversation"
_NOWHERE = "http://127.0.0.1:9/v1"
_NO_DATE = "unknown"


class Mem0:
    """One store of Mem0, in the folder: vectors in Qdrant's local mode, history in SQLite."""

    identity = f"mem0ai {installed_version('mem0ai')} (top {TOP_K}, pieces of {PIECE_CHARS:,} characters)"

    def __init__(self, models: Models, folder: Path) -> None:
        import mem0.memory.main as library

        client = {"model": "engine", "api_key": "none", "openai_base_url": _NOWHERE}
        vectors = {
            "collection_name": "memories",
            "path": str(folder / "qdrant"),
            "embedding_model_dims": models.dimension,
        }
        self._library = library
        self._prompt = _original(library)
        self._memory = library.Memory.from_config(
            {
                "history_db_path": str(folder / "history.db"),
                "vector_store": {"provider": "qdrant", "config": vectors},
                "llm": {"provider": "openai", "config": client},
                "embedder": {"provider": "openai", "config": client},
            }
        )
        # The clients that were made of this configuration have called nobody; no one is left to use them.
        self._memory.llm = _ChatModel(models)
        self._memory.embedding_model = _EmbeddingModel(models)

    def add(self, session: Session) -> None:
        """Hand over the turns, speakers named in the text, in pieces of whole turns."""
        date = session.timestamp or _NO_DATE
        self._library.generate_additive_extraction_prompt = partial(self._prompt, current_date=date, timestamp=date)
        for piece in pieces(session.turns):
            messages = [{"role": _role(turn), "content": f"{turn.speaker}: {turn.text}"} for turn in piece]
            self._memory.add(messages, user_id=_SCOPE, metadata={"session_time": date})

    def retrieve(self, question: str) -> str:
        """The memories, one a line with the time of its session, the best first."""
        found = self._memory.search(question, top_k=TOP_K, filters={"user_id": _SCOPE})["results"]
        return "\n".join(_line(memory) for memory in found)

    def close(self) -> None:
        """Close the store."""
        self._memory.close()
        self._memory.vector_store.client.close()


def pieces(turns: Sequence[Turn], characters: int = PIECE_CHARS) -> Iterator[list[Turn]]:
    """Runs of whole turns of at most so many characters; a longer turn stands alone."""
    piece: list[Turn] = []
    size = 0
    for turn in turns:
        length = len(turn.speaker) + len(turn.text) + 3
        if piece and size + length > characters:
            yield piece
            piece, size = [], 0
        piece.append(turn)
        size += length
    if piece:
        yield piece


def _role(turn: Turn) -> str:
    return "assistant" if turn.speaker.casefold() == "assistant" else "user"


def _line(memory: Mapping[str, Any]) -> str:
    when = (memory.get("metadata") or {}).get("session_time", _NO_DATE)
    text = " ".join(str(memory["memory"]).split())
    return text if when == _NO_DATE else f"[{when}] {text}"


def _original(library: Any) -> Any:
    """The function that writes the prompt of extraction, as Mem0 made it."""
    found = library.generate_additive_extraction_prompt
    return found.func if isinstance(found, partial) else found


class _ChatModel:
    """What Mem0 calls a language model."""

    def __init__(self, models: Models) -> None:
        self._models = models
        self.config = SimpleNamespace(model=models.chat_identity)

    def generate_response(self, messages: Sequence[Mapping[str, str]], response_format: Any = None, **_: Any) -> str:
        system = "\n\n".join(message["content"] for message in messages if message["role"] == "system")
        prompt = "\n\n".join(message["content"] for message in messages if message["role"] != "system")
        return self._models.chat(prompt, system, {"type": "object"} if response_format else None)


class _EmbeddingModel:
    """What Mem0 calls an embedding model."""

    def __init__(self, models: Models) -> None:
        self._models = models
        self.config = SimpleNamespace(model=models.embedder_identity, embedding_dims=models.dimension)

    def embed(self, text: str, memory_action: str | None = None) -> list[float]:
        return self.embed_batch([text])[0]

    def embed_batch(self, texts: Sequence[str], memory_action: str | None = None) -> list[list[float]]:
        rows: list[list[float]] = self._models.embed([text.replace("\n", " ") for text in texts]).tolist()
        return rows
