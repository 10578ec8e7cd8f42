"""Dense retrieval: every unit is embedded, the units nearest to the query come first."""

from dataclasses import dataclass, field

import numpy as np

MemoryExtractionInstruction = "Extract every piece of information from the text, each in the words of its speaker."
QueryPlanningInstruction = "Given the following question, generate a query to retrieve relevant memory."
AnswerInstruction = (
    "Based on the retrieved memory and the original question, provide a short answer without explanation. "
    "If the memory does not hold the answer, reply: No information available."
)


@dataclass
class MemoryUnit:
    memory_text: str = field(metadata={"description": "One piece of information worth remembering from the text"})


@dataclass
class Query:
    query_text: str = field(metadata={"description": "A query for retrieving information relevant to the question"})


class Memory:
    def __init__(self, backend):
        self.backend = backend
        self.lines: list[str] = []
        self.blocks: list[np.ndarray] = []

    def index(self, units: list[MemoryUnit], raw_text: str) -> None:
        texts = [" ".join(unit.memory_text.split()) for unit in units]
        texts = [text for text in texts if text]
        if texts:
            self.lines.extend(texts)
            self.blocks.append(self.backend.embed(texts))

    def retrieve(self, query: Query) -> str:
        if not self.lines:
            return ""
        vector = self.backend.embed([query.query_text])[0]
        scores = np.concatenate([block @ vector for block in self.blocks])
        return pack(self.lines[int(i)] for i in np.argsort(-scores, kind="stable"))


def pack(lines) -> str:
    """As many whole lines as the budget holds, in the order given; a line that does not fit is passed over."""
    kept = []
    room = OUT_CHAR_BUDGET
    for line in lines:
        if len(line) <= room:
            kept.append(line)
            room -= len(line) + 1
        if room < 20:
            break
    return "\n".join(kept)
