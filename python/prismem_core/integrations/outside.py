"""An outside memory system in the place of stages 1 to 5: the same questions in, traces and usage out."""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from prismem_core.cache import ExecutionCache
from prismem_core.digests import digest
from prismem_core.errors import CandidateError
from prismem_core.integrations.process import SILENCE_SECONDS, SystemProcess
from prismem_core.integrations.systems import SystemSpec
from prismem_core.pipeline.answer import answer
from prismem_core.pipeline.backend import EmbedsWithSalt
from prismem_core.pipeline.pipeline import PipelineResult, PipelineSettings
from prismem_core.pipeline.structured import CompletesWithSalt, Unusable, ask, extract_json, without_reasoning
from prismem_core.pipeline.trace import Failure, StageUsage, Trace
from prismem_core.program.interface import OUT_CHAR_BUDGET, ProgramInterface
from prismem_core.program.sandbox.frames import plain_text
from prismem_core.roles.protocols import ChatRequest
from prismem_core.tasks.history import History

VERSION = 1
"""Part of every key: raised when what is stored of a system changes its meaning."""

_BUILT, _RETRIEVED = "outside memory", "outside retrieval"


@dataclass
class Built:
    """What building the memories took, over all histories: wall time, and the texts that did not fit the budget."""

    seconds: float = 0.0
    histories: int = 0
    cut_texts: int = 0
    contacts: list[str] = field(default_factory=list)


class OutsideSystem:
    """Runs one system on histories and questions. A context manager, which ends the processes that it began.

    What a memory gives for a question is stored under the system's identity, the models', the history and the question,
    so a memory is built again only where something is asked of it that never was; the calls of models behind it are
    stored like all others. Failures of the system are kept in traces as those of programs are; RoleError propagates.
    """

    def __init__(
        self,
        spec: SystemSpec,
        chat: CompletesWithSalt,
        embedder: EmbedsWithSalt,
        cache: ExecutionCache,
        settings: PipelineSettings,
        *,
        online: bool = False,
        seconds: float = SILENCE_SECONDS,
    ) -> None:
        self.spec = spec
        self.built = Built()
        self._chat = chat
        self._embedder = embedder
        self._cache = cache
        self._settings = settings
        self._online = online
        self._seconds = seconds
        self._free: queue.SimpleQueue[SystemProcess] = queue.SimpleQueue()
        self._begun: list[SystemProcess] = []
        self._lock = threading.Lock()
        self._closed = False
        try:
            with self._process() as process:
                self.identity = process.load()
        except BaseException:
            self.close()
            raise
        models = [chat.identity, embedder.identity, settings.max_tokens, settings.output_retries]
        self._key = digest("outside", VERSION, self.identity, *models)

    def run(
        self, interface: ProgramInterface, histories: Mapping[str, History], questions: Sequence[tuple[str, str]]
    ) -> PipelineResult:
        """Traces of `questions`, pairs of (history id, question), answered with the instruction of `interface`."""
        self.built = Built()
        by_history: dict[str, list[int]] = {}
        for position, (history_id, _) in enumerate(questions):
            by_history.setdefault(history_id, []).append(position)
        traces = [Trace(question) for _, question in questions]
        usage = StageUsage()

        def one(history_id: str) -> tuple[dict[int, str | Failure], StageUsage]:
            asked = {position: questions[position][1] for position in by_history[history_id]}
            return self._history(histories[history_id], asked)

        with ThreadPoolExecutor(max(1, min(self._settings.workers, len(by_history)))) as pool:
            try:
                for found, used in pool.map(one, by_history):
                    usage.merge_dict(used.to_dict())
                    for position, text in found.items():
                        if isinstance(text, Failure):
                            traces[position] = replace(traces[position], failure=text)
                        else:
                            traces[position] = replace(traces[position], retrieved=self._packed(text))
            except BaseException as cause:
                stop = getattr(self._chat, "stop", None)
                if stop is not None:
                    # Who interrupts must not wait for replies that may take minutes.
                    stop(at_once=isinstance(cause, KeyboardInterrupt))
                self.close()
                raise
        self._answer(interface, traces, usage)
        return PipelineResult(tuple(traces), {}, usage)

    def close(self) -> None:
        """End all processes at once."""
        self._closed = True
        with self._lock:
            begun, self._begun = self._begun, []
        for process in begun:
            process.kill()

    def __enter__(self) -> OutsideSystem:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _history(self, history: History, asked: Mapping[int, str]) -> tuple[dict[int, str | Failure], StageUsage]:
        key = digest(self._key, history.digest)
        keys = {position: digest(key, question) for position, question in asked.items()}
        known = self._cache.get_json(_BUILT, key)
        stored = {position: self._cache.get_json(_RETRIEVED, own) for position, own in keys.items()}
        usage = StageUsage()
        found: dict[int, str | Failure] = {}
        open_positions = [position for position, record in stored.items() if record is None]
        if known is None or open_positions:
            with self._process() as process:
                try:
                    known = self._build(process, history)
                except CandidateError as error:
                    return dict.fromkeys(asked, Failure("index", error.kind, str(error))), usage
                self._cache.put_json(_BUILT, key, known, cost=1 + known["tokens"])
                for position in open_positions:
                    # What one question meets is no fault of another, unless it ended the process.
                    if not process.alive:
                        found[position] = Failure("retrieve", "died", "an earlier question ended its process")
                        continue
                    try:
                        record = self._retrieve(process, asked[position])
                    except CandidateError as error:
                        found[position] = Failure("retrieve", error.kind, str(error))
                        continue
                    self._cache.put_json(_RETRIEVED, keys[position], record, cost=1 + record["tokens"])
                    stored[position] = record
                if process.alive:
                    # All that was wanted of the memory is there.
                    with suppress(CandidateError):
                        process.end(_Roles(self, "index"))
        usage.merge_dict(known["usage"])
        for position, record in stored.items():
            if record is not None:
                usage.merge_dict(record["usage"])
                found[position] = record["text"]
        with self._lock:
            self.built.seconds += known["seconds"]
            self.built.histories += 1
        return found, usage

    def _build(self, process: SystemProcess, history: History) -> dict[str, Any]:
        roles = _Roles(self, "index")
        started = time.monotonic()
        described = {
            "dimension": self._embedder.dimension,
            "chat": self._chat.identity,
            "embedder": self._embedder.identity,
        }
        process.begin(roles, described)
        for session in history.sessions:
            process.add(session, roles)
        return {"seconds": time.monotonic() - started, **roles.record()}

    def _retrieve(self, process: SystemProcess, question: str) -> dict[str, Any]:
        roles = _Roles(self, "retrieve")
        return {"text": plain_text(process.retrieve(question, roles)), **roles.record()}

    def _answer(self, interface: ProgramInterface, traces: list[Trace], usage: StageUsage) -> None:
        positions = [position for position, trace in enumerate(traces) if trace.failure is None]
        replies = answer(
            self._chat,
            interface,
            [traces[i].question for i in positions],
            [traces[i].retrieved for i in positions],
            max_tokens=self._settings.max_tokens,
            retries=self._settings.output_retries,
        )
        for position, reply in zip(positions, replies, strict=True):
            usage.add("answer", reply.calls, reply.input_tokens, reply.output_tokens)
            traces[position] = replace(traces[position], answer=reply.text.strip(), defect=reply.defect)

    def _packed(self, text: str) -> str:
        """The text in the budget that every program has: whole lines from its beginning."""
        if len(text) <= OUT_CHAR_BUDGET:
            return text
        self.built.cut_texts += 1
        cut = text[: OUT_CHAR_BUDGET + 1]
        whole = cut.rfind("\n")
        return text[: whole if whole > 0 else OUT_CHAR_BUDGET]

    @contextmanager
    def _process(self) -> Iterator[SystemProcess]:
        """A process that is free, or a new one; after a failure of the engine's side it is ended."""
        try:
            process = self._free.get_nowait()
        except queue.Empty:
            process = SystemProcess(self.spec, online=self._online, seconds=self._seconds)
            with self._lock:
                self._begun.append(process)
            if self._closed:
                process.kill()
            if len(self._begun) > 1:
                process.load()
        yield process
        with self._lock:
            self.built.contacts += [whom for whom in process.contacts if whom not in self.built.contacts]
        if process.alive:
            self._free.put(process)


class _Roles:
    """The job's models as one memory uses them; counts what it would have cost with nothing stored."""

    def __init__(self, system: OutsideSystem, stage: str) -> None:
        self._chat = system._chat
        self._embedder = system._embedder
        self._settings = system._settings
        self._stage = stage
        self._usage = StageUsage()

    def chat(self, prompt: str, system: str, schema: Mapping[str, Any] | None) -> str:
        """The text of a reply; with a schema the JSON object in it, asked for again where there is none."""
        inputs = {"prompt": prompt, "system_prompt": system, "json_object": schema is not None}

        def request(_: int, problem: str) -> ChatRequest:
            again = f"\n\nYour previous reply could not be used: {problem}" if problem else ""
            text = plain_text(prompt) + again
            return ChatRequest("ask", plain_text(system), text, inputs, schema, self._settings.max_tokens)

        def read(_: int, text: str) -> str:
            if schema is None:
                return without_reasoning(text)
            found = extract_json(text)
            try:
                json.loads(found, strict=False)
            except (ValueError, RecursionError) as error:
                raise Unusable(f"it is no JSON object ({error})") from None
            return found

        (state,) = ask(self._chat, request, 1, read, self._settings.output_retries)
        self._usage.add(self._stage, state.calls, state.input_tokens, state.output_tokens)
        return state.text if state.value is None else state.value

    def embed(self, texts: list[str]) -> list[list[float]]:
        """Rows of the job's embedder."""
        given = [plain_text(text) for text in texts]
        self._usage.embed(len(given), sum(-(-len(text) // 4) for text in given))
        rows: list[list[float]] = self._embedder.embed(given).tolist()
        return rows

    def record(self) -> dict[str, Any]:
        """The usage, for the cache, and the tokens it stands for."""
        stages = self._usage.stages.values()
        tokens = sum(usage.input_tokens + usage.output_tokens for usage in stages) + self._usage.embedded_tokens
        return {"usage": self._usage.to_dict(), "tokens": tokens}
