"""A small data set: three talks of three sessions, two questions each."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def write_talks(path: Path) -> Path:
    lines: list[Mapping[str, Any]] = []
    for name in ("ada", "bea", "cleo"):
        sessions = [
            {
                "id": f"s{n}",
                "time": f"2024-03-0{n} 10:00",
                "turns": [
                    {"id": f"{name}-{n}", "speaker": name, "text": f"{name} paints lake number {n} in the rain"},
                    {"id": f"{name}-{n}b", "speaker": "max", "text": f"Max keeps {n} bees, said to {name}"},
                ],
            }
            for n in (1, 2, 3)
        ]
        lines.append({"type": "conversation", "id": name, "sessions": sessions})
        for n in (1, 2):
            lines.append(
                {
                    "type": "question",
                    "id": f"{name}/{n}",
                    "conversation": name,
                    "question": f"Which lake did {name} paint in session {n}?",
                    "answer": f"lake number {n}",
                    "evidence": [f"{name}-{n}"],
                    "capability": "factual_retrieval",
                }
            )
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path
