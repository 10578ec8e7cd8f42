"""An embedding model in this process, pooled as its own configuration says (Qwen3-Embedding: the last token)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismem_core.clients.long_texts import joined, pieces
from prismem_core.clients.model_settings import ModelSettings, ModelSpec
from prismem_core.clients.vllm_engine.engine import Call
from prismem_core.clients.vllm_engine.engines import Engines
from prismem_core.errors import RoleError
from prismem_core.roles.account import Account
from prismem_core.roles.meter import Meter

_LOGGER = logging.getLogger("prismem_core")


class VLLMEmbedder:
    """An Embedder over `vllm.LLM` as a pooling model; rows are float32 of length 1.

    A text longer than the model reads (or than `max_input_tokens`) is split where words end, its pieces are embedded
    and their mean, weighted by tokens, stands for it; this is logged once and counted in `split_texts`. An empty text
    is not sent and gives a zero row. RoleError for an engine that does not start or ends and for rows that are not
    finite.
    """

    def __init__(self, spec: ModelSpec, settings: ModelSettings, *, engines: Engines | None = None) -> None:
        self.identity = settings.identity_of(spec)
        self.account = Account("embedding")
        self.split_texts = 0
        self._settings = settings
        self._engines = engines or Engines()
        self._engine = self._engines.take(spec, settings, "pooling")
        self.meter = Meter(self._engine.window)
        self._dimension = settings.dimension
        self._closed = False

    @property
    def dimension(self) -> int:
        """The size of a row: the setting, or the model's own, for which the engine is started and asked once."""
        if self._dimension is None:
            token_ids = self._tokens("dimension")
            ((_, output),) = self._run([(0, token_ids)], self._settle_probe)
            self._dimension = len(_row(output))
        return self._dimension

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Rows (n, d) in the order of `texts`."""
        return self.embed_counted(texts)[0]

    def embed_counted(self, texts: Sequence[str]) -> tuple[NDArray[np.float32], list[int]]:
        """Rows (n, d) and the tokens that the model read of each text."""
        rows = np.zeros((len(texts), self.dimension), np.float32)
        counts = [0] * len(texts)
        parts: list[tuple[int, list[int]]] = []
        for i, text in enumerate(texts):
            if text.strip():
                parts += [(i, token_ids) for token_ids in self._parts(text)]
        parts.sort(key=lambda part: part[1])
        found: dict[int, list[tuple[int, NDArray[np.float32], int]]] = {}
        for j, output in self._run(list(enumerate(token_ids for _, token_ids in parts)), self._settle):
            i, token_ids = parts[j]
            found.setdefault(i, []).append((j, self._checked(_row(output)), len(token_ids)))
            counts[i] += len(token_ids)
        for i, own in found.items():
            own.sort(key=lambda one: one[0])
            rows[i] = joined(np.stack([row for _, row, _ in own]), [count for _, _, count in own])
        return rows, counts

    def as_batch(self, texts: Sequence[str]) -> tuple[Any, list[dict[str, list[int]]], list[Any]]:
        """`LLM.encode` and what it takes for the same texts as one batch, for a comparison while nothing is asked."""
        prompts = [{"prompt_token_ids": token_ids} for text in texts for token_ids in self._parts(text)]
        return self._engine.started().encode, prompts, [self._parameters() for _ in prompts]

    def close(self) -> None:
        """Give the engine back; the last role that holds it ends its processes."""
        if not self._closed:
            self._closed = True
            self._engines.give_back(self._engine)

    def _parts(self, text: str) -> list[list[int]]:
        """The token ids of the text, or of its pieces where it is too long."""
        room = self._room()
        known: dict[str, list[int]] = {}

        def fits(piece: str) -> bool:
            # No tokenizer reads less than one token from this many characters: such a text need not be read to be cut.
            if len(piece) > 64 * room:
                return False
            known[piece] = self._tokens(piece)
            return len(known[piece]) <= room

        cut = pieces(text, fits)
        token_lists = [known.get(piece) or self._tokens(piece) for piece in cut]
        longest = max(len(token_ids) for token_ids in token_lists)
        if longest > room:
            raise RoleError(
                f"a piece of a text has {longest:,} tokens with the instruction, and {self._engine.name} reads "
                f"{room:,}; shorten the instruction or raise max_input_tokens"
            )
        if len(cut) > 1:
            if not self.split_texts:
                _LOGGER.warning(
                    "a text is longer than the %d tokens that %s reads: it is embedded in %d pieces, and so are others",
                    room,
                    self._engine.name,
                    len(cut),
                )
            self.split_texts += 1
        return token_lists

    def _room(self) -> int:
        room = self._engine.max_model_len
        return room if self._settings.max_input_tokens is None else min(room, self._settings.max_input_tokens)

    def _tokens(self, text: str) -> list[int]:
        instruction = self._settings.instruction
        shown = f"Instruct: {instruction}\nQuery:{text}" if instruction else text
        # The special tokens count: models of the Qwen3-Embedding kind pool at the one that ends the text.
        return list(self._engine.with_tokenizer(lambda tokenizer: tokenizer.encode(shown)))

    def _run(self, texts: Sequence[tuple[int, list[int]]], settle: Callable[[int], None]) -> Iterator[tuple[int, Any]]:
        def calls() -> Iterator[Call]:
            for position, token_ids in texts:
                yield Call(position, token_ids, self._parameters())

        def ended(output: Any) -> None:
            self.meter.leave()
            if output is not None:
                settle(len(output.prompt_token_ids))

        return self._engine.run(calls(), self._admit, self.meter.enter, ended, computed=self._computed)

    def _parameters(self) -> Any:
        from vllm import PoolingParams

        return PoolingParams(task="embed", dimensions=self._settings.dimension)

    def _admit(self) -> None:
        self.account.admit()

    def _computed(self, gpu_seconds: float) -> None:
        self.account.compute(gpu_seconds)

    def _settle(self, tokens: int) -> None:
        self.account.settle(tokens, 0)

    def _settle_probe(self, tokens: int) -> None:
        self.account.overhead("probe", tokens, 0)

    def _checked(self, row: NDArray[np.float32]) -> NDArray[np.float32]:
        if len(row) != self.dimension or not np.isfinite(row).all():
            raise RoleError(
                f"{self._engine.name} gave a row of {len(row)} values, expected {self.dimension} finite ones; look at "
                "dimension and dtype"
            )
        length = float(np.linalg.norm(row.astype(np.float64)))
        return np.asarray(row / length if length > 0 else row, np.float32)


def _row(output: Any) -> NDArray[np.float32]:
    return np.asarray(output.outputs.data.float().cpu().numpy(), np.float32).reshape(-1)
