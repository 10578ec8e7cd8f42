"""No retrieval: the conversation itself, as much of its end as the budget holds, whatever the question."""

from dataclasses import dataclass, field

MemoryExtractionInstruction = "Extract the key information from the text into several memory units."
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
        self.lines: list[str] = []

    def index(self, units: list[MemoryUnit], raw_text: str) -> None:
        self.lines.extend(line.strip() for line in raw_text.splitlines() if line.strip())

    def retrieve(self, query: Query) -> str:
        kept = []
        room = OUT_CHAR_BUDGET
        for line in reversed(self.lines):
            if len(line) > room:
                break
            kept.append(line)
            room -= len(line) + 1
        return "\n".join(reversed(kept))
