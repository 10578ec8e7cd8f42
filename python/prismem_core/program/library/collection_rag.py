"""Hybrid retrieval in a collection of the engine: units are ranked by meaning and by words at once.

Needs interface "engine".
"""

from dataclasses import dataclass, field

MemoryExtractionInstruction = "Extract every piece of information from the text, each in the words of its speaker."
QueryPlanningInstruction = "Given the following question, generate a query to retrieve relevant memory."
AnswerInstruction = (
    "Based on the retrieved memory and the original question, provide a short answer without explanation. "
    "If the memory does not hold the answer, reply: No information available."
)

LINES = 500


@dataclass
class MemoryUnit:
    memory_text: str = field(metadata={"description": "One piece of information worth remembering from the text"})


@dataclass
class Query:
    query_text: str = field(metadata={"description": "A query for retrieving information relevant to the question"})


class Memory:
    def __init__(self, backend):
        self.lines: list[str] = []
        self.notes = backend.collection()

    def index(self, units: list[MemoryUnit], raw_text: str) -> None:
        texts = [" ".join(unit.memory_text.split()) for unit in units]
        texts = [text for text in texts if text]
        self.lines.extend(texts)
        self.notes.add(texts)

    def retrieve(self, query: Query) -> str:
        hits = self.notes.hybrid(query.query_text, LINES)
        return pack(self.lines[position] for position, _ in hits)


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
