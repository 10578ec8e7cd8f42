# what: make descriptors for events, timers and signals
# gate: reject
# runtime: contained
# must: the kernel's interface is refused
import ctypes
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

    def call(self, number, *arguments):
        libc = ctypes.CDLL(None, use_errno=True)
        libc.syscall.restype = ctypes.c_long
        result = libc.syscall(*[ctypes.c_long(a) if isinstance(a, int) else a for a in (number, *arguments)])
        if result < 0:
            raise OSError(ctypes.get_errno(), "refused")
        return result

    def attempt(self):
        made = []
        mask = ctypes.c_ulonglong(1 << 9)
        for call in ((290, 0, 0), (283, 1, 0), (289, -1, ctypes.byref(mask), 8, 0), (291, 0)):
            try:
                made.append(self.call(*call))
            except OSError:
                pass
        if not made:
            raise OSError("refused")
        return made

    def retrieve(self, query: Query) -> str:
        try:
            return "LEAK: " + str(self.attempt())[:2000]
        except Exception as e:
            return "BLOCKED: " + type(e).__name__
