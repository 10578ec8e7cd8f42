"""LongMemEval: one long history of a user and an assistant for each question (Wu et al. 2025)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from prismem_core.errors import DataError
from prismem_core.tasks.capability import Capability
from prismem_core.tasks.datasets.source import Source, first_items
from prismem_core.tasks.datasets.splits import default_split, spread
from prismem_core.tasks.datasets.times import longmemeval_time
from prismem_core.tasks.history import History, Session, Turn
from prismem_core.tasks.irregularity import Findings
from prismem_core.tasks.native_types import LONGMEMEVAL, longmemeval_capability
from prismem_core.tasks.task import Dataset, Task

REPLY_WORDS = 80
PACK_TYPE = "multi-question-pack"

# Answers of a carrying repository that the benchmark itself contradicts: question id and answer, with the reason.
_OUTDATED = {("852ce960", "$350,000"): "outdated value; the benchmark's answer is $400,000"}


def is_longmemeval(value: Any) -> bool:
    """Whether parsed JSON is a list of (or one) instance with its histories, one question each or a pack of them."""
    return any(isinstance(item, dict) and "haystack_sessions" in item for item in first_items(value))


def is_question_index(value: Any) -> bool:
    """Whether parsed JSON is the list of questions without their histories."""
    items = [item for item in first_items(value) if isinstance(item, dict)]
    return any({"query", "gold_answers"} <= set(item) for item in items) and not is_longmemeval(value)


def question_index_error(value: Any, path: Any) -> DataError:
    """What is said of a question index, which nothing can be evaluated on."""
    count = len(value) if isinstance(value, list) else 1
    return DataError(
        f"{path} is a question index of LongMemEval: {count} questions without their histories, for sampling only; "
        "fetch the histories with `prismem data fetch longmemeval-s`"
    )


@dataclass
class _Draft:
    findings: Findings
    histories: dict[str, History] = field(default_factory=dict)
    tasks: list[Task] = field(default_factory=list)
    # Haystacks draw on one pool of sessions: equal ones are kept once, which holds the M size in a tenth of its file.
    pool: dict[tuple[str, tuple[tuple[str, str], ...]], tuple[Turn, ...]] = field(default_factory=dict)


@dataclass
class _Haystack:
    """The sessions of one instance in order of time, with what the evidence needs."""

    sessions: tuple[Session, ...]
    texts: Mapping[str, str]
    marked: tuple[str, ...]
    ids: frozenset[str]


def load_longmemeval(instances: Iterable[Any], name: str, source: Source, file: str = "") -> Dataset:
    """The data set of instances that may come one by one: each a history, with one task or, of a pack, several.

    Sessions are sorted by date and numbered; their own ids, which tell evidence from padding, stand in turn ids alone,
    which no memory program sees. Irregular records are mended and reported, never refused.
    """
    draft = _Draft(Findings(file))
    for position, instance in enumerate(instances):
        _add(instance, position, draft)
    types: dict[str, str] = {}
    for task in draft.tasks:
        types.setdefault(task.history_id, stratum(task))
    return Dataset(
        name=name,
        histories=draft.histories,
        tasks=tuple(draft.tasks),
        digest=source.digest,
        default_split=default_split(spread(types)),
        reply_words=REPLY_WORDS,
        repairs=draft.findings.repairs,
        irregularities=tuple(draft.findings.irregularities),
    )


def stratum(task: Task) -> str:
    """What samples are stratified by: the question type, LongMemEval's abstention questions apart whatever theirs."""
    return "abstention" if task.benchmark == "longmemeval" and task.expects_abstention else task.native_type


def _add(instance: Any, position: int, draft: _Draft) -> None:
    findings = draft.findings
    if not isinstance(instance, dict):
        findings.note("instance that is no object left out", f"instance {position}", "", instance)
        return
    own_id = findings.text(instance.get("question_id"), "question id", f"instance {position}", "question_id")
    question_id = own_id or f"question-{position + 1}"
    if not own_id:
        findings.note("question id missing, named by position", question_id, "question_id")
    if question_id in draft.histories:
        findings.note("question id repeated, second one renamed", question_id, "question_id")
        question_id = f"{question_id}#{position}"
    haystack = _haystack(instance, question_id, draft)
    if not haystack.sessions:
        findings.note("instance that has no session with turns left out", question_id, "haystack_sessions")
        return
    draft.histories[question_id] = History(question_id, haystack.sessions)
    if "questions" in instance:
        _add_pack(instance, question_id, haystack, draft)
    else:
        cited = instance.get("answer_session_ids")
        _add_task(
            instance, question_id, question_id, instance.get("question"), instance.get("answer"), cited, haystack, draft
        )


def _add_pack(instance: Mapping[str, Any], question_id: str, haystack: _Haystack, draft: _Draft) -> None:
    """The questions of a pack; only the first one is the benchmark's own and has marked turns."""
    questions, answers, cited = (
        value if isinstance(value := instance.get(key), list) else []
        for key in ("questions", "answers", "answer_session_ids")
    )
    if not questions or not len(questions) == len(answers) == len(cited):
        sizes = f"{len(questions)} questions, {len(answers)} answers, {len(cited)} lists of evidence"
        draft.findings.note("lists of the pack are empty or differ in length", question_id, "questions", sizes)
    for number, question in enumerate(questions):
        answer = answers[number] if number < len(answers) else None
        sessions = cited[number] if number < len(cited) else None
        task_id = f"{question_id}/q{number:03d}"
        _add_task(instance, question_id, task_id, question, answer, sessions, haystack, draft, pack_number=number)


def _add_task(
    instance: Mapping[str, Any],
    question_id: str,
    task_id: str,
    asked: Any,
    answer: Any,
    cited: Any,
    haystack: _Haystack,
    draft: _Draft,
    pack_number: int | None = None,
) -> None:
    findings = draft.findings
    question = findings.text(asked, "question", task_id, "question").strip()
    if not question:
        findings.note("question without text left out", task_id, "question", asked)
        return
    reference = findings.text(answer, "answer", task_id, "answer").strip()
    if not reference:
        findings.note("answer missing", task_id, "answer")
    own_id = str(instance.get("question_id") or question_id)
    if pack_number is not None and (own_id, reference) in _OUTDATED:
        found = f"{reference}: {_OUTDATED[own_id, reference]}"
        findings.note("answer that the benchmark contradicts, kept", task_id, "answer", found)
    native, primary = _native_type(instance, own_id, task_id, pack_number, findings)
    abstains = own_id.endswith("_abs") and not pack_number
    if isinstance(cited, str) and cited.strip():
        findings.note("evidence sessions that are no list read as one", task_id, "answer_session_ids", cited)
        cited = [cited.strip()]
    for session_id in cited if isinstance(cited, list) else []:
        if session_id is None or str(session_id) not in haystack.ids:
            findings.note("evidence session that is not in the haystack", task_id, "answer_session_ids", session_id)
    if not isinstance(cited, list) or not cited:
        findings.note("evidence sessions missing", task_id, "answer_session_ids", cited)
    ids = () if pack_number else haystack.marked
    if pack_number:
        findings.count("question of the pack without marked turns")
    elif not ids and not abstains:
        findings.note("no turn is marked as evidence", task_id, "has_answer")
    asked_at = _asked_at(instance)
    if not asked_at and not pack_number:
        findings.note("question without a date", task_id, "question_date")
    elif asked_at and not pack_number and longmemeval_time(asked_at) is None:
        findings.note("question date of another form kept as text", task_id, "question_date", asked_at)
    preference = native == "single-session-preference" and not abstains
    draft.tasks.append(
        Task(
            id=task_id,
            history_id=question_id,
            question=question,
            reference=reference,
            evidence=tuple(haystack.texts[turn_id] for turn_id in ids),
            native_type=native,
            primary=primary,
            metric="abstention" if abstains else "rubric" if preference and reference else "f1",
            rubric=(reference,) if preference and reference else (),
            evidence_ids=ids,
            benchmark="" if pack_number else "longmemeval",
            asked_at=asked_at,
        )
    )


def _asked_at(instance: Mapping[str, Any]) -> str:
    date = instance.get("question_date")
    return "" if date is None else str(date).strip()


def _native_type(
    instance: Mapping[str, Any], own_id: str, task_id: str, pack_number: int | None, findings: Findings
) -> tuple[str, Capability]:
    if pack_number:
        return PACK_TYPE, Capability.FACTUAL_RETRIEVAL
    native = str(instance.get("question_type") or "").strip()
    if native not in LONGMEMEVAL:
        findings.note("unknown question type taken for factual retrieval", task_id, "question_type", native)
        return native or "unknown", Capability.ADVERSARIAL if own_id.endswith("_abs") else Capability.FACTUAL_RETRIEVAL
    return native, longmemeval_capability(own_id, native)


def _haystack(instance: Mapping[str, Any], question_id: str, draft: _Draft) -> _Haystack:
    findings = draft.findings
    sessions, ids, dates = (
        value if isinstance(value := instance.get(key), list) else []
        for key in ("haystack_sessions", "haystack_session_ids", "haystack_dates")
    )
    if not len(sessions) == len(ids) == len(dates):
        sizes = f"{len(sessions)} sessions, {len(ids)} ids, {len(dates)} dates"
        findings.note("lists of the haystack differ in length, all sessions kept", question_id, "haystack", sizes)
    found: list[tuple[datetime | None, str, tuple[Turn, ...]]] = []
    texts: dict[str, str] = {}
    marked: set[str] = set()
    taken: set[str] = set()
    for position, records in enumerate(sessions):
        session_id = str(ids[position]) if position < len(ids) else f"session-{position + 1}"
        if session_id in taken:
            findings.note(
                "session id repeated in its haystack, renamed", question_id, "haystack_session_ids", session_id
            )
            session_id = f"{session_id}#{position}"
        taken.add(session_id)
        where = f"{question_id} session {session_id}"
        turns = _turns(records, session_id, where, draft)
        if not turns:
            findings.note("session without turns left out", where, "haystack_sessions")
            continue
        if turns[0].speaker == "assistant":
            findings.note("session that begins with the assistant", where, "role", turns[0].text, variant=True)
        date = str(dates[position]).strip() if position < len(dates) and dates[position] is not None else ""
        when = longmemeval_time(date)
        if when is None:
            findings.note("session date of another form kept as text", where, "haystack_dates", date)
        found.append((when, date, turns))
        for turn, record in zip(turns, (r for r in records if isinstance(r, dict)), strict=True):
            texts[turn.id] = turn.text
            mark = record.get("has_answer")
            if mark is True:
                marked.add(turn.id)
            elif mark not in (None, False) or type(mark) is int:
                findings.note("mark of evidence that is neither true nor false, not used", where, "has_answer", mark)
    ordered = _in_order(found, question_id, findings)
    asked = longmemeval_time(_asked_at(instance))
    for when, date, turns in ordered:
        if asked and when and when > asked:
            where = f"{question_id} session {turns[0].id.rpartition(':')[0]}"
            later = f"{date}, asked {instance.get('question_date')}"
            findings.note("session dated later than the question, kept", where, "haystack_dates", later)
    return _Haystack(
        sessions=tuple(Session(str(n), date, turns) for n, (_, date, turns) in enumerate(ordered, 1)),
        texts=texts,
        marked=tuple(turn.id for _, _, turns in ordered for turn in turns if turn.id in marked),
        ids=frozenset(taken),
    )


def _turns(records: Any, session_id: str, where: str, draft: _Draft) -> tuple[Turn, ...]:
    said: list[tuple[str, str]] = []
    for number, record in enumerate(records if isinstance(records, list) else [], 1):
        if not isinstance(record, dict):
            draft.findings.note("turn that is no object left out", where, f"turn {number}", record)
            continue
        content = draft.findings.text(record.get("content"), "turn text", where, f"turn {number}, content")
        if not content.strip():
            draft.findings.note("turn without text kept", where, f"turn {number}, content", record.get("content"))
        role = record.get("role")
        if role not in ("user", "assistant"):
            draft.findings.note("role that is neither user nor assistant kept", where, f"turn {number}, role", role)
        said.append(("" if role is None else str(role).strip(), content))
    key = (session_id, tuple(said))
    if key not in draft.pool:
        draft.pool[key] = tuple(
            Turn(f"{session_id}:{number}", role, text) for number, (role, text) in enumerate(said, 1)
        )
    return draft.pool[key]


def _in_order(
    found: Sequence[tuple[datetime | None, str, tuple[Turn, ...]]], question_id: str, findings: Findings
) -> list[tuple[datetime | None, str, tuple[Turn, ...]]]:
    """The sessions by date, equal dates in the order of the source; one without a date stays behind the one before."""
    keys: list[datetime] = []
    for when, _, _ in found:
        keys.append(when or (keys[-1] if keys else datetime.min))
    back = [position for position in range(len(keys) - 1) if keys[position] > keys[position + 1]]
    if back:
        places = "steps back after " + ", ".join(map(str, back))
        findings.note("haystack out of order of time, sorted", question_id, "haystack_dates", places, variant=True)
    return [found[position] for position in sorted(range(len(found)), key=keys.__getitem__)]
