"""What a forecast takes for granted where nothing can be counted; `docs/models.md` says it in words.

Expected values only: bounds do not rest on them, but for those named `MOST_*` and for tokens that are estimated.
"""

from __future__ import annotations

from collections.abc import Mapping

TRIES = 1.02
"""Tries of a call whose reply must be read."""
ATTEMPTS = 1.3
"""Replies of the coder in an iteration; every iteration is expected to measure one program."""
PASSES_GATE = 0.5
"""Share of the programs of stage II that are measured in full."""
ROUNDS = 0.7
"""Share of the rounds of stage III that are needed."""

NEW: Mapping[str, Mapping[str, float]] = {
    "content": {"extract": 0.2, "plan": 0.15, "answer": 0.95},
    "paper": {"extract": 0.2, "plan": 0.5, "answer": 0.95},
    "off": {"extract": 1.0, "plan": 1.0, "answer": 1.0},
}
"""Share of a stage that a revision has done anew, by `reuse`, as the catalogue does on LoCoMo and BEAM-100K."""
NEW_RESULT: Mapping[str, float] = {"extract": 0.7, "plan": 0.5, "answer": 1.0}
"""The same for the result against the start: it is the sum of several revisions."""

CHARS_A_TEXT = 200
"""Characters of a text that a program embeds."""
MOST_TEXTS_A_CHAR = 1 / 20
"""Texts that are embedded, for each character of what a program knows: no more, as long as they are no shorter."""
MOST_UNITS = 4.0
"""Characters of all units, for each character of the dialogue."""

OUTPUT: Mapping[str, float] = {
    "plan": 25.0,
    "answer": 60.0,
    "judge": 60.0,
    "reflect": 1500.0,
    "code": 3000.0,
    "ask": 200.0,
}
"""Tokens of a reply."""
OUTPUT_OFFLINE: Mapping[str, float] = {"plan": 20.0, "answer": 20.0, "ask": 50.0}
EXTRACTED: Mapping[str, float] = {"offline": 1.0, "model": 0.4}
"""Tokens of the units, for each token of the dialogue."""
LABEL = 30.0
"""Tokens of a reply that names capabilities."""
ANSWER_CHARS = 120
CASE_CHARS = 8000
"""Characters of a case in a prompt of the designer."""
MOST_INSTRUCTION_CHARS = 8000
"""Characters that instructions and schemas of a revision have more than those of the start."""
PROBLEM_CHARS = 2000
"""Characters of what a call that is made again is told of the reply before."""

LEAST_TOKENS_A_CHAR = 1 / 6
TOKENS_A_CHAR = 1 / 4
MOST_TOKENS_A_BYTE = 1 / 2
MOST_TOKENS_A_CALL = 64
"""Tokens that a chat template adds."""
