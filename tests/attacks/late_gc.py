# what: raise in a callback of the garbage collector
# gate: reject
# runtime: ok,contained,error
# must: only this worker is affected
import gc
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
        gc.callbacks.append(lambda *_: 1 / 0)
        gc.set_threshold(1, 1, 1)

    def retrieve(self, query: Query) -> str:
        return "honest"
