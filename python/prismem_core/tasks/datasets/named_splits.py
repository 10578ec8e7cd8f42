"""Splits by name: the paper's (P Table 7) and smaller ones for development."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from prismem_core.errors import DataError
from prismem_core.tasks.datasets.longmemeval import stratum
from prismem_core.tasks.datasets.splits import BEAM_100K_SPLIT, LOCOMO_SPLIT, PARTS, read_split_file
from prismem_core.tasks.task import Dataset

Parts = dict[str, tuple[str, ...]]


@dataclass(frozen=True)
class NamedSplit:
    """One split: either `fixed` parts, or sample sizes drawn by question type with a seed."""

    name: str
    about: str
    fixed: Mapping[str, Sequence[str]] | None = None
    samples: tuple[tuple[str, int], ...] = ()


def _beam(size: str, numbers: Sequence[int]) -> tuple[str, ...]:
    return tuple(f"{size}/{number}" for number in numbers)


# Of LongMemEval's 500 questions first 60 and 60 (S), then 200 more (M): the two sizes ask the same questions, so that
# samples drawn one after the other share none.
_S_SAMPLES = (("train", 60), ("valid", 60))
_M_SAMPLES = (*_S_SAMPLES, ("test", 200))

NAMED_SPLITS: Mapping[str, NamedSplit] = {
    split.name: split
    for split in (
        NamedSplit(
            "beam-100k/paper",
            "8 chats (160 questions) train, 6 (120) valid, as in the paper; which ones is our choice; the rest is test",
            fixed={
                "train": _beam("100K", (1, 3, 4, 5, 6, 8, 11, 14)),
                "valid": _beam("100K", (2, 7, 9, 10, 12, 13)),
                "test": _beam("100K", (15, 16, 17, 18, 19, 20)),
            },
        ),
        NamedSplit(
            "beam-100k/dev",
            "12 chats: 6 train, 3 valid, 3 test; each part lies in the same part of beam-100k/paper",
            fixed=BEAM_100K_SPLIT,
        ),
        NamedSplit(
            "beam-1m/paper",
            "35 chats (700 questions), all of them test",
            fixed={"train": (), "valid": (), "test": _beam("1M", range(1, 36))},
        ),
        NamedSplit(
            "beam-scale/dev",
            "three long chats, all of them test",
            fixed={"train": (), "valid": (), "test": ("500K/1", "500K/29", "1M/7")},
        ),
        NamedSplit(
            "longmemeval-s/paper",
            "60 questions train and 60 valid, by question type with a seed",
            samples=_S_SAMPLES,
        ),
        NamedSplit(
            "longmemeval-m/paper",
            "200 questions test, by question type with a seed; none that longmemeval-s/paper draws with that seed",
            samples=_M_SAMPLES,
        ),
        NamedSplit("locomo/dev", "3 conversations train, 2 valid, 1 test", fixed=LOCOMO_SPLIT),
    )
}


def named_split(name: str, dataset: Dataset | None = None, seed: int = 0) -> Parts:
    """The parts of a named split, in the order of the data set for samples.

    Fixed splits need no data set and ignore the seed; with a data set, all they name must be in it. Raises DataError
    for an unknown name, and for a data set that lacks conversations or questions.
    """
    split = NAMED_SPLITS.get(name)
    if split is None:
        raise DataError(f"no split {name!r}; there are {', '.join(NAMED_SPLITS)}, or give the path of a split file")
    if split.fixed is not None:
        parts = {part: tuple(split.fixed.get(part, ())) for part in PARTS}
        wanted = [history_id for part in parts.values() for history_id in part]
        missing = (
            [] if dataset is None else [history_id for history_id in wanted if history_id not in dataset.histories]
        )
        if dataset is not None and missing:
            raise DataError(
                f"split {name!r} needs {len(wanted)} conversations; data set {dataset.name!r} lacks {len(missing)} of "
                f"them: {', '.join(missing)}"
            )
        return parts
    if dataset is None:
        raise DataError(f"split {name!r} is drawn from the questions of a data set; name it with --data")
    parts = _sample(split, dataset, seed)
    return {**parts, "train": (), "valid": ()} if parts["test"] else parts


def strata(dataset: Dataset) -> dict[str, str]:
    """Each history's question type, abstention apart; of a history with several questions that of the first."""
    found: dict[str, str] = {}
    for task in dataset.tasks:
        found.setdefault(task.history_id, stratum(task))
    return found


def counts(parts: Mapping[str, Sequence[str]], dataset: Dataset) -> dict[str, dict[str, int]]:
    """Questions of each part by type, abstention apart."""
    of_part = {history_id: part for part, ids in parts.items() for history_id in ids}
    found: dict[str, Counter[str]] = {part: Counter() for part in parts}
    for task in dataset.tasks:
        if task.history_id in of_part:
            found[of_part[task.history_id]][stratum(task)] += 1
    return {part: dict(sorted(count.items())) for part, count in found.items()}


def read_split(value: str | Path, dataset: Dataset | None = None, seed: int = 0) -> Parts:
    """The parts of a split given by name or as the path of a file; `named_split` tells what needs a data set."""
    if str(value) in NAMED_SPLITS:
        return named_split(str(value), dataset, seed)
    if not Path(value).exists():
        raise DataError(f"no split file at {value}, and no split of that name; named ones: {', '.join(NAMED_SPLITS)}")
    return read_split_file(value)


def _sample(split: NamedSplit, dataset: Dataset, seed: int) -> Parts:
    """Samples drawn one after the other: of each type its share (largest remainders), members by a seeded shuffle."""
    of_history = strata(dataset)
    needed = sum(size for _, size in split.samples)
    if len(of_history) < needed:
        raise DataError(
            f"split {split.name!r} needs {needed} questions; data set {dataset.name!r} has {len(of_history)}"
        )
    generator = random.Random(f"{seed}")
    left: dict[str, list[str]] = {}
    for name in sorted(set(of_history.values())):
        ids = sorted(history_id for history_id, kind in of_history.items() if kind == name)
        generator.shuffle(ids)
        left[name] = ids
    # Shares are those of the whole set, so that each sample has the same mixture.
    shares = {name: Fraction(len(ids), len(of_history)) for name, ids in left.items()}
    chosen: dict[str, set[str]] = {part: set() for part in PARTS}
    for part, size in split.samples:
        for name, count in _apportion(size, shares, {name: len(ids) for name, ids in left.items()}).items():
            chosen[part].update(left[name][:count])
            left[name] = left[name][count:]
    return {part: tuple(h for h in of_history if h in chosen[part]) for part in PARTS}


def _apportion(size: int, shares: Mapping[str, Fraction], available: Mapping[str, int]) -> dict[str, int]:
    """Whole numbers that add up to `size`, by largest remainders; none above what is available."""
    exact = {name: share * size for name, share in shares.items()}
    given = {name: min(int(value), available[name]) for name, value in exact.items()}
    order = sorted(exact, key=lambda name: (given[name] - exact[name], name))
    while (missing := size - sum(given.values())) > 0:
        for name in [name for name in order if given[name] < available[name]][:missing]:
            given[name] += 1
    return given
