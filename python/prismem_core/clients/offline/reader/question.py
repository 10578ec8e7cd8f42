"""What a question asks for, and about whom."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from prismem_core.clients.offline.dates import Period, named_periods
from prismem_core.tasks.text import content_stems

_KINDS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (kind, re.compile(pattern, re.IGNORECASE))
    for kind, pattern in (
        ("order", r"\b(?:in order\b|the order\b|what order|chronolog|walk me through the order)"),
        ("ago", r"^how long ago\b"),
        ("duration", r"^(?:for )?how long\b|^how much time\b"),
        ("count", r"^how many\b|\bhow many (?!days|weeks|months|years)"),
        ("frequency", r"^how often\b|^how frequently\b"),
        ("age", r"^how old\b"),
        (
            "when",
            (
                r"^when\b|\bwhen (?:did|was|is|does|do|will|has|have)\b|^(?:on |in |by |around |"
                r"since )?(?:what|which) (?:\w+ )?(?:date|day|month|year|time|week|weekend)\b"
            ),
        ),
        ("who", r"^(?:with |from |to |for |by )?who(?:m|se)?\b"),
        (
            "where",
            (
                r"^(?:from |to )?where\b|^(?:in |at |to |from )?(?:what|which) (?:country|city|state|town|"
                r"place|park|location|restaurant|store)\b"
            ),
        ),
        ("why", r"^why\b|^what (?:is|was|were) (?:the |\w+'s )?(?:reason|motivation)|^for what reason"),
        ("yes_no", r"^(?:do|does|did|is|are|was|were|has|have|had|can|could|will|would|should)\b"),
        (
            "list",
            (
                r"^(?:in |at |to |from |for )?(?:what|which) (?:all )?(?:(?:kinds?|types?|"
                r"sorts?) of )?(?:[\w'+-]+ ){0,2}?(?!(?:is|was|does|has|class|business|process|status|"
                r"focus|progress|address|news|series|fitness|happiness|success|stress|less|this|"
                r"his)\b)[\w'+-]+[^s\Ws']s\b"
            ),
        ),
        ("how", r"^how\b"),
    )
)


@dataclass(frozen=True)
class Question:
    """A question.

    `neutral` is its text without the persons asked about, `stems` its content stems without them, `periods` the days,
    months and years it names.
    """

    text: str
    kind: str
    persons: tuple[str, ...]
    neutral: str
    stems: frozenset[str]
    periods: tuple[Period, ...] = ()


def kind_of(question: str) -> str:
    """The kind of answer asked for, such as `when`, `count`, `who` or `list`; `what` where nothing else is told."""
    text = question.strip()
    for kind, pattern in _KINDS:
        if pattern.search(text):
            return kind
    return "what"


def analyse(text: str, speakers: Iterable[str]) -> Question:
    """The question, with those of the speakers that it names (a short form of three letters or more counts)."""
    words = text.split()
    bare = [re.sub(r"(?:['’]s?)?[?,.!;:]*$", "", word) for word in words]
    persons: dict[str, None] = {}
    kept: list[str] = []
    known = sorted(set(speakers))
    for word, name in zip(words, bare, strict=True):
        found = next(
            (
                speaker
                for speaker in known
                if name[:1].isupper()
                and (name in speaker.split() or (len(name) >= 3 and any(p.startswith(name) for p in speaker.split())))
            ),
            None,
        )
        if found is None:
            kept.append(word)
        else:
            persons.setdefault(found)
    neutral = " ".join(kept)
    stems = frozenset(content_stems(neutral))
    return Question(text, kind_of(text), tuple(persons), neutral, stems, named_periods(text))
