"""Agreement of judges on the rows of an evaluation: which answers are compared, and what is left out and counted."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from prismem_core.clients.model_settings import ModelSettings, ModelSpec
from prismem_core.errors import BudgetError, DataError, SettingsError
from prismem_core.jobs.judge_agreement import agreement_tables, compare_files, compare_judges, read_rows
from prismem_core.jobs.settings import build_job_settings
from prismem_core.roles.protocols import ChatReply, ChatRequest
from prismem_core.tasks.datasets import load


def row(task: str, score: float | None, **changes: Any) -> dict[str, Any]:
    plain = {"program": "seed", "task": task, "native_type": "temporal", "answer": "x", "score": score, "failure": None}
    return {**plain, **changes}


def write(path: Path, rows: Sequence[Any]) -> Path:
    path.write_text("".join(json.dumps(r) + "\n" for r in rows), encoding="utf-8")
    return path


def test_what_two_files_hold_of_the_same_answers_is_compared(tmp_path: Path) -> None:
    shared = [("a", 1.0, 1.0), ("b", 0.0, 0.0), ("c", 1.0, 0.0), ("d", 0.0, 0.0), ("e", 1.0, 1.0)]
    first = [row(t, a, scored_by="judge one") for t, a, _ in shared]
    second = [row(t, b, scored_by="judge two") for t, _, b in shared]
    first += [row("only", 1.0), row("other", 1.0), row("unread", None), row("broke", None, failure={"stage": "index"})]
    second += [row("other", 1.0, answer="y"), row("unread", 1.0), row("broke", 1.0), row("more", 0.0, program="p")]
    result = compare_files(write(tmp_path / "a", first), write(tmp_path / "b", reversed(second)))
    assert result["compared"] == 5
    assert result["left_out"] == {
        "in one file alone": 2,
        "the files hold different answers": 1,
        "the program failed": 1,
        "no verdict of one judge or both could be read": 1,
    }
    assert list(result["unreadable"].values()) == [1, 0]
    found = result["all"]
    # Observed 4 / 5; expected 3/5 * 2/5 + 2/5 * 3/5.
    assert found["agreement"] == 0.8 and found["kappa"] == pytest.approx((0.8 - 0.48) / 0.52)
    assert result["types"]["temporal"] == found
    json.dumps(result, allow_nan=False)
    agreement_table, confusion = agreement_tables(result)
    assert agreement_table.rows[-1][:5] == ("all", "5", "0.800", "0.200", "0.615")
    assert "no verdict of one judge" in agreement_table.note and confusion.rows == (("0", "2", "0"), ("1", "1", "2"))


def test_types_are_compared_apart(tmp_path: Path) -> None:
    first = [row("a", 1.0, native_type="m"), row("b", 0.5, native_type="n"), row("c", 0.5, native_type="n")]
    second = [row("a", 1.0, native_type="m"), row("b", 0.5, native_type="n"), row("c", 1.0, native_type="n")]
    result = compare_files(write(tmp_path / "a", first), write(tmp_path / "b", second))
    assert {name: found["n"] for name, found in result["types"].items()} == {"m": 1, "n": 2}
    assert "at least 2" in result["types"]["m"]["note"] and result["types"]["n"]["weighted"]
    agreement_tables(result)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "line 2 is not JSON"),
        ("[1]", "line 2 is no JSON object"),
        ('{"score": 1}', "'task' must be a text"),
        ('{"task": 3}', "'task' must be a text"),
        ('{"task": "b", "answer": ["x"]}', "'answer' must be a text"),
        ('{"task": "b", "score": "1"}', "'score' must be null or a number"),
        ('{"task": "b", "score": 1.5}', "'score' must be null or a number"),
        ('{"task": "b", "score": true}', "'score' must be null or a number"),
        ('{"task": "b", "score": NaN}', "'score' must be null or a number"),
        ('{"task": "a", "program": "seed"}', "stands there twice"),
    ],
)
def test_a_line_that_is_no_row_is_named(tmp_path: Path, line: str, said: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(row("a", 1.0)) + f"\n{line}\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"rows\.jsonl") as caught:
        read_rows(path)
    assert said in str(caught.value) and "--questions" in str(caught.value) and "\n" not in str(caught.value)


def test_files_without_rows_or_without_a_common_answer_are_refused(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.write_text("\n", encoding="utf-8")
    for path in (empty, tmp_path / "nowhere"):
        with pytest.raises(DataError, match="--questions"):
            read_rows(path)
    with pytest.raises(DataError, match="no answer in common"):
        compare_files(write(tmp_path / "a", [row("a", 1.0)]), write(tmp_path / "b", [row("b", 1.0)]))


class Model:
    """Says that answers whose task it knows by number are right, others wrong; some it cannot make up its mind on."""

    made: ClassVar[list[str]] = []
    closed: ClassVar[list[str]] = []
    seen: ClassVar[list[ChatRequest]] = []

    def __init__(self, spec: ModelSpec, settings: ModelSettings, engines: object) -> None:
        self.identity = settings.identity_of(spec)
        self.name = spec.model
        Model.made.append(self.name)

    def complete(self, requests: Sequence[ChatRequest]) -> list[ChatReply]:
        assert Model.made[-1] == self.name, "one model at a time"
        Model.seen += requests
        return [ChatReply(self._reply(request), 10, 2) for request in requests]

    def _reply(self, request: ChatRequest) -> str:
        prediction = request.inputs["prediction"]
        if prediction == "unclear" and self.name == "strict":
            return "hm"
        right = prediction == "right" or (prediction == "nearly" and self.name == "kind")
        return json.dumps({"score": float(right)})

    def close(self) -> None:
        Model.closed.append(self.name)


JUDGES = ["openai:strict@http://localhost:1/v1", "openai:kind@http://localhost:1/v1"]


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    Model.made, Model.closed, Model.seen = [], [], []
    monkeypatch.setattr("prismem_core.jobs.models.make_chat", Model)
    yield


def answers(path: Path, data: Path, said: Sequence[str]) -> Path:
    tasks = [task for task in load(str(data)).tasks if not task.expects_abstention][: len(said)]
    assert len(tasks) == len(said)
    return write(
        path, [row(t.id, 0.0, answer=text, native_type=t.native_type) for t, text in zip(tasks, said, strict=True)]
    )


@pytest.mark.usefixtures("models")
def test_two_judges_are_asked_about_each_answer(tmp_path: Path, small_data: Path) -> None:
    said = ["right", "wrong", "nearly", "right", "wrong", "unclear"]
    questions = answers(tmp_path / "q", small_data, said)
    cache = tmp_path / "cache"
    result = compare_judges(questions, str(small_data), JUDGES, build_job_settings({}), cache)
    assert result["compared"] == 5 and list(result["unreadable"].values()) == [1, 0]
    assert result["all"]["agreement"] == 0.8
    assert all(name.startswith("model judge ") for name in result["judges"])
    # Six answers for each judge, and the unclear one twice more.
    asked = {"calls": 14, "input_tokens": 140, "output_tokens": 28}
    assert result["models"]["roles"] == {"judge": {**asked, "cost": 0.0, "stages": {"judge": asked}}}
    assert Model.made == Model.closed == ["strict", "kind"]
    before = len(Model.seen)
    again = compare_judges(questions, str(small_data), JUDGES, build_job_settings({}), cache)
    assert {**again, "models": 0} == {**result, "models": 0}
    # What could be read is in the cache; what could not is asked anew, beyond the replies that are stored.
    assert [request.sample for request in Model.seen[before:]] == [3, 4, 5]


@pytest.mark.usefixtures("models")
def test_a_cap_binds_both_judges(tmp_path: Path, small_data: Path) -> None:
    questions = answers(tmp_path / "q", small_data, ["right", "wrong"])
    settings = build_job_settings({"budget": {"calls": 2}})
    with pytest.raises(BudgetError):
        compare_judges(questions, str(small_data), JUDGES, settings)
    assert Model.closed == ["strict", "kind"] and len(Model.seen) == 2


@pytest.mark.usefixtures("models")
def test_the_lexical_judge_may_be_one_of_them(tmp_path: Path, small_data: Path) -> None:
    reference = next(t.reference for t in load(str(small_data)).tasks if not t.expects_abstention)
    words = load(str(small_data)).reply_words
    for said, right in ((reference, 1.0), (" ".join(["x"] * words + [reference]), 0.0)):
        questions = answers(tmp_path / "q", small_data, [said, "wrong"])
        result = compare_judges(questions, str(small_data), ["lexical", JUDGES[0]], build_job_settings({}))
        assert result["judges"][0] == "lexical-1" and result["compared"] == 2
        assert result["all"]["difference"] == right / 2, "an answer is judged by its first words"


def test_judges_that_cannot_be_compared_are_refused(tmp_path: Path, small_data: Path) -> None:
    questions = answers(tmp_path / "q", small_data, ["right"])
    for specs in ([], ["lexical"], ["lexical", "lexical"]):
        with pytest.raises(SettingsError, match="two different judges"):
            compare_judges(questions, str(small_data), specs, build_job_settings({}))
    with pytest.raises(SettingsError, match="nobody"):
        compare_judges(questions, str(small_data), ["lexical", "nobody"], build_job_settings({}))
    with pytest.raises(DataError, match="has no task"):
        compare_judges(write(tmp_path / "w", [row("x", 1.0)]), str(small_data), JUDGES, build_job_settings({}))


def test_answers_may_hold_line_separators(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(row("a", 1.0, answer="x\u2028y\x85z"), ensure_ascii=False) + "\n", encoding="utf-8")
    assert [found.answer for found in read_rows(path).values()] == ["x\u2028y\x85z"]
