"""An embedding model behind OpenAI's protocol; no text is ever cut in silence."""

from __future__ import annotations

import asyncio
import logging
import math
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismem_core.clients.long_texts import joined, split_text
from prismem_core.clients.model_settings import ModelSettings, ModelSpec
from prismem_core.clients.openai_compatible.body import sendable
from prismem_core.clients.openai_compatible.client import OpenAIClient
from prismem_core.clients.openai_compatible.context_limits import lengths_in
from prismem_core.clients.openai_compatible.embedding_limits import EmbeddingLimits
from prismem_core.clients.openai_compatible.embedding_rows import Rows, read_rows, shares, tokens_in
from prismem_core.clients.openai_compatible.failures import Refusal
from prismem_core.errors import RoleError

_PATH = "/embeddings"
_PROBE_TEXT = "dimension"
_CHARS_A_TOKEN = 4
_DEEPEST = 24
_SHORTEST = 4
# Three times: what is learnt from one long text then covers the texts of its length and somewhat more.
_REPEATED = 3
_TOO_MANY = re.compile(r"batch|too many|array|at most|inputs|tokens per request", re.I)
# Fields that a server may do without, and the words that tell which one it refuses.
_OPTIONAL = {"encoding_format": r"encoding_format", "dimensions": r"dimension|matryoshka"}


@dataclass(frozen=True)
class _Embedded:
    """The row of one text and its tokens."""

    row: NDArray[np.float32]
    tokens: int


class OpenAIEmbedder(OpenAIClient):
    """An Embedder over HTTP: rows of length 1, `batch` texts a call, `concurrency` calls at a time.

    A text without content is not sent: its row is zero and costs nothing. A text that the model cuts or refuses is
    embedded in halves, and halves of those, whose rows are averaged by their tokens. Whether it cuts is seen from the
    token counts: a text with more tokens than any known to be read whole is sent once more, repeated, and a count that
    does not grow is that of a cut. Texts go alone until they are known to be short enough. Raises RoleError and
    BudgetError as the chat does.
    """

    concurrent = True
    """Calls of several threads go out side by side."""

    def __init__(self, spec: ModelSpec, settings: ModelSettings, *, role: str = "embedding") -> None:
        super().__init__(spec, settings, role)
        # Texts worth handing over at once: enough to fill slots, few enough that rows are stored soon.
        self.chunk = settings.batch * min(settings.concurrency, 16)
        self.split_texts = 0
        self._dimension = settings.dimension
        self._batch = settings.batch
        self._limits = EmbeddingLimits(settings.max_input_tokens)
        self._one_at_a_time = threading.Lock()
        self._dropped: set[str] = set()

    @property
    def dimension(self) -> int:
        """The size of a row: that of the settings, or learnt from the first call."""
        with self._one_at_a_time:
            if self._dimension is None:
                for _ in self._slots.each(1, self._learn_dimension):
                    pass
        if self._dimension is None:
            raise RoleError(f"the size of the embeddings of {self.endpoint.model} could not be learnt")
        return self._dimension

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Rows (n, d) float32 in the order of `texts`."""
        return self.embed_counted(texts)[0]

    def embed_counted(self, texts: Sequence[str]) -> tuple[NDArray[np.float32], list[int]]:
        """Rows as `embed` gives them and the tokens of each text.

        The tokens of a shared call are shared out by length; those of checks and of cut texts are not among them.
        """
        prepared = {i: sendable(text) for i, text in enumerate(texts) if text.strip()}
        found: dict[int, _Embedded] = {}
        longest = max(prepared, key=lambda i: len(prepared[i].encode()), default=None)
        if longest is not None and not self._limits.is_safe(prepared[longest]):
            # What it teaches spares the others calls of their own, also those of other threads.
            with self._one_at_a_time:
                if not self._limits.is_safe(prepared[longest]):
                    found.update(self._run([[longest]], prepared))
        found.update(self._run(self._groups({i: text for i, text in prepared.items() if i not in found}), prepared))
        rows = np.zeros((len(texts), self.dimension), np.float32)
        for i, embedded in found.items():
            rows[i] = embedded.row
        return rows, [found[i].tokens if i in found else 0 for i in range(len(texts))]

    def _groups(self, texts: Mapping[int, str]) -> list[list[int]]:
        """The positions of each call: short texts together, others alone."""
        safe = [i for i, text in texts.items() if self._limits.is_safe(text)]
        together = set(safe)
        groups = [safe[start : start + self._batch] for start in range(0, len(safe), self._batch)]
        return groups + [[i] for i in texts if i not in together]

    def _run(self, groups: Sequence[Sequence[int]], texts: Mapping[int, str]) -> dict[int, _Embedded]:
        async def work(position: int, stopped: asyncio.Event) -> list[_Embedded]:
            own = [texts[i] for i in groups[position]]
            if len(own) == 1:
                return [await self._whole(own[0], stopped)]
            return await self._together(own, stopped)

        found: dict[int, _Embedded] = {}
        for position, embedded in self._slots.each(len(groups), work):
            found.update(zip(groups[position], embedded, strict=True))
        return found

    async def _learn_dimension(self, position: int, stopped: asyncio.Event) -> None:
        try:
            result = await self._send([_PROBE_TEXT], stopped)
        except Refusal as refusal:
            raise refusal.error from None
        self.account.overhead("probe", self._tokens([_PROBE_TEXT], result), 0)

    async def _together(self, texts: Sequence[str], stopped: asyncio.Event) -> list[_Embedded]:
        """Texts that are known to be short, in one call, or in smaller ones if the server refuses so many."""
        try:
            result = await self._send(texts, stopped)
        except Refusal as refusal:
            if len(texts) == 1 or not (_is_long(refusal) or _TOO_MANY.search(refusal.message)):
                raise refusal.error from None
            half = len(texts) // 2
            if self._batch > half:
                self._batch = max(1, half)
                self.say_once(logging.WARNING, "%s refuses %d texts in a call; smaller batches are sent (set batch)",
                              self.endpoint.model, len(texts))  # fmt: skip
            parts = (texts[:half], texts[half:])
            halves = [await self._together(part, stopped) if len(part) > 1 else [await self._whole(part[0], stopped)]
                      for part in parts]  # fmt: skip
            return [embedded for part in halves for embedded in part]
        tokens = self._tokens(texts, result)
        self.account.settle(tokens, 0, len(texts))
        return [_Embedded(row, own) for row, own in zip(result.rows, shares(texts, tokens), strict=True)]

    async def _whole(self, text: str, stopped: asyncio.Event) -> _Embedded:
        """A text of any length."""
        limit = self.settings.max_input_tokens
        parts = 1 if limit is None else math.ceil(len(text) / (_CHARS_A_TOKEN * limit))
        if parts == 1:
            pieces = await self._pieces(text, stopped, 0)
        else:
            pieces = [found for part in split_text(text, parts) for found in await self._pieces(part, stopped, 1)]
        if len(pieces) == 1:
            return pieces[0]
        self.split_texts += 1
        self.say_once(
            logging.WARNING,
            "%s reads fewer tokens than some texts have; those are embedded in pieces and averaged",
            self.endpoint.model,
        )
        counts = [piece.tokens for piece in pieces]
        return _Embedded(joined([piece.row for piece in pieces], counts), sum(counts))

    async def _pieces(self, text: str, stopped: asyncio.Event, depth: int) -> list[_Embedded]:
        """A text alone, or as many halves of it as the model needs.

        Where it is cut depends on the text and the model alone, never on what was seen before.
        """
        try:
            result = await self._send([text], stopped)
        except Refusal as refusal:
            if not _is_long(refusal):
                raise refusal.error from None
            lengths = lengths_in(refusal.message, refusal.body)
            if lengths is not None and lengths.context is not None:
                self._limits.refused_above(lengths.context)
            return await self._halves(text, stopped, depth, refusal.error)
        tokens = self._tokens([text], result)
        if result.tokens is not None and await self._was_cut(text, tokens, stopped):
            self.account.overhead("cut", tokens, 0)
            cut = RoleError(
                f"{self.endpoint.model} seems to cut texts of {len(text)} characters at {tokens} tokens, which "
                "cannot be; its counts of tokens are wrong: set max_input_tokens"
            )
            return await self._halves(text, stopped, depth, cut)
        self.account.settle(tokens, 0)
        self._limits.seen(text, tokens)
        return [_Embedded(result.rows[0], tokens)]

    async def _halves(self, text: str, stopped: asyncio.Event, depth: int, error: RoleError) -> list[_Embedded]:
        halves = split_text(text, 2)
        if len(halves) == 1 or len(text) < _SHORTEST or depth > _DEEPEST:
            raise error from None
        return [found for half in halves for found in await self._pieces(half, stopped, depth + 1)]

    async def _was_cut(self, text: str, tokens: int, stopped: asyncio.Event) -> bool:
        """Whether the model read less than the text, told by a second call with the text repeated if need be."""
        if self._limits.is_cut(tokens):
            return True
        if tokens <= self._limits.confirmed:
            return False
        try:
            repeated = await self._send(["\n".join([text] * _REPEATED)], stopped)
        except Refusal as refusal:
            if not _is_long(refusal):
                self.account.overhead("unusable", tokens, 0)
                raise refusal.error from None
            lengths = lengths_in(refusal.message, refusal.body)
            self._limits.confirm(tokens)
            if lengths is not None and lengths.context is not None:
                # A server that refuses what is too long cuts nothing.
                self._limits.refused_above(lengths.context)
            return False
        except BaseException:
            # The first call was paid for and its row is lost with this failure.
            self.account.overhead("unusable", tokens, 0)
            raise
        more = repeated.tokens or 0
        self.account.overhead("check", more, 0)
        if more > tokens:
            self._limits.confirm(more - 1)
            return False
        self._limits.met(tokens)
        return True

    async def _send(self, texts: Sequence[str], stopped: asyncio.Event) -> Rows:
        """One call, in the words the server takes; raises Refusal where it is about the texts."""
        task = self.settings.instruction
        sent = [f"Instruct: {task}\nQuery:{text}" if task else text for text in texts]

        async def read(answer: Any) -> Rows:
            try:
                result = read_rows(answer, len(texts), self.endpoint.model)
                self._check_size(result)
            except RoleError:
                paid = tokens_in(answer)
                if paid:
                    self.account.overhead("unusable", paid, 0)
                raise
            return result

        while True:
            body: dict[str, Any] = {"model": self.endpoint.model, "input": sent, "encoding_format": "float"}
            if self.settings.dimension is not None:
                body["dimensions"] = self.settings.dimension
            body = {name: value for name, value in body.items() if name not in self._dropped} | self.settings.extra_body
            try:
                return await self.post(_PATH, body, texts, stopped, read)
            except Refusal as refusal:
                words = f"{refusal.message} {refusal.parameter}"
                refused = [name for name, word in _OPTIONAL.items() if name in body and re.search(word, words, re.I)]
                if _is_long(refusal) or not refused:
                    raise
                self._dropped.update(refused)
                self.say_once(logging.WARNING, f"%s: the server refuses {refused[0]}; calls go without it",
                              self.endpoint.model)  # fmt: skip

    def _check_size(self, result: Rows) -> None:
        size = result.rows.shape[1]
        if self._dimension is None:
            self._dimension = size
        if size != self._dimension:
            whose = "dimension asks for" if self.settings.dimension else "earlier embeddings have"
            raise RoleError(
                f"{self.endpoint.model} gave embeddings of size {size} where {whose} {self._dimension}; name the model "
                "and dimension that the index was made with"
            )

    def _tokens(self, texts: Sequence[str], result: Rows) -> int:
        if result.tokens is not None:
            return result.tokens
        self.say_once(
            logging.WARNING,
            "%s does not say what calls use; tokens are estimated as characters / 4, and texts that it cuts are not "
            "seen: set max_input_tokens",
            self.endpoint.model,
        )
        return sum(math.ceil(len(text) / _CHARS_A_TOKEN) for text in texts)


def _is_long(refusal: Refusal) -> bool:
    return refusal.status == 413 or lengths_in(refusal.message, refusal.body) is not None
