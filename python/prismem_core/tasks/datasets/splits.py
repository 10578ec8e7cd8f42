"""Which conversations evolve, validate and test: named splits, the generic one, and split files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from prismem_core.errors import DataError
from prismem_core.tasks.datasets.source import Source, parse_json

PARTS = ("train", "valid", "test")

LOCOMO_SPLIT: Mapping[str, tuple[str, ...]] = {
    "train": ("conv-26", "conv-30", "conv-41"),
    "valid": ("conv-42", "conv-43"),
    "test": ("conv-44",),
}
BEAM_100K_SPLIT: Mapping[str, tuple[str, ...]] = {
    "train": ("100K/1", "100K/4", "100K/6", "100K/8", "100K/11", "100K/14"),
    "valid": ("100K/2", "100K/7", "100K/13"),
    "test": ("100K/16", "100K/18", "100K/19"),
}


def generic_split(history_ids: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """About half train, a quarter valid, the rest test, by position; no part empty from 3 conversations on.

    With 2 conversations the first is train and the second valid; with fewer there is no split (an empty dictionary).
    """
    count = len(history_ids)
    if count < 2:
        return {}
    train, valid = max(1, count // 2), max(1, (count + 2) // 4)
    ids = tuple(history_ids)
    return {"train": ids[:train], "valid": ids[train : train + valid], "test": ids[train + valid :]}


def spread(strata: Mapping[str, str]) -> list[str]:
    """The ids, ordered so that each stratum is spread evenly: any stretch of it holds about its share of each.

    `strata` maps ids to strata; inside one the order is kept.
    """
    members: dict[str, list[str]] = {}
    for identifier, stratum in strata.items():
        members.setdefault(stratum, []).append(identifier)
    places = {
        identifier: ((2 * rank + 1) / (2 * len(ids)), stratum)
        for stratum, ids in members.items()
        for rank, identifier in enumerate(ids)
    }
    return sorted(strata, key=places.__getitem__)


def default_split(
    history_ids: Iterable[str], named: Mapping[str, tuple[str, ...]] | None = None
) -> dict[str, tuple[str, ...]]:
    """The named split if all its conversations are present (others then stand in no part), else the generic one."""
    ids = list(history_ids)
    if named and {history_id for part in named.values() for history_id in part} <= set(ids):
        return {part: tuple(named[part]) for part in PARTS}
    return generic_split(ids)


def read_split_file(path: str | Path) -> dict[str, tuple[str, ...]]:
    """The parts of a split file, `{"train": [...], "valid": [...], "test": [...]}` with history ids.

    A part left out is empty; `train` and `valid` must name something, unless `test` alone does. That the ids exist is
    for Dataset.split to check.
    """
    path = Path(path)
    text = Source(path.parent).text(path)
    value = parse_json(text, path)
    expected = '{"train": [...], "valid": [...], "test": [...]} with ids of conversations'
    if not isinstance(value, dict):
        raise DataError(f"split file {path} holds {type(value).__name__}; expected {expected}")
    named = json.loads(text, object_pairs_hook=lambda pairs: [key for key, _ in pairs])
    twice = [part for part in value if named.count(part) > 1]
    if twice:
        raise DataError(f"split file {path} names part {twice[0]!r} twice; expected {expected}")
    unknown = [key for key in value if key not in PARTS]
    if unknown:
        raise DataError(f"split file {path} has the unknown part {unknown[0]!r}; expected {expected}")
    for part, ids in value.items():
        if not isinstance(ids, list) or not all(isinstance(item, str) for item in ids):
            raise DataError(f"split file {path}: part {part!r} must be a list of strings, not {json.dumps(ids)[:60]}")
    only_test = bool(value.get("test")) and not value.get("train") and not value.get("valid")
    for part in () if only_test else ("train", "valid"):
        if not value.get(part):
            raise DataError(f"split file {path}: part {part!r} is empty; evolution needs train and valid conversations")
    return {part: tuple(value.get(part, ())) for part in PARTS}
