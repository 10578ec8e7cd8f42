"""Batches of embeddings that come again are handed over in sealed memory, and what is not the same never is."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from prismem_core.program.sandbox import Sandbox
from prismem_core.program.sandbox.sealed_memory import map_rows
from prismem_core.program.sandbox.sealed_rows import LEAST_BYTES, SealedRows

Build = Callable[..., str]
COLUMNS = 8192
ROWS = LEAST_BYTES // 4 // COLUMNS


def batch(seed: int, rows: int = ROWS) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal((rows, COLUMNS), dtype=np.float32)


def handed(sealed: SealedRows, rows: NDArray[np.float32]) -> NDArray[np.float32] | None:
    descriptor = sealed.descriptor(rows)
    return None if descriptor is None else map_rows(descriptor, *rows.shape)


def test_a_batch_goes_by_the_socket_once_and_sealed_from_then_on() -> None:
    sealed = SealedRows()
    assert handed(sealed, batch(0)) is None
    for _ in range(3):
        found = handed(sealed, batch(0))
        assert found is not None
        np.testing.assert_array_equal(found, batch(0))
        found *= 2
    sealed.close()
    assert handed(sealed, batch(0)) is None


def test_small_and_enormous_batches_go_by_the_socket() -> None:
    sealed = SealedRows(most_bytes=2 * LEAST_BYTES)
    for rows in (0, 1, ROWS - 1, 2 * ROWS + 1):
        assert [handed(sealed, batch(1, rows)) for _ in range(3)] == [None] * 3
    sealed.close()


def test_a_batch_that_differs_in_the_middle_is_not_taken_for_another() -> None:
    sealed = SealedRows()
    one, other = batch(2), batch(2)
    other[ROWS // 2, 7] += 1
    handed(sealed, one)
    assert handed(sealed, one) is not None
    assert handed(sealed, other) is None
    np.testing.assert_array_equal(handed(sealed, one), one)
    sealed.close()


def test_the_longest_unused_goes_first_and_no_descriptor_stays() -> None:
    before = len(os.listdir("/proc/self/fd"))
    sealed = SealedRows(most_bytes=2 * LEAST_BYTES)
    for seed in (3, 4, 3, 4, 3, 5, 5):
        handed(sealed, batch(seed))
    assert len(os.listdir("/proc/self/fd")) == before + 2 * 2
    assert handed(sealed, batch(3)) is not None
    assert handed(sealed, batch(4)) is None
    sealed.close()
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("where", ["index", "retrieve"])
def test_every_program_sees_the_same_rows_and_changes_none(sandbox: Sandbox, program: Build, where: str) -> None:
    rows = batch(6)

    class Handler:
        def ask(self, prompt: str, system_prompt: str | None, json_object: bool) -> str:
            raise AssertionError("not asked for")

        def embed(self, texts: list[str]) -> Any:
            return rows

    embed = f"a = self.backend.embed(['x'] * {ROWS})\nself.seen = float(a[3, 5])\na *= 7"
    source = program(
        index=embed if where == "index" else "pass",
        retrieve=f"{embed if where == 'retrieve' else ''}\nreturn repr(self.seen)",
    )
    for _ in range(4):
        with sandbox.open(source, Handler()) as worker:
            worker.index([], "")
            assert worker.retrieve({"query_text": ""})[0] == repr(float(batch(6)[3, 5]))
    launcher = sandbox._holder.launcher
    assert launcher is not None and launcher.sealed._kept
    np.testing.assert_array_equal(rows, batch(6))
