"""What one case shows of a weakness: was the evidence retrieved, and if it was, what is wrong with the answer."""

from __future__ import annotations

import re

from prismem_core.evaluation.cases import Case, EvidenceView
from prismem_core.evaluation.metrics import is_abstention
from prismem_core.evaluation.offline_score import piece_recall
from prismem_core.tasks.capability import Capability
from prismem_core.tasks.text import blocks, content_stems, normal_form

_WHEN = re.compile(
    r"\b(when|what (?:date|day|month|year|time)|which (?:date|day|month|year)|how long|since when)\b", re.I
)
_SEVERAL = re.compile(
    r"\b(?:what|which)\b(?:\s+\w+){0,2}?\s+(?!(?:does|was|has|his|this)\b)\w{3,}s\b|\b(?:list|all|several|how many)\b",
    re.I,
)
_SEQUENCE = re.compile(r"\b(?:in (?:what|which) order|order in which|the order|sequence|chronolog\w*|timeline)\b", re.I)
_CHANGED = re.compile(r"\b(?:currently|now|latest|most recent|still|so far|these days|at the moment)\b", re.I)
_ADVICE = re.compile(
    r"\b(?:recommend|suggest|advise|advice|should i|tips|help me|how (?:can|do|should) i|could you show|best way)\b",
    re.I,
)
_YES_NO = re.compile(r"\s*(?:do|does|did|is|are|was|were|has|have|had|can|could|will|would|should)\b", re.I)
_CONTRADICTION = re.compile(r"\b(?:contradict\w*|conflict\w*|inconsisten\w*)\b", re.I)
_UNKNOWN = re.compile(
    r"\b(?:no information|not (?:mentioned|specified|provided|discussed)|never mentioned|unknown)\b", re.I
)
_TIME_WORD = re.compile(
    r"\b(?:\d{4}|january|february|march|april|may|june|july|august|september|october|november|december|summer|winter|spring|fall)\b",
    re.I,
)
_YES_OR_NO = re.compile(r"\s*(?:yes|no)\b", re.I)
_ASSISTANT_LINE = re.compile(r"^(?:\[[^\]]*\] )?assistant: ", re.M | re.I)


def read_case(case: Case, *, ranked: bool, dated: bool) -> dict[str, float]:
    """Names of `signals.SENTENCES` with strengths in [0, 1]; `ranked` and `dated` say what the program already does."""
    found: dict[str, float] = {}
    recall = piece_recall([e.snippet for e in case.evidence], case.retrieved_text)
    if ranked and recall is not None and recall < 1.0:
        found |= _missing(case, recall)
    declined = is_abstention(case.predicted)
    if _CONTRADICTION.search(case.reference):
        if not _CONTRADICTION.search(case.predicted):
            found["conflict"] = 1.0
    elif _expects_abstention(case):
        if not declined:
            found["invented"] = 1.0
    elif declined:
        found["denied"] = 1.0
    else:
        found |= _wrong_answer(case, dated)
        if recall is not None and recall > 0.5:
            found["misread"] = 0.5
    return found


def _expects_abstention(case: Case) -> bool:
    if case.primary != Capability.ADVERSARIAL:
        return False
    return not case.reference.strip() or _UNKNOWN.search(case.reference) is not None


def _missing(case: Case, recall: float) -> dict[str, float]:
    """How the missing evidence relates to the question and to what was retrieved in its place."""
    found = {"missed": 1.0 - recall}
    if recall > 0.0 and len(case.evidence) > 1:
        found["part_missed"] = 1.0
    missing = [e for e in case.evidence if (piece_recall([e.snippet], case.retrieved_text) or 0.0) < 1.0]
    asked = set(content_stems(case.question))
    shared = [len(asked & set(content_stems(e.snippet))) for e in missing]
    if missing:
        found["word_shared" if sum(shared) >= 2 * len(missing) else "no_word_shared"] = 0.7
    retrieved = {normal_form(block).partition("] ")[2] or normal_form(block) for block in blocks(case.retrieved_text)}
    if any(_neighbour_retrieved(e, retrieved) for e in missing):
        found["beside"] = 1.0
    by_assistant = len(_ASSISTANT_LINE.findall(case.retrieved_text))
    if 2 * by_assistant > len(retrieved) and any("user" in _speakers_of(e) for e in missing):
        found["roles"] = 1.0
    names = {word.lower() for word in re.findall(r"(?<=\s)[A-Z][a-z]+", case.question)}
    if any(speaker in names for e in missing for speaker in _speakers_of(e)):
        found["named"] = 0.7
    if _TIME_WORD.search(case.question):
        found["timed"] = 0.7
    return found


def _source_lines(evidence: EvidenceView) -> tuple[list[str], int]:
    """The lines of the evidence's segment in normal form, and the place of the evidence among them (-1: none)."""
    lines = [normal_form(block) for block in blocks(evidence.original_text)]
    # A turn may span lines: it is looked for by its first.
    wanted = normal_form(next(iter(blocks(evidence.snippet)), ""))
    return lines, next((i for i, line in enumerate(lines) if wanted and wanted in line), -1)


def _neighbour_retrieved(evidence: EvidenceView, retrieved: set[str]) -> bool:
    lines, place = _source_lines(evidence)
    return place >= 0 and any(
        line in retrieved for line in [*lines[max(place - 1, 0) : place], *lines[place + 1 : place + 2]]
    )


def _speakers_of(evidence: EvidenceView) -> list[str]:
    lines, place = _source_lines(evidence)
    return [lines[place].partition(":")[0].strip()] if place >= 0 else []


def _wrong_answer(case: Case, dated: bool) -> dict[str, float]:
    """What kind of question was answered, and how the form of the answer differs from what was expected."""
    found: dict[str, float] = {}
    if _WHEN.search(case.question):
        found["when"] = 1.0
        if not dated:
            found["undated"] = 1.0
    if _SEQUENCE.search(case.question):
        found["sequence"] = 1.0
    if _CHANGED.search(case.question):
        found["changed"] = 1.0
    if _SEVERAL.search(case.question) and "," in case.reference and "," not in case.predicted:
        found["several"] = 1.0
    if _ADVICE.search(case.question) or case.primary == Capability.PREFERENCE_EXTRACTION:
        found["advice"] = 1.0
    reference, predicted = (_YES_OR_NO.match(text) for text in (case.reference, case.predicted))
    if _YES_NO.match(case.question) and reference and not predicted:
        found["yes_no"] = 1.0
    expected, given = len(case.reference.split()), len(case.predicted.split())
    if expected >= 20 and given < expected:
        found["brief"] = 1.0
    elif given >= 20 and 0 < expected <= 8:
        found["wordy"] = 1.0
    return found
