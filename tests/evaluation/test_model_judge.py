"""Model judges: what each benchmark has them asked, how grades become a verdict, and that no reply is guessed at."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from judge_chat import Answers, JudgeChat, task

from prismem_core.digests import digest
from prismem_core.evaluation.judge_request import PROMPT_VERSION, TEMPLATES, judge_request, order_request
from prismem_core.evaluation.judges import ModelJudge
from prismem_core.evaluation.metrics import bleu1, f1_set, official_f1
from prismem_core.prompts.catalog import render
from prismem_core.roles.protocols import ChatReply, ChatRequest, Judge, ScoresAll, Verdict
from prismem_core.tasks.task import Task

NUGGETS = ("states 3 cats", "states 2 dogs", "avoids horses")


def replying(answers: Answers | str, retries: int = 2) -> tuple[ModelJudge, JudgeChat]:
    chat = JudgeChat((lambda request: answers) if isinstance(answers, str) else answers)
    return ModelJudge(chat, retries=retries, max_tokens=500), chat


def verdict(word: str) -> str:
    return json.dumps({"verdict": word})


def score(number: Any) -> str:
    return json.dumps({"score": number})


# Which rule a task is judged by, told by a sentence that its prompt alone has.
RULES = [
    (task(benchmark="longmemeval", native_type="single-session-user"), "gives only a part"),
    (task(benchmark="longmemeval", native_type="single-session-assistant"), "gives only a part"),
    (task(benchmark="longmemeval", native_type="multi-session"), "gives only a part"),
    (task(benchmark="longmemeval", native_type="temporal-reasoning"), "off by one is still right"),
    (task(benchmark="longmemeval", native_type="knowledge-update"), "latest state"),
    (task(benchmark="longmemeval", native_type="single-session-preference"), "The rubric describes"),
    (
        task(benchmark="longmemeval", native_type="single-session-preference", metric="rubric", rubric=("a kitten",)),
        "The rubric describes",
    ),
    (task("852_abs", benchmark="longmemeval", native_type="temporal-reasoning"), "cannot be told"),
    (task("852_abs", benchmark="longmemeval", native_type="multi-session", metric="abstention"), "cannot be told"),
    (task(benchmark="locomo", native_type="temporal"), "lives of two people"),
    (task(benchmark="locomo", native_type="adversarial", reference="", metric="abstention"), "cannot be told"),
    (task(benchmark="perltqa", native_type="profile"), "about one person"),
    (task(metric="abstention", reference=""), "cannot be told"),
]


@pytest.mark.parametrize(("asked", "rule"), RULES, ids=lambda value: getattr(value, "native_type", ""))
@pytest.mark.parametrize(("word", "expected"), [("yes", 1.0), ("no", 0.0)])
def test_yes_or_no_by_the_rule_of_the_question_type(asked: Task, rule: str, word: str, expected: float) -> None:
    judge, chat = replying(verdict(word))
    assert judge.score(asked, "a kitten").score == expected
    (request,) = chat.seen
    assert rule in request.prompt
    # What is asked of times is what is asked of facts, and one thing more.
    own = (
        {"gives only a part", rule} if asked.native_type == "temporal-reasoning" and "_abs" not in asked.id else {rule}
    )
    assert {other for _, other in RULES if other in request.prompt} == own
    assert request.schema is not None and request.schema["properties"]["verdict"]["enum"] == ["yes", "no"]


def test_only_temporal_questions_forgive_an_error_by_one() -> None:
    for name, template in TEMPLATES.items():
        text = "".join(render(template, question="q", reference="r", prediction="p", problem=""))
        assert ("off by one" in text) == (name == "temporal")


def test_without_a_benchmark_the_reference_is_graded_from_zero_to_one() -> None:
    judge, chat = replying(score(0.25))
    assert judge.score(task(), "a cat").score == 0.25
    assert chat.seen[0].prompt == judge_request("What did Ana adopt?", "a kitten", "a cat").prompt


@pytest.mark.parametrize(
    ("grades", "expected"),
    [((1, 1, 1), 1.0), ((0, 0, 0), 0.0), ((0.5, 0.5, 0.5), 0.5), ((1, 0.5, 0), 0.5), ((0.5, 0, 0), 0.5 / 3)],
)
@pytest.mark.parametrize("native_type", ["summarization", "abstention", "preference_following"])
def test_a_rubric_is_the_mean_of_its_nuggets_and_half_a_nugget_counts_half(
    grades: Sequence[float], expected: float, native_type: str
) -> None:
    by_nugget = dict(zip(NUGGETS, grades, strict=True))
    judge, chat = replying(lambda request: score(by_nugget[request.inputs["reference"]]))
    metric = "abstention" if native_type == "abstention" else "rubric"
    found = judge.score(task(benchmark="beam", native_type=native_type, metric=metric, rubric=NUGGETS), "3 cats")
    assert found.score == pytest.approx(expected, abs=1e-15)
    assert found.parts["nuggets"] == 3 and found.parts["met_in_part"] == sum(g == 0.5 for g in grades)
    assert [request.inputs["reference"] for request in chat.seen] == list(NUGGETS)
    assert all(request.inputs["question"] == "What did Ana adopt?" for request in chat.seen)


def test_a_rubric_of_json_lines_is_judged_as_one() -> None:
    judge, chat = replying(score(0.5))
    assert judge.score(task(metric="rubric", rubric=NUGGETS), "3 cats").score == 0.5
    assert len(chat.seen) == 3


def test_a_beam_question_without_a_rubric_is_judged_by_its_reference() -> None:
    judge, chat = replying(score(1))
    assert judge.score(task(benchmark="beam", native_type="summarization", metric="rubric"), "a kitten").score == 1.0
    assert len(chat.seen) == 1 and chat.seen[0].inputs["reference"] == "a kitten"


def test_event_ordering_is_scored_by_its_order_and_shows_its_nuggets() -> None:
    def answers(request: ChatRequest) -> str:
        assert request.schema is not None
        return json.dumps({"order": [2, 1, 0, 3]}) if "order" in request.schema["properties"] else score(0.5)

    judge, chat = replying(answers)
    found = judge.score(task(benchmark="beam", native_type="event_ordering", metric="rubric", rubric=NUGGETS), "b, a")
    # Precision 3/4, recall 1. Of the six pairs of {1, 2, 3, other}, those of 1 and 2 and of 3 and other disagree.
    assert found.parts["precision"] == 0.75 and found.parts["recall"] == 1.0
    assert found.parts["tau"] == pytest.approx(2 / 6) and found.score == pytest.approx(6 / 7 * (2 / 6 + 1) / 2)
    assert found.parts["nugget_score"] == 0.5
    assert len(chat.seen) == 4
    assert "1. states 3 cats\n2. states 2 dogs\n3. avoids horses" in chat.seen[0].prompt


def test_locomo_keeps_its_lexical_metrics_beside_the_verdict() -> None:
    judge, _ = replying(verdict("yes"))
    found = judge.score(task(benchmark="locomo", native_type="single_hop"), "a grey kitten")
    pair = ("a grey kitten", "a kitten")
    assert found.score == 1.0
    assert found.parts["f1"] == official_f1(*pair) == pytest.approx(2 / 3)
    assert found.parts["f1_set"] == f1_set(*pair) and found.parts["bleu1"] == bleu1(*pair)


def test_all_first_questions_of_all_tasks_go_out_as_one_batch() -> None:
    def answers(request: ChatRequest) -> str:
        assert request.schema is not None
        if "verdict" in request.schema["properties"]:
            return verdict("yes" if "Ana" in request.inputs["question"] else "no")
        return score(1) if request.inputs["reference"] == NUGGETS[0] else "no JSON" if request.sample == 0 else score(0)

    judge, chat = replying(answers)
    pairs = [
        (task(benchmark="locomo"), "a kitten"),
        (task(benchmark="beam", metric="rubric", rubric=NUGGETS), "3 cats"),
        (task(benchmark="locomo"), "  "),
        (task(benchmark="locomo", question="What did Ben adopt?"), "a kitten"),
    ]
    assert [found.score for found in judge.score_all(pairs)] == [1.0, pytest.approx(1 / 3), 0.0, 0.0]
    assert chat.batches == [5, 2], "and those that were unreadable as a second"
    assert judge.score_all([]) == []


def test_an_answer_that_says_nothing_is_wrong_without_a_call() -> None:
    judge, chat = replying("unreadable")
    assert judge.score(task("x_abs", benchmark="longmemeval"), " \n") == Verdict(0.0)
    assert chat.seen == []


UNREADABLE = [
    "",
    "I would say that it is right.",
    '{"verdict": "perhaps"}',
    '{"verdict": ["yes"]}',
    '{"verdict": null}',
    '{"score": 1}',
    "yes and no",
    "<think>yes",
    '{"verdict": "yes"',
]


@pytest.mark.parametrize("reply", UNREADABLE)
def test_an_unreadable_verdict_is_asked_again_and_never_a_grade(reply: str) -> None:
    judge, chat = replying(reply, retries=3)
    assert judge.score(task(benchmark="locomo"), "a kitten") == Verdict(None)
    assert [request.sample for request in chat.seen] == [0, 1, 2, 3]
    assert "could not be used" in chat.seen[1].prompt and "could not be used" not in chat.seen[0].prompt


@pytest.mark.parametrize("number", [0.7, 0.75, 2, -1, "half", None, True, [1], float("nan"), float("inf"), 10**400])
def test_a_nugget_is_graded_with_one_of_three_numbers(number: Any) -> None:
    judge, chat = replying(score(number))
    assert judge.score(task(benchmark="beam", metric="rubric", rubric=NUGGETS[:1]), "3 cats") == Verdict(None)
    assert len(chat.seen) == 3
    assert '"score" must be' in chat.seen[1].prompt


@pytest.mark.parametrize("order", [[4], [-1], ["1"], [1.5], [True], 1, None, {"1": 2}])
def test_an_order_holds_numbers_of_events_alone(order: Any) -> None:
    judge, _ = replying(lambda r: json.dumps({"order": order}) if "order" in str(r.schema) else score(1))
    asked = task(benchmark="beam", native_type="event_ordering", metric="rubric", rubric=NUGGETS)
    assert judge.score(asked, "3 cats") == Verdict(None)


def test_one_unreadable_nugget_leaves_no_score_for_its_task_and_none_of_the_others() -> None:
    def answers(request: ChatRequest) -> str:
        return "?" if request.inputs["reference"] == NUGGETS[1] else score(1)

    judge, _ = replying(answers)
    rubric = task(benchmark="beam", metric="rubric", rubric=NUGGETS)
    sound = replace(rubric, rubric=NUGGETS[:1])
    assert [found.score for found in judge.score_all([(rubric, "x"), (sound, "x")])] == [None, 1.0]


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("Yes.", 1.0),
        ("no", 0.0),
        ('```json\n{"verdict": "Yes"}\n```', 1.0),
        ('<think>no</think>Here: {"verdict": "no.", "reason": "yes"}', 0.0),
        ('{"verdict": true}', 1.0),
        ('{"verdict": "**CORRECT**"}', 1.0),
        ('{"verdict": "incorrect"}', 0.0),
        ('{"verdict": "wrong"}', 0.0),
    ],
)
def test_what_models_put_around_a_verdict_is_read_through(reply: str, expected: float) -> None:
    assert replying(reply)[0].score(task(benchmark="locomo"), "a kitten").score == expected


def test_a_cut_verdict_is_no_verdict() -> None:
    class Cut(JudgeChat):
        def complete(self, requests: Sequence[ChatRequest], salt: str = "") -> list[ChatReply]:
            cut = requests[0].sample == 0
            return [replace(r, finish_reason="length" if cut else "stop") for r in super().complete(requests)]

    chat = Cut(lambda request: verdict("yes" if request.sample == 0 else "no"))
    assert ModelJudge(chat, max_tokens=500).score(task(benchmark="locomo"), "a kitten").score == 0.0
    assert [request.max_tokens for request in chat.seen] == [500, 1000]


def test_the_judge_is_sent_texts_and_nothing_of_the_evidence() -> None:
    for asked in [rule[0] for rule in RULES] + [
        task(benchmark="beam", native_type="event_ordering", metric="rubric", rubric=NUGGETS, asked_at="2023/05/01")
    ]:
        judge, chat = replying(lambda r: json.dumps({"order": []}) if "order" in str(r.schema) else "yes")
        judge.score(asked, "a kitten, I think")
        for request in chat.seen:
            assert "EVIDENCE" not in request.system + request.prompt
            assert set(request.inputs) == {"question", "reference", "prediction"}
            assert all(isinstance(value, str) for value in request.inputs.values())
            assert request.purpose == "judge" and request.temperature == 0.0


def test_a_judge_is_named_by_its_prompts_and_its_model() -> None:
    judge, _ = replying("yes")
    assert judge.identity == f"model judge {PROMPT_VERSION}: a model"
    assert isinstance(judge, Judge) and isinstance(judge, ScoresAll)


def test_prompts_do_not_change_under_the_same_version() -> None:
    shown = {
        name: render(template, question="Q", reference="R", prediction="P", problem="B")
        for name, template in TEMPLATES.items()
    }
    schemas = [judge_request("", "", "", form=name).schema for name in ("general", "locomo", "nugget")]  # type: ignore[arg-type]
    schemas.append(order_request("", ["a", "b"], "").schema)
    found = digest("judge", json.dumps([shown, schemas], sort_keys=True))[:12]
    assert (PROMPT_VERSION, found) == (1, "7e61c9b2780d"), (
        "a change of a prompt needs a new PROMPT_VERSION, and its digest here"
    )
