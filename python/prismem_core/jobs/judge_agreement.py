"""How far two judges agree on the answers of an evaluation: rows of `prismem evaluate --questions`, judged twice."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prismem_core.cache import ExecutionCache
from prismem_core.errors import DataError, SettingsError
from prismem_core.evaluation.agreement import Confusion, agreement
from prismem_core.evaluation.judge import LexicalJudge, cut_reply
from prismem_core.evaluation.judges import ModelJudge
from prismem_core.evaluation.scoring import verdicts_of
from prismem_core.jobs.model_tables import spec_of
from prismem_core.jobs.models import ModelClients, prices
from prismem_core.jobs.settings import JobSettings
from prismem_core.roles.cached import CachedChat
from prismem_core.roles.ledger import Ledger
from prismem_core.roles.protocols import Judge, ScoresAll
from prismem_core.runs.report.contents import model_usage
from prismem_core.runs.report.tables import Table, model_table, number
from prismem_core.tasks.datasets import load
from prismem_core.tasks.task import Task

JUDGE_ROLE = "judge"
_ROWS = "expected the rows that `prismem evaluate --questions FILE` writes"

# Why an answer is in no comparison.
UNREADABLE = "no verdict of one judge or both could be read"
FAILED = "the program failed"
ELSEWHERE = "in one file alone"
OTHER_ANSWER = "the files hold different answers"


@dataclass(frozen=True)
class Row:
    """One judged answer; `score` is None where no verdict could be read."""

    program: str
    task: str
    native_type: str
    answer: str
    score: float | None
    failed: bool
    scored_by: str


def read_rows(path: Path) -> dict[tuple[str, str], Row]:
    """The rows of a question file by program and task; DataError names the line that is none."""
    try:
        # Not `splitlines`, which also splits at line separators that an answer may hold.
        lines = path.read_text(encoding="utf-8").split("\n")
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}; {_ROWS}") from error
    except UnicodeDecodeError:
        raise DataError(f"{path} is not UTF-8 text; {_ROWS}") from None
    rows: dict[tuple[str, str], Row] = {}
    for position, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        row = _row(line, f"{path} line {position}")
        if rows.setdefault((row.program, row.task), row) is not row:
            raise DataError(f"{path} line {position}: task {row.task!r} of {row.program!r} stands there twice; {_ROWS}")
    if not rows:
        raise DataError(f"{path} holds no row; {_ROWS}")
    return rows


def _row(line: str, where: str) -> Row:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        raise DataError(f"{where} is not JSON; {_ROWS}") from None
    if not isinstance(record, dict):
        raise DataError(f"{where} is no JSON object; {_ROWS}")
    texts = {name: record.get(name, "") for name in ("program", "task", "native_type", "answer", "scored_by")}
    wrong = next((name for name, value in texts.items() if not isinstance(value, str)), None)
    if wrong is not None or not texts["task"]:
        raise DataError(f"{where}: {wrong or 'task'!r} must be a text; {_ROWS}")
    score = record.get("score")
    if score is not None and (isinstance(score, bool) or not isinstance(score, int | float) or not 0 <= score <= 1):
        raise DataError(f"{where}: 'score' must be null or a number from 0 to 1; {_ROWS}")
    return Row(**texts, score=None if score is None else float(score), failed=record.get("failure") is not None)


def compare_files(first: Path, second: Path) -> dict[str, Any]:
    """The agreement of the scores in two question files over the same answers, as plain JSON.

    An answer counts if both files hold it word for word and a score of it.
    """
    left, right = read_rows(first), read_rows(second)
    left_out: Counter[str] = Counter()
    pairs = []
    for key in dict.fromkeys([*left, *right]):
        if key not in left or key not in right:
            left_out[ELSEWHERE] += 1
        elif left[key].failed or right[key].failed:
            left_out[FAILED] += 1
        elif left[key].answer != right[key].answer:
            left_out[OTHER_ANSWER] += 1
        else:
            pairs.append((left[key].native_type, left[key].score, right[key].score))
    if not pairs:
        raise DataError(
            f"{first} and {second} have no answer in common ({_said(left_out)}); evaluate the same programs on "
            "the same questions with one --cache and two judges"
        )
    names = [_name(path, rows) for path, rows in ((first, left), (second, right))]
    return _result(names, pairs, left_out)


def _name(path: Path, rows: Mapping[tuple[str, str], Row]) -> str:
    by = {row.scored_by for row in rows.values()} - {""}
    return f"{path.name} ({by.pop()})" if len(by) == 1 else path.name


def compare_judges(
    questions: Path, data: str, specs: Sequence[str], settings: JobSettings, cache: Path | None = None
) -> dict[str, Any]:
    """The agreement of two judges, each asked about every answer of a question file, as plain JSON.

    `data` holds the tasks that the rows name; DataError for one it lacks. `specs` name the judges as `--judge` does.
    Raises RoleError when a model fails; what was judged by then is in the `cache`.
    """
    if len(specs) != 2 or specs[0] == specs[1]:
        raise SettingsError(f"two different judges are compared; got: {', '.join(specs) or 'none'}")
    rows = read_rows(questions)
    dataset = load(data)
    whole = [row for row in rows.values() if not row.failed]
    asked = [(dataset.task(row.task), row.answer) for row in whole]
    ledger = Ledger(None)
    judges = [settings.model_copy(update={"judge": spec, "record": None, "replay": None}) for spec in specs]
    for judge in judges:
        spec_of("judge", judge.model("judge"))
    names, scores = [], []
    with ExecutionCache(cache, memory_bytes=settings.cache_mib << 20, disk_bytes=settings.cache_bytes) as store:
        for judge in judges:
            name, found = _scores(judge, asked, dataset.reply_words, store, ledger)
            names.append(name)
            scores.append(found)
    pairs = [(row.native_type, a, b) for row, a, b in zip(whole, *scores, strict=True)]
    result = _result(names, pairs, Counter({FAILED: len(rows) - len(whole)}))
    return {**result, "models": model_usage(ledger, prices(settings.models))}


def _scores(
    settings: JobSettings, asked: Sequence[tuple[Task, str]], words: int, cache: ExecutionCache, ledger: Ledger
) -> tuple[str, list[float | None]]:
    """The name of the judge that the settings name and its scores (the lexical one's of the first `words` words of an
    answer, as everywhere); its client is closed before the next is opened.
    """
    clients = ModelClients(settings)
    try:
        chat = clients.chats["judge"]
        judge: Judge | ScoresAll = LexicalJudge()
        if chat is not None:
            # Made with what the ledger says was spent, so that a cap binds both judges together.
            budget = clients.budget(settings, ledger)
            cached = CachedChat(chat, cache, ledger, workers=settings.workers, role=JUDGE_ROLE, budget=budget)
            judge = ModelJudge(cached, settings.output_retries, clients.max_tokens(JUDGE_ROLE))
        else:
            asked = [(task, cut_reply(answer, words)) for task, answer in asked]
        return judge.identity, [verdict.score for verdict in verdicts_of(judge, asked)]
    finally:
        clients.close()


def _result(
    names: Sequence[str], pairs: Sequence[tuple[str, float | None, float | None]], left_out: Counter[str]
) -> dict[str, Any]:
    read = [(kind, a, b) for kind, a, b in pairs if a is not None and b is not None]
    left_out[UNREADABLE] += len(pairs) - len(read)
    types = {kind: agreement(*_columns(read, kind)) for kind in sorted({kind for kind, _, _ in pairs if kind})}
    return {
        "judges": list(names),
        "compared": len(read),
        "left_out": {why: count for why, count in left_out.items() if count},
        "unreadable": {name: sum(pair[1 + i] is None for pair in pairs) for i, name in enumerate(names)},
        "all": agreement(*_columns(read, None)).to_dict(),
        "types": {kind: found.to_dict() for kind, found in types.items()},
    }


def _columns(read: Sequence[tuple[str, float, float]], kind: str | None) -> tuple[list[float], list[float]]:
    chosen = [(a, b) for own, a, b in read if kind is None or own == kind]
    return [a for a, _ in chosen], [b for _, b in chosen]


def _said(left_out: Mapping[str, int]) -> str:
    return ", ".join(f"{count}: {why}" for why, count in left_out.items() if count)


def agreement_tables(result: Mapping[str, Any]) -> list[Table]:
    """What `prismem judge-agreement` prints: agreement by question type and over all, then the confusion table."""
    first, second = result["judges"]
    found = {**result["types"], "all": result["all"]}
    rows = [(name, *_cells(one)) for name, one in found.items()]
    notes = [f"A: {first}. B: {second}."]
    notes += [f"Left out: {_said(result['left_out'])}."] if result["left_out"] else []
    notes += [f"{name}: {one['note']}." for name, one in found.items() if one["note"]]
    columns = ("type", "answers", "equal", "mean difference", "kappa", "95 % interval", "weights")
    asked = model_table(result.get("models", {}))
    return [
        Table("Agreement of two judges", columns, tuple(rows), " ".join(notes)),
        _confusion(Confusion(**result["all"]["confusion"])),
        *([] if asked is None else [asked]),
    ]


def _cells(one: Mapping[str, Any]) -> tuple[str, ...]:
    interval = "-" if one["low"] is None else f"{number(one['low'])} to {number(one['high'])}"
    weights = "linear" if one["weighted"] else "none"
    return (
        str(one["n"]),
        number(one["agreement"]),
        number(one["difference"]),
        number(one["kappa"]),
        interval,
        weights,
    )


def _confusion(table: Confusion) -> Table:
    labels = [f"{score:g}" for score in table.scores]
    rows = [(label, *map(str, counts)) for label, counts in zip(labels, table.counts, strict=True)]
    note = "Scores are rounded to quarters here." if table.rounded else ""
    return Table("Scores of A (rows) and B (columns)", ("A", *labels), tuple(rows), note)
