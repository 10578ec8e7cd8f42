"""Options that name the models of a job, and how their values become settings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from prismem_core.errors import SettingsError

_SPEC = "offline, openai:MODEL@URL (any compatible server) or vllm:MODEL"

ChatOption = Annotated[str | None, typer.Option("--chat", help=f"Task model: {_SPEC}; docs/models.md.")]
JudgeOption = Annotated[
    str | None, typer.Option("--judge", help="Judge: lexical, or a model as for --chat (docs/judges.md).")
]
DesignerOption = Annotated[
    str | None, typer.Option("--designer", help="Model that diagnoses and revises programs, as for --chat.")
]
EmbedderOption = Annotated[
    str | None, typer.Option("--embedder", help="Embedder: auto, bge-small, hashing, or a model as for --chat.")
]
AnnotatorOption = Annotated[
    str | None,
    typer.Option(
        "--annotator", help="Model that labels training and validation questions, as for --chat (docs/annotation.md)."
    ),
]
RecordOption = Annotated[
    Path | None, typer.Option("--record", help="Append every model call to this file, for --replay.")
]
ReplayOption = Annotated[
    Path | None, typer.Option("--replay", help="Answer model calls from this recording; no model is contacted.")
]
BudgetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--budget",
        help="A cap over all models: calls=N, tokens=N, money=X, seconds=X or gpu_seconds=X; may be repeated.",
        metavar="KEY=VALUE",
    ),
]


def model_values(
    *,
    chat: str | None = None,
    judge: str | None = None,
    designer: str | None = None,
    embedder: str | None = None,
    annotator: str | None = None,
    record: Path | None = None,
    replay: Path | None = None,
    budget: list[str] | None = None,
) -> dict[str, Any]:
    """Settings of a job by key, those that were given; SettingsError for a budget that is not KEY=NUMBER."""
    values: dict[str, Any] = {
        "chat": chat,
        "judge": judge,
        "designer": designer,
        "embedder": embedder,
        "annotator": annotator,
        "record": None if record is None else str(record.absolute()),
        "replay": None if replay is None else str(replay.absolute()),
        "budget": _budget(budget) or None,
    }
    return {key: value for key, value in values.items() if value is not None}


def _budget(pairs: list[str] | None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for pair in pairs or []:
        key, _, text = pair.partition("=")
        try:
            number = float(text)
        except ValueError:
            raise SettingsError(f"--budget {pair!r} is not KEY=NUMBER; write for example --budget tokens=2e6") from None
        found[key.strip()] = int(number) if number.is_integer() else number
    return found


def merged(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Settings of a job, `second` before `first`, tables joined key by key."""
    joined = dict(first)
    for key, value in second.items():
        both = isinstance(value, dict) and isinstance(joined.get(key), dict)
        joined[key] = merged(joined[key], value) if both else value
    return joined
