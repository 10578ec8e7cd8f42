"""What can be counted beforehand: segments, questions, evidence, and the start program's prompts for them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from prismem_core.evaluation.annotation import annotation_request
from prismem_core.evaluation.judges.rules import grading
from prismem_core.evaluation.routing import routing_request
from prismem_core.pipeline.segment import segment
from prismem_core.pipeline.structured import field_inputs
from prismem_core.program.interface import ProgramInterface
from prismem_core.prompts.catalog import render
from prismem_core.tasks.task import Dataset, Task
from prismem_core.tasks.text import distinct_evidence


@dataclass(frozen=True)
class Prompts:
    """How many different prompts there are, and their characters and bytes all in all."""

    count: int = 0
    chars: int = 0
    size: int = 0

    @classmethod
    def of(cls, texts: Iterable[str]) -> Prompts:
        """Of these, each once."""
        different = set(texts)
        chars = sum(map(len, different))
        return cls(len(different), chars, sum(len(text.encode("utf-8", "surrogatepass")) for text in different))


class Questions:
    """The prompts of one set of tasks for the start program; `known` are segments that were extracted before."""

    def __init__(
        self,
        dataset: Dataset,
        interface: ProgramInterface,
        tasks: Sequence[Task],
        *,
        twins: bool,
        segment_chars: int,
        known: frozenset[str] = frozenset(),
    ) -> None:
        self.tasks = tuple(tasks)
        self._interface = interface
        by_id = {task.id: task for task in dataset.tasks}
        asked = {task.id: task for task in tasks}
        if twins:
            asked.update({task.twin: by_id[task.twin] for task in tasks if task.twin is not None})
        self.asked = tuple(asked.values())
        histories = dict.fromkeys(task.history_id for task in self.asked)
        groups = [
            group
            for history_id in histories
            for group in segment(dataset.histories[history_id], interface.segmentation, segment_chars)
        ]
        self.groups = len(groups)
        self.segments = frozenset(s.text for group in groups for s in group.segments)
        self.dialogue = Prompts.of(group.raw_text for group in groups)
        self._new = self.segments - known

    @cached_property
    def extraction(self) -> Prompts:
        """Prompts of extraction."""
        fields = field_inputs(self._interface.unit)
        instruction = self._interface.extraction_instruction
        return _prompts(
            render("extraction", problem="", instruction=instruction, fields=fields, text=text) for text in self._new
        )

    @cached_property
    def planning(self) -> Prompts:
        """Prompts of planning, for the questions."""
        return self._planned(task.asked for task in self.asked)

    @cached_property
    def evidence_planning(self) -> Prompts:
        """Prompts of planning, for the evidence of the tasks, which diagnostics ask for."""
        return self._planned(snippet for task in self.tasks for snippet in distinct_evidence(task.evidence))

    @cached_property
    def answering(self) -> Prompts:
        """Prompts of answers without the retrieved text; as many as there are different questions at least."""
        instruction = self._interface.answer_instruction
        return _prompts(
            render("answer", problem="", instruction=instruction, retrieved="", question=task.asked)
            for task in self.asked
        )

    @cached_property
    def judging(self) -> Prompts:
        """Prompts of a judge for answers of one character."""
        requests = [call.request("", 1) for task in self.tasks for call in grading(task, "x").calls]
        chars = [request.system + request.prompt for request in requests]
        return Prompts(len(requests), sum(map(len, chars)), sum(len(text.encode("utf-8")) for text in chars))

    @cached_property
    def annotating(self) -> Prompts:
        """Prompts of an annotator for the labels of the tasks."""
        requests = (annotation_request(task) for task in self.tasks)
        return _prompts((request.system, request.prompt) for request in requests)

    @cached_property
    def routing(self) -> Prompts:
        """Prompts that ask which capability a question wants."""
        requests = (routing_request(task.asked) for task in self.tasks)
        return _prompts((request.system, request.prompt) for request in requests)

    @cached_property
    def snippets(self) -> list[int]:
        """How much evidence each task has, falling."""
        return sorted((len(distinct_evidence(task.evidence)) for task in self.tasks), reverse=True)

    def _planned(self, questions: Iterable[str]) -> Prompts:
        fields = field_inputs(self._interface.query)
        instruction = self._interface.planning_instruction
        return _prompts(
            render("planning", problem="", instruction=instruction, fields=fields, question=question)
            for question in dict.fromkeys(questions)
        )


def _prompts(pairs: Iterable[tuple[str, str]]) -> Prompts:
    return Prompts.of(f"{system}{prompt}" for system, prompt in pairs)
