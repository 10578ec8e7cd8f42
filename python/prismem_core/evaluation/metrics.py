"""The official lexical metrics and their sturdier forms (docs/offline.md)."""

from __future__ import annotations

import math
import re
import string
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache

from prismem_core.tasks.text import content_stems, distinct_evidence, normal_form, stem

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(?:a|an|the|and)\b")
_SET_BLANKS = re.compile(r"[.!?,;:()\[\]{}/\\]")
_QUOTES = re.compile(r"[\"'“”‘’]")
_ABSTENTIONS = ("no information available", "not mentioned")
_NUGGET_LEAD = re.compile(r"^\s*(?:LLM|the) response should (?:state|mention|contain|include)\s*:?\s*", re.IGNORECASE)


def is_abstention(answer: str) -> bool:
    """Whether the reply says that the dialogue does not tell it: LoCoMo's two phrases, in any case."""
    folded = answer.casefold()
    return any(phrase in folded for phrase in _ABSTENTIONS)


def cut_words(text: str, limit: int) -> str:
    """The first `limit` words of a text, one space between them."""
    words = text.split()
    return " ".join(words[:limit])


@lru_cache(maxsize=1 << 14)
def _official_stems(text: str) -> tuple[str, ...]:
    plain = text.replace(",", "").lower().translate(_PUNCTUATION)
    return tuple(stem(word) for word in _ARTICLES.sub(" ", plain).split())


def official_f1(prediction: str, reference: str) -> float:
    """LoCoMo's F1: multiset overlap of stems without punctuation and a/an/the/and; 0.0 without overlap."""
    left, right = _official_stems(prediction), _official_stems(reference)
    common = sum((Counter(left) & Counter(right)).values())
    if not common:
        return 0.0
    precision, recall = common / len(left), common / len(right)
    return 2 * precision * recall / (precision + recall)


def _best_matches(parts: Sequence[str], others: Sequence[str]) -> float:
    return math.fsum(max(official_f1(part, other) for other in others) for part in parts) / len(parts)


def f1_multi(prediction: str, reference: str) -> float:
    """LoCoMo's multi-hop F1: both split at commas, mean over reference parts of the best F1 over predicted parts."""
    return _best_matches(reference.split(","), prediction.split(","))


def f1_multi_symmetric(prediction: str, reference: str) -> float:
    """Harmonic mean of `f1_multi` and its converse, so that predicted parts that match nothing cost something."""
    predicted, expected = prediction.split(","), reference.split(",")
    recall, precision = _best_matches(expected, predicted), _best_matches(predicted, expected)
    return 2 * recall * precision / (recall + precision) if recall + precision else 0.0


def f1_first(prediction: str, reference: str) -> float:
    """F1 against the reference cut at its first `;` (LoCoMo's open-domain questions)."""
    return official_f1(prediction, reference.split(";")[0])


def bleu1(prediction: str, reference: str) -> float:
    """Clipped unigram precision times the brevity penalty, no smoothing; 0.0 if either side is empty."""
    left = prediction.lower().translate(_PUNCTUATION).split()
    right = reference.lower().translate(_PUNCTUATION).split()
    if not left or not right:
        return 0.0
    clipped = sum((Counter(left) & Counter(right)).values())
    penalty = 1.0 if len(left) > len(right) else math.exp(1 - len(right) / len(left))
    return penalty * clipped / len(left)


def f1_set(prediction: str, reference: str) -> float:
    """F1 over the two sets of words, articles kept, no stemming (the rule of TriMem's public code)."""
    left, right = (set(_SET_BLANKS.sub(" ", _QUOTES.sub("", text.lower())).split()) for text in (prediction, reference))
    common = len(left & right)
    return 2 * common / (len(left) + len(right)) if common else 0.0


def nugget_text(rubric_item: str) -> str:
    """A rubric item without its `LLM response should state:` lead."""
    return _NUGGET_LEAD.sub("", rubric_item).strip()


def nugget_form(rubric_item: str) -> str:
    """The form in which rubric items are compared: without lead, in normal form, without a final stop."""
    return normal_form(nugget_text(rubric_item)).strip(" ?.")


def plain_coverage(answer: str, rubric: Sequence[str]) -> float:
    """Mean over rubric items of the share of their content stems that the answer holds.

    It grows with the length of the answer and rewards echoing the question: shown, never used for selection.
    """
    said = set(content_stems(answer))
    wanted = [stems for item in rubric if (stems := set(content_stems(nugget_text(item))))]
    return math.fsum(len(w & said) / len(w) for w in wanted) / len(wanted) if wanted else 0.0


def rubric_coverage(
    answer: str, rubric: Sequence[str], question: str = "", boilerplate: frozenset[str] = frozenset(), words: int = 80
) -> float:
    """Mean over rubric items of the share of their *new* content stems that the answer's first `words` words hold.

    New are the stems that the question lacks. Items whose `nugget_form` is in `boilerplate` are dropped, then items
    without new stems; where nothing is left the items count whole.
    """
    said = set(content_stems(cut_words(answer, words)))
    asked = set(content_stems(question))
    kept = [item for item in rubric if nugget_form(item) not in boilerplate] or rubric
    stems = [set(content_stems(nugget_text(item))) for item in kept]
    wanted = [s - asked for s in stems if s - asked] or [s for s in stems if s]
    return math.fsum(len(w & said) / len(w) for w in wanted) / len(wanted) if wanted else 0.0


def evidence_recall(evidence: Iterable[str], retrieved: str) -> float | None:
    """Share of the distinct snippets whose normal form occurs in that of the retrieved text; None without any."""
    snippets = distinct_evidence(evidence)
    if not snippets:
        return None
    text = normal_form(retrieved)
    return sum(normal_form(snippet) in text for snippet in snippets) / len(snippets)
