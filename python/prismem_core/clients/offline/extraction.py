"""Memory units from a segment by rules: the field names, types and descriptions say what each value should be."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from prismem_core.clients.offline.dates import long_date, parse_date, time_expressions
from prismem_core.clients.offline.fields import Field, coerce, matches
from prismem_core.clients.offline.lines import ROLES, is_speaker, names, sentences
from prismem_core.tasks.text import STOP_WORDS, stem, tokens

PASSAGE_CHARS = 350
SHORT_PASSAGE_CHARS = 200
_PREFIX = re.compile(r"([^\W\d_][\w'.-]*(?: [^\W\d_][\w'.-]*){0,2}) ?: ?")
_HEADER = re.compile(r"\s*\[[^\]]*\]\s*$")
_FENCE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)


@dataclass(frozen=True)
class Passage:
    """What one unit is made of: its text with speakers, the bare passage, its speaker and the session's day."""

    text: str
    body: str
    speaker: str
    day: date | None


def split_segment(text: str) -> tuple[str, list[tuple[str, str]]]:
    """Header lines and (speaker, text) turns of a segment; a turn's text may span lines.

    Where the first speaker is a role only roles open a turn, so that a list item with a colon inside an assistant's
    message does not; else a line opens a turn where it begins with one to three capitalised words and a colon.
    """
    header: list[str] = []
    turns: list[tuple[str, str]] = []
    roles_only: bool | None = None
    for line in text.split("\n"):
        if not turns and (_HEADER.match(line) or not line.strip()):
            header.append(line)
            continue
        match = _PREFIX.match(line)
        if match and is_speaker(match[1]) and (not roles_only or match[1].lower() in ROLES):
            if roles_only is None:
                roles_only = match[1].lower() in ROLES
            turns.append((match[1], line[match.end() :]))
        elif turns:
            turns[-1] = (turns[-1][0], f"{turns[-1][1]}\n{line}")
        else:
            turns.append(("", line))
    return "\n".join(header), turns


def cut_passages(text: str, limit: int) -> list[str]:
    """`text` in passages of at most `limit` characters, cut at line and sentence ends; white space is folded.

    A text of up to one and a half times the limit is not worth cutting and stays whole, as does a longer sentence.
    """
    if 2 * len(text) <= 3 * limit:
        return [folded] if (folded := " ".join(text.split())) else []
    pieces = [piece for line in text.split("\n") if line.strip() for piece in sentences(line)]
    passages: list[str] = []
    current = ""
    for piece in pieces:
        piece = " ".join(piece.split())
        if current and len(current) + 1 + len(piece) > limit:
            passages.append(current)
            current = piece
        else:
            current = f"{current} {piece}" if current else piece
    if current:
        passages.append(current)
    return passages


def _mode(instruction: str) -> dict[str, bool]:
    words = " ".join(instruction.lower().split())
    return {
        "sentence": any(w in words for w in ("each sentence", "single sentence", "one sentence")),
        "exchange": any(w in words for w in ("exchange", "question and its answer")),
        "user_only": any(w in words for w in ("skip the assistant", "only the user")),
        "short": "short passage" in words,
        "whole": any(w in words for w in ("long passage", "whole message")),
    }


def passages_of(instruction: str, segment: str) -> list[Passage]:
    """The passages that become units, in order of the segment."""
    mode = _mode(instruction)
    header, turns = split_segment(segment)
    day = parse_date(header)
    if mode["user_only"]:
        turns = [turn for turn in turns if turn[0].lower() not in ("assistant", "ai", "system")]
    limit = SHORT_PASSAGE_CHARS if mode["short"] else PASSAGE_CHARS
    turn_passages: list[list[Passage]] = []
    for speaker, text in turns:
        if mode["sentence"]:
            bodies = [" ".join(piece.split()) for piece in sentences(text)]
        elif mode["whole"]:
            bodies = [" ".join(text.split())] if text.strip() else []
        else:
            bodies = cut_passages(text, limit)
        lead = f"{speaker}: " if speaker else ""
        turn_passages.append([Passage(lead + body, body, speaker, day) for body in bodies])
    if not mode["exchange"]:
        return [passage for group in turn_passages for passage in group]
    merged: list[Passage] = []
    groups = [group for group in turn_passages if group]
    for at in range(0, len(groups), 2):
        first, second = groups[at], groups[at + 1] if at + 1 < len(groups) else []
        if second:
            joined = Passage(
                f"{first[-1].text}\n{second[0].text}",
                f"{first[-1].body} {second[0].body}",
                ", ".join(dict.fromkeys(p.speaker for p in (first[-1], second[0]) if p.speaker)),
                day,
            )
            merged += [*first[:-1], joined, *second[1:]]
        else:
            merged += first
    return merged


_PREFERENCE = re.compile(
    r"\b(?:I(?:'d| would)? (?:really |always |usually |generally |definitely |just |also |"
    r"much )*(?:prefer|like|love|enjoy|hate|dislike|favou?r|avoid|appreciate|value)"
    r"|I (?:don't|do not|can't stand|never) (?:really )?(?:like|enjoy|want|use|eat|drink)?|"
    r"my favou?rites?|favou?rite|rather (?:than|not)|big fan of|I'm (?:into|fond of|a fan)"
    r"|I'd rather|instead of|preference|keep(?:ing)? (?:it|things) (?:simple|short|brief|minimal|light))\b",
    re.IGNORECASE,
)
_INSTRUCTION = re.compile(
    r"\b(?:always|never|make sure|from now on|in (?:the )?future|going forward|whenever|every time|"
    r"when(?:ever)? I ask|please (?:always|keep|make|use|include|remember|do not|don't|avoid)"
    r"|I want you to|I need you to|remember (?:to|that)|don't forget to)\b",
    re.IGNORECASE,
)
_PLACE = re.compile(
    r"\b(?:[Ii]n|[Aa]t|[Tt]o|[Ff]rom|[Nn]ear|[Vv]isit(?:ed|ing)?)\s+(?:the\s+)?([A-Z][\w'’-]+(?:\s+[A-Z][\w'’-]+)*)"
)


def states_preference(text: str) -> bool:
    """Whether a sentence tells what the speaker likes or wants."""
    return _PREFERENCE.search(text) is not None


def states_instruction(text: str) -> bool:
    """Whether a sentence tells the listener how to behave from now on."""
    return _INSTRUCTION.search(text) is not None


def topics(text: str, counts: Counter[str], limit: int = 8) -> list[str]:
    """Content words of the text, rarest in the segment first, then the longest, then in order of place."""
    words: dict[str, str] = {}
    for word in re.findall(r"[A-Za-z][A-Za-z'’-]*[A-Za-z]|\d[\d.,]*", text):
        token = word.lower()
        if token not in STOP_WORDS and "'" not in token and "’" not in token and len(token) > 2:
            words.setdefault(stem(token), word)
    order = sorted(words, key=lambda s: (counts[s], -len(words[s])))
    return [words[s] for s in order[:limit]]


def _places(text: str) -> list[str]:
    found = (match[1] for match in _PLACE.finditer(text))
    return list(dict.fromkeys(place for place in found if names(f"in {place}")))


def _event_date(passage: Passage) -> str:
    for expression in time_expressions(passage.body, passage.day):
        if expression.kind != "vague":
            return expression.phrase
    return long_date(passage.day) if passage.day else ""


def _kind(passage: Passage) -> str:
    if states_instruction(passage.body):
        return "instruction"
    if states_preference(passage.body):
        return "preference"
    if passage.body.rstrip().endswith("?"):
        return "question"
    return "event" if time_expressions(passage.body, passage.day) else "statement"


def _importance(passage: Passage) -> float:
    words = tokens(passage.body)
    return sum(w not in STOP_WORDS for w in words) / len(words) if words else 0.0


_MAIN = ("text", "content", "fact", "statement", "restatement", "memory")
_FIELD_WORDS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("event_date", ("event date", "when it happened", "event time")),
    ("speaker", ("speaker", "author", "who said")),
    ("people", ("person", "people", "names", "entities", "persons", "entity")),
    ("preference", ("preference", "instruction", "standing")),
    ("question", ("question",)),
    ("importance", ("importance", "confidence")),
    ("place", ("place", "location")),
    ("kind", ("kind", "category")),
    ("topic", ("topic", "keyword", "tag")),
    ("date", ("date", "time", "when", "session", "timestamp")),
)


def _semantics(fields: Sequence[Field]) -> list[str]:
    """What each field holds; a name decides before a description, and some text field must hold the passage."""
    found: list[str] = []
    for field in fields:
        by_name = next((s for s, words in _FIELD_WORDS if matches(field.name, words)), "")
        main = field.base_type == "str" and matches(field.name, _MAIN)
        by_text = next((s for s, words in _FIELD_WORDS if matches(field.description, words)), "")
        if main and by_name in ("", "people"):
            found.append("main")
        elif by_name in ("preference", "question") and field.base_type != "bool":
            found.append("main" if main else by_text if by_text != by_name else "")
        else:
            found.append(by_name or ("main" if main else by_text))
    if "main" not in found:
        spare = next((i for i, f in enumerate(fields) if f.base_type == "str" and not found[i]), None)
        if spare is None:
            spare = next((i for i, f in enumerate(fields) if f.base_type == "str"), None)
        if spare is not None:
            found[spare] = "main"
    return found


def _value(semantics: str, field: Field, passage: Passage, counts: Counter[str]) -> Any:
    match semantics:
        case "main":
            return passage.text
        case "event_date":
            return _event_date(passage)
        case "speaker":
            return passage.speaker
        case "people":
            return list(dict.fromkeys([*(s for s in passage.speaker.split(", ") if s), *names(passage.body)]))
        case "preference":
            return states_preference(passage.body) or states_instruction(passage.body)
        case "question":
            return "?" in passage.body
        case "importance":
            share = _importance(passage)
            return share if field.base_type == "float" else round(10 * share)
        case "place":
            return _places(passage.body)
        case "kind":
            return _kind(passage)
        case "topic":
            return topics(passage.body, counts)
        case "date":
            if field.base_type in ("int", "float"):
                return passage.day.year * 10000 + passage.day.month * 100 + passage.day.day if passage.day else 0
            return long_date(passage.day) if passage.day else ""
    return None


def extract(inputs: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The units of one segment from `instruction`, `fields` and `text` of an extraction request."""
    fields = [Field.of(item) for item in inputs["fields"]]
    semantics = _semantics(fields)
    passages = passages_of(inputs["instruction"], inputs["text"])
    counts: Counter[str] = Counter()
    if "topic" in semantics:
        counts.update(s for p in passages for s in {stem(t) for t in tokens(p.body)})
    return [
        {f.name: coerce(_value(s, f, passage, counts), f) for f, s in zip(fields, semantics, strict=True)}
        for passage in passages
    ]
