# what: fork again in a hook that runs in each new copy
# gate: reject
# runtime: contained
# must: no further process starts
import ctypes
import os
import time
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
        self.children = []
        os.register_at_fork(after_in_child=self.again)

    def again(self):
        child = ctypes.CDLL(None).fork()
        if child == 0:
            time.sleep(600)
            os._exit(0)
        self.children.append(child)

    def attempt(self):
        if not any(child > 0 for child in self.children):
            raise OSError("refused")
        return self.children

    def retrieve(self, query: Query) -> str:
        try:
            return "LEAK: " + str(self.attempt())[:2000]
        except Exception as e:
            return "BLOCKED: " + type(e).__name__
