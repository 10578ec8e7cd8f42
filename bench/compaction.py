"""What compaction saves: the cases of real questions as a designer is shown them, before and after.

    python -m bench.compaction --data PATH --split NAME --results FILE [--programs seed bm25_rag FILE.py ...]

Memory programs answer the training questions of a split with the embedded default (no other part is looked at), and
each question becomes a case. Its characters are counted twice: all texts whole, and as a prompt shows them. Whatever is
shown is checked: no excerpt above its budget, fences whole, what fits unchanged, and the unit most like each snippet
there. `--results` is a JSON file with an entry for each data set; the entry of this one is replaced.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import prismem_core
from prismem_core import ops
from prismem_core.errors import DataError, PrismemError
from prismem_core.evaluation.cases import Case
from prismem_core.evaluation.compaction import VERSION, CaseTexts, spans_of
from prismem_core.evaluation.diagnostics import normalised
from prismem_core.evolution.brief_views import cases_text, evidence_views, output_view, units_views
from prismem_core.evolution.excerpts import EXTENTS, Extent
from prismem_core.evolution.task_laboratory import TaskLaboratory
from prismem_core.jobs.evolution_job import start_source
from prismem_core.jobs.settings import build_job_settings
from prismem_core.jobs.workbench import Workbench
from prismem_core.program.program import Program
from prismem_core.roles.protocols import Embedder
from prismem_core.runs.provenance import commit
from prismem_core.tasks.datasets import annotate, load
from prismem_core.tasks.datasets.named_splits import read_split
from prismem_core.tasks.text import normal_form

from .writable import check_file

WHOLE = Extent(10**9)
SHOWN = EXTENTS[0]
PARTS = ("retrieved_text", "original_text", "extracted_as")
GOAL = 0.4
CASES_A_PROMPT = 5

_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n")


class Fault(PrismemError):
    """Something is shown that the rules forbid, or less is saved than promised."""

    exit_code = 9


@dataclass
class Measured:
    """One case, each figure whole and as it is shown.

    Characters of the case and of its parts, sentences of the evidence that stand in the texts, and of the snippets
    whose source has units those whose best unit is there.
    """

    size: tuple[int, int]
    parts: Mapping[str, tuple[int, int]]
    sentences: Mapping[str, tuple[int, int]]
    best_units: tuple[int, int]
    faults: list[str]

    @property
    def reduction(self) -> float:
        """The share of characters that is saved."""
        return 1 - self.size[1] / self.size[0]


@dataclass
class _View:
    """The long texts of a case as one extent shows them: by piece of evidence the text and the units of its source."""

    size: int
    retrieved: str
    originals: list[str]
    units: list[list[str]]
    parts: dict[str, int]


def _view(case: Case, texts: CaseTexts, extent: Extent) -> _View:
    originals = [str(view["original_text"]) for view in evidence_views(case, texts, extent)]
    retrieved = str(output_view(case, texts, extent)["retrieved_text"])
    units: list[list[str]] = []
    characters = 0
    for position, own in enumerate(units_views(case, texts, extent)):
        if isinstance(own, str):
            units.append(units[_number(own, "as those of piece ")])
        else:
            units.append(own)
            characters += sum(map(len, own)) + max(0, len(own) - 1)
        if originals[position].startswith("as that of piece "):
            originals[position] = originals[_number(originals[position], "as that of piece ")]
    shown_once = sum(map(len, dict.fromkeys(originals)))
    parts = {"retrieved_text": len(retrieved), "original_text": shown_once, "extracted_as": characters}
    return _View(len(cases_text([case], texts, extent)), retrieved, originals, units, parts)


def _number(text: str, prefix: str) -> int:
    return int(text.removeprefix(prefix)) - 1


def measure(case: Case, texts: CaseTexts, embedder: Embedder, extent: Extent = SHOWN) -> Measured:
    """Count the characters of a case, whole and as `extent` shows it, and check what is shown."""
    whole, shown = _view(case, texts, WHOLE), _view(case, texts, extent)
    faults = _text_faults(case.retrieved_text, shown.retrieved, extent.excerpt)
    best_shown = []
    for position, own in enumerate(case.evidence):
        faults += _text_faults(own.original_text, shown.originals[position], extent.excerpt)
        if own.extracted_as:
            best_shown.append(_best(own.snippet, own.extracted_as, embedder) in shown.units[position])
            if not best_shown[-1]:
                faults.append(f"the unit most like piece {position + 1} is not shown")
    snippets = [own.snippet for own in case.evidence]
    sentences = {
        "retrieved_text": _kept([(snippet, whole.retrieved, shown.retrieved) for snippet in snippets]),
        "original_text": _kept(list(zip(snippets, whole.originals, shown.originals, strict=True))),
    }
    return Measured(
        (whole.size, shown.size),
        {part: (whole.parts[part], shown.parts[part]) for part in PARTS},
        sentences,
        (len(best_shown), sum(best_shown)),
        [f"{case.task_id}: {fault}" for fault in faults],
    )


def _text_faults(whole: str, shown: str, budget: int) -> list[str]:
    if len(whole) <= budget:
        return [] if shown == whole else ["a text within its budget was changed"]
    faults = [] if len(shown) <= budget else [f"an excerpt has {len(shown)} characters, {budget} are allowed"]
    fences = {span.text for span in spans_of(whole) if span.fence}
    if any(span.fence and span.text not in fences for span in spans_of(shown)):
        faults.append("a fence was cut")
    return faults


def _kept(pieces: Sequence[tuple[str, str, str]]) -> tuple[int, int]:
    """Of (snippet, whole, shown): sentences of the snippets that stand in the whole text, and those still shown."""
    there = kept = 0
    for snippet, whole, shown in pieces:
        for sentence in filter(None, map(normal_form, _SENTENCE.split(snippet))):
            if sentence in normal_form(whole):
                there += 1
                kept += sentence in normal_form(shown)
    return there, kept


def _best(snippet: str, units: Sequence[str], embedder: Embedder) -> str:
    """The unit most like a snippet by the op, found apart from what is measured."""
    rows = normalised(embedder.embed([snippet, *units]))
    return units[int(np.argmax(ops.similarity(rows[:1], rows[1:])[0]))]


def summary(measured: Sequence[Measured]) -> dict[str, Any]:
    """What is published of the cases of one program; pairs are whole and shown."""

    def pair(pairs: Sequence[tuple[int, int]]) -> list[int]:
        return [sum(own[i] for own in pairs) for i in (0, 1)]

    whole, shown = pair([m.size for m in measured])
    return {
        "cases": len(measured),
        "characters": [whole, shown],
        "mean_reduction": round(statistics.fmean(m.reduction for m in measured), 4),
        "median_reduction": round(statistics.median(m.reduction for m in measured), 4),
        "total_reduction": round(1 - shown / whole, 4),
        "parts": {part: pair([m.parts[part] for m in measured]) for part in PARTS},
        "best_units": pair([m.best_units for m in measured]),
        "evidence_sentences": {part: pair([m.sentences[part] for m in measured]) for part in measured[0].sentences},
        "faults": sum(len(m.faults) for m in measured),
    }


def run(
    data: str, split_name: str | None, programs: Sequence[str], cache: Path | None
) -> tuple[dict[str, Any], list[str]]:
    """Measure the training questions of a data set under each program: the entry and all faults."""
    dataset = load(data)
    split = dataset.split(None if split_name is None else read_split(split_name, dataset))
    if not split.train:
        raise DataError(f"the train part of data set {dataset.name!r} has no question; name a split with --split")
    dataset = annotate(dataset, split)
    settings = build_job_settings({})
    found: dict[str, Any] = {}
    faults: list[str] = []
    everything: list[Measured] = []
    with Workbench(dataset, settings, cache_directory=cache) as bench:
        embedder = bench.diagnostic_embedder
        train = bench.evaluator.tasks(split.train)
        laboratory = TaskLaboratory(bench.evaluator, train, [], bench.sandbox, bench.ledger, embedder)
        for name in programs:
            source = start_source(name)
            cases = laboratory.cases("n00", source, [task.id for task in train])
            began = time.process_time()
            measured = []
            for start in range(0, len(cases), CASES_A_PROMPT):
                shown = cases[start : start + CASES_A_PROMPT]
                texts = CaseTexts(embedder, shown)
                measured += [measure(case, texts, embedder) for case in shown]
            label = Path(name).stem
            faults += [f"{label}, {fault}" for own in measured for fault in own.faults]
            everything += measured
            found[label] = {
                "digest": Program(source).digest,
                **summary(measured),
                "cpu_seconds_a_case": round((time.process_time() - began) / len(measured), 3),
            }
    entry = {
        "name": dataset.name,
        "digest": dataset.digest,
        "split": split_name,
        "part": "train",
        "questions": len(split.train),
        "embedder": embedder.identity,
        "compaction": VERSION,
        "budget": SHOWN.excerpt,
        "programs": found,
        "all": summary(everything),
        "version": prismem_core.__version__,
        "commit": commit(),
    }
    return entry, faults


def table(entry: Mapping[str, Any]) -> str:
    """An entry as a Markdown table."""
    lines = [
        f"{entry['name']}, split {entry['split']}, {entry['questions']} training questions, excerpts of at most "
        f"{entry['budget']} characters",
        "",
        "| program | cases | characters whole | shown | mean reduction | retrieved | original | units "
        "| best units shown | evidence shown |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, row in [*entry["programs"].items(), ("all", entry["all"])]:
        parts = " | ".join(_share(*row["parts"][part]) for part in PARTS)
        there, kept = row["evidence_sentences"]["original_text"]
        best, best_shown = row["best_units"]
        lines.append(
            f"| {name} | {row['cases']} | {row['characters'][0]:,} | {row['characters'][1]:,} | "
            f"{row['mean_reduction']:.1%} | {parts} | {best_shown} of {best} | {kept} of {there} |"
        )
    return "\n".join(lines)


def _share(whole: int, shown: int) -> str:
    return f"-{1 - shown / whole:.1%}" if whole else "-"


def write(path: Path, entry: Mapping[str, Any]) -> None:
    """Put an entry in place of that of the same data set and split."""
    kept = [own for own in _entries(path) if (own["name"], own["split"]) != (entry["name"], entry["split"])]
    ordered = sorted([*kept, entry], key=lambda own: (own["name"], own["split"] or ""))
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, delete=False) as file:
        json.dump(ordered, file, ensure_ascii=False, indent=1)
        file.write("\n")
    Path(file.name).replace(path)


def _entries(path: Path) -> list[dict[str, Any]]:
    """The entries of a results file; DataError for a file that is none, which is never overwritten."""
    if not path.exists():
        return []
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
        if all(isinstance(own["name"], str) and "split" in own for own in known):
            return list(known)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}; mend its rights or name another --results") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    raise DataError(f"{path} holds no results of this program; name another --results")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; the exit code is 9 if a check fails or less than 40 % is saved on the mean."""
    parser = argparse.ArgumentParser(prog="python -m bench.compaction", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", required=True, help="what `prismem evolve --data` takes")
    parser.add_argument("--split", help="as for `prismem evolve`; its training part alone is used")
    parser.add_argument(
        "--programs",
        nargs="+",
        default=["seed", "bm25_rag"],
        help="programs of the library or files (default: %(default)s)",
    )
    parser.add_argument("--cache", type=Path, help="directory of the execution cache (default: in memory)")
    parser.add_argument("--results", type=Path, help="JSON file to add the entry to")
    given = parser.parse_args(arguments)
    try:
        if given.results is not None:
            check_file(given.results, "--results")
            _entries(given.results)
        entry, faults = run(given.data, given.split, given.programs, given.cache)
        if given.results is not None:
            write(given.results, entry)
    except PrismemError as error:
        print(f"bench.compaction: {error}", file=sys.stderr)
        return error.exit_code
    print(table(entry))
    for fault in faults:
        print(fault)
    if entry["all"]["mean_reduction"] < GOAL:
        print(f"the mean reduction is below {GOAL:.0%}")
        return Fault.exit_code
    return Fault.exit_code if faults else 0


if __name__ == "__main__":
    sys.exit(main())
