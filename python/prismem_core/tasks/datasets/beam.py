"""BEAM: long chats of a user and an assistant with ten kinds of probing questions (Tavakoli et al. 2025)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from prismem_core.tasks.datasets.beam_chat import beam_history
from prismem_core.tasks.datasets.beam_questions import beam_tasks
from prismem_core.tasks.datasets.source import Source
from prismem_core.tasks.datasets.splits import BEAM_100K_SPLIT, default_split
from prismem_core.tasks.datasets.twins import with_twins
from prismem_core.tasks.history import History
from prismem_core.tasks.irregularity import Findings
from prismem_core.tasks.task import Dataset, Task

REPLY_WORDS = 80

SIZE = re.compile(r"\d+(?:\.\d+)?[KM]", re.IGNORECASE)

# History id, file of the chat, chat, file of the questions, questions.
Chat = tuple[str, str, Any, str, Any]


def chat_folders(root: Path) -> list[Path]:
    """The chat folders below `root`: itself, those of one size or of all sizes; numbers in order."""
    if _chat_file(root):
        return [root]
    for pattern in ("*", "*/*", "chats/*/*"):
        found = [path for path in root.glob(pattern) if path.is_dir() and _chat_file(path)]
        if found:
            return sorted(found, key=lambda path: [_natural(part) for part in path.relative_to(root).parts])
    return []


def load_beam_folder(folders: Sequence[Path], source: Source) -> Dataset:
    """The data set of chat folders: `chat.json` and `probing_questions/probing_questions.json`, packed or not."""
    findings = Findings()

    def chats() -> Iterable[Chat]:
        for folder in folders:
            chat_file = _chat_file(folder)
            if chat_file is None:
                continue
            chat, history_id = source.json(chat_file), _history_id(folder)
            question_files = [folder / "probing_questions" / f"probing_questions.json{end}" for end in ("", ".gz")]
            present = [path for path in question_files if path.exists()]
            asked, name = (
                (source.json(present[0]), source.name(present[0])) if present else ({}, source.name(chat_file))
            )
            yield history_id, source.name(chat_file), chat, name, asked

    return beam_dataset(chats(), source, findings)


def beam_dataset(chats: Iterable[Chat], source: Source, findings: Findings) -> Dataset:
    """The data set of chats that come one by one; a chat without messages and a second one of an id are left out."""
    histories: dict[str, History] = {}
    tasks: list[Task] = []
    for history_id, chat_file, chat, question_file, questions in chats:
        findings.file = chat_file
        if history_id in histories:
            findings.note("chat id repeated, second chat left out", history_id)
            continue
        history = beam_history(history_id, chat, findings)
        if history is None:
            findings.note("chat that has no messages left out", history_id, "chat", chat)
            continue
        histories[history_id] = history
        findings.file = question_file
        tasks += beam_tasks(history, questions, findings)
    sizes = {history_id.split("/")[0] for history_id in histories if "/" in history_id}
    return Dataset(
        name=f"beam-{sizes.pop()}" if len(sizes) == 1 else "beam",
        histories=histories,
        tasks=with_twins(tasks),
        digest=source.digest,
        default_split=default_split(histories, BEAM_100K_SPLIT),
        reply_words=REPLY_WORDS,
        repairs=findings.repairs,
        irregularities=tuple(findings.irregularities),
    )


def _chat_file(folder: Path) -> Path | None:
    return next((path for end in ("", ".gz") if (path := folder / f"chat.json{end}").is_file()), None)


def _history_id(folder: Path) -> str:
    """`100K/1` for a chat in a folder of its size, else the folder's name."""
    resolved = folder.resolve()
    size = resolved.parent.name
    return f"{size}/{resolved.name}" if SIZE.fullmatch(size) else resolved.name


def _natural(name: str) -> tuple[float, str]:
    """Sort key: `2` before `11`, `100K` before `1M`; other names after the numbers, by text."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KM]?)", name, re.IGNORECASE)
    if match is None:
        return (float("inf"), name)
    return (float(match[1]) * {"": 1, "K": 1e3, "M": 1e6}[match[2].upper()], name)
