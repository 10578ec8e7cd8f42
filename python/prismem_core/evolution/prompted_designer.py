"""A designer that asks language models: one reflects and plans, one writes the diffs (spec section 10, 2-5).

Its decisions are its models' replies, which the cache keeps: a run that is resumed asks for none of them again.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from prismem_core.digests import digest
from prismem_core.errors import ArgumentError, RoleError
from prismem_core.evaluation.cases import Case
from prismem_core.evaluation.compaction import VERSION, CaseTexts
from prismem_core.evolution import brief_views as views
from prismem_core.evolution.designer import (
    Attempt,
    Diagnosis,
    IntegrationBrief,
    IntegrationPlan,
    ParentBrief,
    Revision,
)
from prismem_core.evolution.excerpts import Extent, fitted
from prismem_core.pipeline.structured import Answered, CompletesWithSalt, Unusable, ask_structured
from prismem_core.program.interface import OUT_CHAR_BUDGET, Interface
from prismem_core.program.interface_prompt import interface_prompt
from prismem_core.prompts.catalog import render, version
from prismem_core.roles.protocols import ChatReply, ChatRequest, Embedder
from prismem_core.tasks.capability import MEANINGS, Capability

_LOGGER = logging.getLogger("prismem_core")

REFLECT = "reflect"
CODE = "code"
MAX_TOKENS = 65_536
PROMPT_CHARS = 200_000
# What a diagnosis, a plan or a summary may have; it is told on in prompts that must fit.
MAX_TEXT = 16_000
# Models that think before they answer repeat themselves without end where the likeliest word is always taken.
TEMPERATURE = 0.6

_TEMPLATES = (
    "reflection",
    "refinement",
    "integration_plan",
    "integration",
    "memory_pipeline",
    "memory_interface",
    "patch_rules",
)
_PLAN = "Step-by-step plan"
_CAPABILITY = re.compile(rf"\b({'|'.join(Capability)})\b")
_CASES = (
    "JSON. Of a long text and of many units those parts are shown that bear most on the question, its answers and its "
    "evidence; a `(...)` stands where parts of a text were left out. The program had everything. `evidence_recall` is "
    "the share of the evidence that stands word for word in the whole retrieved text."
)


class PromptedDesigner:
    """Implements `Designer` over two chats behind the cache, which may be one, and an embedder.

    The embedder tells which parts of long texts bear on their case (`evaluation/compaction`), in one call a prompt.
    A reply that is no object of the wanted fields, is cut or is empty is asked for again with the problem, up to
    `retries` times. Then a diagnosis or a plan raises RoleError (the run pauses; nothing is counted), a coder's reply
    is a failed attempt with the problem as its error. `max_tokens` bounds a reply of the reflection model,
    `coding_tokens` (the same, by default) one of the coder. Where a prompt would exceed `prompt_chars` characters it
    shows texts shorter and fewer; programs, plan, interface and single units are never cut, so one may still be longer
    (a warning says so, once), and its model decides.
    """

    def __init__(
        self,
        reflection: CompletesWithSalt,
        coding: CompletesWithSalt,
        embedder: Embedder,
        retries: int = 2,
        max_tokens: int = MAX_TOKENS,
        *,
        coding_tokens: int | None = None,
        prompt_chars: int = PROMPT_CHARS,
        temperature: float = TEMPERATURE,
    ) -> None:
        coding_tokens = max_tokens if coding_tokens is None else coding_tokens
        if retries < 0 or min(max_tokens, coding_tokens, prompt_chars) < 1:
            raise ArgumentError(
                f"PromptedDesigner: retries {retries} must be at least 0, max_tokens {max_tokens}, coding_tokens "
                f"{coding_tokens} and prompt_chars {prompt_chars} at least 1"
            )
        self._reflection = reflection
        self._coding = coding
        self._embedder = embedder
        self._retries = retries
        self._max_tokens = {REFLECT: max_tokens, CODE: coding_tokens}
        self._prompt_chars = prompt_chars
        self._warned = False
        self._temperature = temperature
        self.identity = (
            f"prompted/2 (reflection {reflection.identity}; coding {coding.identity}; prompts {version(*_TEMPLATES)}; "
            f"{VERSION} by {embedder.identity})"
        )

    def diagnose(self, brief: ParentBrief) -> Diagnosis:
        """The reflection model's diagnosis; its capability is the target, or in stage I the first that it names."""
        texts = self._case_texts(brief)
        text = self._said(
            "a diagnosis",
            "diagnosis",
            brief,
            lambda extent, problem: render("reflection", **_reflection(brief, texts, extent, problem)),
        )
        named = _CAPABILITY.search(text)
        return Diagnosis(
            text, brief.target or (Capability(named[1]) if named and brief.stage == "cold_start" else None)
        )

    def revise(self, brief: ParentBrief, diagnosis: Diagnosis, feedback: Sequence[Attempt]) -> Revision:
        """The coder's diff for the diagnosed change, told what became of this iteration's attempts."""
        texts = self._case_texts(brief, feedback)
        return self._coded(
            brief,
            len(feedback),
            lambda extent, problem: render(
                "refinement", **_refinement(brief, diagnosis, feedback, texts, extent, problem)
            ),
        )

    def plan_integration(self, brief: IntegrationBrief) -> IntegrationPlan:
        """The reflection model's plan for the whole of stage III."""
        texts = self._case_texts(brief)
        return IntegrationPlan(
            self._said(
                "a plan",
                _PLAN,
                brief,
                lambda extent, problem: render("integration_plan", **_merging(brief, texts, extent, problem)),
            )
        )

    def integrate(self, brief: IntegrationBrief, plan: IntegrationPlan, attempts: Sequence[Attempt]) -> Revision:
        """The coder's diff against the base that carries the plan out, told of all attempts of the stage."""
        texts = self._case_texts(brief, attempts)
        return self._coded(
            brief,
            len(attempts),
            lambda extent, problem: render(
                "integration", **_integration(brief, plan, attempts, texts, extent, problem)
            ),
        )

    def _case_texts(self, brief: ParentBrief | IntegrationBrief, attempts: Sequence[Attempt] = ()) -> CaseTexts:
        if isinstance(brief, ParentBrief):
            cases: list[Case | None] = [*brief.cases]
        else:
            cases = [case for pair in brief.pairs for case in (pair.base, pair.specialist, pair.specialist_parent)]
        told = [case for attempt in attempts for case in attempt.cases]
        return CaseTexts(self._embedder, [case for case in (*cases, *told) if case is not None])

    def _said(
        self,
        what: str,
        key: str,
        brief: ParentBrief | IntegrationBrief,
        make: Callable[[Extent, str], tuple[str, str]],
    ) -> str:
        answered = self._ask(self._reflection, REFLECT, [key], brief, 0, what, make)
        if answered.value is None:
            raise RoleError(
                f"the reflection model {self._reflection.identity} gave no {what.split()[-1]} that can be used in "
                f"{answered.calls} replies, the last because {answered.problem}; the run pauses: resume it to ask "
                "again, or name another model"
            )
        return answered.value[key]

    def _coded(
        self, brief: ParentBrief | IntegrationBrief, number: int, make: Callable[[Extent, str], tuple[str, str]]
    ) -> Revision:
        answered = self._ask(self._coding, CODE, ["summary", "code"], brief, number, "a revision", make)
        if answered.value is None:
            return Revision("a reply that could not be used", "", problem=answered.problem)
        return Revision(" ".join(answered.value["summary"].split()), answered.value["code"])

    def _ask(
        self,
        chat: CompletesWithSalt,
        purpose: str,
        keys: Sequence[str],
        brief: ParentBrief | IntegrationBrief,
        number: int,
        what: str,
        make: Callable[[Extent, str], tuple[str, str]],
    ) -> Answered[dict[str, str]]:
        def request(_: int, problem: str) -> ChatRequest:
            system, prompt = fitted(lambda extent: make(extent, problem), self._prompt_chars)
            self._warn(what, len(system) + len(prompt))
            return ChatRequest(
                purpose,
                system,
                prompt,
                schema=_schema(keys),
                max_tokens=self._max_tokens[purpose],
                temperature=self._temperature,
            )

        own = _FromSample(chat, _first_sample(brief, number))
        # A run that paused over a reflection is resumed to ask anew. A coder's failed attempt stays what it was: the
        # iteration that is done again must have the same history.
        fresh = purpose == REFLECT
        return ask_structured(own, request, 1, lambda _, text: _texts(text, keys), self._retries, fresh=fresh)[0]

    def _warn(self, what: str, size: int) -> None:
        if size > self._prompt_chars and not self._warned:
            self._warned = True
            _LOGGER.warning(
                "the prompt for %s has %s characters at its shortest, prompt_chars allows %s; it is sent all the same",
                what,
                f"{size:,}",
                f"{self._prompt_chars:,}",
            )


class _FromSample:
    """A chat whose samples are counted from `first`, so that an equal prompt of another iteration is a new question."""

    def __init__(self, chat: CompletesWithSalt, first: int) -> None:
        self.identity = chat.identity
        self._chat = chat
        self._first = first

    def complete(self, requests: Sequence[ChatRequest], salt: str = "") -> list[ChatReply]:
        own = [replace(request, sample=self._first + request.sample) for request in requests]
        return self._chat.complete(own, salt=salt)


def _first_sample(brief: ParentBrief | IntegrationBrief, number: int) -> int:
    """A number of 20 bits for each seed, iteration and attempt, times 1,024 for the tries: a server may take it for a
    seed, and those are of 32 bits.
    """
    return int(digest("sample", brief.seed, brief.iteration, number)[:5], 16) << 10


def _schema(keys: Sequence[str]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {key: {"type": "string"} for key in keys},
        "required": list(keys),
        "additionalProperties": False,
    }


def _texts(text: str, keys: Sequence[str]) -> dict[str, str]:
    """The wanted fields of a reply; others are ignored, and newlines inside its strings are taken as they are."""
    if not text.strip():
        raise Unusable("the reply is empty")
    try:
        value = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        raise Unusable("the reply is not one JSON object with nothing around it") from None
    if not isinstance(value, dict):
        raise Unusable("the reply is JSON but no object")
    for key in keys:
        if key not in value:
            raise Unusable(f"the reply has no field {key!r}")
        if not isinstance(value[key], str):
            raise Unusable(f"the field {key!r} is no string")
        # A blank diff is for the patcher to refuse, as any other that does not apply.
        if key != "code" and not value[key].strip():
            raise Unusable(f"the field {key!r} is blank")
        if key != "code" and len(value[key]) > MAX_TEXT:
            raise Unusable(f"the field {key!r} has {len(value[key]):,} characters; {MAX_TEXT:,} are allowed")
        try:
            value[key].encode("utf-8")
        except UnicodeEncodeError:
            raise Unusable(f"the field {key!r} holds half of a surrogate pair, which is no character") from None
    return {key: value[key] if key == "code" else value[key].strip() for key in keys}


def _shared(interface: Interface, problem: str) -> dict[str, Any]:
    _, pipeline = render("memory_pipeline", budget=OUT_CHAR_BUDGET, capabilities=_meanings())
    return {"pipeline": pipeline, "interface": interface_prompt(interface), "problem": problem}


def _meanings() -> list[tuple[str, str]]:
    return [(str(capability), meaning) for capability, meaning in MEANINGS.items()]


def _patch_rules(against: str) -> str:
    return render("patch_rules", against=against)[1]


def _parent(brief: ParentBrief, texts: CaseTexts, extent: Extent, problem: str) -> dict[str, Any]:
    return {
        **_shared(brief.interface, problem),
        "stage": brief.stage,
        "target": None if brief.target is None else str(brief.target),
        "parent_id": brief.parent_id,
        "source": brief.source,
        "cases": views.cases_text(brief.cases, texts, extent),
        "cases_note": f"Training questions that `{brief.parent_id}` answers badly, as {_CASES}",
    }


def _explored_title(brief: ParentBrief) -> str:
    if brief.stage == "cold_start":
        return f"Revisions of `{brief.parent_id}` explored so far"
    whom = f"for `{brief.target}`" if brief.target else "without a target"
    return f"Versions kept so far that were made {whom}"


def _reflection(brief: ParentBrief, texts: CaseTexts, extent: Extent, problem: str) -> Mapping[str, Any]:
    return {
        **_parent(brief, texts, extent, problem),
        "accuracy": views.accuracy_text(brief.accuracy, brief.train),
        "table": None if brief.table is None else views.diagnostics_text(brief.table),
        "lengths": views.lengths_text(brief.lengths),
        "explored": views.records_text(brief.explored, extent),
        "explored_title": _explored_title(brief),
        "failed": views.records_text(views.not_kept(brief), extent),
    }


def _refinement(
    brief: ParentBrief,
    diagnosis: Diagnosis,
    feedback: Sequence[Attempt],
    texts: CaseTexts,
    extent: Extent,
    problem: str,
) -> Mapping[str, Any]:
    cold = brief.stage == "cold_start"
    history = views.unhelpful(brief, diagnosis.text) if cold else brief.explored
    return {
        **_parent(brief, texts, extent, problem),
        "diagnosis": diagnosis.text,
        "history": views.records_text(history, extent),
        "history_title": "Similar revisions that did not help" if cold else _explored_title(brief),
        "patch_rules": _patch_rules(f"`{brief.parent_id}`"),
        "attempts": views.attempt_views(feedback, texts, extent, "attempt"),
    }


def _merging(brief: IntegrationBrief, texts: CaseTexts, extent: Extent, problem: str) -> dict[str, Any]:
    return {
        **_shared(brief.interface, problem),
        "base_id": brief.base_id,
        "source": brief.source,
        "accuracy": views.accuracy_text(brief.accuracy, brief.train),
        "lengths": views.lengths_text(brief.lengths),
        "specialists": views.specialist_views(brief, extent),
        "pairs": views.pairs_text(brief, texts, extent),
        "pairs_note": "For each capability that gains, the training question where its specialist is furthest above "
        f"`base`, with the outputs of each version by its name, as {_CASES} A view that is missing is unavailable, not "
        "unchanged.",
    }


def _integration(
    brief: IntegrationBrief,
    plan: IntegrationPlan,
    attempts: Sequence[Attempt],
    texts: CaseTexts,
    extent: Extent,
    problem: str,
) -> Mapping[str, Any]:
    shown = _merging(brief, texts, extent, problem)
    del shown["lengths"]
    return {
        **shown,
        "plan": plan.text,
        "patch_rules": _patch_rules("`base`"),
        "attempts": views.attempt_views(attempts, texts, extent, "base_attempt"),
    }
