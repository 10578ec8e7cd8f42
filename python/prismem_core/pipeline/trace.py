"""What one question's way through the pipeline left behind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from prismem_core.roles.ledger import Usage

STAGES = ("extract", "index", "plan", "retrieve", "answer")

# What is wrong with a reply that was kept although it was asked for again: nothing, nothing said, cut by the limit.
Defect = Literal["", "empty", "cut"]


@dataclass(frozen=True)
class Failure:
    """Why a candidate got no answer: `kind` as in CandidateError, or `structured_output`."""

    stage: str
    kind: str
    message: str
    line: int | None = None


@dataclass(frozen=True)
class Trace:
    """A question with its query plan, retrieved text and answer (and its defect), or the failure that ended it."""

    question: str
    query: Mapping[str, Any] = field(default_factory=dict)
    retrieved: str = ""
    answer: str = ""
    failure: Failure | None = None
    defect: Defect = ""


@dataclass
class StageUsage:
    """Logical usage by stage: what the run would have cost with nothing reused.

    Texts that are added to collections or looked for in them by their embeddings count as embedded.
    """

    stages: dict[str, Usage] = field(default_factory=lambda: {stage: Usage() for stage in STAGES})
    embedded_texts: int = 0
    embedded_tokens: int = 0
    collection_calls: int = 0
    collection_texts: int = 0

    def add(self, stage: str, calls: int, input_tokens: int, output_tokens: int) -> None:
        """Count model calls of a stage."""
        self.stages[stage].add(Usage(calls, input_tokens, output_tokens))

    def embed(self, texts: int, tokens: int) -> None:
        """Count embedded texts."""
        self.embedded_texts += texts
        self.embedded_tokens += tokens

    def collection(self, texts: int = 0) -> None:
        """Count one call of a collection and the texts it adds."""
        self.collection_calls += 1
        self.collection_texts += texts

    def merge_dict(self, record: Mapping[str, Any]) -> None:
        """Add a usage in its JSON form."""
        for stage, usage in record["stages"].items():
            self.stages[stage].add(Usage(**usage))
        self.embed(record["embedded_texts"], record["embedded_tokens"])
        collections = record.get("collections", {})
        self.collection_calls += collections.get("calls", 0)
        self.collection_texts += collections.get("texts", 0)

    def to_dict(self) -> dict[str, Any]:
        """JSON form; `collections` only where there are any."""
        record: dict[str, Any] = {
            "stages": {stage: usage.to_dict() for stage, usage in self.stages.items()},
            "embedded_texts": self.embedded_texts,
            "embedded_tokens": self.embedded_tokens,
        }
        if self.collection_calls:
            record["collections"] = {"calls": self.collection_calls, "texts": self.collection_texts}
        return record
