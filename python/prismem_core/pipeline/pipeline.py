"""The way of a question: segment, extract, index, plan, retrieve, answer, each stage batched and keyed by content."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from prismem_core.cache import ExecutionCache
from prismem_core.digests import digest
from prismem_core.errors import CandidateError
from prismem_core.ops.screened import Measured
from prismem_core.pipeline.backend import EmbedsWithSalt, EngineBackend, HoldingBackend
from prismem_core.pipeline.costs import Stopwatch
from prismem_core.pipeline.early_answers import PORTION, EarlyAnswers
from prismem_core.pipeline.extract import Extraction, extract
from prismem_core.pipeline.flights import Flights, Held, Holdings, cores
from prismem_core.pipeline.frozen_memories import FrozenMemories, default_budget
from prismem_core.pipeline.index import BuiltMemory, IndexRecipe, MemoryBuilder, index_recipe
from prismem_core.pipeline.keys import Reuse, StageKeys, stage_keys
from prismem_core.pipeline.plan import plan
from prismem_core.pipeline.retrieve import Retrieval, retrieve
from prismem_core.pipeline.reuse_check import ReuseCheck, ReuseCounts
from prismem_core.pipeline.segment import SEGMENT_CHARS, Group, Segment, segment
from prismem_core.pipeline.stage_clock import StageClock
from prismem_core.pipeline.structured import Answered, CompletesWithSalt
from prismem_core.pipeline.trace import Failure, StageUsage, Trace
from prismem_core.pipeline.windows import in_window, under_way
from prismem_core.program.interface import COLLECTION_VERSION, Interface, ProgramInterface
from prismem_core.program.program import Program
from prismem_core.program.sandbox import CollectionLimits, Limits, Sandbox
from prismem_core.roles.ledger import Ledger
from prismem_core.tasks.history import History

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class PipelineSettings:
    """Settings that enter keys, but for `workers`, `copies`, `device`, `frozen_bytes` and `verify_reuse`, which never
    change a result.

    `workers` threads run stages. Up to `copies` queries of a memory are under way, more where a model takes calls of
    several threads (`under_way`), of all of them as many compute as there are cores; what runs after one that fails:
    `in_window`. `device` screens searches (`ops.screened`). Built
    memories of up to `frozen_bytes` private memory are kept for the next program (None: `default_budget`, 0: none), and
    the share `verify_reuse` of those that are used again is built again to compare.
    """

    segment_chars: int = SEGMENT_CHARS
    output_retries: int = 2
    max_tokens: int = 8192
    reuse: Reuse = "content"
    workers: int = 2
    limits: Limits = field(default_factory=Limits)
    interface: Interface = "paper"
    copies: int = 8
    device: str = "cpu"
    collections: CollectionLimits = field(default_factory=CollectionLimits)
    frozen_bytes: int | None = None
    verify_reuse: float = 0.0

    @property
    def digest(self) -> str:
        """Content digest of what can change a built memory or a retrieved text."""
        if self.interface == "paper":
            return digest("settings", self.max_tokens, repr(self.limits))
        engine = (self.interface, COLLECTION_VERSION, repr(self.collections))
        return digest("settings", self.max_tokens, repr(self.limits), *engine)


@dataclass(frozen=True)
class ExtractedHistory:
    """The groups of a history and the extraction of every segment, by the segment's text."""

    groups: tuple[Group, ...]
    extractions: Mapping[str, Extraction]

    @property
    def units(self) -> list[Mapping[str, Any]]:
        """All valid units in order."""
        return [u for g in self.groups for s in g.segments for u in self.extractions[s.text].units]


@dataclass(frozen=True)
class PipelineResult:
    """Traces in the order of the questions, the extracted histories by id and the logical usage."""

    traces: tuple[Trace, ...]
    histories: Mapping[str, ExtractedHistory]
    usage: StageUsage


class Pipeline:
    """Runs memory programs on histories and questions; it is never given a task, so labels cannot leak to a program."""

    def __init__(
        self,
        chat: CompletesWithSalt,
        embedder: EmbedsWithSalt,
        cache: ExecutionCache,
        sandbox: Sandbox,
        settings: PipelineSettings | None = None,
        progress: Progress | None = None,
        ledger: Ledger | None = None,
        measured: Measured = nullcontext,
    ) -> None:
        self.settings = settings or PipelineSettings()
        self.measured = measured
        self._chat = chat
        self._embedder = embedder
        self._cache = cache
        self._sandbox = sandbox
        self._progress = progress
        self.clock = StageClock()
        for role in (chat, embedder):
            self.clock.watch(getattr(role, "meter", None))
        self._flights = Flights(cores())
        holdings = (
            Holdings(
                embedder, self._flights, self.settings.collections, ledger or Ledger(), self.settings.device, measured
            )
            if self.settings.interface == "engine"
            else None
        )
        budget = default_budget() if self.settings.frozen_bytes is None else self.settings.frozen_bytes
        frozen = FrozenMemories(budget)
        self._builder = MemoryBuilder(sandbox, cache, self._flights, frozen, holdings)
        self._check = ReuseCheck(self.settings.verify_reuse)
        self._finalizer = weakref.finalize(self, frozen.close)
        self._segments: dict[tuple[str, str], tuple[Group, ...]] = {}
        self._lock = threading.Lock()

    def close(self) -> None:
        """End the memories that are kept for the next program; a pipeline that is collected does so, too."""
        self._finalizer()

    def forget(self, history: History) -> None:
        """Drop the segments of a history that nothing will be run on again, such as one that has grown."""
        with self._lock:
            for key in [key for key in self._segments if key[0] == history.digest]:
                del self._segments[key]

    @property
    def reuse_counts(self) -> ReuseCounts:
        """What `verify_reuse` has compared so far."""
        return self._check.counts()

    def interface(self, program: Program) -> ProgramInterface:
        """Schemas and instructions of a program, loaded in a worker once; raises ProgramError."""
        key = digest("interface", program.source)
        found = self._cache.get_json("interface", key)
        if found is not None:
            return ProgramInterface.from_dict(found)
        watch = Stopwatch()
        interface = self._sandbox.describe(program.source)
        self._cache.put_json("interface", key, interface.to_dict(), cost=watch.tokens())
        return interface

    def extract(self, program: Program, histories: Mapping[str, History]) -> dict[str, ExtractedHistory]:
        """Stages 1 and 2 for every history, as one batch."""
        with self._cache.tagged(program=program.digest), self.clock.stage("extract"):
            return self._extract(program, histories)

    def build(self, program: Program, history: History) -> None:
        """Stages 1 to 3, so that the next question finds the memory built; raises CandidateError from `index`."""
        with self._cache.tagged(program=program.digest):
            extracted = self.extract(program, {history.id: history})[history.id]
            with (
                self.clock.stage("index and retrieve"),
                closing(self._memory(program, stage_keys(program, self.settings.reuse), extracted)) as memory,
            ):
                memory.lease()

    def _extract(self, program: Program, histories: Mapping[str, History]) -> dict[str, ExtractedHistory]:
        interface = self.interface(program)
        keys = stage_keys(program, self.settings.reuse)
        groups = {history_id: self._cut(history, interface.segmentation) for history_id, history in histories.items()}
        segments: dict[str, Segment] = {}
        for history_groups in groups.values():
            for group in history_groups:
                segments.update((s.text, s) for s in group.segments)
        self._tell("extract", 0, len(segments))
        extractions = extract(
            self._chat,
            interface,
            list(segments.values()),
            retries=self.settings.output_retries,
            max_tokens=self.settings.max_tokens,
            salt=keys.extract,
        )
        by_text = dict(zip(segments, extractions, strict=True))
        return {
            history_id: ExtractedHistory(
                history_groups, {s.text: by_text[s.text] for g in history_groups for s in g.segments}
            )
            for history_id, history_groups in groups.items()
        }

    def run(
        self,
        program: Program,
        histories: Mapping[str, History],
        questions: Sequence[tuple[str, str]],
        *,
        answers: bool = True,
        every: bool = False,
    ) -> PipelineResult:
        """Run all stages for `questions`, each a (history id, question) pair; without `answers` the last stage is
        left out.

        A failure of the program is kept in the trace of each question it touches. Those that come after one that failed
        on the same history share its failure, unless `every` question is to be tried. RoleError and SandboxError
        propagate. What the cache stores or gives meanwhile is noted as used by the program, where a run is noted.
        """
        with self._cache.tagged(program=program.digest):
            return self._run(program, histories, questions, answers, every)

    def _run(
        self,
        program: Program,
        histories: Mapping[str, History],
        questions: Sequence[tuple[str, str]],
        answers: bool,
        every: bool,
    ) -> PipelineResult:
        interface = self.interface(program)
        keys = stage_keys(program, self.settings.reuse)
        used = {history_id: histories[history_id] for history_id, _ in questions}
        texts = [question for _, question in questions]
        with self.clock.stage("extract and plan"):
            extracted, planned = self._extract_and_plan(program, interface, keys, used, texts)
        usage = StageUsage()
        for history in extracted.values():
            for extraction in history.extractions.values():
                usage.add("extract", extraction.calls, extraction.input_tokens, extraction.output_tokens)
        traces: list[Trace] = []
        for text, state in zip(texts, planned, strict=True):
            usage.add("plan", state.calls, state.input_tokens, state.output_tokens)
            failure = Failure("plan", "structured_output", state.problem) if state.value is None else None
            traces.append(Trace(text, state.value or {}, failure=failure))
        with EarlyAnswers(
            self._chat, interface, self.settings, keys.answer, answers and self._concurrent, self._stop_asking
        ) as early:
            with self.clock.stage("index and retrieve"):
                traces = self._retrieve_all(program, keys, extracted, questions, traces, usage, early, every)
            if answers:
                with self.clock.stage("answer"):
                    self._tell("answer", 0, sum(trace.failure is None for trace in traces))
                    for position, reply in sorted(early.collect(traces).items()):
                        usage.add("answer", reply.calls, reply.input_tokens, reply.output_tokens)
                        traces[position] = replace(traces[position], answer=reply.text.strip(), defect=reply.defect)
        return PipelineResult(tuple(traces), extracted, usage)

    @property
    def _concurrent(self) -> bool:
        """Whether calls of several threads go out side by side, so that stages may share the model's slots."""
        return bool(getattr(self._chat, "concurrent", False))

    def _stop_asking(self, cause: BaseException) -> None:
        stop = getattr(self._chat, "stop", None)
        if stop is not None:
            # Who interrupts must not wait for replies that may take minutes.
            stop(at_once=isinstance(cause, KeyboardInterrupt))

    def _extract_and_plan(
        self,
        program: Program,
        interface: ProgramInterface,
        keys: StageKeys,
        histories: Mapping[str, History],
        questions: Sequence[str],
    ) -> tuple[dict[str, ExtractedHistory], list[Answered[Mapping[str, Any]]]]:
        """Extraction and planning, which wait for nothing of each other: side by side where the model takes calls of
        several threads, so that the last calls of one do not leave them empty.
        """

        def plan_all() -> list[Answered[Mapping[str, Any]]]:
            self._tell("plan", 0, len(questions))
            return plan(
                self._chat,
                interface,
                questions,
                retries=self.settings.output_retries,
                max_tokens=self.settings.max_tokens,
                salt=keys.plan,
            )

        if not self._concurrent:
            return self._extract(program, histories), plan_all()
        with ThreadPoolExecutor(1, thread_name_prefix="prismem-plan") as pool:
            planned = pool.submit(plan_all)
            try:
                return self._extract(program, histories), planned.result()
            except BaseException as cause:
                self._stop_asking(cause)
                raise

    def _retrieve_all(
        self,
        program: Program,
        keys: StageKeys,
        extracted: Mapping[str, ExtractedHistory],
        questions: Sequence[tuple[str, str]],
        traces: list[Trace],
        usage: StageUsage,
        early: EarlyAnswers,
        every: bool,
    ) -> list[Trace]:
        positions: dict[str, list[int]] = {}
        for position, (history_id, _) in enumerate(questions):
            if traces[position].failure is None:
                positions.setdefault(history_id, []).append(position)
        memories, copies = under_way(
            len(positions), self.settings.workers, self.settings.copies, self._chat, self._embedder
        )
        done = [0]
        total = sum(map(len, positions.values()))
        stopping = threading.Event()

        def ends(result: Retrieval | Failure) -> bool:
            return _failed(result) and not every

        def one(history_id: str) -> tuple[dict[int, Retrieval | Failure], Mapping[str, Any] | None]:
            memory = self._memory(program, keys, extracted[history_id])
            results: dict[int, Retrieval | Failure] = {}
            searched: dict[int, Trace] = {}
            try:
                asked = positions[history_id]
                calls = [partial(self._retrieve_one, program, memory, keys, traces[i]) for i in asked]
                with closing(in_window(calls, copies, ends, stopping)) as found:
                    for position, result in zip(asked, found, strict=False):
                        results[position] = result
                        if isinstance(result, Failure):
                            if every:
                                continue
                            break
                        searched[position] = replace(traces[position], retrieved=result.text)
                        if len(searched) == PORTION:
                            early.searched(list(searched), list(searched.values()))
                            searched = {}
                        with self._lock:
                            done[0] += 1
                        self._tell("retrieve", done[0], total)
                early.searched(list(searched), list(searched.values()))
                return results, memory.usage()
            finally:
                memory.close()

        with ThreadPoolExecutor(memories) as pool:
            try:
                outcomes = dict(zip(positions, pool.map(one, positions), strict=True))
            except BaseException:
                # An interrupt must not wait for every question of the histories at hand.
                stopping.set()
                raise
        finished = list(traces)
        for history_id, (results, index_usage) in outcomes.items():
            if index_usage is not None:
                usage.merge_dict(index_usage)
            broken = next((r for r in results.values() if isinstance(r, Failure)), None)
            for position in positions[history_id]:
                trace, result = traces[position], results.get(position, broken)
                if isinstance(result, Retrieval):
                    usage.merge_dict(result.usage)
                    finished[position] = Trace(trace.question, trace.query, result.text)
                else:
                    finished[position] = Trace(trace.question, trace.query, failure=result)
        return finished

    def _retrieve_one(
        self, program: Program, memory: BuiltMemory, keys: StageKeys, trace: Trace
    ) -> Retrieval | Failure:
        check = partial(self._check.compare, program=program.digest, question=trace.question)
        try:
            return retrieve(
                memory,
                trace.query,
                digest(keys.retrieve, self._roles_identity, self.settings.digest),
                self._cache,
                partial(self._backend, "retrieve", keys.retrieve),
                check if self._check.chosen(memory, program.digest) else None,
            )
        except CandidateError as error:
            stage = "retrieve" if memory.broken is None else "index"
            return Failure(stage, error.kind, str(error), error.line)

    def _memory(self, program: Program, keys: StageKeys, history: ExtractedHistory) -> BuiltMemory:
        recipe: IndexRecipe = index_recipe(
            program.source,
            keys.index,
            history.groups,
            {text: extraction.units for text, extraction in history.extractions.items()},
            self._roles_identity,
            self.settings.digest,
        )
        return BuiltMemory(recipe, self.settings.limits, self._builder, partial(self._backend, "index", keys.index))

    def _backend(self, stage: str, code: str, held: Held | None) -> EngineBackend:
        salt = code if self.settings.reuse == "off" else ""
        tokens = self.settings.max_tokens
        if held is None:
            return EngineBackend(self._chat, self._embedder, stage, tokens, salt, self._flights)
        return HoldingBackend(self._chat, self._embedder, stage, tokens, salt, self._flights, held)

    @property
    def _roles_identity(self) -> str:
        return digest("roles", self._chat.identity, self._embedder.identity)

    def _cut(self, history: History, segmentation: str) -> tuple[Group, ...]:
        key = (history.digest, segmentation)
        with self._lock:
            if key not in self._segments:
                self._segments[key] = tuple(segment(history, segmentation, self.settings.segment_chars))
            return self._segments[key]

    def _tell(self, stage: str, done: int, total: int) -> None:
        if self._progress is not None:
            self._progress(stage, done, total)


def _failed(result: Retrieval | Failure) -> bool:
    return isinstance(result, Failure)
