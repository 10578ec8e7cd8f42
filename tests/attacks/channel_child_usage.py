# what: tell later queries something by the resources that copies used
# gate: reject
# runtime: contained,independent
# must: no query sees anything of another one
import os
import resource
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
        self.seen = []
        os.register_at_fork(before=lambda: self.seen.append(resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt))

    def attempt(self):
        waste = [bytearray(4096) for _ in range(1000)]
        if len(waste) < 1000 or not any(self.seen):
            raise LookupError("nothing before")
        return self.seen

    def retrieve(self, query: Query) -> str:
        try:
            return "LEAK: " + str(self.attempt())[:2000]
        except Exception as e:
            return "BLOCKED: " + type(e).__name__
