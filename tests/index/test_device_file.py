"""The file of an index without the C++ core: the same bytes, and the same damage found with the same words."""

from __future__ import annotations

import fcntl
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prismem_core import VectorIndex
from prismem_core.errors import VectorIndexError
from prismem_core.index import device_file
from prismem_core.index.checksums import crc32c
from prismem_core.ops.inputs import unit_rows
from tests.index.conftest import DTYPES, METRICS, kept

PAGE = 4096
VALUES = unit_rows(np.random.default_rng(5), 40, 9)
IDS = np.random.default_rng(6).permutation(np.arange(-20, 20)) * 10**17


def written(path: Path, values: np.ndarray = VALUES, dtype: str = "float32", metric: str = "inner_product") -> bytes:
    rows = kept(values, dtype)
    header = device_file.Header(dtype, metric, 9, rows.shape[0], int(IDS.max()) + 1)
    parts = (rows[begin : begin + 7].view(np.uint8).reshape(-1) for begin in range(0, rows.shape[0], 7))
    device_file.write(os.fsencode(path), header, parts, IDS[: rows.shape[0]])
    return path.read_bytes()


def read_all(path: Path, verify: bool = True) -> tuple[device_file.Header, bytes, list[int]]:
    with device_file.Reader(os.fsencode(path)) as file:
        return file.header, b"".join(part.tobytes() for part in file.rows(3, verify)), file.ids(verify).tolist()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("metric", METRICS)
def test_the_bytes_are_those_of_the_core(tmp_path: Path, dtype: str, metric: str) -> None:
    index = VectorIndex(9, dtype=dtype, metric=metric)
    index.add(VALUES, IDS)
    index.save(tmp_path / "core")
    assert written(tmp_path / "file", dtype=dtype, metric=metric) == (tmp_path / "core").read_bytes()
    header, rows, ids = read_all(tmp_path / "core")
    assert header == device_file.Header(dtype, metric, 9, 40, int(IDS.max()) + 1)
    assert rows == kept(VALUES, dtype).tobytes()
    assert ids == IDS.tolist()
    assert sorted(os.listdir(tmp_path)) == ["core", "file"]


def test_an_empty_index_and_one_with_codes(tmp_path: Path) -> None:
    assert len(written(tmp_path / "file", VALUES[:0])) == PAGE
    assert read_all(tmp_path / "file")[1:] == (b"", [])
    assert len(VectorIndex.load(tmp_path / "file")) == 0
    coded = VectorIndex(9, codes="always")
    coded.add(VALUES, IDS)
    coded.save(tmp_path / "coded")
    assert read_all(tmp_path / "coded")[1:] == (VALUES.tobytes(), IDS.tolist())


def outcome(read: Any, path: Path) -> str:
    try:
        read(path)
    except VectorIndexError as error:
        return str(error)
    return "read"


def test_damage_is_found_with_the_words_of_the_core(tmp_path: Path) -> None:
    data = written(tmp_path / "file")
    damaged = [data[:size] for size in (0, 1, 7, 8, 100, PAGE - 1, PAGE, 2 * PAGE, len(data) - 1)] + [data + b"\0"]
    for place in (*range(140), *range(140, len(data), 53), len(data) - 1):
        flipped = bytearray(data)
        flipped[place] ^= 1 << place % 8
        damaged.append(bytes(flipped))
    words = set()
    for content in damaged:
        (tmp_path / "file").write_bytes(content)
        expected = outcome(VectorIndex.load, tmp_path / "file")
        assert outcome(read_all, tmp_path / "file") == expected
        words.add(expected[-40:])
    assert len(words) > 5


@pytest.mark.parametrize(
    ("offset", "form", "value"),
    [
        (8, "<I", 2),
        (12, "<I", 3),
        (16, "<I", 2),
        (20, "<I", 126),
        (20, "<I", 125),
        (20, "<I", 0),
        (20, "<I", 1),
        (24, "<q", 0),
        (24, "<q", -9),
        (24, "<q", 2**62),
        (24, "<q", 10),
        (12, "<I", 1),
        (32, "<q", 41),
        (32, "<q", -1),
        (32, "<q", 2**62),
        (48, "<q", 2**60),
        (72, "<q", 0),
        (72, "<q", PAGE + 8),
        (104, "<q", 2**62),
        (104, "<q", -PAGE),
        (104, "<q", 3 * PAGE),
        (112, "<q", 2**63 - 1),
        (112, "<q", -1),
        (112, "<q", 312),
    ],
)
def test_a_header_that_lies_is_refused_with_the_words_of_the_core(
    tmp_path: Path, offset: int, form: str, value: int
) -> None:
    data = bytearray(written(tmp_path / "file"))
    struct.pack_into(form, data, offset, value)
    struct.pack_into("<I", data, PAGE - 4, crc32c(bytes(data[: PAGE - 4])))
    (tmp_path / "file").write_bytes(data)
    expected = outcome(VectorIndex.load, tmp_path / "file")
    assert "damaged" in expected or "format 2" in expected
    assert outcome(read_all, tmp_path / "file") == expected


def test_unverified_rows_are_handed_over_as_they_are(tmp_path: Path) -> None:
    data = bytearray(written(tmp_path / "file"))
    data[PAGE] ^= 1
    (tmp_path / "file").write_bytes(data)
    assert read_all(tmp_path / "file", verify=False)[1] == bytes(data[PAGE : PAGE + 40 * 36])
    with pytest.raises(VectorIndexError, match="the section at byte 4096 does not match its checksum"):
        read_all(tmp_path / "file")


def test_places_that_are_no_index(tmp_path: Path) -> None:
    (tmp_path / "thesis").write_bytes(os.urandom(20_000))
    os.mkfifo(tmp_path / "pipe")
    for name in ("thesis", "pipe", "", "absent", "thesis/below"):
        assert outcome(read_all, tmp_path / name) == outcome(VectorIndex.load, tmp_path / name) != "read"


def test_saving_where_nothing_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "mine").write_bytes(b"mine")
    (tmp_path / "folder").mkdir()
    index = VectorIndex(9)
    index.add(VALUES, IDS)
    for name in ("absent/index", "mine/index", "folder"):
        messages = [outcome(save, tmp_path / name) for save in (index.save, written)]
        assert all("what was there before is as it was" in message for message in messages), messages
    assert sorted(os.listdir(tmp_path)) == ["folder", "mine"]


def test_two_savers_of_one_file_are_kept_apart(tmp_path: Path) -> None:
    with (tmp_path / "file.new").open("wb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(VectorIndexError, match="being saved there by another thread or process"):
            written(tmp_path / "file")
    written(tmp_path / "file")
    assert os.listdir(tmp_path) == ["file"]


def test_a_save_that_fails_on_its_way_leaves_what_was_there(tmp_path: Path) -> None:
    before = written(tmp_path / "file")

    def broken() -> Any:
        yield np.zeros(36, np.uint8)
        raise RuntimeError("the device went away")

    header = device_file.Header("float32", "cosine", 9, 2, 0)
    with pytest.raises(RuntimeError, match="went away"):
        device_file.write(os.fsencode(tmp_path / "file"), header, broken(), IDS[:2])
    assert (tmp_path / "file").read_bytes() == before
    assert os.listdir(tmp_path) == ["file"]
