"""Ablation of the strategies: each with several seeds on the same data, then the table on the test questions.

    python -m bench.ablation --root DIR --data locomo=PATH --data beam=PATH --results FILE [--seeds 5]

Every run is a process of `prismem evolve` in DIR/NAME/STRATEGY-sSEED; the runs of a data set share a cache. Stop it
whenever you like: the same command reads what is finished, resumes what was stopped and starts what is missing.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from prismem_core.errors import ArgumentError, PrismemError, RunError, SettingsError
from prismem_core.evaluation.intervals import LEVEL, RESAMPLES, statistics_installed
from prismem_core.runs.run import MANIFEST, RunRecord, read_run
from prismem_core.tasks.datasets import load
from prismem_core.tasks.task import Dataset

from ..writable import check_file, check_folder
from .figures import figures
from .plan import STRATEGIES, Place, places, sources
from .reading import Questions, Result, check_alike, is_finished, questions, read
from .tables import tables
from .work import INTERRUPTED, Stopped, finish

FORMAT = "prismem-ablation"
FORMAT_VERSION = 1
INCOMPLETE = 9


def main(arguments: Sequence[str] | None = None) -> int:
    """Bring all runs to their end, print the table and write the results; 9 where a run is missing from them.

    Where none can be read there is no table, and nothing is written.
    """
    given = _parser().parse_args(arguments)
    try:
        if not statistics_installed():
            raise SettingsError("the intervals need scipy; run: pip install 'prismem-core[statistics]'")
        if given.seeds < 1:
            raise ArgumentError(f"--seeds must be at least 1, got {given.seeds}")
        known = sources(given.data, given.split)
        datasets = {source.name: load(source.path) for source in known}
        if not given.only_table:
            for source in known:
                check_folder(given.root / source.name, "--root")
        if given.results is not None:
            check_file(given.results, "--results")
        wanted = list(places(given.root, known, tuple(dict.fromkeys(given.strategies)), given.seeds))
        failed = {} if given.only_table else finish(wanted, given.set, given.more, _tell)
        found, missing = summarise(wanted, datasets, given.set, failed)
        if not found:
            _tell(f"none of the {len(wanted)} runs can be read, so there is no table")
            _tell_missing(missing)
            return INCOMPLETE
        if given.results is not None:
            _write(given.results, found)
        print(tables(found), flush=True)
    except (Stopped, KeyboardInterrupt):
        _tell("stopped; what is finished is kept, and the same command goes on")
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except PrismemError as error:
        _tell(str(error))
        return error.exit_code
    _tell_missing(missing)
    return INCOMPLETE if missing else 0


def _tell_missing(missing: Mapping[str, str]) -> None:
    for name, why in missing.items():
        _tell(f"not in the table: {name} ({why})")


def summarise(
    wanted: Sequence[Place],
    datasets: Mapping[str, Dataset],
    sets: Sequence[str] = (),
    failed: Mapping[str, str] | None = None,
) -> tuple[dict[str, Any], dict[str, str]]:
    """The results of the runs that are finished as plain JSON, and why each other one is not among them.

    `failed` are runs that came to no end just now, with the reason. Without a finished run the results are empty.
    """
    absent: dict[str, str] = {}
    data: dict[str, Any] = {}
    for source in dict.fromkeys(place.source for place in wanted):
        results: dict[str, Result] = {}
        known: Questions | None = None
        header: dict[str, Any] = {}
        for place in (place for place in wanted if place.source == source):
            record = _finished_record(place, absent)
            if record is None:
                continue
            _check_place(place, record, sets)
            if known is None:
                known, header = questions(record, datasets[source.name]), _header(record)
            try:
                results[place.title] = read(record, known)
            except RunError as error:
                absent[place.title] = str(error)
        if known is not None and results:
            check_alike(results)
            made = [result.provenance for result in results.values() if result.provenance]
            header["provenance"] = [one for number, one in enumerate(made) if one not in made[:number]]
            data[source.name] = {**header, **figures(known, list(results.values()))}
    if not data:
        return {}, {**absent, **(failed or {})}
    interval = {"level": LEVEL, "resamples": RESAMPLES, "method": "BCa bootstrap of the mean, seed 0"}
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "interval": interval,
        "absent": sorted(absent),
        "data": data,
    }, {**absent, **(failed or {})}


def _finished_record(place: Place, absent: dict[str, str]) -> RunRecord | None:
    """A finished run; None for one that is not or that is damaged, which is then named in `absent`."""
    if not (place.directory / MANIFEST).exists():
        absent[place.title] = "not started"
        return None
    try:
        record = read_run(place.directory)
    except RunError as error:
        absent[place.title] = str(error)
        return None
    if not is_finished(record):
        absent[place.title] = "not finished"
        return None
    return record


def _check_place(place: Place, record: RunRecord, sets: Sequence[str]) -> None:
    """A directory must hold the run that its name says, made with the settings that were asked for."""
    settings = record.manifest.settings
    own = f"{settings.get('strategy')}-s{settings.get('seed')}"
    if own != place.name:
        raise RunError(f"{place.directory} holds the run {own}; move it, or name another --root")
    for pair in sets:
        key, _, text = pair.partition("=")
        recorded = {**record.manifest.extra.get("job", {}), **settings}.get(key.strip())
        if recorded is not None and recorded != _value(text):
            raise RunError(
                f"{place.directory} was made with {key}={recorded}, not {text}; name another --root for other settings"
            )


def _value(text: str) -> Any:
    """A value of --set as `prismem` reads it: a TOML value, else the text itself."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text.strip()


def _header(record: RunRecord) -> dict[str, Any]:
    """What the figures of a data set were made of and with; nothing about the machine."""
    manifest = record.manifest
    kept = {key: value for key, value in manifest.data.items() if key != "source"}
    return {
        "version": manifest.version,
        "source": kept,
        "split": manifest.extra.get("parts"),
        "scoring": manifest.extra.get("scoring"),
        "roles": dict(manifest.roles),
        "settings": {key: value for key, value in manifest.settings.items() if key not in ("seed", "strategy")},
    }


def _write(path: Path, found: Mapping[str, Any]) -> None:
    temporary = path.with_name(path.name + ".tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(_lines(found) + "\n", encoding="utf-8")
        os.replace(temporary, path)
    except OSError as error:
        raise RunError(
            f"cannot write {path}: {error.strerror}; name a --results in a folder you may write to"
        ) from error


def _lines(value: Any, depth: int = 0) -> str:
    """JSON with what holds no further object or list on one line, and six decimals."""
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    if not any(isinstance(one, (Mapping, list)) for one in inner):
        return json.dumps(_rounded(value))
    own, end = "\n" + " " * (depth + 1), "\n" + " " * depth
    if isinstance(value, Mapping):
        rows = [f"{json.dumps(key)}: {_lines(one, depth + 1)}" for key, one in value.items()]
        return "{" + own + f",{own}".join(rows) + end + "}"
    return "[" + own + f",{own}".join(_lines(one, depth + 1) for one in value) + end + "]"


def _rounded(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _rounded(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_rounded(one) for one in value]
    return round(value, 6) if isinstance(value, float) else value


def _tell(text: str) -> None:
    print(f"bench.ablation: {text}", file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.ablation",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Words after -- go to `prismem evolve` as they are, for example: -- --chat openai:MODEL@URL",
    )
    parser.add_argument("--root", type=Path, required=True, help="directory of all runs")
    parser.add_argument("--data", action="append", required=True, metavar="NAME=PATH", help='or "sample"; repeatable')
    parser.add_argument(
        "--split",
        action="append",
        default=[],
        metavar="NAME=SPLIT",
        help="as for `prismem evolve`; locomo and beam have one",
    )
    parser.add_argument("--strategies", nargs="+", choices=STRATEGIES, default=list(STRATEGIES))
    parser.add_argument("--seeds", type=int, default=5, help="how many, from 0; 5 by default")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="as for `prismem evolve`")
    parser.add_argument("--results", type=Path, help="JSON file for all figures")
    parser.add_argument("--only-table", action="store_true", help="start nothing; read the runs that are finished")
    parser.add_argument("more", nargs="*", help=argparse.SUPPRESS)
    return parser
