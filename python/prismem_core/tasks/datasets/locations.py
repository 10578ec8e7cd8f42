"""Where the public benchmarks lie: pinned revisions, sizes and hashes, in one table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any


@dataclass(frozen=True)
class PublicFile:
    """One file at a pinned revision; `sha256` and `size` (bytes) are None where they are recorded at the first fetch.

    `aliases` are other names under which people keep the same file.
    """

    name: str
    url: str
    sha256: str | None = None
    size: int | None = None
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True)
class Location:
    """One benchmark as `prismem data fetch NAME` gets it."""

    name: str
    about: str
    revision: str
    licence: str
    files: tuple[PublicFile, ...]

    @property
    def size(self) -> int | None:
        """Bytes of all files, None where one of them is not known."""
        sizes = [file.size for file in self.files]
        return None if None in sizes else sum(size for size in sizes if size is not None)


_HUB = "https://huggingface.co/datasets"
_RAW = "https://raw.githubusercontent.com"

_LONGMEMEVAL_CLEANED = "98d7416c24c778c2fee6e6f3006e7a073259d48f"
_LONGMEMEVAL_ORIGINAL = "2ec2a557f339b6c0369619b1ed5793734cc87533"
_BEAM = "3205395e897e7318c7b094ef4e6047b9b82dbb03"
_BEAM_10M = "9b2096193fe74e2837e4713e483351e19817773c"
_LOCOMO = "3eb6f2c585f5e1699204e3c3bdf7adc5c28cb376"
_PERLTQA_V2 = "67f8351aa6cedddcfc9985e475cfb5565ffd6fa8"
_PERLTQA = "8d9e19868e239740ef701e603ec205cd581f221b"
_ORACLE_SHA256 = "821a2034d219ab45846873dd14c14f12cfe7776e73527a483f9dac095d38620c"


def _longmemeval(name: str, about: str, remote: str, sha256: str, size: int, *, cleaned: bool) -> Location:
    repository, revision = (
        ("longmemeval-cleaned", _LONGMEMEVAL_CLEANED) if cleaned else ("longmemeval", _LONGMEMEVAL_ORIGINAL)
    )
    url = f"{_HUB}/xiaowu0162/{repository}/resolve/{revision}/{remote}"
    # The original files have no suffix; both releases share the oracle file.
    local = remote if remote.endswith(".json") else f"{remote}.json"
    return Location(name, about, revision, "MIT", (PublicFile(local, url, sha256, size, aliases=(remote,)),))


def _beam(name: str, size_name: str, shards: tuple[tuple[str, int], ...], repository: str, revision: str) -> Location:
    files = []
    for number, (sha256, size) in enumerate(shards):
        file = f"{size_name}-{number:05d}-of-{len(shards):05d}.parquet"
        files.append(PublicFile(file, f"{_HUB}/Mohammadta/{repository}/resolve/{revision}/data/{file}", sha256, size))
    return Location(name, f"BEAM, chats of {size_name} tokens (needs pyarrow)", revision, "CC BY-SA 4.0", tuple(files))


def _perltqa(name: str, about: str, revision: str, memory: str, questions: str) -> Location:
    # Their hashes are not published anywhere we could check: the first fetch records them.
    files = tuple(
        PublicFile(PurePosixPath(path).name, f"{_RAW}/Elvin-Yiming-Du/PerLTQA/{revision}/Dataset/{path}")
        for path in (memory, questions)
    )
    return Location(name, about, revision, "CC BY-NC 4.0", files)


LOCATIONS: Mapping[str, Location] = {
    location.name: location
    for location in (
        Location(
            "locomo",
            "LoCoMo, 10 conversations, 1,986 questions",
            _LOCOMO,
            "CC BY-NC 4.0",
            (
                PublicFile(
                    "locomo10.json",
                    f"{_RAW}/snap-research/locomo/{_LOCOMO}/data/locomo10.json",
                    "79fa87e90f04081343b8c8debecb80a9a6842b76a7aa537dc9fdf651ea698ff4",
                    2_805_274,
                ),
            ),
        ),
        _longmemeval(
            "longmemeval-s",
            "LongMemEval-S, cleaned, 500 questions",
            "longmemeval_s_cleaned.json",
            "d6f21ea9d60a0d56f34a05b609c79c88a451d2ae03597821ea3d5a9678c3a442",
            277_383_467,
            cleaned=True,
        ),
        _longmemeval(
            "longmemeval-m",
            "LongMemEval-M, cleaned, 500 questions",
            "longmemeval_m_cleaned.json",
            "9d79e5524794a2e6900a3aa9cb7d9152c5a3e8319c9a87c25494ba1eacee495f",
            2_737_100_077,
            cleaned=True,
        ),
        _longmemeval(
            "longmemeval-oracle",
            "LongMemEval, evidence sessions alone",
            "longmemeval_oracle.json",
            _ORACLE_SHA256,
            15_388_478,
            cleaned=True,
        ),
        _longmemeval(
            "longmemeval-original-s",
            "LongMemEval-S as first published",
            "longmemeval_s",
            "08d8dad4be43ee2049a22ff5674eb86725d0ce5ff434cde2627e5e8e7e117894",
            278_025_796,
            cleaned=False,
        ),
        _longmemeval(
            "longmemeval-original-m",
            "LongMemEval-M as first published",
            "longmemeval_m",
            "fb5413e3b077c62927daab794836991a2fcfa61ceacab57dc679fb02daaff2d9",
            2_745_274_681,
            cleaned=False,
        ),
        _longmemeval(
            "longmemeval-original-oracle",
            "LongMemEval, evidence sessions alone, as first published",
            "longmemeval_oracle",
            _ORACLE_SHA256,
            15_388_478,
            cleaned=False,
        ),
        _beam(
            "beam-100k",
            "100K",
            (("c0519be25907005ba873c927c50877471d550873039d96c041554d0075a78ace", 5_429_768),),
            "BEAM",
            _BEAM,
        ),
        _beam(
            "beam-500k",
            "500K",
            (("af05921c979355038e1761b7cde3d2dd713200dd3071b278de0200f6c7f30122", 33_956_263),),
            "BEAM",
            _BEAM,
        ),
        _beam(
            "beam-1m",
            "1M",
            (("41b5acbbb55a586b1305514ef9d9fb03365d9b3331b598a1c2dd7603d93ef533", 66_156_374),),
            "BEAM",
            _BEAM,
        ),
        _beam(
            "beam-10m",
            "10M",
            (
                ("31d96fd47ec56221d202e68792f26c00e49467dd4b36ee105c36ebd19ef78ad5", 153_844_664),
                ("a4f13fe25af51d57405ae41008689c31d1421377f3efde56a024b441deb2ee65", 189_980_875),
            ),
            "BEAM-10M",
            _BEAM_10M,
        ),
        _perltqa(
            "perltqa-en-v2",
            "PerLTQA, English, second release",
            _PERLTQA_V2,
            "en_v2/perltmem_en_v2.json",
            "en_v2/perltqa_en_v2.json",
        ),
        _perltqa(
            "perltqa-en",
            "PerLTQA, English, first release",
            _PERLTQA,
            "en/perltmem_en.json",
            "en/perltqa_en.json",
        ),
        _perltqa("perltqa-zh", "PerLTQA, Chinese", _PERLTQA, "zh/perltmem.json", "zh/perltqa.json"),
    )
}


def check_known(files: Iterable[tuple[str, str]]) -> list[dict[str, Any]]:
    """What is known of files, given as (name, SHA-256): those whose name or hash is that of a public file.

    `as_pinned` is false where the name is that of a public file and the bytes are not.
    """
    by_hash: dict[str, tuple[Location, PublicFile]] = {}
    by_name: dict[str, tuple[Location, PublicFile]] = {}
    for location in LOCATIONS.values():
        for file in location.files:
            if file.sha256 is not None:
                by_hash.setdefault(file.sha256, (location, file))
                for name in (file.name, *file.aliases):
                    by_name.setdefault(name, (location, file))
    found = []
    for name, sha256 in files:
        known = by_hash.get(sha256) or by_name.get(PurePosixPath(name).name)
        if known is not None:
            location, file = known
            found.append(
                {
                    "file": name,
                    "name": location.name,
                    "revision": location.revision,
                    "sha256": sha256,
                    "pinned_sha256": file.sha256,
                    "as_pinned": sha256 == file.sha256,
                }
            )
    return found
