"""The rules an answer instruction switches on, by the words in it (docs/offline.md)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

_QUOTED = re.compile(
    r"[\"“']((?:[^\"”']*\b)?(?:no information available|not mentioned)\b[^\"”']*)[\"”']", re.IGNORECASE
)


@dataclass(frozen=True)
class Rules:
    """What the reader may do; `abstention` is the reply it abstains with, "" where it must not."""

    abstention: str = ""
    strict: bool = False
    dates: bool = False
    lists: bool = False
    latest: bool = False
    order: bool = False
    long: bool = False
    preferences: bool = False
    conflicts: bool = False
    yes_no: bool = False


@lru_cache(maxsize=256)
def rules_of(instruction: str) -> Rules:
    """The rules of an instruction; an instruction without any of the words gives the plain reader."""
    words = " ".join(instruction.lower().split())

    def has(*phrases: str) -> bool:
        return any(re.search(rf"\b{re.escape(phrase)}", words) for phrase in phrases)

    abstention = ""
    if has("no information available", "not mentioned"):
        quoted = _QUOTED.search(" ".join(instruction.split()))
        if quoted:
            abstention = quoted[1].strip()
        else:
            abstention = "No information available" if has("no information available") else "Not mentioned"
    return Rules(
        abstention=abstention,
        strict=has("only when the memory clearly supports"),
        dates=has("date", "asks when", "when question", "when something happened"),
        lists=has("list", "comma"),
        latest=has("most recent", "latest"),
        order=has("order of events", "chronological order"),
        long=has("all relevant details", "complete sentences"),
        preferences=has("preference", "standing instruction"),
        conflicts=has("both sides", "contradict"),
        yes_no=has("yes or no"),
    )
