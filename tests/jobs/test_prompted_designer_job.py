"""A designer that asks a model, on real programs and the sample's questions: patched, validated, measured, journalled.

The model is a script in process; its good replies are edits of the catalogue as diffs against the program it is shown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from prismem_core.errors import RoleError
from prismem_core.evolution.catalog.diffs import difference, draft
from prismem_core.evolution.catalog.edits import BY_NAME
from prismem_core.evolution.engine import EvolutionResult, evolve
from prismem_core.evolution.prompted_designer import PromptedDesigner
from prismem_core.evolution.settings import build_settings
from prismem_core.evolution.task_laboratory import TaskLaboratory
from prismem_core.jobs.evolution_job import EvolutionJob
from prismem_core.jobs.workbench import Workbench
from prismem_core.roles.cached import CachedChat
from prismem_core.roles.protocols import ChatReply, ChatRequest
from prismem_core.runs.run import Manifest, Run
from prismem_core.tasks.datasets import annotate, load

SETTINGS = build_settings({"T1": 1, "T2": 2, "T3": 1, "repair_attempts": 3, "K": 2})
MANIFEST = Manifest("0.1.0", SETTINGS.model_dump(), {"digest": "d" * 64}, {"chat": "scripted"})
ROLES = {"chat": "scripted"}


def shown(prompt: str) -> str:
    """The first program in a prompt."""
    found = re.search(r"<(program-[0-9a-f]+)>\n(.*?)\n</\1>", prompt, re.DOTALL)
    assert found is not None
    return found[2]


def edit(*names: str) -> Callable[[str], str]:
    """The named edits, as far as they fit the program that is shown."""

    def reply(prompt: str) -> str:
        source = shown(prompt)
        changed = source
        for name in names:
            made = draft(changed, BY_NAME[name])
            changed = changed if made is None else made.source
        return json.dumps({"summary": f"Edits: {', '.join(names)}.", "code": difference(source, changed)})

    return reply


def code(diff: str) -> Callable[[str], str]:
    return lambda prompt: json.dumps({"summary": "a try", "code": diff})


class Model:
    """Replies to coders in the order of `codes`, to all others with what they ask for."""

    identity = "scripted-model"

    def __init__(self, fails_at: int | None = None) -> None:
        self.fails_at = fails_at
        self.requests: list[ChatRequest] = []
        self._codes: list[Callable[[str], str]] = [
            lambda prompt: "I would rank by words.",
            edit("stem-ranking", "date-lines", "date-answers"),
            code("@@\n-def nothing_like_it():\n+def other():\n"),
            code("@@\n class Memory:\n"),
            code("   "),
            edit("list-answers", "people"),
            code("@@\n class Memory:\n+    import os\n"),
            edit("decline-unknown-person", "two-rankings"),
            edit("few-units"),
        ]

    def complete(self, requests: Sequence[ChatRequest]) -> list[ChatReply]:
        return [self._reply(request) for request in requests]

    def _reply(self, request: ChatRequest) -> ChatReply:
        if len(self.requests) == self.fails_at:
            self.fails_at = None
            raise RoleError("the server is away")
        self.requests.append(request)
        if request.purpose == "code":
            return ChatReply(self._codes.pop(0)(request.prompt), 100, 10)
        key = "diagnosis" if "diagnosis" in str(request.schema) else "Step-by-step plan"
        return ChatReply(json.dumps({key: "temporal: units come in no order."}), 100, 10)


def go(model: Model, job: EvolutionJob, cache: Path, run: Run) -> tuple[EvolutionResult, dict[str, int]]:
    dataset = load(job.data)
    split = dataset.split(job.parts)
    with Workbench(annotate(dataset, split), job.job, cache_directory=cache) as bench:
        laboratory = TaskLaboratory(
            bench.evaluator,
            bench.evaluator.tasks(split.train),
            bench.evaluator.tasks(split.valid),
            bench.sandbox,
            bench.ledger,
            bench.roles.diagnostic_embedder,
            job.job.interface,
        )
        chat = CachedChat(model, bench.cache, bench.ledger)
        designer = PromptedDesigner(chat, chat, bench.diagnostic_embedder, retries=0)
        result = evolve(laboratory, designer, job.start, SETTINGS, run)
        made = {stage: u.calls for (role, stage), u in bench.ledger.totals().items() if role == "chat"}
    return result, made


def journal(path: Path) -> list[dict[str, Any]]:
    events = [json.loads(line) for line in (path / "journal.jsonl").read_bytes().splitlines()]
    return [{key: value for key, value in event.items() if key != "time"} for event in events]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, make_job: Callable[..., EvolutionJob]) -> tuple[Path, Model, Any]:
    """An uninterrupted run."""
    path = tmp_path_factory.mktemp("prompted") / "whole"
    model = Model()
    with Run.create(path, MANIFEST) as run:
        result, made = go(model, make_job(), path / "cache", run)
    return path, model, (result, made)


def test_replies_become_programs_or_feedback(whole: tuple[Path, Model, Any]) -> None:
    path, model, (result, made) = whole
    events = journal(path)
    ends = [
        (e["iteration"], e["reason"] if e["event"] == "rejected" else "accepted")
        for e in events
        if e["event"] in ("rejected", "accepted") and e["iteration"]
    ]
    assert ends == [
        (1, "reply:unusable"),
        (1, "accepted"),
        (2, "patch:context_not_found"),
        (2, "patch:noop"),
        (2, "patch:empty_diff"),
        (2, "accepted"),
        (3, "validation:forbidden_import"),
        (3, "gate:target"),
    ]
    [first] = [e for e in events if e["event"] == "program_added" and e["program"] == "n01"]
    assert first["summary"] == "Edits: stem-ranking, date-lines, date-answers."
    assert "BM25" in first["source"] or "stem" in first["source"]
    assert result.archive.mean("n01", result.archive.train_ids) > result.archive.mean("n00", result.archive.train_ids)
    assert made["reflect"] + made["code"] == len(model.requests)


def test_prompts_show_the_cases_of_training_questions_alone(
    whole: tuple[Path, Model, Any], make_job: Callable[..., EvolutionJob]
) -> None:
    _, model, _ = whole
    dataset = load(make_job().data)
    split = dataset.split(make_job().parts)
    prompts = "\n".join(request.prompt for request in model.requests)
    asked = {task.id for task in dataset.tasks if json.dumps(task.id) in prompts}
    assert asked and asked <= set(split.train)
    assert max(len(request.prompt) for request in model.requests) < 200_000


@pytest.mark.parametrize("stop", [1, 4, 7])
def test_a_run_that_stops_goes_on_and_pays_no_call_twice(
    whole: tuple[Path, Model, Any], make_job: Callable[..., EvolutionJob], tmp_path: Path, stop: int
) -> None:
    path, uninterrupted, _ = whole
    stopped = tmp_path / "stopped"
    model = Model(fails_at=stop)
    with Run.create(stopped, MANIFEST) as run, pytest.raises(RoleError, match="away"):
        go(model, make_job(), stopped / "cache", run)
    with Run.open(stopped, version="0.1.0", data_digest="d" * 64, roles=ROLES) as run:
        go(model, make_job(), stopped / "cache", run)
    assert journal(stopped) == journal(path)
    assert [request.digest for request in model.requests] == [request.digest for request in uninterrupted.requests]
