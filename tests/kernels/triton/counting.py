"""Counts what a launch in triton's interpreter reads, writes and multiplies: bytes of cells that masks let pass.

    with counted(keys=keys, queries=queries) as counts:
        top_k(queries, keys, ...)
    counts.loaded["keys"], counts.stored["other"], counts.flops

Bytes go to the tensor that they belong to by address, and to "other" where it has no name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from triton.runtime.interpreter import InterpreterBuilder


@dataclass
class Counts:
    """Bytes by tensor, and floating-point operations of tensor-core products."""

    loaded: Counter[str] = field(default_factory=Counter)
    stored: Counter[str] = field(default_factory=Counter)
    flops: int = 0


@contextmanager
def counted(**tensors: Any) -> Iterator[Counts]:
    """Count launches inside; `tensors` are those to tell apart."""
    counts = Counts()
    spans = {
        name: (tensor.untyped_storage().data_ptr(), tensor.untyped_storage().nbytes())
        for name, tensor in tensors.items()
    }

    def note(into: Counter[str], pointers: Any, mask: Any) -> None:
        addresses = np.asarray(pointers.data)
        passed = addresses[np.broadcast_to(np.asarray(mask.data, bool), addresses.shape)].astype(np.uint64)
        size = max(pointers.get_element_ty().primitive_bitwidth // 8, 1)
        for name, (begin, length) in spans.items():
            own = int(((passed >= begin) & (passed < begin + length)).sum())
            into[name] += own * size
            into["other"] -= own * size
        into["other"] += passed.size * size

    load, store, dot = (
        getattr(InterpreterBuilder, f"create_{name}") for name in ("masked_load", "masked_store", "dot")
    )

    def counted_load(self: Any, pointers: Any, mask: Any, *rest: Any, **more: Any) -> Any:
        note(counts.loaded, pointers, mask)
        return load(self, pointers, mask, *rest, **more)

    def counted_store(self: Any, pointers: Any, values: Any, mask: Any, *rest: Any, **more: Any) -> Any:
        note(counts.stored, pointers, mask)
        return store(self, pointers, values, mask, *rest, **more)

    def counted_dot(self: Any, left: Any, right: Any, *rest: Any) -> Any:
        counts.flops += 2 * left.data.size * right.data.shape[-1]
        return dot(self, left, right, *rest)

    InterpreterBuilder.create_masked_load = counted_load
    InterpreterBuilder.create_masked_store = counted_store
    InterpreterBuilder.create_dot = counted_dot
    try:
        yield counts
    finally:
        InterpreterBuilder.create_masked_load = load
        InterpreterBuilder.create_masked_store = store
        InterpreterBuilder.create_dot = dot
