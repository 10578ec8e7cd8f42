"""What users do to arrays on a device that needs a device to be tried: each is right or refused in one clear error."""

from __future__ import annotations

import importlib
import importlib.util
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from prismem_core import ops
from prismem_core.errors import ArgumentError, PrismemError

from .stage import Stage, to_host


def refused(call: Callable[[], Any], *words: str) -> str | None:
    """None where a call is refused with these words, else what happened."""
    try:
        call()
    except ArgumentError as error:
        missing = [word for word in words if word not in str(error)]
        return f"the error does not name {', '.join(missing)}: {error}" if missing else None
    return "it was not refused"


def rows(stage: Stage, count: int, dim: int, seed: int = 0) -> Any:
    """Random rows on the device."""
    torch = stage.torch
    generator = torch.Generator(device=stage.device).manual_seed(seed)
    return torch.randn(count, dim, device=stage.device, generator=generator)


def float64_and_integers(stage: Stage) -> str | None:
    """Kinds that would have to be converted are refused."""
    x = rows(stage, 4, 16)
    return refused(lambda: ops.similarity(x, x.double()), "y", "float64") or refused(
        lambda: ops.similarity(x.int(), x), "x", "int32"
    )


def transposed(stage: Stage) -> str | None:
    """Rows whose elements are no neighbours are refused on a device; on the CPU they are copied."""
    x = rows(stage, 16, 8)
    return None if stage.dry else refused(lambda: ops.top_k(x[:2, :4], x.T[:, :4].T.T, 1), "keys", "neighbours")


def one_axis(stage: Stage) -> str | None:
    """A single row is no matrix."""
    x = rows(stage, 4, 16)
    return refused(lambda: ops.top_k(x[0], x, 1), "queries", "two axes")


def gradient(stage: Stage) -> str | None:
    """A tensor that wants a gradient is refused."""
    x = rows(stage, 4, 16)
    return refused(lambda: ops.top_k(x.requires_grad_(), rows(stage, 4, 16), 1), "gradient")


def different_lengths(stage: Stage) -> str | None:
    """Both lengths are named."""
    return refused(lambda: ops.top_k(rows(stage, 2, 16), rows(stage, 4, 17), 1), "16", "17")


def not_finite(stage: Stage) -> str | None:
    """NaN is named with its row, or left out."""
    for value in (float("nan"), float("inf")):
        keys = rows(stage, 300, 32)
        keys[117, 5] = value
        queries = rows(stage, 3, 32, 1)
        for name in ("top_k", "mmr_select", "segment_max_similarity"):
            more: dict[str, Any] = {"k": 2} if name != "segment_max_similarity" else {}
            more |= {"relevance_weight": 0.5} if name == "mmr_select" else {}
            if wrong := refused(partial(ops.OPS[name].function, queries, keys, **more), "117"):
                return f"{name}: {wrong}"
        found = ops.top_k(queries, keys, 300, normalize=True, nonfinite="skip")
        if 117 in to_host(found.indices) or to_host(found.counts).tolist() != [299] * 3:
            return f"a row with {value} was ranked"
    return None


def mixed_devices(stage: Stage) -> str | None:
    """Nothing moves between devices by itself."""
    x = rows(stage, 4, 16)
    return refused(lambda: ops.top_k(x, x.cpu(), 1), "keys", "queries", "CPU")


def mixed_libraries(stage: Stage) -> str | None:
    """Arrays of two libraries in one call are refused, not guessed at."""
    if importlib.util.find_spec("cupy") is None:
        return None
    cupy = importlib.import_module("cupy")
    x = rows(stage, 4, 16)
    return refused(lambda: ops.top_k(x, cupy.from_dlpack(x), 1), "cupy", "torch")


def reversed_rows(stage: Stage) -> str | None:
    """Rows in reverse order, which cupy can make, are refused."""
    if importlib.util.find_spec("cupy") is None:
        return None
    cupy = importlib.import_module("cupy")
    keys = cupy.asarray(np.ones((9, 16), np.float32))
    return refused(lambda: ops.top_k(keys[:2], keys[::-1], 1), "keys", "reverse")


def other_streams(stage: Stage) -> str | None:
    """A call follows what was queued before on the caller's stream, and nothing else."""
    torch = stage.torch
    keys, queries = rows(stage, 20_000, 256), rows(stage, 8, 256, 1)
    expected = ops.top_k(queries, keys, 5)
    late, stream = torch.zeros_like(keys), torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(200_000_000)  # about a tenth of a second: a call on another stream would read zeros
        late.copy_(keys, non_blocking=True)
        found = ops.top_k(queries, late, 5, nonfinite="skip")
    stream.synchronize()
    return None if torch.equal(found.indices, expected.indices) else "the call did not wait for its own stream"


def threads(stage: Stage) -> str | None:
    """Calls of several threads, each on a stream of its own, do not disturb each other."""
    torch = stage.torch
    keys = rows(stage, 20_000, 128)
    wanted = [ops.top_k(rows(stage, 4, 128, seed), keys, 9).indices for seed in range(4)]
    wrong: list[str] = []

    def work(seed: int) -> None:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.default_stream())
        with torch.cuda.stream(stream):
            queries = rows(stage, 4, 128, seed)
            for _ in range(20):
                if not torch.equal(ops.top_k(queries, keys, 9).indices, wanted[seed]):
                    wrong.append(f"thread {seed} got other hits")
                    return

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return wrong[0] if wrong else None


def graph_capture(stage: Stage) -> str | None:
    """A call is captured into a CUDA graph and replayed over other values; waiting inside a capture is refused."""
    torch = stage.torch
    keys, queries = rows(stage, 30_000, 128), rows(stage, 16, 128, 1)
    ops.top_k(queries, keys, 10, nonfinite="skip")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = ops.top_k(queries, keys, 10, nonfinite="skip")
    for seed in (5, 6):
        keys.copy_(rows(stage, 30_000, 128, seed))
        graph.replay()
        torch.cuda.synchronize()
        again = ops.top_k(queries, keys, 10)
        if not (torch.equal(found.indices, again.indices) and torch.equal(found.scores, again.scores)):
            return "a replay gives other hits than a call"
    complaint: list[str | None] = []
    other = torch.cuda.CUDAGraph()
    with torch.cuda.graph(other):
        complaint.append(refused(lambda: ops.top_k(queries, keys, 10), "nonfinite", "capture"))
        keys.add_(0.0)
    return complaint[0]


def beyond_32_bits(stage: Stage) -> str | None:
    """More than 2**31 elements and 2**32 bytes: the best rows are the first and the last."""
    torch = stage.torch
    count, dim = 2**21 + 77, 1024
    keys = torch.zeros(count, dim, device=stage.device, dtype=torch.float16)
    keys[:, 0] = -1.0
    for position in (0, 2**20, count - 1):
        keys[position, 0] = 2.0 + position / count
    queries = torch.zeros(17, dim, device=stage.device, dtype=torch.float16)
    queries[:, 0] = 1.0
    for m in (1, 17):
        found = ops.top_k(queries[:m], keys, 3)
        if to_host(found.indices).tolist() != [[count - 1, 2**20, 0]] * m:
            return f"{m} queries: {to_host(found.indices)[0].tolist()}, expected {[count - 1, 2**20, 0]}"
    return None


def more_scores_than_32_bits(stage: Stage) -> str | None:
    """A result of more than 2**31 scores is written where it belongs."""
    torch = stage.torch
    m, n = 2**11, 2**20 + 512
    x, y = (torch.zeros(count, 16, device=stage.device, dtype=torch.float16) for count in (m, n))
    x[-1, 0], y[-1, 0], y[0, 0] = 3.0, 5.0, 2.0
    found = ops.similarity(x, y)
    corners = [float(found[i, j]) for i, j in ((-1, -1), (-1, 0), (0, -1), (-2, -1))]
    total = float(found.sum(dtype=torch.float64))
    return None if corners == [15.0, 6.0, 0.0, 0.0] and total == 21.0 else f"corners {corners}, sum {total}"


def out_of_memory(stage: Stage) -> str | None:
    """With almost no memory left a call gives the same hits or one clear error, and the next call is right."""
    torch = stage.torch
    keys, queries = rows(stage, 200_000, 256), rows(stage, 512, 256, 1)
    expected = ops.top_k(queries, keys, 300).indices
    torch.cuda.empty_cache()
    _, total = torch.cuda.mem_get_info()
    held = torch.cuda.memory_reserved()
    complaint = None
    for spare in (64, 8, 2):
        torch.cuda.set_per_process_memory_fraction((held + spare * 2**20) / total)
        try:
            found = ops.top_k(queries, keys, 300)
            if not torch.equal(found.indices, expected):
                complaint = f"{spare} MiB left: other hits"
        except PrismemError:
            pass
        except torch.cuda.OutOfMemoryError as error:
            complaint = f"{spare} MiB left: an error of torch, not of this library: {error}"[:300]
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0)
    if complaint is None and not torch.equal(ops.top_k(queries, keys, 300).indices, expected):
        complaint = "after that the hits are others"
    return complaint


def nothing_to_do(stage: Stage) -> str | None:
    """No keys, no queries, no hits wanted, no dimensions: empty results of the right shape."""
    x = rows(stage, 5, 16)
    for queries, keys, k, shape in ((x, x[:0], 3, (5, 0)), (x[:0], x, 3, (0, 3)), (x, x, 0, (5, 0))):
        found = ops.top_k(queries, keys, k)
        if tuple(found.indices.shape) != shape or to_host(found.counts).any():
            return f"{tuple(queries.shape)} x {tuple(keys.shape)}, k={k}: shape {tuple(found.indices.shape)}"
    found = ops.top_k(x[:, :0], x[:, :0], 2)
    return None if to_host(found.indices).tolist() == [[0, 1]] * 5 else "rows without dimensions do not tie"


ANYWHERE = (float64_and_integers, transposed, one_axis, gradient, different_lengths, not_finite, nothing_to_do)
"""Checks that a dry run makes too."""

ON_A_DEVICE = (
    mixed_devices,
    mixed_libraries,
    reversed_rows,
    other_streams,
    threads,
    graph_capture,
    beyond_32_bits,
    more_scores_than_32_bits,
    out_of_memory,
)
"""Checks that need a GPU, in the order of how sorely they are missed."""
