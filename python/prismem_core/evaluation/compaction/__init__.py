"""How long texts of a case are made short for a designer (P A.3): what bears on the question and its evidence stays."""

from prismem_core.evaluation.compaction.assembly import MARK, assemble
from prismem_core.evaluation.compaction.case_texts import VERSION, CaseTexts, cues_of
from prismem_core.evaluation.compaction.relevance import Cues, cosines, relevance
from prismem_core.evaluation.compaction.selection import Excerpt, best_units, coverage, excerpt, select_units
from prismem_core.evaluation.compaction.spans import Span, spans_of

__all__ = [
    "MARK",
    "VERSION",
    "CaseTexts",
    "Cues",
    "Excerpt",
    "Span",
    "assemble",
    "best_units",
    "cosines",
    "coverage",
    "cues_of",
    "excerpt",
    "relevance",
    "select_units",
    "spans_of",
]
