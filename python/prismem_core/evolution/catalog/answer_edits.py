"""Edits of the answer instruction."""

from __future__ import annotations

from prismem_core.evolution.catalog.edit import Edit

ANSWER_EDITS: tuple[Edit, ...] = (
    # Answer: how the reader uses what was retrieved.
    Edit(
        "date-answers",
        "answer",
        "Answer questions for a time with a resolved date.",
        {"when": 0.6},
        clauses=("dates",),
    ),
    Edit(
        "decline-unknown-person",
        "answer",
        "Decline where the memory holds nothing about the person asked about.",
        {"invented": 1.0},
        clauses=("abstain_speaker",),
    ),
    Edit(
        "decline-unsupported",
        "answer",
        "Answer only what the memory clearly supports.",
        {"invented": 0.6},
        0.8,
        clauses=("abstain_unsupported",),
    ),
    Edit(
        "decline-less",
        "answer",
        "No longer decline where support is weak.",
        {"denied": 0.8},
        0.8,
        without=("abstain_unsupported",),
    ),
    Edit(
        "list-answers",
        "answer",
        "Answer with all the things asked for, as a list.",
        {"several": 1.0, "part_missed": 0.1},
        clauses=("lists",),
    ),
    Edit(
        "latest-value",
        "answer",
        "Let the most recent of several statements count.",
        {"changed": 0.9, "when": 0.1},
        0.7,
        clauses=("latest",),
    ),
    Edit(
        "told-in-order",
        "answer",
        "Tell events in their order where a sequence is asked for.",
        {"sequence": 0.9},
        0.8,
        clauses=("sequence",),
    ),
    Edit(
        "full-details",
        "answer",
        "Answer in complete sentences with all relevant details in place of a short answer.",
        {"brief": 1.0, "misread": 0.1},
        0.9,
        clauses=("details",),
    ),
    Edit(
        "short-answers",
        "answer",
        "Answer shortly again.",
        {"wordy": 0.9},
        0.8,
        without=("details",),
    ),
    Edit(
        "follow-preferences",
        "answer",
        "Follow preferences and standing instructions of the memory where advice is asked for.",
        {"advice": 0.6},
        0.9,
        clauses=("preferences",),
    ),
    Edit(
        "both-sides",
        "answer",
        "Say so where two statements contradict each other, and tell both.",
        {"conflict": 1.0},
        0.9,
        clauses=("both_sides",),
    ),
    Edit(
        "yes-or-no",
        "answer",
        "Begin the answer to a yes/no question with that word.",
        {"yes_no": 1.0, "misread": 0.1},
        0.8,
        clauses=("yes_no",),
    ),
)
