"""Splits by name: fixed ones, samples by question type with a seed, and what they refuse."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from prismem_core.errors import DataError
from prismem_core.tasks.capability import Capability
from prismem_core.tasks.datasets import load, named_split, read_split
from prismem_core.tasks.datasets.named_splits import NAMED_SPLITS, counts
from prismem_core.tasks.datasets.splits import BEAM_100K_SPLIT, LOCOMO_SPLIT, read_split_file, spread
from prismem_core.tasks.history import History
from prismem_core.tasks.task import Dataset, Task

# The types of LongMemEval's 500 questions, abstention apart.
TYPES = {
    "single-session-user": 64,
    "single-session-assistant": 56,
    "single-session-preference": 30,
    "multi-session": 121,
    "temporal-reasoning": 127,
    "knowledge-update": 72,
    "abstention": 30,
}


def longmemeval(types: dict[str, int]) -> Dataset:
    tasks = []
    for kind, count in types.items():
        for number in range(count):
            abstains = kind == "abstention"
            name = f"{kind}-{number:03d}{'_abs' if abstains else ''}"
            tasks.append(
                Task(
                    id=name,
                    history_id=name,
                    question="?",
                    reference="x",
                    evidence=(),
                    native_type="multi-session" if abstains else kind,
                    primary=Capability.FACTUAL_RETRIEVAL,
                    metric="abstention" if abstains else "f1",
                    benchmark="longmemeval",
                )
            )
    return Dataset("longmemeval", {task.id: History(task.id, ()) for task in tasks}, tuple(tasks), "", {})


def test_sixty_and_sixty_by_question_type() -> None:
    dataset = longmemeval(TYPES)
    parts = named_split("longmemeval-s/paper", dataset)
    assert {part: len(ids) for part, ids in parts.items()} == {"train": 60, "valid": 60, "test": 0}
    # 60 / 500 of each type; what is left over goes to the largest remainders.
    expected = {
        "abstention": 4,
        "knowledge-update": 9,
        "multi-session": 14,
        "single-session-assistant": 7,
        "single-session-preference": 3,
        "single-session-user": 8,
        "temporal-reasoning": 15,
    }
    assert counts(parts, dataset) == {"train": expected, "valid": expected, "test": {}}
    assert not set(parts["train"]) & set(parts["valid"])


def test_two_hundred_that_the_smaller_size_does_not_ask() -> None:
    dataset = longmemeval(TYPES)
    small, large = (named_split(f"longmemeval-{size}/paper", dataset, seed=3) for size in "sm")
    assert {part: len(ids) for part, ids in large.items()} == {"train": 0, "valid": 0, "test": 200}
    assert not set(large["test"]) & {*small["train"], *small["valid"]}
    assert counts(large, dataset)["test"]["temporal-reasoning"] == 51


def test_the_seed_decides_and_the_order_of_the_data_does_not() -> None:
    dataset = longmemeval(TYPES)
    first = named_split("longmemeval-s/paper", dataset, seed=1)
    assert first == named_split("longmemeval-s/paper", dataset, seed=1)
    assert first["train"] != named_split("longmemeval-s/paper", dataset, seed=2)["train"]
    turned = longmemeval(dict(reversed(TYPES.items())))
    assert {k: set(v) for k, v in named_split("longmemeval-s/paper", turned, seed=1).items()} == {
        k: set(v) for k, v in first.items()
    }


def test_samples_need_enough_questions_and_a_data_set() -> None:
    with pytest.raises(DataError, match="needs 120 questions; data set 'longmemeval' has 20"):
        named_split("longmemeval-s/paper", longmemeval({"multi-session": 20}))
    with pytest.raises(DataError, match="name it with --data"):
        named_split("longmemeval-m/paper")


def test_the_paper_s_chats() -> None:
    parts = named_split("beam-100k/paper")
    assert [len(parts[part]) for part in ("train", "valid", "test")] == [8, 6, 6]
    assert sorted(int(i.removeprefix("100K/")) for ids in parts.values() for i in ids) == list(range(1, 21))
    for part, ids in BEAM_100K_SPLIT.items():
        assert set(ids) <= set(parts[part])
    assert named_split("beam-100k/dev") == dict(BEAM_100K_SPLIT)
    assert named_split("locomo/dev") == dict(LOCOMO_SPLIT)
    assert len(named_split("beam-1m/paper")["test"]) == 35


def test_unknown_names_and_missing_conversations(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no split 'beam/paper'; there are beam-100k/paper, "):
        named_split("beam/paper")
    with pytest.raises(DataError, match="needs 6 conversations; data set 'sample' lacks 6"):
        named_split("locomo/dev", load("sample"))
    with pytest.raises(DataError, match=r"no split file at .*nothing, and no split of that name"):
        read_split(tmp_path / "nothing")


def test_a_name_or_a_path(tmp_path: Path) -> None:
    path = tmp_path / "split.json"
    path.write_text(json.dumps({"test": ["x"]}), encoding="utf-8")
    assert read_split(path) == read_split_file(path) == {"train": (), "valid": (), "test": ("x",)}
    assert read_split("locomo/dev") == named_split("locomo/dev")


def test_no_fixed_split_has_a_conversation_in_two_parts() -> None:
    for split in NAMED_SPLITS.values():
        ids = [history_id for part in (split.fixed or {}).values() for history_id in part]
        assert len(ids) == len(set(ids))


def test_spread_keeps_each_stratum_s_share() -> None:
    order = spread({f"{kind}{number}": kind for kind, size in (("a", 8), ("b", 4)) for number in range(size)})
    assert len(order) == 12
    for start in (0, 6):
        assert sum(item.startswith("b") for item in order[start : start + 6]) == 2
    assert [item for item in order if item.startswith("a")] == [f"a{n}" for n in range(8)]


def test_the_real_development_splits(data_dir: Path) -> None:
    beam = load(data_dir / "beam" / "chats")
    parts = named_split("beam-100k/dev", beam)
    assert [len(beam.split(parts).train), len(beam.split(parts).valid), len(beam.split(parts).test)] == [120, 60, 60]
    assert len(beam.split(named_split("beam-scale/dev", beam)).test) == 60
    with pytest.raises(DataError, match=r"lacks 8 of them: 100K/3, 100K/5"):
        named_split("beam-100k/paper", beam)
