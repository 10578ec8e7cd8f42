"""The data of a job: loaded, with the user's own lists applied and the split resolved, in the one right order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from prismem_core.jobs.settings import JobSettings
from prismem_core.tasks.datasets import load, read_split
from prismem_core.tasks.datasets.lists import apply_lists
from prismem_core.tasks.task import Dataset

Parts = Mapping[str, Sequence[str]]


def open_data(source: str, parts: Parts | None, settings: JobSettings) -> tuple[Dataset, Parts | None]:
    """The data set and the parts to use; None means the data set's own.

    `settings.split` names a split where `parts` are not given. It is drawn from the whole data set, so that a list of
    exclusions changes no part but for what it takes out. Raises DataError.
    """
    whole = load(source)
    if parts is None and settings.split is not None:
        parts = read_split(settings.split, whole, settings.split_seed)
    dataset = apply_lists(
        whole,
        None if settings.exclude is None else Path(settings.exclude),
        None if settings.corrections is None else Path(settings.corrections),
    )
    if parts is None:
        return dataset, None
    lost = whole.histories.keys() - dataset.histories.keys()
    return dataset, {part: tuple(key for key in ids if key not in lost) for part, ids in parts.items()}
