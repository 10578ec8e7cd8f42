"""`prismem data`: the public data sets, what is irregular in one's copies, and splits by name."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from prismem_core.cli.models import AnnotatorOption, BudgetOption, merged, model_values
from prismem_core.cli.options import Corrections, Data, Exclude, Sets, SettingsFile, SplitFile, parse_sets, parts_of

if TYPE_CHECKING:
    from prismem_core.jobs.data_doctor import Diagnosis
    from prismem_core.tasks.irregularity import Irregularity

app = typer.Typer(
    name="data", help="Public data sets: list, fetch, examine and split them (docs/data.md).", no_args_is_help=True
)

Json = Annotated[bool, typer.Option("--json", help="Print all of it as one JSON object.")]
AcceptChanged = Annotated[
    bool, typer.Option("--accept-changed", help="Take files whose bytes are not the pinned ones, and say so.")
]


@app.command("list")
def list_command(as_json: Json = False) -> None:
    """The data sets that can be fetched, with licence, size and revision, and the splits that have a name."""
    from prismem_core.tasks.datasets.locations import LOCATIONS
    from prismem_core.tasks.datasets.named_splits import NAMED_SPLITS

    if as_json:
        sets = [
            {
                "name": place.name,
                "about": place.about,
                "licence": place.licence,
                "revision": place.revision,
                "files": [
                    {"name": file.name, "url": file.url, "sha256": file.sha256, "bytes": file.size}
                    for file in place.files
                ],
            }
            for place in LOCATIONS.values()
        ]
        splits = [{"name": split.name, "about": split.about} for split in NAMED_SPLITS.values()]
        print(json.dumps({"data_sets": sets, "splits": splits}, indent=2))
        return
    rows: list[tuple[str, ...]] = [("name", "size", "licence", "revision", "what")]
    for place in LOCATIONS.values():
        size = "at first fetch" if place.size is None else _bytes(place.size)
        rows.append((place.name, size, place.licence, place.revision[:12], place.about))
    _print_rows(rows)
    print("\nsplits (--split NAME, `prismem data split NAME`):")
    _print_rows([(split.name, split.about) for split in NAMED_SPLITS.values()])


@app.command("fetch")
def fetch_command(
    name: Annotated[str, typer.Argument(help="Name of the data set (`prismem data list`).", show_default=False)],
    to: Annotated[Path | None, typer.Option("--to", help="Folder; data/NAME by default.", show_default=False)] = None,
    base: Annotated[
        str | None, typer.Option("--from", help="URL of a mirror that serves the files under their names.")
    ] = None,
    accept_changed: AcceptChanged = False,
) -> None:
    """Fetch a public data set at its pinned revision, resume what was interrupted, and check every byte.

    Example: prismem data fetch locomo --to data/locomo
    """
    from prismem_core.jobs.data_fetch import fetch, location

    place = location(name)
    folder = Path("data") / name if to is None else to
    shown = 0

    def progress(file: str, received: int, total: int | None) -> None:
        nonlocal shown
        if sys.stderr.isatty() and total and received - shown >= total // 50:
            shown = received
            print(f"\r{file}: {received * 100 // total} %", end="", file=sys.stderr, flush=True)

    changed = False
    for fetched in fetch(place, folder, base=base, accept_changed=accept_changed, on_progress=progress):
        changed = changed or fetched.state == "changed"
        if shown:
            print("\r", end="", file=sys.stderr)
        states = {
            "present": "was there",
            "fetched": "fetched",
            "changed": "CHANGED, taken all the same",
        }
        check = "as pinned" if fetched.pinned else "hash noted in the folder's lock"
        print(
            f"{fetched.path}: {states[fetched.state]}, {fetched.size:,} bytes, sha256 {fetched.sha256[:16]} ({check})"
        )
    about = f"not the pinned files: `prismem data doctor {folder}` says what is in them" if changed else place.about
    print(f"{about}; licence {place.licence}; use it with --data {folder}")


@app.command("doctor")
def doctor_command(
    paths: Annotated[list[Path], typer.Argument(help="Files or folders with data sets.", show_default=False)],
    as_json: Json = False,
    accept_changed: AcceptChanged = False,
) -> None:
    """Load every data set at or below the paths and list each irregular record, one a line.

    Exit code 0: all loads and no record is irregular; 1: all loads, some records are irregular; 3: something does not
    load, or its bytes are not those that were pinned.
    """
    from prismem_core.jobs.data_doctor import examine_data

    diagnosis = examine_data(paths, accept_changed=accept_changed)
    if as_json:
        print(json.dumps(diagnosis.as_json(), ensure_ascii=False, indent=2))
    else:
        _show(diagnosis)
    if diagnosis.exit_code:
        raise typer.Exit(diagnosis.exit_code)


@app.command("split")
def split_command(
    name: Annotated[str, typer.Argument(help="Name of the split (`prismem data list`).", show_default=False)],
    data: Annotated[
        str | None, typer.Option("--data", help="The data set; samples by question type need it.", show_default=False)
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Seed of samples; fixed splits ignore it.")] = 0,
    out: Annotated[Path | None, typer.Option("--out", help="Also write a split file (for --split FILE).")] = None,
    as_json: Json = False,
) -> None:
    """Print a named split with its counts by question type, and write it as a split file.

    Example: prismem data split longmemeval-s/paper --data data/longmemeval-s --out split.json
    """
    from prismem_core.tasks.datasets import load, named_split
    from prismem_core.tasks.datasets.named_splits import counts

    dataset = None if data is None else load(data)
    parts = named_split(name, dataset, seed)
    by_type = None if dataset is None else counts(parts, dataset)
    if out is not None:
        out.write_text(json.dumps({part: list(ids) for part, ids in parts.items()}, indent=1) + "\n", encoding="utf-8")
    if as_json:
        about = {"name": name, "seed": seed, "parts": {part: list(ids) for part, ids in parts.items()}}
        if dataset is not None:
            about |= {"data": {"name": dataset.name, "sha256": dataset.digest}, "questions_by_type": by_type}
        print(json.dumps(about, ensure_ascii=False, indent=2))
        return
    for part, ids in parts.items():
        asked = by_type[part] if by_type is not None else {}
        questions = f", {sum(asked.values()):,} questions" if by_type is not None else ""
        print(f"{part}: {len(ids):,} conversations{questions}")
        if asked:
            print("  " + ", ".join(f"{kind} {count:,}" for kind, count in asked.items()))
        if ids:
            print("  " + " ".join(ids))


@app.command("annotate")
def annotate_command(
    data: Data,
    split: SplitFile = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="File for the labels as JSON Lines; standard output by default.")
    ] = None,
    exclude: Exclude = None,
    corrections: Corrections = None,
    annotator: AnnotatorOption = None,
    budget: BudgetOption = None,
    cache: Annotated[
        Path | None, typer.Option("--cache", help="Execution cache that keeps the replies, for runs to use.")
    ] = None,
    settings: SettingsFile = None,
    sets: Sets = None,
) -> None:
    """Label the training and validation questions with the capabilities they need, one JSON line a question.

    Rules label them without --annotator (docs/annotation.md). `prismem evolve` does the same by itself.

    Example: prismem data annotate --data locomo10.json --annotator openai:Qwen/Qwen3-8B@http://localhost:8000/v1
    """
    from prismem_core.jobs.data_annotation import annotate_data
    from prismem_core.jobs.evaluation_job import check_writable
    from prismem_core.jobs.settings import JobSettings, load_job_settings

    job_sets, evolution_sets = parse_sets(sets, set(JobSettings.model_fields))
    job, evolution = load_job_settings(
        settings, merged(job_sets, model_values(annotator=annotator, budget=budget)), evolution_sets
    )
    if out is not None:
        check_writable(out)  # before anything is paid for
    rows, asked = annotate_data(
        data,
        parts_of(split, data, evolution.seed),
        job,
        cache,
        lambda text: print(text, file=sys.stderr),
        exclude=exclude,
        corrections=corrections,
    )
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    if out is None:
        print(lines, end="")
    else:
        out.write_text(lines, encoding="utf-8")
    agreeing = sum(row["primary"] == row["native"] for row in rows)
    unusable = sum("problem" in row for row in rows)
    print(
        f"{len(rows):,} questions labelled by {asked['annotator']}: {agreeing:,} primaries are those of the native "
        f"types, {unusable:,} without a valid annotation; {asked['calls']:,} calls, {asked['input_tokens']:,} tokens "
        f"read, {asked['output_tokens']:,} written",
        file=sys.stderr,
    )


def _show(diagnosis: Diagnosis) -> None:
    for source in diagnosis.examined:
        print(
            f"{source.path}: {source.name}, {source.conversations:,} conversations, {source.sessions:,} sessions, "
            f"{source.turns:,} turns, {source.questions:,} questions (sha256 {source.sha256[:16]})"
        )
        for file in source.public_files:
            if file["as_pinned"]:
                print(f"  {file['file']} is the pinned file of {file['name']} at {file['revision'][:12]}")
        for reason in source.changed:
            print(f"  CHANGED: {reason}")
        for kind, count in source.mended.items():
            print(f"  in the format itself: {kind}: {count:,}")
        _show_items(f"  {len(source.irregular)} irregular records", source.irregular)
        _show_items(f"  {len(source.variants)} in a form that the format allows", source.variants)
    for path, what in diagnosis.indexes:
        print(f"{path}: no histories, not loaded: {what.removeprefix(path).removeprefix(' is ')}")
    for path, reason in diagnosis.refused:
        print(f"{path}: REFUSED: {reason.removeprefix(path).removeprefix(': ').strip()}")
    irregular = sum(len(source.irregular) for source in diagnosis.examined)
    print(
        f"{len(diagnosis.examined)} data sets load, {irregular} irregular records; "
        f"{len(diagnosis.indexes)} without histories; {len(diagnosis.refused)} refused"
    )


def _show_items(title: str, items: tuple[Irregularity, ...]) -> None:
    if items:
        print(f"{title}:")
    for item in items:
        print(f"    {item.where}: {item.kind}{f': {item.found}' if item.found else ''}")


def _print_rows(rows: list[tuple[str, ...]]) -> None:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    for row in rows:
        cells = [f"{cell:<{width}}" for cell, width in zip(row[:-1], widths, strict=True)]
        print("  ".join([*cells, row[-1]]))


def _bytes(size: int) -> str:
    return f"{size / 1e9:.2f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB"
