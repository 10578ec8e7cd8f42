"""A short answer: the words of a line that are likely to be the answer's.

Every word of the line gets a probability from some 25 general features (is it a function word, does it follow the
words that the question shares with the sentence, is it capitalised, a number, part of a caption, ...). The answer is
the set of words with the highest expected F1, in the order of the text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from prismem_core.clients.offline.reader.question import Question
from prismem_core.tasks.text import STOP_WORDS, stem

_WORD = re.compile(r"[$€£#]?\w[\w'’&+%/.:-]*[\w%+]|\w")
_CLAUSE = re.compile(r"[,;:—–]|\s-\s|\b(?:and|but|so|because|which|who|when|while)\b")
_QUOTED = re.compile(r'"[^"]+"|“[^”]+”|\'[A-Z][^\']+\'')
_CONTRACTION = re.compile(r"[a-z]+(?:n't|'(?:m|ve|ll|d|s|re))")
_NUMBER = re.compile(r"\d+|one|two|three|four|five|six|seven|eight|nine|ten")
_FILLERS = frozenset(
    """
    yeah yes yep yup no nope wow hey hi hello thanks thank oh well great awesome cool nice really so sure absolutely
    definitely totally glad congrats lol haha btw just also pretty lot actually always even still got get getting good
    amazing one like things thing know think make made feel going want
    """.split()  # noqa: SIM905
)
_PRONOUNS = frozenset(
    [
        "i",
        "me",
        "my",
        "mine",
        "we",
        "us",
        "our",
        "he",
        "she",
        "him",
        "her",
        "they",
        "them",
        "their",
        "it",
        "its",
        "you",
        "your",
        "yours",
        "myself",
        "ourselves",
    ]
)
_PREPOSITIONS = frozenset(("of", "in", "to", "for", "with", "at", "on", "from", "about", "by"))
_REASONS = frozenset(("because", "since", "so", "to", "for", "'cause"))
_CAPTION_WORDS = frozenset(("image", "photo", "picture", "photography"))
# The length of reference answers, in words, that the expected F1 reckons with.
ANSWER_WORDS = 5.0
MAX_WORDS = 14
# Fitted by logistic regression to the words of short reference answers of three conversations (docs/offline.md).
WEIGHTS: Mapping[str, float] = {
    "adverb": -0.5,
    "after": 0.45,
    "asked": -0.7,
    "asks": -0.7,
    "bias": -1.5,
    "brevity": -1.25,
    "capital": 0.5,
    "caption": -0.35,
    "caption_word": -1.9,
    "contraction": -0.15,
    "deficit": 0.4,
    "digit": 0.5,
    "filler": -1.3,
    "function": -1.65,
    "name": -1.8,
    "next_asked": -0.3,
    "preposition": 1.6,
    "pronoun": -0.2,
    "quoted": 0.6,
    "rank": -0.3,
    "rarity": -0.75,
    "reply_start": 0.45,
    "same_clause": 0.4,
    "shared_before": 1.05,
    "verb": -0.55,
    "where": 0.55,
    "why": 0.85,
}


@dataclass(frozen=True)
class Sentence:
    """A sentence of the chosen line: its place among them, its rank, and its score less that of the best one."""

    text: str
    place: int
    rank: int
    deficit: float
    reply: bool


@lru_cache(maxsize=1 << 14)
def _split(text: str) -> tuple[tuple[str, int, str, bool], ...]:
    """Word, offset, stem and whether it is a function word."""
    found = []
    for match in _WORD.finditer(text):
        lower = match[0].lower().replace("’", "'")
        function = lower in STOP_WORDS or (
            _CONTRACTION.fullmatch(lower) is not None and lower.split("'")[0] in _SUBJECTS
        )
        found.append((match[0], match.start(), stem(lower.removesuffix("'s")), function))
    return tuple(found)


_SUBJECTS = frozenset(
    """
    i we you they he she it that there here what who let don didn doesn can couldn won wouldn isn wasn aren haven hasn
    ain didn't don doesn weren shouldn
    """.split()  # noqa: SIM905
)


def features(
    question: Question,
    sentence: Sentence,
    rarity: Callable[[str], float],
    names: frozenset[str],
    shared_before: float,
) -> list[tuple[str, str, dict[str, float]]]:
    """Word, stem and features of each word of a sentence; `shared_before` is the overlap of the sentence before it."""
    text = sentence.text
    words = _split(text)
    lows = [w.lower() for w, *_ in words]
    asked = [s in question.stems and not function for _, _, s, function in words]
    borders = [m.start() for m in _CLAUSE.finditer(text)]
    clauses = [sum(b <= at for b in borders) for _, at, *_ in words]
    asked_clauses = {c for c, a in zip(clauses, asked, strict=True) if a}
    first_asked = next((i for i, a in enumerate(asked) if a), len(words))
    caption = text.find("[image")
    quotes = [m.span() for m in _QUOTED.finditer(text)]
    common = {
        "bias": 1.0,
        "deficit": sentence.deficit,
        "rank": min(sentence.rank, 4) / 4,
        "reply_start": float(sentence.reply and sentence.place == 0),
        "asks": float(text.rstrip().endswith("?")),
        "brevity": 1 / max(1, len(words)),
        "shared_before": shared_before,
    }
    found = []
    for i, (word, at, root, function) in enumerate(words):
        low = lows[i]
        before = lows[max(0, i - 2) : i]
        content = not function
        own = {
            "function": function,
            "preposition": low in _PREPOSITIONS,
            "filler": low in _FILLERS,
            "contraction": _CONTRACTION.fullmatch(low.replace("’", "'")) is not None,
            "pronoun": low in _PRONOUNS,
            "name": word in names,
            "capital": word[0].isupper() and i > 0 and not word.startswith("I'") and word != "I",
            "digit": any(c.isdigit() for c in word),
            "asked": asked[i],
            "next_asked": i + 1 < len(words) and asked[i + 1],
            "after": content and i > first_asked,
            "same_clause": content and clauses[i] in asked_clauses,
            "caption": 0 <= caption < at,
            "caption_word": 0 <= caption < at and low in _CAPTION_WORDS,
            "quoted": any(a < at < b for a, b in quotes),
            "adverb": low.endswith("ly"),
            "verb": content and before[-1:] and before[-1] in ("i", "we", "he", "she", "they"),
            "where": question.kind == "where" and content and any(b in ("in", "at", "to", "from") for b in before),
            "why": question.kind == "why" and content and not _REASONS.isdisjoint(lows[:i]),
        }
        values = common | {name: 1.0 for name, holds in own.items() if holds}
        if content:
            values["rarity"] = rarity(root)
        found.append((word, root, values))
    return found


def probability(values: Mapping[str, float]) -> float:
    """The logistic of the weighted sum of the features."""
    return 1 / (1 + math.exp(-math.fsum(WEIGHTS.get(name, 0.0) * value for name, value in values.items())))


def choose(
    candidates: Sequence[tuple[float, int, int, str, str]], length: float = ANSWER_WORDS, limit: int = MAX_WORDS
) -> str:
    """The words whose expected F1 against an answer of `length` words is highest, each stem once, in text order.

    A candidate is (probability, sentence place, word place, word, stem); ties fall to the earlier word.
    """
    order = sorted(candidates, key=lambda c: (-c[0], c[1], c[2]))
    seen: set[str] = set()
    picked: list[tuple[int, int, str]] = []
    total, best, best_count = 0.0, 0.0, 0
    for chance, sentence, place, word, root in order:
        if root in seen:
            continue
        seen.add(root)
        total += chance
        picked.append((sentence, place, word))
        expected = 2 * total / (len(picked) + length)
        if expected > best:
            best, best_count = expected, len(picked)
        if len(picked) >= limit:
            break
    return " ".join(word for _, _, word in sorted(picked[:best_count]))


def candidates_of(
    question: Question, sentences: Iterable[Sentence], rarity: Callable[[str], float], names: frozenset[str]
) -> list[tuple[float, int, int, str, str]]:
    """Candidates for `choose` from the sentences of a line."""
    ordered = sorted(sentences, key=lambda s: s.place)
    found = []
    shared = 0.0
    for sentence in ordered:
        for i, (word, root, values) in enumerate(features(question, sentence, rarity, names, shared)):
            found.append((probability(values), sentence.place, i, word, root))
        roots = {root for _, _, root, function in _split(sentence.text) if not function}
        shared = len(roots & question.stems) / max(1, len(question.stems))
    return found
