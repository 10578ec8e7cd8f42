"""Programs whose memories are grafted, and what their retrieval gives, in this process and with no sandbox around."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from prismem_core.program.grafting import Graft
from prismem_core.program.sandbox import graft
from prismem_core.program.sandbox.namespace import PROGRAM_MODULE, load

STATEFUL = '''"""A program that leaves state wherever Python has a place for it."""
import math
import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import ClassVar, Optional

MemoryExtractionInstruction = "Extract."
QueryPlanningInstruction = "Plan."
AnswerInstruction = "Answer."
HINT = "One fact"
SEEN = []
COUNT = 0
STOP = frozenset("a the of".split())
WORD = re.compile("[a-z]+")
SIZE = 3
TOP = 4
JOINER = "; "
PATTERN = re.compile("[a-z]+ed")
ALIAS = SEEN
PAIR = (SIZE, len(STOP))
LATER = lambda rows: sorted(rows) * TOP + [len(SEEN)]


def clean(text, history=[]):
    history.append(text)
    return [word for word in WORD.findall(text.lower()) if word not in STOP] + [str(len(history))]


def count():
    global COUNT
    COUNT += 1
    return COUNT


def rank(rows, known=SEEN, size=SIZE):
    return sorted(rows, key=lambda row: (-len(row), row))[: size + len(known)]


def shorten(text: "Optional[str]", width=60):
    return text[:width]


def failing(row):
    return (
        row
        .strip("?")
        .missing
    )


@dataclass
class MemoryUnit:
    memory_text: str = field(metadata={"description": HINT})
    date: Optional[str] = field(default=None, metadata={"description": "Date"})


@dataclass
class Query:
    query_text: str = field(metadata={"description": "A query"})
    kinds: ClassVar[list] = []
    size: int = 2


class Shelf:
    made = 0

    def __init__(self):
        Shelf.made += 1
        self.rows = []

    def put(self, row):
        self.rows.append(row)
        return self

    def __len__(self):
        return len(self.rows)


class View:
    """How retrieve shows rows."""

    mark = "- "

    def __init__(self, rows):
        self.rows = rows

    def show(self):
        return JOINER.join(self.mark + row for row in self.rows)


class Memory:
    """Keeps state."""

    limit = 5
    total = 0
    shared = []
    __width = 40
    suffix = "."

    def __init__(self, backend):
        self.backend = backend
        self.shelf = Shelf()
        self.counts = Counter()
        self.groups = defaultdict(lambda: [len(SEEN)])
        self.step = self.tidy
        self.late = lambda text: self.tidy(text) + str(self.limit)
        self.matrix = None
        self.__private = {}

    def index(self, units, raw_text):
        """Keep all."""
        for unit in units:
            words = clean(unit.memory_text)
            SEEN.append(words[0] if words else "")
            self.__class__.total += 1
            self.shared.append(unit)
            self.counts.update(words)
            self.groups[unit.date].append(count())
            self.shelf.put(self.step(unit.memory_text))
            self.__private[unit.memory_text] = len(self.__private)

    def tidy(self, text):
        return " ".join(text.split())

    def fetch(self, rows):
        return rank(rows)

    @property
    def title(self):
        return f"{self.total}/{len(self.shared)}/{Shelf.made}/{COUNT}"

    @staticmethod
    def tail(rows, width=SIZE):
        return rows[:width]

    @classmethod
    def named(cls, text):
        return cls.suffix + text

    def __hidden(self, row):
        return self.__private.get(row, -1) + self.__width

    def dress(self, row):
        return super().__repr__()[:10] + row + __class__.suffix

    def retrieve(self, query):
        rows = [row for row in self.shelf.rows if isinstance(self.shared[0], MemoryUnit)]
        found = self.tail(self.fetch(rows), width=query.size)
        seen = [self.title, self.late("x "), str(self.groups["new"]), str(self.counts.most_common(2))]
        seen += [str(self.__hidden(row)) for row in found] + [str(LATER(ALIAS)), str(PAIR), str(len(self.shelf))]
        if "fail" in query.query_text:
            failing(query.query_text)
        if "deep" in query.query_text:
            clean(None)
        return shorten(self.dress(View(found).show()), 60) + self.named(" ").join(seen)[:OUT_CHAR_BUDGET]
'''
UNITS = [
    [{"memory_text": "the harbour is old"}, {"memory_text": "Ann painted a sunrise", "date": "8 May"}],
    [{"memory_text": "Bob  raced of late", "date": "9 June"}],
]
QUERIES = ({"query_text": "harbour"}, {"query_text": "fail?"}, {"query_text": "deep"}, {"query_text": "", "size": 1})


class LettersBackend:
    """Texts embed as their lengths and first letters."""

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return np.array([[len(text), ord(text[0]) if text else 0] for text in texts], np.float32).reshape(-1, 2)

    def ask(self, prompt: str, system_prompt: str | None = None, json_object: bool = False) -> str:
        return "{}" if json_object else prompt.upper()


class Loaded:
    """One program with a built memory."""

    def __init__(self, source: str, units: Sequence[Sequence[dict[str, Any]]] = UNITS) -> None:
        np.random.seed(0)
        self.module = load(source, restrict_names=True)
        self.memory = self.module.Memory(LettersBackend())
        for group in units:
            self.memory.index([_filled(self.module.MemoryUnit, unit) for unit in group], "raw")

    def take_in(self, planned: Graft) -> Loaded:
        """This program with its memory, as the revision."""
        graft.attach(self.module, self.memory, planned.order())
        return self

    def retrieve(self, query: dict[str, Any]) -> Any:
        """What a query gives, a failure with the lines of the program it passed."""
        try:
            return self.memory.retrieve(_filled(self.module.Query, query))
        except Exception as error:
            return type(error).__name__, str(error), graft.places(error.__traceback__)


def _filled(schema: Any, values: Mapping[str, Any]) -> Any:
    """An instance with those of the values that its fields take, and some text where nothing is given."""
    texts = {f.name: f"some {f.name}" for f in fields(schema) if f.default is MISSING and f.default_factory is MISSING}
    return schema(**{**texts, **{name: value for name, value in values.items() if name in schema.__annotations__}})


@pytest.fixture(autouse=True)
def _no_program_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, PROGRAM_MODULE, raising=False)
