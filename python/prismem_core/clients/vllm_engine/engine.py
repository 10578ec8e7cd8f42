"""One vLLM engine that several threads feed: calls go in as slots come free, results come out as they are finished."""

from __future__ import annotations

import itertools
import multiprocessing
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import Any

from prismem_core.clients.vllm_engine.starting import told
from prismem_core.errors import PrismemError, RoleError

_LOOK_SECONDS = 0.5
_GRACE_SECONDS = 30.0
"""For an engine whose process has ended to notice it; callers are told afterwards in any case."""


@dataclass(frozen=True)
class Call:
    """Token ids to read, and vLLM's sampling or pooling parameters; `position` is the caller's."""

    position: int
    token_ids: list[int]
    parameters: Any


class _Feed:
    """The calls of one caller on their way; guarded by the engine's condition but for `results`."""

    def __init__(
        self,
        admit: Callable[[], None],
        begun: Callable[[], None],
        ended: Callable[[Any], None],
        caller: object,
        computed: Callable[[float], None],
    ) -> None:
        self.admit, self.begun, self.ended, self.caller, self.computed = admit, begun, ended, caller, computed
        self.waiting: deque[Call] = deque()
        self.under_way = 0
        self.error: BaseException | None = None
        self.dropped = False
        self.results: queue.SimpleQueue[tuple[int, Any] | None] = queue.SimpleQueue()


class _Start:
    """One start of the engine; guarded by the engine's condition. `before` are the children that were there already."""

    def __init__(self) -> None:
        self.over = False
        self.llm: Any = None
        self.error: BaseException | None = None
        self.before: set[Any] | None = None


class Engine:
    """A `vllm.LLM` and the thread that drives it; thread-safe.

    `make` starts the LLM, at the first use; `window` is the number of calls under way at a time. An engine that has
    died fails the calls under way with RoleError and is started anew by the next one. `tell` puts an exception into
    words; an engine starts in its `turn`.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[], Any],
        window: int,
        tell: Callable[[BaseException], str] = told,
        turn: AbstractContextManager[Any] | None = None,
    ) -> None:
        self.name = name
        self.window = window
        self._make = make
        self._tell = tell
        self._turn = turn or nullcontext()
        self._start: _Start | None = None
        self._tokenizing = threading.Lock()
        self._llm: Any = None
        self._thread: threading.Thread | None = None
        self._changed = threading.Condition()
        self._feeds: list[_Feed] = []
        self._calls: dict[str, tuple[_Feed, int]] = {}
        self._numbers = itertools.count()
        self._closing = False

    def started(self, feed: _Feed | None = None) -> Any:
        """The LLM, whose start the first caller begins and all wait for; one that is dropped waits no longer."""
        with self._changed:
            if self._closing:
                raise RoleError(f"the engine of {self.name} was closed; open the roles anew to call it")
            if self._llm is not None:
                return self._llm
            start = self._start
            if start is None:
                # In a thread of its own: vLLM swallows an interrupt that comes while it starts, and then waits long.
                start = self._start = _Start()
                self._thread = threading.Thread(target=self._live, args=(start,), name="vllm", daemon=True)
                self._thread.start()
            while not start.over:
                if feed is not None and feed.dropped and feed.error is not None:
                    raise feed.error
                self._changed.wait()
        if start.error is not None:
            raise start.error
        return start.llm

    @property
    def max_model_len(self) -> int:
        """Tokens that prompt and reply may have together."""
        return int(self.started().llm_engine.model_config.max_model_len)

    def with_tokenizer(self, use: Callable[[Any], Any]) -> Any:
        """What `use` makes of the tokenizer, which one thread at a time may have."""
        tokenizer = self.started().get_tokenizer()
        with self._tokenizing:
            return use(tokenizer)

    def run(
        self,
        calls: Iterable[Call],
        admit: Callable[[], None],
        begun: Callable[[], None],
        ended: Callable[[Any], None],
        caller: object = None,
        computed: Callable[[float], None] = lambda gpu_seconds: None,
    ) -> Iterator[tuple[int, Any]]:
        """Each call's position and vLLM's output, in the order in which they are finished.

        `calls` is read no further ahead than one window. `admit` is asked before each call, `begun` is told of it, and
        `ended` of its output (None where it was broken off) before the next one begins. When `admit`, `calls` or the
        engine raises, no further call begins, those under way are given, then the error is raised. A caller that stops
        reading ends its calls. `caller` is what `stop` is told. `computed` is told the GPU seconds that its calls take:
        the time of each of the engine's steps, times its GPUs, shared out by calls under way.
        """
        feed = _Feed(admit, begun, ended, caller, computed)
        # Before the engine is started, which may take minutes: who waits for it can be stopped, too.
        with self._changed:
            self._feeds.append(feed)
        try:
            llm = self.started(feed)
            with self._changed:
                if self._llm is not llm and feed.error is None:
                    feed.error = RoleError(f"the vLLM engine of {self.name} has just ended; resume to start it again")
            coming = iter(calls)
            exhausted = False
            while True:
                while not exhausted and feed.error is None and len(feed.waiting) < self.window:
                    try:
                        call = next(coming, None)
                    except PrismemError as error:
                        feed.error = error
                        call = None
                    exhausted = call is None
                    if call is not None:
                        with self._changed:
                            if feed.error is None:
                                feed.waiting.append(call)
                                self._changed.notify_all()
                with self._changed:
                    if feed.error is not None:
                        feed.waiting.clear()
                    idle = feed.dropped or not (feed.waiting or feed.under_way)
                if idle and (exhausted or feed.error is not None) and feed.results.empty():
                    break
                got = feed.results.get()
                if got is not None:
                    yield got
            if feed.error is not None:
                raise feed.error
        finally:
            with self._changed:
                feed.dropped = True
                feed.waiting.clear()
                if not feed.under_way and feed in self._feeds:
                    self._feeds.remove(feed)
                self._changed.notify_all()

    def stop(self, caller: object, *, at_once: bool = False) -> None:
        """Begin no further call of those that `caller` asked for; those under way are given, or broken off."""
        with self._changed:
            for feed in self._feeds:
                if feed.caller is caller:
                    feed.error = feed.error or RoleError("the job was stopped: no further call is made")
                    feed.waiting.clear()
                    feed.dropped = feed.dropped or at_once
                    feed.results.put(None)
            self._changed.notify_all()

    def close(self) -> None:
        """End the engine and its processes; calls under way fail, and so does a start."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
            thread, start = self._thread, self._start
        if thread is not None:
            # vLLM may be at any point of its start; without its processes it gives up.
            while start is not None and not start.over:
                _end_new(start.before)
                thread.join(_LOOK_SECONDS)
            thread.join()

    # What follows runs in the engine's thread.

    def _live(self, start: _Start) -> None:
        llm: Any = None
        error: BaseException | None = None
        try:
            with self._turn:
                if self._closing:
                    raise RoleError(f"the engine of {self.name} was closed before it was started")
                start.before = set(multiprocessing.active_children())
                llm = self._make()
        except BaseException as caught:
            error = caught
        with self._changed:
            start.over, start.llm, start.error = True, llm, error
            self._llm, self._start = llm, None
            if llm is None:
                self._thread = None
            self._changed.notify_all()
        if llm is not None:
            processes = _processes(llm.llm_engine, start.before or set())
            if processes:
                watched = (llm, threading.current_thread(), processes)
                threading.Thread(target=self._watch, args=watched, name="vllm-watch", daemon=True).start()
            self._drive(llm)

    def _drive(self, llm: Any) -> None:
        engine = llm.llm_engine
        gpus = _gpus(engine)
        why = f"the engine of {self.name} was closed while calls were under way"
        try:
            while self._refill(llm):
                began = time.perf_counter()
                outputs = engine.step()
                self._charge((time.perf_counter() - began) * gpus)
                for output in outputs:
                    if output.finished:
                        self._finish(output)
        except Exception as error:
            why = f"the vLLM engine of {self.name} ended: {self._tell(error)}; resume to start it again"
        finally:
            # Its memory is given back before another caller may start the engine anew.
            _end(engine)
            self._lose(llm, RoleError(why))

    def _watch(self, llm: Any, driver: threading.Thread, processes: list[Any]) -> None:
        """Waits for the end of the engine's processes, which vLLM's synchronous client never learns of while it waits
        for their output.
        """
        wait([process.sentinel for process in processes])
        outputs = getattr(llm.llm_engine.engine_core, "outputs_queue", None)
        if self._closing or not driver.is_alive():
            return
        if outputs is not None:
            outputs.put(RuntimeError("a process of the engine has ended"))
            driver.join(_GRACE_SECONDS)
        self._lose(llm, RoleError(f"a process of the vLLM engine of {self.name} has ended; resume to start it again"))

    def _charge(self, gpu_seconds: float) -> None:
        """Tells each caller its share of a step."""
        with self._changed:
            for feed in self._feeds:
                if feed.under_way and gpu_seconds:
                    feed.computed(gpu_seconds * feed.under_way / len(self._calls))

    def _refill(self, llm: Any) -> bool:
        """Waits until there is something to do and begins what there is room for; False when the engine is to end."""
        engine = llm.llm_engine
        with self._changed:
            while True:
                if self._closing or self._llm is not llm:
                    return False
                self._drop(engine)
                for feed in self._feeds:
                    while feed.waiting and len(self._calls) < self.window:
                        self._begin(engine, feed, feed.waiting.popleft())
                if self._calls:
                    return True
                self._changed.wait()

    def _begin(self, engine: Any, feed: _Feed, call: Call) -> None:
        try:
            feed.admit()
            name = str(next(self._numbers))
            engine.add_request(name, {"prompt_token_ids": call.token_ids}, call.parameters)
        except Exception as error:
            if feed.error is None:
                feed.error = error if isinstance(error, PrismemError) else _refused(self.name, error)
            feed.waiting.clear()
            feed.results.put(None)
            return
        feed.under_way += 1
        feed.begun()
        self._calls[name] = (feed, call.position)

    def _drop(self, engine: Any) -> None:
        """Ends the calls of callers that have gone."""
        names = [name for name, (feed, _) in self._calls.items() if feed.dropped]
        if names:
            engine.abort_request(names)
        for name in names:
            self._left(name, None)
        self._feeds = [feed for feed in self._feeds if not feed.dropped]

    def _finish(self, output: Any) -> None:
        with self._changed:
            if output.request_id in self._calls:
                feed, position = self._left(output.request_id, output)
                feed.results.put((position, output))

    def _left(self, name: str, output: Any) -> tuple[_Feed, int]:
        feed, position = self._calls.pop(name)
        feed.under_way -= 1
        feed.ended(output)
        return feed, position

    def _lose(self, llm: Any, error: RoleError) -> None:
        """The engine has gone: every caller gets `error` for what is not finished."""
        with self._changed:
            if self._llm is not llm:
                return
            self._llm = self._thread = None
            for name in list(self._calls):
                self._left(name, None)
            for feed in self._feeds:
                feed.error = feed.error or error
                feed.waiting.clear()
                feed.results.put(None)
            self._feeds = []
            self._changed.notify_all()


def _refused(name: str, error: Exception) -> RoleError:
    return RoleError(f"vLLM refuses a call of {name}: {told(error)}")


def _gpus(engine: Any) -> int:
    """The GPUs that the engine computes on; none where vLLM runs on the CPU."""
    config = getattr(engine, "vllm_config", None)
    if getattr(getattr(config, "device_config", None), "device_type", "cuda") == "cpu":
        return 0
    parallel = getattr(config, "parallel_config", None)
    return int(getattr(parallel, "world_size", 1)) * int(getattr(parallel, "data_parallel_size", 1))


def _processes(engine: Any, before: set[Any]) -> list[Any]:
    """The processes that the engine runs in: those that vLLM keeps, or else those that have come up with it."""
    resources = getattr(getattr(engine, "engine_core", None), "resources", None)
    kept = getattr(getattr(resources, "engine_manager", None), "processes", None)
    return list(kept) if kept else [child for child in multiprocessing.active_children() if child not in before]


def _end_new(before: set[Any] | None) -> None:
    """Ends the engines' processes that have come up since."""
    if before is not None:
        for child in set(multiprocessing.active_children()) - before:
            if child.name.startswith("EngineCore"):
                child.kill()


def _end(engine: Any) -> None:
    """Ends the engine's processes and waits for them."""
    core = getattr(engine, "engine_core", None)
    if core is not None:
        core.shutdown()
    # Asking for the children that live reaps those that have ended.
    multiprocessing.active_children()
