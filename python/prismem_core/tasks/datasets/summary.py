"""What was loaded, in a few lines: sizes, questions by type and capability, the split and every repair."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from prismem_core.tasks.capability import CAPABILITIES
from prismem_core.tasks.task import Dataset

_MOST_NAMED = 20


def summary(dataset: Dataset, parts: Mapping[str, Sequence[str]] | None = None) -> str:
    """Lines for the command line to print on load; counts are of the whole data set, the split by conversations.

    `parts` is the split to show, the data set's own by default.
    """
    parts = parts or dataset.default_split
    sessions = [session for history in dataset.histories.values() for session in history.sessions]
    turns = sum(len(session.turns) for session in sessions)
    natives = Counter(task.native_type for task in dataset.tasks)
    primaries = Counter(task.primary for task in dataset.tasks)
    lines = [
        f"{dataset.name}: {len(dataset.histories):,} conversations, {len(sessions):,} sessions, {turns:,} turns, "
        f"{len(dataset.tasks):,} questions (sha256 {dataset.digest[:16]})",
        "capabilities: " + ", ".join(f"{c.letter} {c.value} {primaries[c]:,}" for c in CAPABILITIES),
        "question types: " + ", ".join(f"{name} {count:,}" for name, count in sorted(natives.items())),
    ]
    if parts:
        asked = Counter(task.history_id for task in dataset.tasks)
        lines.append(
            "split: "
            + "; ".join(
                f"{part} {_named(ids)} ({sum(asked[i] for i in ids):,} questions)" for part, ids in parts.items()
            )
        )
    for kind, count in dataset.repairs.items():
        lines.append(f"note: {kind}: {count:,}")
    lines += [f"note: {line}" for line in note_lines(dataset.notes)]
    return "\n".join(lines)


def _named(ids: Sequence[str]) -> str:
    """The conversations of a part; of many, how many."""
    return ", ".join(ids) or "none" if len(ids) <= _MOST_NAMED else f"{len(ids):,} conversations"


def note_lines(notes: Mapping[str, Any]) -> list[str]:
    """What the user's own lists changed, and which public files these are, a line each."""
    lines = []
    for key in ("excluded", "corrected"):
        if key in notes:
            note = notes[key]
            ids = ", ".join(entry["id"] for entry in note["entries"])
            lines.append(f"{key} by {note['list']} (sha256 {note['sha256'][:16]}): {len(note['entries']):,} ({ids})")
    for file in notes.get("public_files", ()):
        state = (
            f"as pinned at {file['revision'][:12]}"
            if file["as_pinned"]
            else "CHANGED: its bytes are not the pinned ones"
        )
        lines.append(f"{file['file']} of {file['name']}, {state}")
    return lines
