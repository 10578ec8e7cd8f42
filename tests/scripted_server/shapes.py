"""Distortions of a good reply: how models and servers spoil what was asked for."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

Message = dict[str, Any]


def _message(text: str | None, **more: Any) -> Message:
    return {"role": "assistant", "content": text, **more}


def _fields(change: Callable[[dict[str, Any]], None]) -> Callable[[str], Message]:
    """Changes each innermost object of the reply: the units of an extraction, else the reply itself."""

    def distort(text: str) -> Message:
        try:
            value = json.loads(text)
        except ValueError:
            return _message(text)
        units = next((v for v in value.values() if isinstance(v, list) and v and isinstance(v[0], dict)), [value])
        for unit in units:
            change(unit)
        return _message(json.dumps(value))

    return distort


def _wrong_types(unit: dict[str, Any]) -> None:
    for name, value in unit.items():
        unit[name] = 7 if isinstance(value, str) else "seven"


def _drop_first(unit: dict[str, Any]) -> None:
    unit.pop(next(iter(unit)))


def _not_finite(unit: dict[str, Any]) -> None:
    for name in unit:
        unit[name] = float("nan")


SHAPES: dict[str, Callable[[str], Message]] = {
    "": _message,
    "fenced": lambda text: _message(f"```json\n{text}\n```"),
    "prose_around": lambda text: _message(f"Certainly! Here {{as asked}} it is:\n{text}\nI hope this helps."),
    "think": lambda text: _message(f'<think>Could {{"memory_units": []}} do? No.</think>\n{text}'),
    "only_reasoning": lambda text: _message("<think>I go on and on about it"),
    "reasoning_field": lambda text: _message(text, reasoning_content="Let me see. {}"),
    "only_reasoning_field": lambda text: _message(None, reasoning_content="Let me see. {}"),
    "empty": lambda text: _message(""),
    "null": lambda text: _message(None),
    "parts": lambda text: _message([{"type": "text", "text": text[:5]}, {"type": "text", "text": text[5:]}]),
    "tool_call": lambda text: _message(
        None, tool_calls=[{"id": "1", "type": "function", "function": {"name": "reply", "arguments": text}}]
    ),
    "refusal": lambda text: _message(None, refusal="I can't help with that."),
    "prose": lambda text: _message("I would rather tell you about the weather, which was fine."),
    "half": lambda text: _message(text[: len(text) // 2]),
    "whitespace": lambda text: _message(text[:1] + "\n" * 4000),
    "wrong_types": _fields(_wrong_types),
    "missing_field": _fields(_drop_first),
    "extra_field": _fields(lambda unit: unit.update(confidence=0.9)),
    "not_finite": _fields(_not_finite),
    "empty_list": lambda text: _message('{"memory_units": []}'),
    "list_at_top": lambda text: _message(f"[{text}]"),
}
"""By name: a message in place of the good text."""
