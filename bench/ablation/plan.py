"""Which runs an ablation is made of, and where each of them lies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from prismem_core.errors import ArgumentError

STRATEGIES = ("prismem", "holistic", "round-robin", "random-case", "no-integration", "router")
SPLITS: Mapping[str, str] = {"locomo": "locomo/dev", "beam": "beam-100k/dev"}
"""The split of a data set by the name it is given on the command line; others have their own default split."""


@dataclass(frozen=True)
class Source:
    """A data set of the ablation: its name, where it lies, and its split (None: the data set's own)."""

    name: str
    path: str
    split: str | None


@dataclass(frozen=True)
class Place:
    """One run: its data, strategy and seed, its directory, and its log beside it."""

    source: Source
    strategy: str
    seed: int
    root: Path

    @property
    def name(self) -> str:
        """What the run is called."""
        return f"{self.strategy}-s{self.seed}"

    @property
    def title(self) -> str:
        """The run with its data."""
        return f"{self.source.name}/{self.name}"

    @property
    def directory(self) -> Path:
        """The run's directory."""
        return self.root / self.source.name / self.name

    @property
    def log(self) -> Path:
        """What the run's processes print."""
        return self.root / self.source.name / f"{self.name}.log"

    @property
    def cache(self) -> Path:
        """The execution cache that all runs of the data set share."""
        return self.root / f"cache-{self.source.name}"


def places(root: Path, sources: Sequence[Source], strategies: Sequence[str], seeds: int) -> Iterator[Place]:
    """All runs, a seed with all its strategies after the other, so that whatever is finished can be compared."""
    for source in sources:
        for seed in range(seeds):
            for strategy in strategies:
                yield Place(source, strategy, seed, root)


def sources(data: Sequence[str], splits: Sequence[str]) -> list[Source]:
    """The data sets of `NAME=PATH` or `sample`, with the splits of `NAME=SPLIT`; ArgumentError for other words."""
    paths = dict(_pair(word, "--data") for word in data)
    if len(paths) < len(data):
        raise ArgumentError(f"--data names a data set twice: {' '.join(data)}; give each a name of its own")
    given = dict(_pair(word, "--split") for word in splits)
    for name in given:
        if name not in paths:
            raise ArgumentError(f"--split {name}=...: no --data has the name {name!r}; there are {', '.join(paths)}")
    # A path without a folder would be taken for a name by nobody but the loader, which knows "sample".
    return [
        Source(name, path if path == "sample" else str(Path(path).absolute()), given.get(name, SPLITS.get(name)))
        for name, path in paths.items()
    ]


def _pair(word: str, option: str) -> tuple[str, str]:
    name, found, value = word.partition("=")
    if word == "sample" and option == "--data":
        return word, word
    if not found or not name or not value or "/" in name or name in (".", ".."):
        raise ArgumentError(
            f"{option} {word!r} is not NAME=VALUE with a plain name; write for example locomo=data.json"
        )
    return name, value
