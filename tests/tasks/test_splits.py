"""Splits: the generic rule, named ones, split files, and what Dataset.split refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from prismem_core.errors import DataError
from prismem_core.tasks.datasets import load, read_split
from prismem_core.tasks.datasets.splits import LOCOMO_SPLIT, default_split, generic_split
from prismem_core.tasks.history import History
from prismem_core.tasks.task import Dataset


def sizes(count: int) -> list[int]:
    return [len(part) for part in generic_split([str(i) for i in range(count)]).values()]


def test_generic_sizes() -> None:
    expected = {2: [1, 1, 0], 3: [1, 1, 1], 4: [2, 1, 1], 5: [2, 1, 2], 6: [3, 2, 1], 7: [3, 2, 2], 10: [5, 3, 2]}
    assert {count: sizes(count) for count in expected} == expected
    assert sizes(0) == sizes(1) == []


@pytest.mark.parametrize("count", range(3, 40))
def test_generic_parts_are_full_disjoint_and_in_order(count: int) -> None:
    ids = [str(i) for i in range(count)]
    parts = generic_split(ids)
    assert [item for part in parts.values() for item in part] == ids
    assert all(parts.values())


def test_a_named_split_needs_all_its_conversations() -> None:
    named = [item for part in LOCOMO_SPLIT.values() for item in part]
    assert default_split([*named, "conv-50"], LOCOMO_SPLIT) == dict(LOCOMO_SPLIT)
    assert default_split(named[:3], LOCOMO_SPLIT) == {
        "train": ("conv-26",),
        "valid": ("conv-30",),
        "test": ("conv-41",),
    }


def test_split_files(tmp_path: Path) -> None:
    path = tmp_path / "split.json"
    path.write_text('{"valid": ["b"], "train": ["a", "c"]}', encoding="utf-8")
    assert read_split(path) == {"train": ("a", "c"), "valid": ("b",), "test": ()}


@pytest.mark.parametrize(
    "content, message",
    [
        ("[]", "holds list; expected"),
        ('{"train": ["a"], "dev": ["b"]}', "unknown part 'dev'"),
        ('{"train": "a", "valid": ["b"]}', "part 'train' must be a list of strings"),
        ('{"train": ["a"], "valid": [1]}', "part 'valid' must be a list of strings"),
        ('{"train": ["a"]}', "part 'valid' is empty"),
        ('{"train": ["a"],}', "is not valid JSON"),
    ],
)
def test_split_files_out_of_form(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "split.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(DataError) as error:
        read_split(path)
    assert message in str(error.value)


def test_a_missing_split_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no split file at"):
        read_split(tmp_path / "none.json")


def test_dataset_split_refuses_unknown_and_repeated_histories() -> None:
    sample = load("sample")
    with pytest.raises(DataError, match="lacks; it has: "):
        sample.split({"train": ["nobody"]})
    with pytest.raises(DataError, match="stands in both 'train' and 'valid'"):
        sample.split({"train": ["ines-marek"], "valid": ["ines-marek"]})
    with pytest.raises(DataError, match="unknown part"):
        sample.split({"dev": ["ines-marek"]})


def test_one_conversation_cannot_be_split() -> None:
    dataset = Dataset("one", {"a": History("a", ())}, (), "", generic_split(["a"]))
    with pytest.raises(DataError, match="at least 2 are needed"):
        dataset.split()


def test_a_split_holds_the_tasks_of_its_histories_in_order() -> None:
    sample = load("sample")
    split = sample.split({"train": ["yuki-leon", "ines-marek"], "valid": ["noor-beatriz"]})
    order = [task.id for task in sample.tasks]
    assert list(split.train) == [i for i in order if i.startswith(("ines-marek/", "yuki-leon/"))]
    assert list(split.valid) == [i for i in order if i.startswith("noor-beatriz/")]
    assert split.test == ()


def test_split_files_written_by_json_are_read(tmp_path: Path) -> None:
    sample = load("sample")
    path = tmp_path / "s.json"
    path.write_text(json.dumps({part: list(ids) for part, ids in sample.default_split.items()}), encoding="utf-8")
    assert sample.split(read_split(path)) == sample.split()


def test_a_part_that_is_named_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    path.write_text('{"train": ["c0"], "train": ["c1"], "valid": ["c2"]}', encoding="utf-8")
    with pytest.raises(DataError, match="names part 'train' twice"):
        read_split(path)
