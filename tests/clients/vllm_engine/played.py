"""A stand-in for `vllm.LLM` whose steps a test plays: what it was given, what is finished, and how it fails."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any


class PlayedEngine:
    """As `llm_engine`: every call is finished after as many steps as it has token ids, unless `fail` raises first.

    `gate` holds steps back until it is set; `largest` is the most calls it had at a time.
    """

    def __init__(self, fail: Callable[[int], None] = lambda step: None) -> None:
        self.fail = fail
        self.gate = threading.Event()
        self.gate.set()
        self.added: list[list[int]] = []
        self.aborted: list[str] = []
        self.largest = 0
        self.shut_down = threading.Event()
        self.engine_core = SimpleNamespace(shutdown=self.shut_down.set)
        self.model_config = SimpleNamespace(max_model_len=64)
        self._steps = 0
        self._left: dict[str, int] = {}
        self._ids: dict[str, list[int]] = {}

    def add_request(self, name: str, prompt: dict[str, list[int]], parameters: Any) -> None:
        if parameters == "refused":
            raise ValueError("no such parameter")
        self.added.append(prompt["prompt_token_ids"])
        self._ids[name] = prompt["prompt_token_ids"]
        self._left[name] = len(prompt["prompt_token_ids"])
        self.largest = max(self.largest, len(self._left))

    def abort_request(self, names: list[str]) -> None:
        self.aborted += names
        for name in names:
            self._left.pop(name, None)

    def step(self) -> list[Any]:
        self.gate.wait()
        self._steps += 1
        self.fail(self._steps)
        done = []
        for name in list(self._left):
            self._left[name] -= 1
            if self._left[name] <= 0:
                del self._left[name]
                done.append(self._output(name))
        return done

    def _output(self, name: str) -> Any:
        ids = self._ids[name]
        completion = SimpleNamespace(text=f"reply {ids}", token_ids=[0] * len(ids), finish_reason="stop")
        return SimpleNamespace(request_id=name, finished=True, prompt_token_ids=ids, outputs=[completion])


class PlayedLLM:
    """As `vllm.LLM`."""

    def __init__(self, fail: Callable[[int], None] = lambda step: None) -> None:
        self.llm_engine = PlayedEngine(fail)

    def get_tokenizer(self) -> Any:
        return SimpleNamespace(
            apply_chat_template=lambda messages, **more: "".join(m["content"] for m in messages),
            encode=lambda text, **more: [ord(c) for c in text],
        )
