"""One record of a source that is not as its format says, and what the loader did with it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_FOUND_CHARS = 100


@dataclass(frozen=True)
class Irregularity:
    """What is wrong with one field of one record.

    `kind` says what was found and what was done (`misspelt evidence id mended`), `found` shows the value, cut to 100
    characters. A `variant` is a form that the benchmark's own description allows although most records lack it; others
    are faults of the record.
    """

    kind: str
    file: str
    record: str
    field: str
    found: str
    variant: bool = False

    @property
    def where(self) -> str:
        """File, record and field in one line."""
        return ": ".join(part for part in (self.file, self.record, self.field) if part)


class Findings:
    """What a loader came across: each irregular record by itself, and counts of what is mended in every record.

    `file` is the name that new irregularities get; a loader sets it before it reads a file.
    """

    def __init__(self, file: str = "") -> None:
        self.file = file
        self.irregularities: list[Irregularity] = []
        self.mended: Counter[str] = Counter()

    def note(self, kind: str, record: str, field: str = "", found: Any = "", *, variant: bool = False) -> None:
        """Add one irregular record."""
        item = Irregularity(printable(kind), self.file, printable(record), printable(field), shown(found), variant)
        self.irregularities.append(item)

    def text(self, value: Any, what: str, record: str, field: str) -> str:
        """A value as text, "" for null; one that is no text is spelled out and reported under its name `what`."""
        if value is None:
            return ""
        if not isinstance(value, str):
            self.note(f"{what} that is no text read as text", record, field, value)
        return str(value)

    def count(self, kind: str) -> None:
        """Count something that the format itself asks to be mended, such as a marker that ends every question."""
        self.mended[kind] += 1

    @property
    def repairs(self) -> Mapping[str, int]:
        """How often each kind occurred, by name."""
        counts = Counter(item.kind for item in self.irregularities) + self.mended
        return dict(sorted(counts.items()))


def leaves(value: Any) -> Iterator[Any]:
    """What nested lists and objects hold in the end, in order."""
    if isinstance(value, list | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from leaves(item)
    else:
        yield value


def shown(value: Any) -> str:
    """A value on one line, at most 100 characters long."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    text = printable(" ".join(text.split()) if isinstance(value, str) else text)
    return text if len(text) <= _FOUND_CHARS else text[: _FOUND_CHARS - 3] + "..."


def printable(text: str) -> str:
    """The text with half surrogate pairs spelled out, which JSON may hold and no terminal takes."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
