from dataclasses import dataclass, field

MemoryExtractionInstruction = "Extract the key information from the text into several memory units."
QueryPlanningInstruction = "Given the following question, generate a query to retrieve relevant memory."
AnswerInstruction = "Based on the retrieved memory and the original question, provide a short answer without explanation."


@dataclass
class MemoryUnit:
    memory_text: str = field(
        metadata={"description": "One piece of information worth remembering from the text"}
    )


@dataclass
class Query:
    query_text: str = field(
        metadata={"description": "A query for retrieving information relevant to the question"}
    )


class Memory:
    def __init__(self, backend):
        self.backend = backend
        self.memories: list[str] = []

    def index(self, units: list[MemoryUnit], raw_text: str) -> None:
        self.memories.extend(unit.memory_text for unit in units)

    def retrieve(self, query: Query) -> str:
        return "\n".join(self.memories)[:OUT_CHAR_BUDGET]
