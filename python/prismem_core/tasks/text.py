"""Normal forms, stems and text blocks: the few text rules that several rooms must share to the letter."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable
from functools import cache, lru_cache
from typing import cast

STOP_WORDS: frozenset[str] = frozenset(
    """
    a about above after again against all am an and any are as at be because been before being below between both but
    by can could did do does doing down during each few for from further had has have having he her here hers him his
    how i if in into is it its itself just me more most my no nor not now of off on once only or other our out over own
    same she should so some such than that the their them then there these they this those through to too under until
    up very was we were what when where which while who whom why will with would you your yours
    """.split()  # noqa: SIM905 - a list of words reads better than 117 string literals
)

_TOKEN = re.compile(r"[a-z0-9]+")


def normal_form(text: str) -> str:
    """The form in which two snippets are compared: NFKC, casefold, whitespace runs to one space, strip."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def distinct_evidence(texts: Iterable[str]) -> tuple[str, ...]:
    """The snippets that differ in normal form, first spelling each, in order, empty ones dropped."""
    kept: dict[str, str] = {}
    for text in texts:
        form = normal_form(text)
        if form:
            kept.setdefault(form, text)
    return tuple(kept.values())


def blocks(text: str) -> list[str]:
    r"""The non-blank lines of a retrieved text, stripped; split on `\n`."""
    return [line for line in (part.strip() for part in text.split("\n")) if line]


@cache
def _porter() -> Callable[[str], str]:
    # Inside the function: importing nltk costs a quarter of a second, which commands that stem nothing should not pay.
    from nltk.stem.porter import PorterStemmer

    return cast("Callable[[str], str]", PorterStemmer().stem)


@lru_cache(maxsize=1 << 17)
def stem(word: str) -> str:
    """Porter stem of one word, NLTK's default mode (its extensions included); the word is lowercased first."""
    return _porter()(word)


def tokens(text: str) -> list[str]:
    """The `[a-z0-9]+` runs of the lowercased text, in order, stop words included."""
    return _TOKEN.findall(text.lower())


def content_stems(text: str) -> list[str]:
    """Stems of the tokens that are no stop words, in order, repeats kept."""
    return [stem(token) for token in tokens(text) if token not in STOP_WORDS]


def dice(left: str, right: str) -> float:
    """Dice coefficient of the two texts' sets of content stems, in [0, 1]; 0.0 if both are empty."""
    a, b = set(content_stems(left)), set(content_stems(right))
    return 2 * len(a & b) / (len(a) + len(b)) if a or b else 0.0
