"""Sentences that edits add to the three instructions, by name and in the order in which they stand.

Each sentence holds the words that switch its own rule of the embedded task model on (`docs/offline.md`) and, as far
as language allows, none that belong to another rule; a language model simply reads it.
"""

from __future__ import annotations

from collections.abc import Sequence

EXTRACTION_BASE = "Extract the key information from the text into several memory units."
PLANNING_BASE = "Given the following question, generate a query to retrieve relevant memory."
ANSWER_BASE = "Based on the retrieved memory and the original question, provide a short answer without explanation."
ANSWER_DETAILED = "From the retrieved memory, answer the question in complete sentences with all relevant details."

EXTRACTION: dict[str, str] = {
    "sentence": "Make one unit of each sentence.",
    "exchange": "Make one unit of every exchange: a question and its answer stay together.",
    "short": "Split what is long: a unit is a short passage.",
    "long": "Never split a message: a unit may be a whole message.",
    "user_only": "Record only the user; skip the assistant.",
}

PLANNING: dict[str, str] = {
    "sub_queries": "Break a question with several parts into sub-queries, one for each part.",
    "keywords": "Give the content words of the question as keywords.",
    "people": "Name the people the question is about.",
    "time_hint": "Copy time expressions of the question; leave the field empty if it has none.",
    "negation": "Also turn the question into its opposite, to find statements that contradict the expected one.",
    "advice": "Tell whether the question asks for advice or a choice.",
}

ANSWER: dict[str, str] = {
    "dates": "If a date is asked for, resolve relative expressions by the date of the line and answer with that date.",
    "lists": "If several things are asked for, answer with all of them as a list, separated by a comma.",
    "latest": "If statements of different age disagree, use the most recent one.",
    "sequence": "If a sequence is asked for, tell the order of events.",
    "details": ANSWER_DETAILED,  # takes the place of the base sentence, which asks for a short answer
    "preferences": "If advice is asked for, follow the preferences and standing instructions found in the memory.",
    "both_sides": "If two statements contradict each other, say so and tell both sides.",
    "yes_no": "If the question can be answered with yes or no, begin with that word.",
    "abstain_speaker": "If the memory holds nothing about the person asked about, answer 'No information available'.",
    "abstain_unsupported": "Answer only when the memory clearly supports it; otherwise say that it is 'not mentioned'.",
}


def instruction(name: str, sentences: Sequence[str]) -> list[str]:
    """The source lines that bind an instruction: one line for one sentence, else one line a sentence in brackets."""
    if len(sentences) == 1:
        return [f"{name} = {_literal(sentences[0])}"]
    spaced = [sentences[0], *(" " + sentence for sentence in sentences[1:])]
    return [f"{name} = (", *(f"    {_literal(sentence)}" for sentence in spaced), ")"]


def _literal(sentence: str) -> str:
    escaped = sentence.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
