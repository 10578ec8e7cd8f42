# what: pass bytes between queries through a socket pair made by index()
# gate: reject
# runtime: contained
# must: no query sees anything of another one
import socket
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
        self.ends = socket.socketpair()

    def attempt(self):
        try:
            return self.ends[0].recv(100, socket.MSG_DONTWAIT)
        except BlockingIOError:
            self.ends[1].send(b"an earlier query")
            raise

    def retrieve(self, query: Query) -> str:
        try:
            return "LEAK: " + str(self.attempt())[:2000]
        except Exception as e:
            return "BLOCKED: " + type(e).__name__
