"""Good replies, made from the prompt alone: instances of a schema, answers from the retrieved text, hashed vectors."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

_BLOCK = re.compile(r"<([a-z_]+)-([0-9a-f]{12,})>\n(.*?)\n</\1-\2>", re.DOTALL)
_WORD = re.compile(r"\w+", re.UNICODE)
_STOP = frozenset(
    _WORD.findall(
        "a an and are at be by did do does for from has have how in is it of on or that the to was were what when "
        "where which who why with"
    )
)
MESSAGE_TOKENS = 4


def count_tokens(text: str) -> int:
    """The server's tokens: four bytes of UTF-8 each, the last one maybe shorter."""
    return math.ceil(len(text.encode("utf-8", "surrogatepass")) / 4)


def cut_tokens(text: str, tokens: int) -> str:
    """The first tokens of a text, without a broken character at the end."""
    return text.encode("utf-8", "surrogatepass")[: 4 * tokens].decode("utf-8", "ignore")


def prompt_tokens(messages: list[Mapping[str, Any]]) -> int:
    """The tokens of a chat prompt: those of its texts and four for each message."""
    return sum(count_tokens(text_of(message)) + MESSAGE_TOKENS for message in messages)


def text_of(message: Mapping[str, Any]) -> str:
    """The text of a message, whether it is given whole or in parts."""
    content = message.get("content") or ""
    return content if isinstance(content, str) else "".join(str(part.get("text", "")) for part in content)


def blocks(prompt: str) -> dict[str, str]:
    """The data of a prompt by the name of its block."""
    return {name: text for name, _, text in _BLOCK.findall(prompt)}


def purpose_of(prompt: str, schema: Mapping[str, Any] | None = None) -> str:
    """What a prompt asks for, by the fields it wants (a designer's) or the data it shows: reflect, merge, code,
    extract, answer, judge, plan or other.
    """
    for field, purpose in (("diagnosis", "reflect"), ("Step-by-step plan", "merge"), ("code", "code")):
        if schema is not None and field in schema.get("properties", {}):
            return purpose
    found = blocks(prompt)
    if "segment" in found:
        return "extract"
    if "prediction" in found or "answer" in found:
        return "judge"
    if "memory" in found:
        return "answer"
    return "plan" if "question" in found else "other"


def edited(prompt: str, names: Sequence[str]) -> dict[str, str]:
    """A coder's reply: the edits of the catalogue by name, as far as they fit the first program of the prompt."""
    from prismem_core.evolution.catalog.diffs import difference, draft
    from prismem_core.evolution.catalog.edits import BY_NAME

    shown = re.search(r"<(program-[0-9a-f]+)>\n(.*?)\n</\1>", prompt, re.DOTALL)
    source = changed = shown[2] if shown else ""
    for name in names:
        made = draft(changed, BY_NAME[name])
        changed = changed if made is None else made.source
    return {"summary": f"Edits: {', '.join(names)}.", "code": difference(source, changed)}


def schema_in(prompt: str) -> dict[str, Any] | None:
    """The JSON schema that a prompt spells out, as one does for a server that knows none."""
    decoder = json.JSONDecoder()
    for match in re.finditer(r"\{", prompt):
        try:
            value, _ = decoder.raw_decode(prompt, match.start())
        except ValueError:
            continue
        if isinstance(value, dict) and "properties" in value and value.get("type") == "object":
            return value
    return None


def good_text(prompt: str, schema: Mapping[str, Any] | None) -> str:
    """The text of a good reply to a prompt."""
    found = blocks(prompt)
    if schema is not None:
        return json.dumps(instance(schema, found or {"prompt": prompt}), ensure_ascii=False)
    if "memory" in found:
        return best_line(found["memory"], found.get("question", ""))
    return "The text speaks of " + ", ".join(content_words(next(iter(found.values()), prompt))[:12]) + "."


def instance(schema: Mapping[str, Any], found: Mapping[str, str]) -> Any:
    """A valid instance: one item a line of the segment, else words of the question or what a judge compares."""
    lines = [line for line in found.get("segment", "").splitlines() if ":" in line and not line.startswith("[")]
    text = found.get("question") or next(iter(found.values()), "")
    if "prediction" in found:
        text = found["prediction"]
        wanted = " ".join(part for name, part in found.items() if name not in ("question", "prediction"))
        agreement = overlap(found["prediction"], wanted)
        return _value(schema, text, [text], agreement)
    return _value(schema, text, lines or [text], 0.5)


def _value(schema: Mapping[str, Any], text: str, lines: list[str], share: float) -> Any:
    if "anyOf" in schema:
        return _value(next(s for s in schema["anyOf"] if s.get("type") != "null"), text, lines, share)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return _choice(list(schema["enum"]), share)
    kind = schema.get("type", "string")
    if kind == "object":
        wanted = schema.get("properties", {})
        return {name: _value(sub, text, lines, share) for name, sub in wanted.items()}
    if kind == "array":
        return _items(schema, text, lines, share)
    if kind in ("number", "integer"):
        low, high = schema.get("minimum", 0), schema.get("maximum", 1 if kind == "number" else 1000)
        value = low + (high - low) * share
        return round(value) if kind == "integer" else float(value)
    if kind == "boolean":
        return share >= 0.5
    if kind == "null":
        return None
    return text[: schema.get("maxLength", 2000)].ljust(schema.get("minLength", 0), ".")


def _items(schema: Mapping[str, Any], text: str, lines: list[str], share: float) -> list[Any]:
    sub = schema.get("items", {"type": "string"})
    if sub.get("type") == "object":
        values = [_value(sub, line, [line], share) for line in lines]
    elif sub.get("type") == "string" and "enum" not in sub:
        values = content_words(text)[:8]
    else:
        values = [_value(sub, text, lines, share)]
    fewest, most = schema.get("minItems", 0), schema.get("maxItems", len(values) + schema.get("minItems", 0))
    while len(values) < fewest:
        values.append(_value(sub, text, lines, share))
    return values[:most]


def _choice(options: list[Any], share: float) -> Any:
    numbers = [o for o in options if isinstance(o, int | float) and not isinstance(o, bool)]
    if len(numbers) == len(options):
        return min(options, key=lambda option: (abs(option - share * max(options)), option))
    good = [o for o in options if str(o).lower() in ("yes", "correct", "true", "right")]
    if good:
        return good[0] if share >= 0.5 else next(o for o in options if o not in good)
    return options[0]


def content_words(text: str) -> list[str]:
    """The words of a text that are no stop words, each once, in their order."""
    return list(dict.fromkeys(word for word in _WORD.findall(text) if word.lower() not in _STOP))


def overlap(first: str, second: str) -> float:
    """The share of the second text's content words that the first has, rounded to a half."""
    own, wanted = ({w.lower() for w in content_words(text)} for text in (first, second))
    return round(2 * len(own & wanted) / len(wanted)) / 2 if wanted else 0.0


def best_line(memory: str, question: str) -> str:
    """The line of the memory with most of the question's words, the first of equals."""
    words = {w.lower() for w in content_words(question)}
    lines = [line.strip() for line in memory.splitlines() if line.strip()]
    return max(lines, key=lambda line: len(words & set(line.lower().split())), default="I do not know.")


def vector(text: str, dimension: int) -> list[float]:
    """A hashed bag of words, of any length; a text without a word has its own direction all the same."""
    values = [0.0] * dimension
    for word in _WORD.findall(text.lower()) or [text]:
        number = int.from_bytes(hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")
        values[number % dimension] += 1.0 if number >> 63 else -1.0
    if not any(values):
        values[0] = 1.0
    return values
