"""Lists of exclusions and corrections: forms, what they change, what they refuse, and the notes they leave."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from prismem_core.errors import DataError
from prismem_core.tasks.datasets import load, summary


def written(path: Path, value: Any) -> Path:
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return path


FIRST = "ines-marek/q000"


@pytest.mark.parametrize(
    "name, content",
    [
        ("x.json", [FIRST, {"id": "yuki-leon", "reason": "doubtful"}]),
        ("x.json", {"exclude": [FIRST, {"id": "yuki-leon", "reason": "doubtful"}]}),
        ("x.jsonl", f'"{FIRST}"\n\n{{"id": "yuki-leon", "reason": "doubtful"}}\n'),
        ("x.toml", f'[[exclude]]\nid = "{FIRST}"\n[[exclude]]\nid = "yuki-leon"\nreason = "doubtful"\n'),
    ],
)
def test_exclusions_in_every_form(tmp_path: Path, name: str, content: Any) -> None:
    whole = load("sample")
    assert FIRST in {task.id for task in whole.tasks}
    dataset = load("sample", exclude=written(tmp_path / name, content))
    gone = {task.id for task in whole.tasks} - {task.id for task in dataset.tasks}
    assert gone == {FIRST, *(task.id for task in whole.tasks if task.history_id == "yuki-leon")}
    assert "yuki-leon" not in dataset.histories
    assert "yuki-leon" not in {history_id for ids in dataset.default_split.values() for history_id in ids}
    assert {task.twin for task in dataset.tasks}.isdisjoint(gone)
    assert dataset.digest != whole.digest
    note = dataset.notes["excluded"]
    assert (note["list"], len(note["sha256"])) == (name, 64)
    assert note["conversations"] == ["yuki-leon"]
    assert note["entries"] == [{"id": FIRST}, {"id": "yuki-leon", "reason": "doubtful"}]
    assert f"note: excluded by {name} (sha256 " in summary(dataset)
    assert summary(dataset).endswith(f"): 2 ({FIRST}, yuki-leon)")


def test_a_split_may_name_what_is_left_out(tmp_path: Path) -> None:
    parts = {"train": ["ines-marek", "yuki-leon"], "valid": ["noor-beatriz"]}
    dataset = load("sample", exclude=written(tmp_path / "x.json", ["yuki-leon"]))
    whole, split = load("sample").split(parts), dataset.split(parts)
    assert split.train == tuple(task_id for task_id in whole.train if task_id.startswith("ines-marek/"))
    assert split.valid == whole.valid
    with pytest.raises(DataError, match="names history 'nobody'"):
        dataset.split({"train": ["nobody"]})


def test_a_twin_that_is_left_out_is_replaced(tmp_path: Path) -> None:
    whole = load("sample")
    task = next(task for task in whole.tasks if task.twin)
    assert task.twin
    dataset = load("sample", exclude=written(tmp_path / "x.json", [task.twin]))
    new = dataset.task(task.id).twin
    assert new not in (None, task.twin)


def test_corrections(tmp_path: Path) -> None:
    whole = load("sample")
    turn = whole.histories["ines-marek"].sessions[0].turns[0]
    entry = {"id": FIRST, "answer": " 3 May ", "question": "When?", "evidence": [turn.id], "rubric": ["3 May"]}
    dataset = load("sample", corrections=written(tmp_path / "fix.json", {"correct": [entry | {"reason": "checked"}]}))
    task = dataset.task(FIRST)
    assert (task.reference, task.question, task.rubric) == ("3 May", "When?", ("3 May",))
    assert (task.evidence_ids, task.evidence) == ((turn.id,), (turn.text,))
    assert [other for other in dataset.tasks if other.id != FIRST] == [t for t in whole.tasks if t.id != FIRST]
    assert dataset.notes["corrected"]["entries"] == [
        {"id": FIRST, "reason": "checked", "fields": ["question", "answer", "rubric", "evidence"]}
    ]
    assert f"note: corrected by fix.json (sha256 {dataset.notes['corrected']['sha256'][:16]}): 1 ({FIRST})" in summary(
        dataset
    )


@pytest.mark.parametrize(
    "table, content, message",
    [
        ("exclude", ["nobody/q1"], "has no question or conversation 'nobody/q1'"),
        ("exclude", [], "lists nothing"),
        ("exclude", [{"name": "x"}], "entry 0: expected an id or an object with `id`"),
        ("exclude", {"remove": ["x"]}, "expected the one key 'exclude' with a list, found remove"),
        ("exclude", [{"id": FIRST, "answer": "x"}], "unknown key 'answer'"),
        ("exclude", [FIRST, FIRST], f"names '{FIRST}' twice"),
        ("exclude", "[", "is not valid JSON"),
        ("corrections", [{"id": "nobody", "answer": "x"}], "has no question 'nobody'"),
        ("corrections", [FIRST], "nothing is corrected"),
        ("corrections", [{"id": FIRST, "answer": 3}], "'answer' must be a text"),
        ("corrections", [{"id": FIRST, "evidence": ["D99:1"]}], "no turn 'D99:1'"),
        ("corrections", [{"id": FIRST, "rubric": "x"}], "'rubric' must be a list of texts"),
        ("corrections", [{"id": FIRST, "date": "x"}], "unknown key 'date'"),
    ],
)
def test_lists_out_of_form(tmp_path: Path, table: str, content: Any, message: str) -> None:
    path = written(tmp_path / "list.json", content)
    with pytest.raises(DataError) as error:
        load("sample", **{table: path})
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_missing_lists_toml_and_nothing_left(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot read"):
        load("sample", exclude=tmp_path / "none.json")
    with pytest.raises(DataError, match="is not valid TOML"):
        load("sample", exclude=written(tmp_path / "x.toml", "exclude = ["))
    everything = written(tmp_path / "all.json", list(load("sample").histories))
    with pytest.raises(DataError, match="leaves data set 'sample' without any question"):
        load("sample", exclude=everything)
