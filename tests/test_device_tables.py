"""Small tables on a device are copied once; what a CUDA graph reads is there before it is captured, and stays."""

from __future__ import annotations

import contextlib
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from prismem_core.arrays import Place
from prismem_core.arrays import device as device_arrays
from prismem_core.errors import ArgumentError


class Torch(SimpleNamespace):
    """As much of torch with a GPU as uploads ask for; it notes what was copied."""

    def __init__(self) -> None:
        self.copied: list[list[int]] = []
        self.capturing = False
        self.read: list[Any] = []
        stream = SimpleNamespace(cuda_stream=7)
        super().__init__(
            cuda=SimpleNamespace(
                current_stream=lambda device: stream,
                is_current_stream_capturing=lambda: self.capturing,
                device=lambda device: contextlib.nullcontext(),
            ),
            device=lambda kind, index=0: SimpleNamespace(type=kind, index=index),
            from_numpy=self._tensor,
        )

    def _tensor(self, values: Any) -> Any:
        def to(device: Any) -> Any:
            assert not self.capturing, "a copy while a graph is captured"
            self.copied.append(values.reshape(-1).tolist())
            return SimpleNamespace(values=values.copy(), device=device.index, record_stream=self.read.append)

        return SimpleNamespace(to=to)


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Torch:
    stand_in = Torch()
    monkeypatch.setitem(sys.modules, "torch", stand_in)  # type: ignore[arg-type]
    monkeypatch.setattr(device_arrays, "_tables", device_arrays._Tables())
    return stand_in


def on(index: int) -> device_arrays.TorchDevice:
    return device_arrays.TorchDevice(Place("torch", "cuda", index))


def test_equal_tables_are_copied_once_a_device(torch: Torch) -> None:
    first = on(0).upload(np.arange(3))
    assert on(0).upload(np.arange(3)) is first
    assert on(1).upload(np.arange(3)).device == 1
    assert on(0).upload(np.arange(3, dtype=np.int32)) is not first
    assert on(0).upload(np.arange(3).reshape(3, 1)) is not first
    assert torch.copied == [[0, 1, 2]] * 4


def test_the_memory_of_a_table_waits_for_every_stream_that_reads_it(torch: Torch) -> None:
    on(0).upload(np.arange(3))
    on(0).upload(np.arange(3))
    assert [stream.cuda_stream for stream in torch.read] == [7, 7]


def test_what_is_copied_is_not_what_the_caller_changes_later(torch: Torch) -> None:
    table = np.arange(3)
    first = on(0).upload(table)
    table[0] = 9
    assert on(0).upload(table) is not first
    assert torch.copied == [[0, 1, 2], [9, 1, 2]]


def test_a_captured_call_takes_what_the_call_before_it_left(torch: Torch, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = on(0).upload(np.arange(4))
    torch.capturing = True
    assert on(0).upload(np.arange(4)) is kept
    with pytest.raises(ArgumentError, match="make the same call once before the capture"):
        on(0).upload(np.arange(5))
    torch.capturing = False
    monkeypatch.setattr(device_arrays._Tables, "MOST", 64)
    for number in range(20):
        on(0).upload(np.array([number, -1]))
    assert on(0).upload(np.arange(4)) is kept, "a graph reads this whenever it is replayed"
    assert torch.copied.count([0, 1, 2, 3]) == 1
    on(0).upload(np.array([0, -1]))
    assert torch.copied.count([0, -1]) == 2, "what no graph reads goes, the longest unused first"


def test_large_tables_are_not_kept(torch: Torch) -> None:
    large = np.zeros(device_arrays._Tables.LARGEST + 1, np.uint8)
    assert on(0).upload(large) is not on(0).upload(large)
    torch.capturing = True
    with pytest.raises(ArgumentError, match="1048576 bytes"):
        on(0).upload(large)
