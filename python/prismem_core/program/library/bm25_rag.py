"""Lexical retrieval: units are ranked by BM25 over Porter stems."""

import math
import re
from collections import Counter
from dataclasses import dataclass, field

MemoryExtractionInstruction = "Extract every piece of information from the text, each in the words of its speaker."
QueryPlanningInstruction = "Given the following question, generate a query to retrieve relevant memory."
AnswerInstruction = (
    "Based on the retrieved memory and the original question, provide a short answer without explanation. "
    "If the memory does not hold the answer, reply: No information available."
)

K1 = 1.2
B = 0.75
STOP_WORDS = frozenset(
    "a about above after again against all am an and any are as at be because been before being below between both but "
    "by can could did do does doing down during each few for from further had has have having he her here hers him his "
    "how i if in into is it its itself just me more most my no nor not now of off on once only or other our out over "
    "own same she should so some such than that the their them then there these they this those through to too under "
    "until up very was we were what when where which while who whom why will with would you your yours".split()
)


@dataclass
class MemoryUnit:
    memory_text: str = field(metadata={"description": "One piece of information worth remembering from the text"})


@dataclass
class Query:
    query_text: str = field(metadata={"description": "A query for retrieving information relevant to the question"})


class Memory:
    def __init__(self, backend):
        self.lines: list[str] = []
        self.lengths: list[int] = []
        self.postings: dict[str, list[tuple[int, int]]] = {}
        self.stems: dict[str, str] = {}

    def index(self, units: list[MemoryUnit], raw_text: str) -> None:
        for unit in units:
            line = " ".join(unit.memory_text.split())
            if line:
                self.add(line)

    def add(self, line: str) -> None:
        terms = self.terms(line)
        for term, count in Counter(terms).items():
            self.postings.setdefault(term, []).append((len(self.lines), count))
        self.lines.append(line)
        self.lengths.append(len(terms))

    def terms(self, text: str) -> list[str]:
        """Stems of the words that are no stop words."""
        found = []
        for word in re.findall(r"[a-z0-9]+", text.lower()):
            if word not in STOP_WORDS:
                if word not in self.stems:
                    self.stems[word] = stem(word)
                found.append(self.stems[word])
        return found

    def retrieve(self, query: Query) -> str:
        size = len(self.lines)
        mean = sum(self.lengths) / size if size else 1.0
        scores: dict[int, float] = {}
        for term in sorted(set(self.terms(query.query_text))):
            rows = self.postings.get(term, [])
            weight = math.log(1 + (size - len(rows) + 0.5) / (len(rows) + 0.5))
            for row, count in rows:
                long = 1 - B + B * self.lengths[row] / mean
                scores[row] = scores.get(row, 0.0) + weight * count * (K1 + 1) / (count + K1 * long)
        return pack(self.lines[row] for row in sorted(scores, key=lambda row: (-scores[row], row)))


def pack(lines) -> str:
    """As many whole lines as the budget holds, in the order given; a line that does not fit is passed over."""
    kept = []
    room = OUT_CHAR_BUDGET
    for line in lines:
        if len(line) <= room:
            kept.append(line)
            room -= len(line) + 1
        if room < 20:
            break
    return "\n".join(kept)


# Porter's stemmer with the extensions of NLTK, https://tartarus.org/martin/PorterStemmer

IRREGULAR = {
    **{"skies": "sky", "sky": "sky", "dying": "die", "lying": "lie", "tying": "tie", "news": "news"},
    **{"innings": "inning", "inning": "inning", "outings": "outing", "outing": "outing", "howe": "howe"},
    **{"cannings": "canning", "canning": "canning", "proceed": "proceed", "exceed": "exceed", "succeed": "succeed"},
}
STEP_2 = [
    *[("ational", "ate"), ("tional", "tion"), ("enci", "ence"), ("anci", "ance"), ("izer", "ize"), ("bli", "ble")],
    *[("alli", "al"), ("entli", "ent"), ("eli", "e"), ("ousli", "ous"), ("ization", "ize"), ("ation", "ate")],
    *[("ator", "ate"), ("alism", "al"), ("iveness", "ive"), ("fulness", "ful"), ("ousness", "ous"), ("aliti", "al")],
    *[("iviti", "ive"), ("biliti", "ble"), ("fulli", "ful"), ("logi", "log")],
]
STEP_3 = [("icate", "ic"), ("ative", ""), ("alize", "al"), ("iciti", "ic"), ("ical", "ic"), ("ful", ""), ("ness", "")]
STEP_4 = "al ance ence er ic able ible ant ement ment ent ion ou ism ate iti ous ive ize".split()


def letters(word: str) -> str:
    """c for each consonant, v for each vowel; y is a vowel after a consonant."""
    marks = []
    for letter in word:
        vowel = letter in "aeiou" or (letter == "y" and marks[-1:] == ["c"])
        marks.append("v" if vowel else "c")
    return "".join(marks)


def measure(word: str) -> int:
    return letters(word).count("vc")


def ends_short(word: str) -> bool:
    marks = letters(word)
    return marks == "vc" or (marks.endswith("cvc") and word[-1] not in "wxy")


def stem(word: str) -> str:
    if word in IRREGULAR:
        return IRREGULAR[word]
    if len(word) <= 2:
        return word
    word = without_plural(word)
    word = without_tense(word)
    if word.endswith("y") and len(word) > 2 and letters(word[:-1]).endswith("c"):
        word = word[:-1] + "i"
    if word.endswith("alli") and measure(word[:-4]) > 0:
        word = word[:-2]
    for suffix, other in STEP_2:
        if word.endswith(suffix):
            base = word[: -len(suffix)]
            if measure(word[:-3] if suffix == "logi" else base) > 0:
                word = base + other
            break
    for suffix, other in STEP_3:
        if word.endswith(suffix):
            word = word[: -len(suffix)] + other if measure(word[: -len(suffix)]) > 0 else word
            break
    for suffix in STEP_4:
        if word.endswith(suffix):
            base = word[: -len(suffix)]
            word = base if measure(base) > 1 and (suffix != "ion" or base[-1] in "st") else word
            break
    if word.endswith("e"):
        base = word[:-1]
        if measure(base) > 1 or (measure(base) == 1 and not ends_short(base)):
            word = base
    return word[:-1] if word.endswith("ll") and measure(word[:-1]) > 1 else word


def without_plural(word: str) -> str:
    if word.endswith("ies"):
        return word[:-1] if len(word) == 4 else word[:-2]
    if word.endswith("sses"):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


def without_tense(word: str) -> str:
    if word.endswith("ied"):
        return word[:-1] if len(word) == 4 else word[:-2]
    if word.endswith("eed"):
        return word[:-1] if measure(word[:-3]) > 0 else word
    for suffix in ("ed", "ing"):
        base = word[: -len(suffix)]
        if word.endswith(suffix) and "v" in letters(base):
            break
    else:
        return word
    if base.endswith(("at", "bl", "iz")):
        return base + "e"
    if base[-2:-1] == base[-1] and letters(base)[-1] == "c":
        return base if base[-1] in "lsz" else base[:-1]
    return base + "e" if measure(base) == 1 and ends_short(base) else base
