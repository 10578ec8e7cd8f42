"""The file of a LexicalIndex: what is saved comes back to the bit, damage is found, nothing half written stays."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from prismem_core.errors import ArgumentError, LexicalIndexError
from prismem_core.index import LexicalIndex, Tokenizer
from tests.index.test_lexical import TEXTS, random_texts


def filled() -> LexicalIndex:
    index = LexicalIndex(k1=1.5, b=0.5)
    index.add(["gone", *TEXTS, "猫が好き 🎂"], [99, *range(10, 10 + len(TEXTS)), -(2**63)])
    index.update([11], ["Melanie paints mountains"])
    index.remove([99])
    return index


def test_an_index_comes_back(tmp_path: Path) -> None:
    index, path = filled(), tmp_path / "texts.lexical"
    index.save(path)
    loaded = LexicalIndex.load(path)
    queries = ["caroline paints", "猫", "mountains", "🎂", "gone"]
    assert [p.tobytes() for p in loaded.search(queries, 5)] == [p.tobytes() for p in index.search(queries, 5)]
    assert (loaded.ids.tolist(), loaded.k1, loaded.b) == (index.ids.tolist(), 1.5, 0.5)
    assert loaded.stats().terms < index.stats().terms
    loaded.save(str(path))
    assert LexicalIndex.load(path).add(["more"]).tolist() == index.add(["more"]).tolist() == [100]
    assert os.listdir(tmp_path) == ["texts.lexical"]


def test_equal_contents_make_equal_files(tmp_path: Path) -> None:
    fresh = LexicalIndex(k1=1.5, b=0.5)
    texts = [*TEXTS, "猫が好き 🎂"]
    texts[1] = "Melanie paints mountains"
    fresh.add(texts, [*range(10, 10 + len(TEXTS)), -(2**63)])
    fresh.add(["x"], [99])
    fresh.remove([99])
    fresh.save(tmp_path / "a")
    filled().save(tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_an_empty_index_comes_back(tmp_path: Path) -> None:
    LexicalIndex().save(tmp_path / "empty")
    loaded = LexicalIndex.load(tmp_path / "empty")
    assert (len(loaded), loaded.search(["a"], 3).counts.tolist()) == (0, [0])


def test_many_texts_come_back(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    texts = random_texts(rng, 3000)
    index = LexicalIndex()
    index.add(texts)
    index.save(tmp_path / "many")
    loaded, queries = LexicalIndex.load(tmp_path / "many"), texts[:50]
    assert [p.tobytes() for p in loaded.search(queries, 9)] == [p.tobytes() for p in index.search(queries, 9)]


def test_the_tokenizer_must_be_the_one_it_was_made_with(tmp_path: Path) -> None:
    stems = Tokenizer("stems-é", stem=lambda word: word[:4])
    index = LexicalIndex(tokenizer=stems)
    index.add(["painting"])
    index.save(tmp_path / "stems")
    with pytest.raises(LexicalIndexError, match="made with the tokenizer 'stems-é', and 'plain' was given"):
        LexicalIndex.load(tmp_path / "stems")
    assert LexicalIndex.load(tmp_path / "stems", tokenizer=stems).search(["painters"], 3).counts.tolist() == [1]


def test_every_changed_byte_is_found(tmp_path: Path) -> None:
    path = tmp_path / "index"
    filled().save(path)
    sound = path.read_bytes()
    for place in range(len(sound)):
        damaged = bytearray(sound)
        damaged[place] ^= 1 << (place % 8)
        path.write_bytes(damaged)
        with pytest.raises(LexicalIndexError, match=r"is damaged|is not a lexical index"):
            LexicalIndex.load(path)


def test_every_cut_is_found(tmp_path: Path) -> None:
    path = tmp_path / "index"
    filled().save(path)
    sound = path.read_bytes()
    for length in range(len(sound)):
        path.write_bytes(sound[:length])
        with pytest.raises(LexicalIndexError):
            LexicalIndex.load(path)
    path.write_bytes(sound + b"\0")
    with pytest.raises(LexicalIndexError, match="does not have the length"):
        LexicalIndex.load(path)


def forged(sound: bytes, place: int, value: bytes) -> bytes:
    """The file with other bytes at a place, and checksums that fit them."""
    from prismem_core._native import crc32c

    made = bytearray(sound)
    made[place : place + len(value)] = value
    made[72:76] = crc32c(bytes(made[80:])).to_bytes(4, "little")
    made[76:80] = crc32c(bytes(made[:76])).to_bytes(4, "little")
    return bytes(made)


def test_a_forged_file_is_refused_or_harmless(tmp_path: Path) -> None:
    path = tmp_path / "index"
    filled().save(path)
    sound = path.read_bytes()
    refused = 0
    for place in range(8, len(sound) - 8, 4):
        for value in (b"\xff" * 4, b"\0" * 8, b"\x7f" + b"\xff" * 6 + b"\x7f", (1).to_bytes(4, "little")):
            path.write_bytes(forged(sound, place, value))
            try:
                index = LexicalIndex.load(path, tokenizer=Tokenizer("plain"))
                index.search(["caroline paints 猫"], 5)
                index.add(["new words"], [77])
            except LexicalIndexError:
                refused += 1
    assert refused > 100


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(LexicalIndexError, match="cannot be opened"):
        LexicalIndex.load(tmp_path / "missing")
    with pytest.raises(LexicalIndexError, match="cannot be opened"):
        LexicalIndex.load(tmp_path)
    (tmp_path / "other").write_text("something else, long enough to be no header of an index, but still just text " * 3)
    with pytest.raises(LexicalIndexError, match="is not a lexical index"):
        LexicalIndex.load(tmp_path / "other")
    path = tmp_path / "newer"
    filled().save(path)
    path.write_bytes(forged(path.read_bytes(), 8, (2).to_bytes(4, "little")))
    with pytest.raises(LexicalIndexError, match="has format 2 and this version of prismem-core reads format 1"):
        LexicalIndex.load(path)
    with pytest.raises(ArgumentError, match="path: expected the path of a file"):
        LexicalIndex.load("")


def test_what_was_there_stays_where_the_new_file_cannot_be_written(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(LexicalIndexError, match="cannot be saved as"):
        filled().save(folder)
    with pytest.raises(LexicalIndexError, match="cannot be saved as"):
        filled().save(tmp_path / "missing" / "index")
    assert os.listdir(tmp_path) == ["folder"]


def test_a_fork_keeps_its_own_index(run_script: Callable[..., str]) -> None:
    printed = run_script(
        """
import os
from prismem_core.index import LexicalIndex
index = LexicalIndex()
index.add(["parent text"])
child = os.fork()
if child == 0:
    index.add(["child text"])
    os._exit(index.search(["text"], 9).counts[0])
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), index.search(["text"], 9).counts[0])
"""
    )
    assert printed.split() == ["2", "1"]
