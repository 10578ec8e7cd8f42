"""The times that benchmarks write, each in its own form; what is no day of the calendar is no time."""

from __future__ import annotations

import re
from datetime import datetime

# By hand: `strptime` reads the names of the machine's language.
_MONTHS = {
    name: number
    for number, name in enumerate(
        (
            "january",
            "february",
            "march",
            "april",
            "may",
            "june",
            "july",
            "august",
            "september",
            "october",
            "november",
            "december",
        ),
        1,
    )
}
_LOCOMO = re.compile(r"(\d{1,2}):(\d{2})\s*([ap])m on (\d{1,2}) ([a-z]+), (\d{4})", re.IGNORECASE | re.ASCII)
_BEAM = re.compile(r"([a-z]+)-(\d{1,2})-(\d{4})", re.IGNORECASE | re.ASCII)
_LONGMEMEVAL = re.compile(r"(\d{4})/(\d{1,2})/(\d{1,2})(?:\s*\(\w+\))?(?:\s+(\d{1,2}):(\d{2}))?", re.ASCII)


def locomo_time(text: str) -> datetime | None:
    """`1:56 pm on 8 May, 2023`; None for anything else."""
    match = _LOCOMO.fullmatch(" ".join(text.split()))
    if match is None or not 1 <= int(match[1]) <= 12:
        return None
    hour = int(match[1]) % 12 + (12 if match[3].lower() == "p" else 0)
    return _moment(match[6], _MONTHS.get(match[5].lower(), 0), match[4], hour, match[2])


def beam_date(text: str) -> datetime | None:
    """`March-05-2024`; None for anything else."""
    match = _BEAM.fullmatch(text)
    return _moment(match[3], _MONTHS.get(match[1].lower(), 0), match[2]) if match else None


def longmemeval_time(text: str) -> datetime | None:
    """`2023/05/30 (Tue) 08:08`, with or without day of the week and hour; None for anything else."""
    match = _LONGMEMEVAL.fullmatch(text)
    return _moment(*(part or 0 for part in match.groups())) if match else None


def _moment(*parts: str | int) -> datetime | None:
    year, month, day, hour, minute = (*(int(part) for part in parts), 0, 0)[:5]
    try:
        return datetime(year, month, day, hour, minute)
    except ValueError:
        return None
