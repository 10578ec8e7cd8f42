"""Options that several subcommands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from prismem_core.errors import SettingsError


def _named(value: str) -> str:
    """Refuse an empty path, which would mean the working directory: an unset variable of a script is no data set."""
    if not value.strip():
        raise typer.BadParameter('it is empty; give "sample" or the path of a file or folder')
    return value


Data = Annotated[
    str,
    typer.Option(
        "--data",
        help='"sample" (packaged), or a path: LoCoMo JSON, BEAM chats folder, JSON Lines (docs/data.md).',
        show_default=False,
        callback=_named,
    ),
]
SplitFile = Annotated[
    Path | None,
    typer.Option(
        "--split",
        help='A named split (`prismem data list`), or a JSON file {"train": [...], "valid": [...], "test": [...]} of '
        "conversation ids.",
    ),
]
Exclude = Annotated[
    Path | None, typer.Option("--exclude", help="List of questions and conversations to leave out (docs/data.md).")
]
Corrections = Annotated[
    Path | None, typer.Option("--corrections", help="List of corrected answers and the like (docs/data.md).")
]
SettingsFile = Annotated[
    Path | None, typer.Option("--settings", help="TOML file with the tables job and evolution (docs/settings.md).")
]
Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set", help="One setting, KEY=VALUE, such as T2=6 or reuse=off; may be repeated.", metavar="KEY=VALUE"
    ),
]
InterfaceOption = Annotated[
    str | None,
    typer.Option("--interface", help="paper (ask, embed) or engine (collections too: docs/collections.md)."),
]
Device = Annotated[
    str | None,
    typer.Option("--device", help="cpu, cuda or cuda:N: what searches embeddings first; never changes a result."),
]
Require = Annotated[
    str | None,
    typer.Option(
        "--require", help="standard or strict: refuse to run below this tier of the sandbox (docs/security.md)."
    ),
]
Unsafe = Annotated[
    bool,
    typer.Option(
        "--unsafe-no-sandbox",
        help="Run programs where they cannot be confined, as your own user; marks every result. Only for programs "
        "that you have read.",
    ),
]
VerifyReuse = Annotated[
    float | None,
    typer.Option(
        "--verify-reuse",
        help="Share of reused memories that are built again to compare (0 to 1; docs/reuse.md).",
        min=0.0,
        max=1.0,
    ),
]
Workers = Annotated[int | None, typer.Option("--workers", help="Threads; never changes a result.", min=1)]


def parts_of(split: Path | None, data: str, seed: int | None) -> dict[str, tuple[str, ...]] | None:
    """The parts of a split given by name or file, None where none is; a sample is drawn from the data set with `seed`.

    Raises DataError for one that is neither.
    """
    if split is None:
        return None
    from prismem_core.tasks.datasets import load, read_split
    from prismem_core.tasks.datasets.named_splits import NAMED_SPLITS

    named = NAMED_SPLITS.get(str(split))
    drawn = named is not None and bool(named.samples)
    return dict(read_split(split, load(data) if drawn else None, seed or 0))


def parse_sets(pairs: list[str] | None, job_keys: set[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """`--set` values by table (job, evolution), read as TOML values, else as text; raises SettingsError without `=`.

    `models.ROLE.KEY` and `budget.KEY` stand for a key of those tables.
    """
    import tomllib

    from prismem_core.evolution.settings import EvolutionSettings, unknown_setting

    job: dict[str, Any] = {}
    evolution: dict[str, Any] = {}
    for pair in pairs or []:
        key, found, text = pair.partition("=")
        key = key.strip()
        if not found or not key:
            raise SettingsError(f"--set {pair!r} is not KEY=VALUE; write for example --set T2=6")
        try:
            value = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            value = text
        if key.startswith(("models.", "budget.")):
            table = job
            *path, last = key.split(".")
            for name in path:
                table = table.setdefault(name, {})
            table[last] = value
            continue
        if key not in job_keys and key not in EvolutionSettings.model_fields:
            raise SettingsError(unknown_setting(key, [*sorted(job_keys), *EvolutionSettings.model_fields]))
        (job if key in job_keys else evolution)[key] = value
    return job, evolution
