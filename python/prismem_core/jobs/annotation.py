"""Who labels the training and validation questions of a run: rules, a model, or the journal of a run that goes on."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from prismem_core.evaluation.annotation import Annotation, annotate_tasks
from prismem_core.evolution.engine import check_seed
from prismem_core.evolution.laboratory import Observer
from prismem_core.evolution.task_laboratory import TaskLaboratory
from prismem_core.jobs.workbench import Workbench
from prismem_core.runs.events import TasksAnnotated
from prismem_core.runs.run import Run
from prismem_core.tasks.capability import CAPABILITIES, Capability
from prismem_core.tasks.datasets import annotate
from prismem_core.tasks.task import Dataset, Split, Task

_LOGGER = logging.getLogger("prismem_core")
PURPOSE = "annotation"


def label_run(run: Run, bench: Workbench, split: Split, seed: str, observer: Observer) -> TaskLaboratory:
    """The laboratory of a run, with labels on its tasks before anything is decided by them.

    With an annotator they are those of the journal where it has them, else those that the model gives, which enter the
    journal at once; without one, those of the rules. Test tasks are never annotated: they keep their native type's
    capability and have no secondaries. A `seed` program that is invalid raises ProgramError before a model is asked.
    """
    bench.relabel(annotate(bench.dataset, split))
    chat = bench.annotator()
    if chat is None:
        return laboratory(bench, split)
    event = next((e for e in run.events if isinstance(e, TasksAnnotated)), None)
    if event is None:
        check_seed(laboratory(bench, split), seed)
        observer.on_step(0, 0, "annotate")
        tasks = bench.evaluator.tasks((*split.train, *split.valid))
        with bench.ledger.scope(purpose=PURPOSE):
            found = annotate_tasks(
                chat,
                tasks,
                retries=bench.settings.annotation_retries,
                max_tokens=bench.clients.max_tokens("annotator"),
            )
        event = annotated_event(chat.identity, tasks, found)
        run.append(event)
        if event.fallen_back:
            first = next(iter(event.fallen_back.items()))
            _LOGGER.warning(
                "no valid annotation of %d of %d questions (first: %s: %s): their native type counts, without "
                "secondary capabilities",
                len(event.fallen_back),
                len(tasks),
                *first,
            )
    bench.relabel(with_labels(bench.dataset, event.labels))
    return laboratory(bench, split)


def laboratory(bench: Workbench, split: Split) -> TaskLaboratory:
    """Measures programs on the training and validation tasks of a workbench."""
    return TaskLaboratory(
        bench.evaluator,
        bench.evaluator.tasks(split.train),
        bench.evaluator.tasks(split.valid),
        bench.sandbox,
        bench.ledger,
        bench.diagnostic_embedder,
        bench.settings.interface,
    )


def annotated_event(annotator: str, tasks: Sequence[Task], found: Sequence[Annotation]) -> TasksAnnotated:
    """The journal's record of labels, in the order of `tasks`."""
    labels: list[list[Any]] = [
        [task.id, str(one.primary), [str(c) for c in one.secondary]] for task, one in zip(tasks, found, strict=True)
    ]
    problems = {task.id: one.problem for task, one in zip(tasks, found, strict=True) if one.problem}
    agreeing = sum(task.primary is one.primary for task, one in zip(tasks, found, strict=True))
    return TasksAnnotated(0, annotator, labels, agreeing, problems)


def with_labels(dataset: Dataset, labels: Sequence[Sequence[Any]]) -> Dataset:
    """The data set with these labels, `[id, primary, [secondaries]]`; tasks that have none keep theirs."""
    by_id: Mapping[str, tuple[Any, Any]] = {task_id: (primary, secondary) for task_id, primary, secondary in labels}

    def label(task: Task) -> Task:
        if task.id not in by_id:
            return task
        primary, secondary = by_id[task.id]
        chosen = tuple(c for c in CAPABILITIES if c in secondary)
        return replace(task, primary=Capability(primary), secondary=chosen)

    return replace(dataset, tasks=tuple(label(task) for task in dataset.tasks))
