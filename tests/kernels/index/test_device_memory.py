"""What an index asks of torch where there is a GPU: a stand-in answers, and writes down what was asked."""

from __future__ import annotations

import contextlib
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from prismem_core.arrays.places import Place
from prismem_core.errors import ArgumentError, NoImplementation
from prismem_core.index import device_memory
from prismem_core.index.device_memory import DeviceMemory, gpu_named
from prismem_core.index.device_rows import handed_over, vectors_of
from prismem_core.index.device_stream import CudaStreams
from tests.device_arrays import CupyArray, JaxArray, TorchArray
from tests.kernels.index.stand_ins import torch

GIB = 1 << 30


class Stream:
    """A stream with a name."""

    def __init__(self, asked: list[Any], name: str) -> None:
        self.asked, self.name = asked, name

    def record_event(self) -> str:
        self.asked.append(("record", self.name))
        return f"event of {self.name}"

    def wait_event(self, event: str) -> None:
        self.asked.append(("wait", self.name, event))

    def synchronize(self) -> None:
        self.asked.append(("synchronize", self.name))


class Cuda:
    """torch.cuda with two GPUs."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.current = "current"
        self.OutOfMemoryError = torch.OutOfMemoryError
        self.free, self.reserved, self.allocated = 100 * GIB, 5 * GIB, 2 * GIB

    def is_available(self) -> bool:
        return True

    def device_count(self) -> int:
        return 2

    def current_device(self) -> int:
        return 1

    def mem_get_info(self, device: Any) -> tuple[int, int]:
        return self.free, 140 * GIB

    def memory_reserved(self, device: Any) -> int:
        return self.reserved

    def memory_allocated(self, device: Any) -> int:
        return self.allocated

    def empty_cache(self) -> None:
        self.asked.append("empty_cache")

    def current_stream(self, device: Any) -> Stream:
        return Stream(self.asked, self.current)

    def Stream(self, device: Any) -> Stream:
        return Stream(self.asked, "copies")

    def ExternalStream(self, handle: int, device: Any) -> Stream:
        return Stream(self.asked, f"external {handle}")

    @contextlib.contextmanager
    def stream(self, stream: Stream) -> Iterator[None]:
        before, self.current = self.current, stream.name
        try:
            yield
        finally:
            self.current = before

    @contextlib.contextmanager
    def device(self, device: Any) -> Iterator[None]:
        self.asked.append(("device", str(device)))
        yield


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Cuda:
    """A torch with two GPUs, whose tensors of the CPU stand for theirs."""
    cuda = Cuda()
    library: Any = types.SimpleNamespace(
        **{name: getattr(torch, name) for name in ("device", "float32", "bool", "uint16")}
    )
    library.cuda, library.version = cuda, types.SimpleNamespace(cuda="13.0")
    library.OutOfMemoryError, library.bfloat16, library.uint8 = torch.OutOfMemoryError, torch.bfloat16, torch.uint8
    library.from_dlpack = lambda array: torch.from_numpy(array.values)
    cupy = types.SimpleNamespace(
        cuda=types.SimpleNamespace(get_current_stream=lambda index: types.SimpleNamespace(ptr=770 + index)),
        from_dlpack=lambda tensor: ("of cupy", tensor),
    )
    real = device_memory.importlib.import_module
    modules = {"torch": library, "cupy": cupy}
    monkeypatch.setattr(device_memory.importlib, "import_module", lambda name: modules.get(name) or real(name))
    monkeypatch.setattr(device_memory, "hold_device", lambda: cuda.asked.append("held"))
    return cuda


@pytest.mark.parametrize(
    ("device", "expected"),
    [("cuda", "cuda:1"), ("cuda:0", "cuda:0"), (torch.device("cuda", 1), "cuda:1"), ("cpu", None), (None, None)],
)
def test_gpus_by_name(cuda: Cuda, device: Any, expected: str | None) -> None:
    assert gpu_named(device) == expected


def test_a_gpu_that_is_not_there(cuda: Cuda) -> None:
    with pytest.raises(ArgumentError, match="device: expected one of the 2 GPUs from cuda:0 on, got 'cuda:2'"):
        gpu_named("cuda:2")
    cuda.is_available = lambda: False  # type: ignore[method-assign]
    with pytest.raises(NoImplementation, match="no rows can be held on cuda:0: torch finds no usable GPU"):
        gpu_named("cuda:0")


def test_the_room_is_what_is_free_but_for_what_searches_need(cuda: Cuda) -> None:
    memory = DeviceMemory("cuda:1")
    assert (memory.place, memory.on_gpu) == (Place("torch", "cuda", 1), True)
    assert memory.room() == 100 * GIB + 3 * GIB - 140 * GIB // 16
    cuda.free = GIB
    assert memory.room() == 0
    bounded = DeviceMemory("cuda:1", 1000)
    assert bounded.room() == 1000
    bounded.held = 1500
    assert bounded.room() == 0


def test_work_is_done_on_the_device_and_in_the_stream_of_the_caller(cuda: Cuda) -> None:
    memory = DeviceMemory("cuda:1")
    for place, stream in (
        (None, "current"),
        (Place("numpy", "cpu"), "current"),
        (Place("torch", "cuda", 1), "current"),
        (Place("cupy", "cuda", 1), "external 771"),
    ):
        cuda.asked.clear()
        with memory.working(place):
            assert cuda.current == stream
            memory.settle()
        assert cuda.asked == ["held", ("device", "cuda:1"), ("synchronize", stream)]
        assert cuda.current == "current"


def test_a_shortage_becomes_a_memory_error(cuda: Cuda) -> None:
    memory = DeviceMemory("cuda:1")
    shortages = (
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB\nmore"),
        RuntimeError("Triton Error [CUDA]: out of memory"),
    )
    for error in shortages:
        words = r"cuda:1 has not enough free memory .*the index is as it was"
        with pytest.raises(MemoryError, match=words), memory.working():
            raise error
    with pytest.raises(RuntimeError, match="illegal memory access"), memory.working():
        raise RuntimeError("CUDA error: an illegal memory access was encountered")
    memory.collect()
    assert cuda.asked[-1] == "empty_cache"


def test_copies_have_a_stream_of_their_own(cuda: Cuda) -> None:
    class Target:
        def copy_(self, source: Any, non_blocking: bool) -> None:
            cuda.asked.append(("copy", source, cuda.current, non_blocking))

    streams = CudaStreams(DeviceMemory("cuda:1"))
    streams.copy_after(streams.searched())
    streams.copy(Target(), "piece")
    streams.search_after(streams.copied())
    streams.settle()
    assert cuda.asked == [
        ("record", "current"),
        ("wait", "copies", "event of current"),
        ("copy", "piece", "copies", True),
        ("record", "copies"),
        ("wait", "current", "event of copies"),
        ("synchronize", "copies"),
        ("synchronize", "current"),
    ]


def test_vectors_of_other_libraries_on_the_same_gpu(cuda: Cuda, monkeypatch: pytest.MonkeyPatch) -> None:
    memory, values = DeviceMemory("cuda:1"), np.arange(8, dtype=np.float32).reshape(2, 4)
    found = vectors_of(CupyArray(values, (2, 1)), "vectors", memory, 4, bits=False)
    assert isinstance(found.data, torch.Tensor)
    assert (found.data.tolist(), found.kind, found.place) == (values.tolist(), "float32", Place("cupy", "cuda", 1))
    for array, got in (
        (CupyArray(values, (2, 0)), "cupy arrays on cuda:0"),
        (TorchArray(values, (2, 0)), "torch arrays on cuda:0"),
    ):
        with pytest.raises(ArgumentError, match=f"expected arrays on the CPU or on cuda:1, .* got {got}; move them"):
            vectors_of(array, "vectors", memory, 4, bits=False)
    with pytest.raises(ArgumentError, match=r"vectors: expected 3 dimensions, .* got 4; .*the same model"):
        vectors_of(CupyArray(values, (2, 1)), "vectors", memory, 3, bits=False)


def test_results_go_where_the_queries_are(cuda: Cuda) -> None:
    tensor = torch.arange(3)
    assert handed_over(tensor, Place("torch", "cuda", 1)) is tensor
    assert handed_over(tensor, Place("cupy", "cuda", 1)) == ("of cupy", tensor)
    assert isinstance(handed_over(tensor, Place("numpy", "cpu")), np.ndarray)
    assert isinstance(handed_over(tensor, Place("torch", "cpu")), torch.Tensor)
    assert handed_over(tensor, Place(JaxArray.__module__.split(".")[0], "cuda", 1)) is tensor
