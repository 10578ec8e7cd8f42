"""Rows in an answer of `/embeddings`, checked and put in the order of the texts."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismem_core.clients.long_texts import unit
from prismem_core.clients.openai_compatible.completion import count_in
from prismem_core.errors import RoleError


@dataclass(frozen=True)
class Rows:
    """Rows (n, d) float32 of length 1 (a zero row stays one) and the tokens of the batch, None if not told."""

    rows: NDArray[np.float32]
    tokens: int | None


def read_rows(value: Any, count: int, model: str) -> Rows:
    """The rows of `count` texts; RoleError for another number, sizes that differ and values that are no numbers."""
    data = value.get("data") if isinstance(value, dict) else None
    if not isinstance(data, list):
        raise RoleError(
            f"the server of {model} answered with JSON that holds no embeddings; look at the URL and the model"
        )
    if len(data) != count:
        raise RoleError(f"the server of {model} gave {len(data)} embeddings for {count} texts; look at the server")
    ordered: list[NDArray[np.float64] | None] = [None] * count
    for arrival, entry in enumerate(data):
        index = _index(entry, arrival)
        if index is None or not 0 <= index < count or ordered[index] is not None:
            raise RoleError(
                f"the server of {model} does not number its {count} embeddings 0 to {count - 1}, each once; look "
                "at the server"
            )
        ordered[index] = _row(entry.get("embedding") if isinstance(entry, dict) else entry, index, model)
    rows = [row for row in ordered if row is not None]
    sizes = sorted({len(row) for row in rows})
    if len(sizes) != 1 or sizes[0] == 0:
        raise RoleError(f"the server of {model} gave embeddings of sizes {sizes}; all must have one size of at least 1")
    return Rows(unit(np.stack(rows)), tokens_in(value))


def _index(entry: Any, arrival: int) -> int | None:
    """The number that an entry gives itself, its place where it gives none, None for what is no number."""
    given = entry.get("index") if isinstance(entry, dict) else None
    if given is None:
        return arrival
    if isinstance(given, str) and given.isascii() and given.isdigit():
        return int(given[:9])
    return count_in(given)


def _row(value: Any, index: int, model: str) -> NDArray[np.float64]:
    if isinstance(value, str):
        # Some servers send base64 whatever was asked for.
        try:
            row = np.frombuffer(base64.b64decode(value, validate=True), "<f4").astype(np.float64)
        except (binascii.Error, ValueError):
            raise RoleError(
                f"embedding {index} of {model} is a text that holds no numbers; look at the server"
            ) from None
    else:
        try:
            row = np.asarray(value, np.float64)
        except (TypeError, ValueError, OverflowError):
            row = np.empty((0, 0))
    if row.ndim != 1 or (isinstance(value, list) and any(isinstance(part, str | bool) for part in value)):
        raise RoleError(f"embedding {index} of {model} is no list of numbers; look at the server")
    if not np.isfinite(row).all():
        raise RoleError(f"embedding {index} of {model} holds values that are no finite numbers; look at the server")
    return row


def tokens_in(value: Any) -> int | None:
    """The tokens that an answer says it used, None if it does not."""
    usage = value.get("usage") if isinstance(value, dict) else None
    if not isinstance(usage, dict):
        return None
    for name in ("prompt_tokens", "total_tokens", "input_tokens"):
        count = count_in(usage.get(name))
        if count:
            return count
    return None


def shares(texts: Sequence[str], total: int) -> list[int]:
    """`total` tokens shared out by the bytes of the texts; the sum is exact."""
    sizes = [len(text.encode("utf-8", "replace")) + 1 for text in texts]
    whole = sum(sizes)
    ends, passed = [0], 0
    for size in sizes:
        passed += size
        ends.append(total * passed // whole)
    return [after - before for before, after in pairwise(ends)]
