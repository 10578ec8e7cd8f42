"""`prismem cache`: look at an execution cache, check it, and take care of its size."""

from __future__ import annotations

import json
import re
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from prismem_core.cli.terminal_text import terminal_text
from prismem_core.errors import CacheError, SettingsError

if TYPE_CHECKING:
    from prismem_core.cache import ExecutionCache

app = typer.Typer(
    help="Look at an execution cache, check it, and take care of its size (docs/cache.md).", no_args_is_help=True
)

Directory = Annotated[
    Path, typer.Argument(metavar="DIR", help="Directory of the cache, such as runs/first/cache.", show_default=False)
]
Json = Annotated[bool, typer.Option("--json", help="Print all of it as one JSON object.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
Stage = Annotated[str | None, typer.Option("--stage", help="Only entries of this stage, such as embed.")]


@app.command("stats")
def stats_command(directory: Directory, as_json: Json = False) -> None:
    """Sizes, entries by stage with what they cost, and the runs that used them."""
    from rich.filesize import decimal

    from prismem_core.runs.report.tables import Table
    from prismem_core.runs.report.terminal import draw, make_console

    with _opened(directory, writes=False) as cache:
        sizes, runs = cache.stats(), cache.runs()
        stages: dict[str, dict[str, float]] = {}
        for entry in cache.entries():
            stage = stages.setdefault(entry.stage, {"entries": 0, "value_bytes": 0, "cost": 0.0})
            stage["entries"] += 1
            stage["value_bytes"] += entry.value_bytes
            stage["cost"] += entry.cost
    stages = dict(sorted(stages.items()))
    if as_json:
        found = {"directory": str(directory), **asdict(sizes), "stages": stages, "runs": runs}
        print(json.dumps(found, indent=2))
        return
    console = make_console()
    rows = [
        (name, f"{row['entries']:,.0f}", decimal(int(row["value_bytes"])), f"{row['cost']:,.0f}")
        for name, row in stages.items()
    ]
    print(
        f"{directory}: {sizes.entries:,} entries, {decimal(sizes.live_bytes)} of {decimal(sizes.disk_bytes)} in "
        f"{sizes.segments:,} segments, index {decimal(sizes.index_bytes)}"
    )
    if rows:
        table = Table("Entries by stage", ("stage", "entries", "values", "cost"), tuple(rows))
        console.print(draw(table, console.width))
    if runs:
        table = Table(
            "Runs", ("run", "entries used"), tuple((terminal_text(run), f"{count:,}") for run, count in runs.items())
        )
        console.print(draw(table, console.width))


@app.command("verify")
def verify_command(directory: Directory, as_json: Json = False) -> None:
    """Read everything and check every checksum; exit code 1 if anything is damaged."""
    from rich.filesize import decimal

    with _opened(directory, writes=False) as cache:
        report = cache.verify()
    if as_json:
        print(json.dumps({**asdict(report), "clean": report.clean}))
    else:
        print(f"{report.entries:,} entries are sound, {decimal(report.bytes)}")
        for count, what in (
            (report.damaged, "damaged entries or stretches of files"),
            (report.damaged_index, "damaged places in the index"),
            (report.damaged_notes, "damaged notes of what runs used"),
        ):
            if count:
                print(f"{count:,} {what}")
    if not report.clean:
        raise typer.Exit(1)


@app.command("compact")
def compact_command(directory: Directory) -> None:
    """Give back the room of what was replaced, removed or evicted."""
    from rich.filesize import decimal

    with _opened(directory, writes=True) as cache:
        freed = cache.compact()
        print(f"{decimal(freed)} freed, {decimal(cache.stats().disk_bytes)} in use")


@app.command("clear")
def clear_command(directory: Directory, yes: Yes = False) -> None:
    """Remove every entry."""
    with _opened(directory, writes=True) as cache:
        count = cache.stats().entries
        _agreed(yes, f"Remove all {count:,} entries of {directory}?")
        cache.clear()
    print(f"{count:,} entries removed")


@app.command("export")
def export_command(
    directory: Directory,
    destination: Annotated[
        Path, typer.Argument(metavar="DESTINATION", help="A directory that is absent or empty.", show_default=False)
    ],
    run: Annotated[str | None, typer.Option("--run", help="Only what this run used.")] = None,
    program: Annotated[str | None, typer.Option("--program", help="Only what the program of this digest used.")] = None,
    stage: Stage = None,
) -> None:
    """Make a new cache of the entries, or of some; costs and notes of runs go with them."""
    with _opened(directory, writes=False) as cache:
        count = cache.export(destination, run=run, program=program, stage=stage)
    print(f"{count:,} entries in {destination}")


@app.command("import")
def import_command(
    directory: Directory,
    source: Annotated[
        Path, typer.Argument(metavar="SOURCE", help="The cache whose entries are taken.", show_default=False)
    ],
) -> None:
    """Take over the entries of another cache that this one has not; damaged ones are left out."""
    with _opened(directory, writes=True) as cache:
        count = cache.import_from(source)
    print(f"{count:,} entries taken from {source}")


@app.command("prune")
def prune_command(
    directory: Directory,
    run: Annotated[
        list[str] | None, typer.Option("--run", help="Entries that this run used and no other; may be repeated.")
    ] = None,
    stage: Stage = None,
    unused_since: Annotated[
        str | None,
        typer.Option("--unused-since", help="Entries not used since a date (2026-03-01) or for a time (36h, 30d)."),
    ] = None,
    yes: Yes = False,
) -> None:
    """Remove the entries that all the conditions given choose; without other conditions a run's notes go too.

    Their room comes back by and by, or at once with `prismem cache compact`.

    Example: prismem cache prune shared-cache --run first --run second
    """
    since = None if unused_since is None else _moment(unused_since)
    with _opened(directory, writes=True) as cache:
        chosen = [f"run {name!r}" for name in run or []] + ([f"stage {stage!r}"] if stage else [])
        chosen += [f"unused since {datetime.fromtimestamp(since):%Y-%m-%d %H:%M}"] if since is not None else []
        if chosen:
            _agreed(yes, f"Remove the entries of {directory} for {', '.join(chosen)}?")
        count = cache.prune(runs=run or (), stage=stage, unused_since=since)
    print(f"{count:,} entries removed")


@contextmanager
def _opened(directory: Path, *, writes: bool) -> Iterator[ExecutionCache]:
    """A cache that is there; what keeps it from being written is an error here, because nothing else is wanted."""
    from prismem_core.cache import CacheWarning, DamageWarning, ExecutionCache, check_is_cache

    check_is_cache(directory)
    with warnings.catch_warnings():
        warnings.simplefilter("error", CacheWarning)
        warnings.simplefilter("always", DamageWarning)
        try:
            with ExecutionCache(directory, read_only=not writes, disk_bytes=1 << 50) as cache:
                yield cache
        except CacheWarning as warning:
            raise CacheError(str(warning)) from None


def _agreed(yes: bool, question: str) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise SettingsError("nothing was removed: add --yes where no terminal is there to ask")
    if not typer.confirm(question):
        print("nothing was removed")
        raise typer.Exit(1)


def _moment(text: str) -> float:
    """Unix seconds of a date, or of so long ago; raises SettingsError for anything else."""
    ago = re.fullmatch(r"(\d{1,6})([hdw])", text.strip())
    if ago:
        return max(0.0, time.time() - int(ago[1]) * {"h": 3600, "d": 86_400, "w": 604_800}[ago[2]])
    try:
        return datetime.fromisoformat(text.strip()).timestamp()
    except (ValueError, OverflowError, OSError):
        raise SettingsError(
            f"--unused-since {text!r} is neither a date (2026-03-01) nor a time such as 36h, 30d or 4w"
        ) from None
