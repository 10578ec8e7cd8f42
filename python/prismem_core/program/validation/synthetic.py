"""Made-up sessions in words of each program's own: what a candidate is tried with before it gets real ones.

Names, nouns and the shapes of sentences, times and turns are drawn from the digest of the program's source. The same
source always meets the same texts, another one meets others, so that no text tells a program that it is being tried.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from prismem_core.program.interface import FieldSpec

_ONSETS = tuple("b br c ch d dr f fl g gr h j k kl l m n p pr qu r s sh st t tr v w z".split())  # noqa: SIM905
_VOWELS = tuple("a e i o u ai ea io ou".split())  # noqa: SIM905
_CODAS = ("", "", "l", "m", "n", "nd", "r", "rt", "s", "st", "t", "x")
# Each has a place for a name, two made-up nouns and a number that no other sentence has.
_SENTENCES = (
    "{name} took {a} to {b} and paid {n}",
    "in {b}, {name} found {n} of the {a}",
    "{name} said that {a} number {n} came from {b}",
    "after {b} {name} wrote {n} lines on {a}",
    "{n} times {name} asked for {a} near {b}",
    "the {a} of {name} weighs {n} grams, as {b} does",
    "{name} traded {b} for {n} pieces of {a}",
    "with {a} and {b}, {name} reached {n} points",
)
_TIMES = ("%I:%M %p on %d %B, %Y", "%Y-%m-%d %H:%M", "%d %B %Y", "%A, %d %b %Y, %H:%M", "%B %d, %Y at %I:%M %p")
_HEADERS = ("[{time}]", "Session of {time}", "## {time}", "Date: {time}")
_TURNS = ("{name}: {text}.", "{name}: {text}!", "{name}: Well, {text}.", "[{name}] {text}.")
_NOUNS = 60


class _Draw:
    """Numbers from a digest, the same with every version of Python."""

    def __init__(self, seed: bytes) -> None:
        self._seed = seed
        self._drawn = 0

    def between(self, least: int, most: int) -> int:
        """A number from `least` to `most`, both included."""
        self._drawn += 1
        value = hashlib.sha256(self._seed + self._drawn.to_bytes(8, "big")).digest()
        return least + int.from_bytes(value[:8], "big") % (most - least + 1)

    def one(self, values: Sequence[str]) -> str:
        """One of some texts."""
        return values[self.between(0, len(values) - 1)]

    def words(self, count: int, syllables: int) -> tuple[str, ...]:
        """So many different made-up words."""
        words: dict[str, None] = {}
        while len(words) < count:
            word = "".join(self.one(_ONSETS) + self.one(_VOWELS) for _ in range(syllables)) + self.one(_CODAS)
            words[word] = None
        return tuple(words)


class SyntheticSessions:
    """Units, queries and texts of sessions for one program, by number; those of different numbers differ.

    `smoke_dimension` (columns of embeddings), `smoke_turns` (turns of a session's text) and `queries` (four different
    numbers of queries) are drawn too: validation does not fix them.
    """

    def __init__(self, source: str) -> None:
        draw = _Draw(hashlib.sha256(b"synthetic sessions\0" + source.encode("utf-8", "surrogatepass")).digest())
        self._names = tuple(name.capitalize() for name in draw.words(draw.between(2, 5), 2))
        self._nouns = draw.words(_NOUNS, 3)
        self._sentences = tuple(draw.one(_SENTENCES) for _ in range(3))
        self._header, self._turn, self._time = draw.one(_HEADERS), draw.one(_TURNS), draw.one(_TIMES)
        self._start = datetime(draw.between(2015, 2024), draw.between(1, 12), draw.between(1, 28), draw.between(0, 23))
        self._step = timedelta(minutes=draw.between(300, 20_000))
        self._first = draw.between(100, 40_000)
        # Programs may count up to a number they are given.
        self._least = draw.between(0, 9)
        self._items = draw.between(1, 4)
        self.smoke_dimension = draw.between(40, 200)
        self.smoke_turns = draw.between(2, 9)
        self.queries = tuple(draw.between(400 * place, 400 * place + 399) for place in range(4))

    def sentence(self, number: int) -> str:
        """A sentence of more than 20 characters; each number gives another."""
        names, nouns = self._names, self._nouns
        shape = self._sentences[number % len(self._sentences)]
        a, b = nouns[number % _NOUNS], nouns[(number // _NOUNS + 7 * number + 1) % _NOUNS]
        return shape.format(name=names[number % len(names)], a=a, b=b, n=self._first + number)

    def object(self, schema: Sequence[FieldSpec], number: int) -> dict[str, Any]:
        """A value for every field, Optional ones included; objects of different numbers differ in every text."""
        return {spec.name: self._value(spec, number, place) for place, spec in enumerate(schema)}

    def _value(self, spec: FieldSpec, number: int, place: int) -> Any:
        if spec.type == "str":
            return f"{self.sentence(number)} ({self._nouns[place % _NOUNS]} {place})"
        if spec.type == "int":
            return self._least + number + place
        if spec.type == "float":
            return self._least + number + 0.5
        if spec.type == "bool":
            return number % 2 == 0
        return [f"{self.sentence(number)} ({self._nouns[place % _NOUNS]} {item})" for item in range(self._items)]

    def raw_text(self, session: int, numbers: Sequence[int]) -> str:
        """A session as `index` gets it: a header line with its time, then one turn a line."""
        header = self._header.format(time=(self._start + session * self._step).strftime(self._time))
        turns = [
            self._turn.format(name=self._names[number % len(self._names)], text=self.sentence(number))
            for number in numbers
        ]
        return "\n".join([header, *turns])
