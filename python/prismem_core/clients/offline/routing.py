"""The capability that a question asks for, told by rules from its words alone."""

from __future__ import annotations

import re

from prismem_core.clients.offline.planning import asks_several
from prismem_core.tasks.capability import Capability

_TIME = re.compile(
    r"^\W*(?:since |until |by )?when\b|\bhow long\b|\bhow many (?:days|weeks|months|years|hours)\b"
    r"|\b(?:what|which) (?:\w+ )?(?:day|date|week|month|year|time)\b|\border\b|\bchronolog\w+|\btimeline\b"
    r"|\b(?:in|during|on) (?:the (?:summer|winter|spring|autumn|fall) of |(?:early |late )?"
    r"(?:january|february|march|april|may|june|july|august|september|october|november|december) (?:of )?)?"
    r"(?:19|20)\d\d\b",
    re.IGNORECASE,
)
# Asked about oneself and whether it ever was so: what was said may contradict itself.
_EVER = re.compile(r"^\W*(?:have|had|did|do|am|was) i\b", re.IGNORECASE)
_ADVICE = re.compile(
    r"\brecommend\w*|\bsuggest (?:some|a|an|any|i)\b|\b(?:you|could|can|would) suggest\b|\badvice\b|\bshould i\b"
    r"|\b(?:could|can) you (?:help|show|give me (?:a |an |some )?(?:tip|idea|example|step))|\bhelp me\b|\btips\b"
    r"|\bhow (?:can|do|would) i\b|\bbest way\b|\bi'?m (?:looking|trying|planning|thinking|considering|setting)\b"
    r"|\b(?:favou?rite|prefer\w*)\b|\bwould \w+ (?:like|love|enjoy|prefer)\b",
    re.IGNORECASE,
)


def capability_of(question: str) -> Capability:
    """The capability whose failure would most likely spoil the answer; a plain fact where no rule speaks up."""
    if _TIME.search(question):
        return Capability.TEMPORAL
    if _EVER.search(question):
        return Capability.ADVERSARIAL
    if _ADVICE.search(question):
        return Capability.PREFERENCE_EXTRACTION
    return Capability.MULTI_SESSION_SYNTHESIS if asks_several(question) else Capability.FACTUAL_RETRIEVAL
