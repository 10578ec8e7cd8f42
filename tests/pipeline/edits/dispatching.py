"""A program to edit whose parts are reached in all the ways that Python has."""

DISPATCHING = '''
import json
import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field

MemoryExtractionInstruction = "Extract the key information from the text into several memory units."
QueryPlanningInstruction = "Given the following question, generate a query to retrieve relevant memory."
STYLE = "a short answer"
AnswerInstruction = f"Based on the retrieved memory and the original question, provide {STYLE}."
HINT = "One piece of information worth remembering from the text"
LIMIT = 6
WEIGHTS = {"exact": 2.0, "loose": 1.0}
SEEN = []
ORDER = iter([3, 1, 2])
FIRST = next(ORDER)
STOP = frozenset("a the of in on".split())


def counted(function):
    SEEN.append(function.__name__)
    return function


def words(text, size=LIMIT):
    """Words of a text."""
    return [word for word in re.findall("[a-z]+", text.lower()) if word not in STOP][:size]


def loose(line, wanted):
    return WEIGHTS["loose"] * sum(word[:3] in line.lower() for word in wanted)


def exact(line, wanted):
    return WEIGHTS["exact"] * len(set(words(line)) & set(wanted))


MODES = {"exact": exact, "loose": loose}


class Shelf:
    """Lines with a mark each."""

    mark = "- "

    def __init__(self):
        self.lines = []

    def __len__(self):
        return len(self.lines)

    def __call__(self, line):
        self.lines.append(self.mark + line)


class Base:
    separator = "\\n"

    def _join(self, lines):
        return self.separator.join(lines)


@dataclass
class MemoryUnit:
    memory_text: str = field(metadata={"description": HINT})
    date: str = field(default="", metadata={"description": "Date of the session"})


@dataclass
class Query:
    query_text: str = field(metadata={"description": "A query for retrieving information relevant to the question"})


class Memory(Base):
    """Keeps lines on a shelf."""

    top = 3
    label = "memory"

    def __init__(self, backend):
        self.backend = backend
        self.shelf = Shelf()
        self.counts = Counter()
        self.by_date = defaultdict(list)

    def index(self, units, raw_text):
        """Put every unit on the shelf."""
        for unit in units:
            self.shelf(getattr(self, "_line")(unit))
            self.counts.update(words(unit.memory_text))
            self.by_date[unit.date].append(len(self.shelf))

    @counted
    def _line(self, unit):
        return f"({unit.date}) {unit.memory_text}" if unit.date else unit.memory_text

    @property
    def title(self):
        return "{0.label}: ".format(self)

    @staticmethod
    def _rare(counts, word):
        return -counts[word]

    def _score(self, line, wanted):
        return sum(mode(line, wanted) for mode in MODES.values())

    def retrieve(self, query):
        wanted = sorted(words(query.query_text, 20), key=lambda word: (self._rare(self.counts, word), word))
        ranked = sorted(self.shelf.lines, key=lambda line: (-self._score(line, wanted), line))
        found = self._join(ranked[: self.top + FIRST - 2])
        return (self.title + found)[:OUT_CHAR_BUDGET] if len(self.shelf) else json.dumps([])
'''
"""Reached by names, attributes, texts, bases, decorators, special methods and module statements."""
