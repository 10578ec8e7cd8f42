"""The benchmarks' own question types and the capability each stands for (P Table 5)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from prismem_core.digests import digest
from prismem_core.tasks.capability import Capability

_F = Capability.FACTUAL_RETRIEVAL
_T = Capability.TEMPORAL
_P = Capability.PREFERENCE_EXTRACTION
_M = Capability.MULTI_SESSION_SYNTHESIS
_A = Capability.ADVERSARIAL

LOCOMO: Mapping[str, Capability] = MappingProxyType(
    {"single_hop": _F, "open_domain": _F, "multi_hop": _M, "temporal": _T, "adversarial": _A}
)

# The integers of LoCoMo's `category`: 1 is multi-hop and 4 is single-hop, which public code often swaps.
LOCOMO_CATEGORIES: Mapping[int, str] = MappingProxyType(
    {1: "multi_hop", 2: "temporal", 3: "open_domain", 4: "single_hop", 5: "adversarial"}
)

BEAM: Mapping[str, Capability] = MappingProxyType(
    {
        "information_extraction": _F,
        "event_ordering": _T,
        "temporal_reasoning": _T,
        "knowledge_update": _T,
        "preference_following": _P,
        "instruction_following": _P,
        "multi_session_reasoning": _M,
        "summarization": _M,
        "contradiction_resolution": _A,
        "abstention": _A,
    }
)

LONGMEMEVAL: Mapping[str, Capability] = MappingProxyType(
    {
        "single-session-user": _F,
        "single-session-assistant": _F,
        "single-session-preference": _P,
        "multi-session": _M,
        "temporal-reasoning": _T,
        "knowledge-update": _T,
    }
)


def longmemeval_capability(question_id: str, question_type: str) -> Capability:
    """The capability of a LongMemEval question; an id that ends in `_abs` wins over the type; KeyError if unknown."""
    return _A if question_id.endswith("_abs") else LONGMEMEVAL[question_type]


# PerLTQA's own groups; the paper's table has none of them, and each question asks for one remembered fact.
PERLTQA: Mapping[str, Capability] = MappingProxyType(
    {"profile": _F, "social_relationship": _F, "events": _F, "dialogues": _F}
)


def category_map_digest() -> str:
    """The SHA-256, shortened to 16 characters, of the tables above: scores by capability of two maps do not compare."""
    tables = {"locomo": LOCOMO, "beam": BEAM, "longmemeval": LONGMEMEVAL, "perltqa": PERLTQA}
    plain = {name: {kind: str(c) for kind, c in table.items()} for name, table in tables.items()}
    integers = {str(number): kind for number, kind in LOCOMO_CATEGORIES.items()}
    return digest({**plain, "locomo_categories": integers})[:16]
