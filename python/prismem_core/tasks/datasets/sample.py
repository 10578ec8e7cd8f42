"""The packaged sample set: invented conversations of named pairs of people, written for this project."""

from __future__ import annotations

from pathlib import Path

from prismem_core.tasks.datasets.jsonl import load_jsonl
from prismem_core.tasks.datasets.source import Source
from prismem_core.tasks.task import Dataset

SAMPLE_PATH = Path(__file__).parent / "data" / "sample.jsonl"


def load_sample() -> Dataset:
    """The sample set; DataError if the installation lacks its file."""
    source = Source(SAMPLE_PATH.parent)
    return load_jsonl([(SAMPLE_PATH, source.text(SAMPLE_PATH))], "sample", source)
