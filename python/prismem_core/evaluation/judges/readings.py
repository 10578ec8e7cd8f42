"""What a judge's reply says; a reply that does not say it is Unusable, never a grade."""

from __future__ import annotations

import json
import math
import re
from typing import Any

from prismem_core.evaluation.judge_request import NUGGET_SCORES
from prismem_core.pipeline.structured import Unusable

_YES, _NO = frozenset({"yes", "true", "correct", "right"}), frozenset({"no", "false", "incorrect", "wrong"})
_WORD = re.compile(r"[\W_]*(\w+)[\W_]*")


def read_verdict(text: str) -> float:
    """1.0 or 0.0 from `{"verdict": "yes"}` or `"no"`, or from that word alone."""
    value = _field(text, "verdict") if "{" in text else text
    if isinstance(value, bool):
        return float(value)
    word = _WORD.fullmatch(value.casefold()) if isinstance(value, str) else None
    if word is not None and word[1] in _YES:
        return 1.0
    if word is not None and word[1] in _NO:
        return 0.0
    raise Unusable('"verdict" must be "yes" or "no"')


def read_grade(text: str) -> float:
    """A grade from 0 to 1 from `{"score": number}`."""
    grade = _number(_field(text, "score"))
    if not 0.0 <= grade <= 1.0:
        raise Unusable('"score" must be a number from 0 to 1')
    return grade


def read_nugget(text: str) -> float:
    """0.0, 0.5 or 1.0 from `{"score": number}`."""
    grade = _number(_field(text, "score"))
    if grade not in NUGGET_SCORES:
        raise Unusable('"score" must be 0, 0.5 or 1')
    return grade


def read_order(text: str, events: int) -> tuple[int, ...]:
    """Numbers from 0 to `events` from `{"order": [number, ...]}`."""
    order = _field(text, "order")
    if not isinstance(order, list):
        raise Unusable('"order" must be a list of numbers')
    if not all(isinstance(n, int) and not isinstance(n, bool) and 0 <= n <= events for n in order):
        raise Unusable(f'each item of "order" must be a whole number from 0 to {events}')
    return tuple(order)


def _field(text: str, name: str) -> Any:
    try:
        reply = json.loads(text)
    except (ValueError, RecursionError):
        raise Unusable(f'it is not a JSON object with the field "{name}"') from None
    if not isinstance(reply, dict) or name not in reply:
        raise Unusable(f'it is not a JSON object with the field "{name}"')
    return reply[name]


def _number(value: Any) -> float:
    """A finite number, also one that is written as a text."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise Unusable('"score" must be a number')
    try:
        number = float(value)
    except (ValueError, OverflowError):
        raise Unusable('"score" must be a number') from None
    if not math.isfinite(number):
        raise Unusable('"score" must be a number')
    return number
