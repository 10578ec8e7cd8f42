"""What a server says when it refuses: read for its meaning, quoted without a key or a piece of the prompt."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Sequence
from typing import Any

QUOTED_CHARS = 200
_READ_CHARS = 4000
_WORD = re.compile(r"[^\W_]+")
_NO_LETTER = re.compile(r"[\W_]+")
_TAG = re.compile(r"<[^>]{0,500}>")
# Words of refusals. A word of the prompt that is not among them is never quoted.
_WORDS = (
    "a access account accept accepted allowed an and any api are argument argumenterror at available bad be been body "
    "but by call cannot chat check code completion completions contains content context could credit current data day "
    "default deprecated detail did does down dynamic embedding embeddings engine error errors exceed exceeded exceeds "
    "exist expected extra field fields for format found from gateway has have however if in input inputs internal "
    "invalid is it json key large least length less limit limits list long longer max maximum message messages "
    "missing model models more must name new no not number object of on one only or organization output overloaded "
    "parameter parameters part permission permitted please plus prompt provided quota rate reached reduce refused "
    "request requested requests response retry role schema seconds sequence server service set should size small "
    "status str string supported supports system temperature temporarily text than that the this timeout to token "
    "tokens too total try type unavailable unexpected unknown unprocessable unrecognized unsupported use user using "
    "valid value was we when with you your"
)
_ORDINARY = frozenset(_WORDS.split())


def message_of(body: object, text: str = "") -> str:
    """The message in a decoded error body of any of the usual forms, else `text` itself."""
    found = _find(body)
    if found:
        return found[:_READ_CHARS]
    return _TAG.sub(" ", text[: 4 * _READ_CHARS])[:_READ_CHARS]


def parameter_of(body: object) -> str:
    """The name of the parameter that an error body says is at fault, "" if none."""
    if isinstance(body, dict):
        inner = body.get("error")
        for part in (body, inner if isinstance(inner, dict) else {}):
            name = part.get("param")
            if isinstance(name, str):
                return name
    return ""


def code_of(body: object) -> str:
    """The code or type by which an error body calls itself, "" if none."""
    inner = body.get("error") if isinstance(body, dict) else None
    for part in (inner, body):
        if isinstance(part, dict):
            for name in ("code", "type"):
                if isinstance(part.get(name), str):
                    return str(part[name])
    return ""


def _find(body: object) -> str:
    if isinstance(body, str):
        # Errors inside errors: gateways put the JSON of the server behind them into a string.
        try:
            inner = json.loads(body)
        except (ValueError, RecursionError):
            return body
        return _find(inner) or body
    if isinstance(body, list):
        return "; ".join(found for found in (_find(part) for part in body[:5]) if found)
    if not isinstance(body, dict):
        return ""
    if isinstance(body.get("loc"), list):
        where = ".".join(str(part) for part in body["loc"])
        return f"{where}: {body.get('msg', '')}"
    for name in ("error", "message", "detail", "details", "msg", "error_message"):
        if body.get(name):
            found = _find(body[name])
            if found:
                return found
    return ""


def quoted(text: str, private: Sequence[str], key: str | None) -> str:
    """`text` on one line of at most 200 characters, without control characters and without words of `private` texts
    or of the key; "" if nothing is left.
    """
    plain = html.unescape(_TAG.sub(" ", text[:_READ_CHARS]))
    if key:
        plain = plain.replace(key, "…")
    plain = " ".join("".join(c if c.isprintable() else " " for c in plain).split())
    haystack = "\n".join(private).casefold()

    def mask(found: re.Match[str]) -> str:
        word = found[0]
        return "…" if _is_private(word, haystack, key) else word

    plain = re.sub(r"…(?:[\W_]*…)+", "…", _WORD.sub(mask, plain))
    if len(plain) > QUOTED_CHARS:
        plain = plain[: QUOTED_CHARS - 1].rstrip() + "…"
    return plain if _WORD.search(plain) else ""


def _is_private(word: str, haystack: str, key: str | None) -> bool:
    folded = word.casefold()
    if key and len(word) >= 3 and folded in (key + _NO_LETTER.sub("", key)).casefold():
        return True
    if folded in _ORDINARY:
        return False
    if not word.isascii():
        # Scripts without spaces: a piece of the prompt may stand inside a longer run.
        return any(folded[i : i + 2] in haystack for i in range(max(1, len(folded) - 1)))
    return folded in haystack


def decoded(text: str) -> Any:
    """The JSON value of a text, None if it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
