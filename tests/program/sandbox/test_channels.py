"""The two ends of a socket: frames and rows of any size, in any pieces, and the limits that hold meanwhile."""

from __future__ import annotations

import gc
import os
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from prismem_core.errors import LimitError
from prismem_core.program.sandbox import engine_channel, frames
from prismem_core.program.sandbox.blocking_channel import BlockingChannel
from prismem_core.program.sandbox.engine_channel import ChannelClosed, EngineChannel, Meter
from prismem_core.program.sandbox.limits import Budget

BUDGET = Budget(cpu_seconds=60.0, wall_seconds=60.0, ask_calls=0, embed_texts=0)


@dataclass
class Ends:
    """The engine's end, the worker's end, and the worker's bare socket."""

    engine: EngineChannel
    worker: BlockingChannel
    bare: socket.socket


@pytest.fixture
def ends() -> Iterator[Ends]:
    mine, theirs = socket.socketpair()
    bare = theirs.dup()
    engine, worker = EngineChannel(mine), BlockingChannel(theirs.detach())
    yield Ends(engine, worker, bare)
    engine.close()
    worker.close()
    bare.close()


def meter(budget: Budget = BUDGET) -> Meter:
    return Meter("the call", budget)


# Around the bytes that are read ahead: less, exactly as many with the length, one more, and several times as many.
@pytest.mark.parametrize("size", [0, 1, 32_752, 32_753, 32_756, 32_757, 100_000, 1_000_000])
def test_frames_of_any_size_go_both_ways(ends: Ends, size: int) -> None:
    message = {"text": "x" * size}
    sender = threading.Thread(target=ends.engine.send, args=(message, meter()))
    sender.start()
    assert ends.worker.receive() == (message, None)
    sender.join()
    sender = threading.Thread(target=ends.worker.send, args=(message,))
    sender.start()
    assert ends.engine.receive(meter()) == message
    sender.join()
    ends.engine.expect_silence()


def test_frames_that_arrive_together_or_byte_by_byte_are_read_one_by_one(ends: Ends) -> None:
    messages = [{"text": "a" * size} for size in (3, 20_000, 15_000, 7)]
    data = b"".join(frames.encode(message, 1 << 20) for message in messages)
    ends.bare.sendall(data)
    assert [ends.engine.receive(meter()) for _ in messages] == messages
    ends.engine.expect_silence()

    def trickle() -> None:
        for byte in data[:200]:
            ends.bare.sendall(bytes([byte]))
        ends.bare.sendall(data[200:])

    sender = threading.Thread(target=trickle)
    sender.start()
    assert [ends.engine.receive(meter()) for _ in messages] == messages
    sender.join()


def test_a_frame_that_was_read_ahead_is_no_silence(ends: Ends) -> None:
    ends.worker.send({"done": 1})
    ends.worker.send({"done": 2})
    assert ends.engine.receive(meter()) == {"done": 1}
    with pytest.raises(frames.FrameError, match="no order asked for"):
        ends.engine.expect_silence()


def test_descriptors_come_with_their_own_frames_however_many_wait(ends: Ends) -> None:
    pipes = [os.pipe() for _ in range(3)]
    for number, (_, written) in enumerate(pipes):
        ends.engine.send({"copy": number}, meter(), written)
        os.close(written)
    ends.engine.send({"last": True}, meter())
    for number, (read, _) in enumerate(pipes):
        received = ends.worker.receive()
        assert received is not None
        message, descriptor = received
        assert message == {"copy": number}
        assert descriptor is not None
        os.write(descriptor, bytes([number]))
        os.close(descriptor)
        assert os.read(read, 2) == bytes([number])
        os.close(read)
    assert ends.worker.receive() == ({"last": True}, None)


def test_an_end_in_the_middle_of_a_frame_is_told(ends: Ends) -> None:
    ends.bare.sendall(frames.encode({"text": "x" * 50}, 1 << 20)[:-1])
    ends.worker.close()
    ends.bare.shutdown(socket.SHUT_RDWR)
    with pytest.raises(ChannelClosed):
        ends.engine.receive(meter())


@pytest.mark.parametrize("shape", [(0, 7), (1, 1), (3, 341), (20, 4096), (32, 1024), (33, 1023), (300, 4096)])
def test_rows_arrive_as_they_were_and_may_be_written(ends: Ends, shape: tuple[int, int]) -> None:
    rows = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
    sender = threading.Thread(target=ends.engine.send, args=({"shape": list(shape)}, meter(), None, rows))
    sender.start()
    assert ends.worker.receive() == ({"shape": list(shape)}, None)
    received = ends.worker.receive_array(*shape)
    sender.join()
    assert (received.dtype, received.shape, received.flags.writeable) == (rows.dtype, shape, True)
    np.testing.assert_array_equal(received, rows)
    received += 1
    ends.engine.send({"next": True}, meter())
    assert ends.worker.receive() == ({"next": True}, None)


def test_arrays_share_no_byte_and_live_as_long_as_their_views(ends: Ends) -> None:
    shapes = [(7, 4096 + number) for number in range(150)]
    received = []
    for number, shape in enumerate(shapes):
        rows = np.full(shape, number, np.float32)
        sender = threading.Thread(target=ends.engine.send, args=({}, meter(), None, rows))
        sender.start()
        ends.worker.receive()
        received.append(ends.worker.receive_array(*shape)[3])
        sender.join()
    gc.collect()
    for number, row in enumerate(received):
        row += 1000
        np.testing.assert_array_equal(row, number + 1000)


def test_what_arrives_often_does_not_put_off_the_limits(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.monotonic()
    monkeypatch.setattr(engine_channel.time, "monotonic", lambda: now)
    watching = meter(Budget(cpu_seconds=60.0, wall_seconds=1.0, ask_calls=0, embed_texts=0))
    for _ in range(100):
        now += 0.009
        ends.worker.send({"call": "again"})
        assert ends.engine.receive(watching) == {"call": "again"}
    # Past a second, though nothing was ever waited for.
    now += 0.2
    ends.worker.send({"call": "again"})
    with pytest.raises(LimitError) as caught:
        ends.engine.receive(watching)
    assert caught.value.kind == "limit:wall"
