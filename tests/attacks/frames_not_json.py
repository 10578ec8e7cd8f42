# what: send bytes that are no JSON
# gate: reject
# runtime: protocol,died
# must: a breach of the protocol ends this worker alone
import os
from dataclasses import dataclass, field

MemoryExtractionInstruction = 'Extract the key information from the text.'
QueryPlanningInstruction = "Write a query that finds the relevant memory."
AnswerInstruction = 'Answer from the memory.'


@dataclass
class MemoryUnit:
    memory_text: str = field(metadata={"description": "One piece of information"})


@dataclass
class Query:
    query_text: str = field(metadata={"description": "What to look for"})


class Memory:
    def __init__(self, backend):
        self.backend = backend
        self.texts: list[str] = []
        self.hints: dict[str, str] = {}

    def index(self, units: list[MemoryUnit], raw_text: str) -> None:
        self.texts.extend(u.memory_text for u in units)
        for line in raw_text.splitlines():
            key, eq, value = line.partition("=")
            if eq:
                self.hints[key.strip()] = value.strip()

    def frame(self, body, head=None):
        head = len(body).to_bytes(4, "little") if head is None else head
        for descriptor in range(3, 16):
            try:
                os.write(descriptor, head + body)
            except OSError:
                pass

    def retrieve(self, query: Query) -> str:
        self.frame(bytes(range(256)))
        return "honest"
