"""Arrays on a device, without one: whose they are, what is refused before any is read, and who gets the results."""

from __future__ import annotations

import sys
import types
from typing import Any

import numpy as np
import pytest

from prismem_core import VectorIndex, ops
from prismem_core.arrays import Place, common_place, foreign, place_of, plain, rows
from prismem_core.arrays.device import view_of
from prismem_core.errors import ArgumentError, NoImplementation
from tests.device_arrays import CupyArray, JaxArray, NumbaArray, StubbornArray, TorchArray, install

VALUES = np.arange(12, dtype=np.float32).reshape(3, 4)


# Places.


def test_places_of_every_library(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "torch", "cupy")
    assert place_of(CupyArray(VALUES, (2, 1)), "x") == Place("cupy", "cuda", 1)
    assert place_of(TorchArray(VALUES), "x") == Place("torch", "cuda", 0)
    assert place_of(JaxArray(VALUES, (2, 7)), "x") == Place("jaxlib", "cuda", 7)
    assert place_of(CupyArray(VALUES, (13, 0)), "x") == Place("cupy", "cuda", 0), "managed memory is the device's"
    assert place_of(TorchArray(VALUES, (3, 0)), "x") == Place("torch", "cpu", 0), "pinned memory is the host's"
    assert place_of(NumbaArray(VALUES), "x") == Place("numba", "cuda", 5), "cupy knows whose pointer it is"


def test_a_pointer_without_cupy_is_on_the_device_where_torch_reads_it_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = install(monkeypatch, "torch")["torch"]
    assert place_of(NumbaArray(VALUES), "x") == Place("numba", "cuda", 5)
    torch.cuda.device_count = lambda: 1
    torch.cuda.current_device = lambda: 0
    assert place_of(NumbaArray(VALUES), "x") == Place("numba", "cuda", 0)


def test_other_devices_and_libraries_on_the_cpu_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "torch", "cupy")
    assert str(place_of(TorchArray(VALUES, (10, 2)), "x")) == "torch arrays on device type 10:2"
    for kind in (1, 3, 10):
        with pytest.raises(ArgumentError, match=r"x: arrays of jaxlib are not supported; pass a view of it"):
            place_of(JaxArray(VALUES, (kind, 0)), "x")
    with pytest.raises(ArgumentError, match="x: expected an array of numpy, torch or cupy, got object"):
        place_of(object(), "x")


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        (CupyArray(VALUES), CupyArray(VALUES, (2, 1)), "expected cupy arrays on cuda:0, as x is, got cupy arrays on"),
        (CupyArray(VALUES), TorchArray(VALUES), "expected cupy arrays on cuda:0, as x is, got torch arrays on cuda:0"),
        (CupyArray(VALUES), VALUES, "expected cupy arrays on cuda:0, as x is, got numpy arrays on the CPU"),
        (VALUES, JaxArray(VALUES), "expected numpy arrays on the CPU, as x is, got jaxlib arrays on cuda:0"),
        (TorchArray(VALUES), TorchArray(VALUES, (3, 0)), "got torch arrays on the CPU; move one of them"),
        (TorchArray(VALUES), TorchArray(VALUES, (10, 0)), "got torch arrays on device type 10:0"),
    ],
)
def test_arrays_in_several_places_are_refused(
    monkeypatch: pytest.MonkeyPatch, first: Any, second: Any, words: str
) -> None:
    install(monkeypatch, "torch", "cupy")
    with pytest.raises(ArgumentError, match=words):
        common_place(x=first, skipped=None, y=second)
    for op in (ops.similarity, lambda x, y: ops.top_k(x, y, 1)):
        with pytest.raises((ArgumentError, NoImplementation)):
            op(first, second)


def test_masks_must_be_where_the_rows_are(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "torch", "cupy")
    with pytest.raises(ArgumentError, match="mask: expected cupy arrays on cuda:0, as queries is, got numpy arrays"):
        ops.top_k(CupyArray(VALUES), CupyArray(VALUES), 1, mask=np.ones(3, np.bool_))
    with pytest.raises(ArgumentError, match="mask: expected numpy arrays on the CPU, as queries is, got cupy arrays"):
        ops.top_k(VALUES, VALUES, 1, mask=CupyArray(np.ones(3, np.bool_)))


# Rows.


@pytest.mark.parametrize("make", [CupyArray, TorchArray, JaxArray, NumbaArray])
def test_rows_are_read_in_place(monkeypatch: pytest.MonkeyPatch, make: Any) -> None:
    install(monkeypatch, "torch", "cupy")
    spaced = np.zeros((6, 9), np.float32)[::2, 1:5]
    for values in (VALUES, spaced, np.broadcast_to(VALUES[:1], (3, 4)), VALUES[:0], VALUES[:, :0], VALUES[:1, ::2]):
        if values.shape[1] == 2:
            with pytest.raises(ArgumentError, match=r"x: the elements of a row must be neighbours .* got strides"):
                rows(make(values), "x")
            continue
        held = rows(make(values), "x")
        assert (held.kind, held.count, held.dim) == ("float32", *values.shape)
        assert held.data.values is values or np.shares_memory(held.data.values, values) or not values.size


@pytest.mark.parametrize("make", [CupyArray, TorchArray])
def test_every_kind_of_rows(monkeypatch: pytest.MonkeyPatch, make: Any) -> None:
    install(monkeypatch, "torch", "cupy")
    assert rows(make(VALUES.astype(np.float16)), "x").kind == "float16"
    assert rows(make(VALUES.astype(np.uint16), kind="bfloat16"), "x").kind == "bfloat16"
    assert rows(make(VALUES.astype(np.uint16)), "x", dtype="bfloat16").kind == "bfloat16"
    for values, words in (
        (VALUES.astype(np.uint16), 'uint16 could mean anything; pass dtype="bfloat16"'),
        (VALUES.astype(np.float64), "expected float32, float16 or bfloat16, got float64"),
        (VALUES.astype(np.int8), "expected float32, float16 or bfloat16, got int8"),
        (VALUES[0], r"expected two axes \(rows, dimensions\), got shape \(4,\); for one row pass x\[None, :\]"),
        (VALUES[None], r"expected two axes \(rows, dimensions\), got shape \(1, 3, 4\)"),
        (VALUES.T, "the elements of a row must be neighbours"),
        (VALUES[:, ::-1], "the elements of a row must be neighbours"),
        (VALUES[::-1], "rows in reverse order"),
    ):
        with pytest.raises(ArgumentError, match=f"x: {words}"):
            rows(make(values), "x")
    with pytest.raises(ArgumentError, match="dtype: expected None"):
        rows(make(VALUES), "x", dtype="float16")


def test_tensors_that_have_no_plain_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "torch", "cupy")
    grown, sparse = TorchArray(VALUES), TorchArray(VALUES)
    grown.requires_grad, sparse.layout = True, "torch.sparse_coo"
    with pytest.raises(ArgumentError, match=r"x: the tensor requires a gradient.*pass x.detach\(\)"):
        rows(grown, "x")
    with pytest.raises(ArgumentError, match=r"x: expected a dense tensor, got one of layout torch\.sparse_coo"):
        rows(sparse, "x")


def test_an_array_that_its_library_does_not_hand_over(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "torch")
    with pytest.raises(ArgumentError, match=r"x: jaxlib arrays on cuda:0 could not be read in place .it is being don"):
        rows(StubbornArray(VALUES), "x")


def test_without_torch_and_cupy_foreign_arrays_have_no_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    with pytest.raises(NoImplementation, match=r"jaxlib arrays on cuda:0: .* needs torch or cupy; install one of them"):
        rows(JaxArray(VALUES), "x")


def test_plain_arrays_on_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "torch", "cupy")
    mask = CupyArray(np.ones(3, np.bool_))
    assert plain(mask, "mask", ("bool",), (1, 2)) is mask
    with pytest.raises(ArgumentError, match="mask: expected bool, got uint8; convert it where you make it"):
        plain(CupyArray(np.ones(3, np.uint8)), "mask", ("bool",), (1, 2))
    with pytest.raises(ArgumentError, match=r"mask: expected 1 or 2 axes, got shape \(1, 1, 1\)"):
        plain(TorchArray(np.ones((1, 1, 1), np.bool_)), "mask", ("bool",), (1, 2))


@pytest.mark.parametrize(("stream", "expected"), [(None, []), (1, [(5, 0)]), (2, [(5, 0)]), (77, [(5, 77)])])
def test_the_stream_of_an_interface_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, stream: int | None, expected: list[tuple[int, int]]
) -> None:
    torch = install(monkeypatch, "torch")["torch"]
    assert rows(NumbaArray(VALUES, stream), "x").data.device_of_dlpack == (2, 5)
    assert torch.waited == expected


# Views for kernels, and results.


def test_views_of_every_library_have_strides_in_elements() -> None:
    spaced = np.zeros((6, 9), np.float16)[::2, 1:5]
    for array in (CupyArray(spaced), TorchArray(spaced)):
        if isinstance(array, CupyArray):
            array.data = types.SimpleNamespace(ptr=int(spaced.ctypes.data))  # type: ignore[attr-defined]
        view = view_of(array)
        assert (view.pointer, view.shape, view.strides, view.kind) == (
            int(spaced.ctypes.data),
            (3, 4),
            (18, 1),
            "float16",
        )
        assert view.owner is array
    assert view_of(TorchArray(VALUES.astype(np.uint16))).kind == "bfloat16"


def test_results_go_back_to_the_library_of_the_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "torch", "cupy")
    result = CupyArray(VALUES)
    assert foreign.returned(result, Place("cupy", "cuda")) is result
    assert foreign.returned(result, Place("torch", "cuda")) is result
    library: Any = types.ModuleType("jaxlib")
    library.from_dlpack = lambda array: ("of jaxlib", array)
    monkeypatch.setitem(sys.modules, "jaxlib", library)
    assert foreign.returned(result, Place("jaxlib", "cuda")) == ("of jaxlib", result)
    monkeypatch.setitem(sys.modules, "numba", types.ModuleType("numba"))
    assert foreign.returned(result, Place("numba", "cuda")) is result, "it reads the array as it gave its own"


# An index of the C++ core.


@pytest.mark.parametrize("make", [CupyArray, TorchArray, JaxArray])
def test_an_index_on_the_cpu_refuses_arrays_on_a_device(monkeypatch: pytest.MonkeyPatch, make: Any) -> None:
    install(monkeypatch, "torch", "cupy")
    index = VectorIndex(4)
    index.add(VALUES)
    where = rf"expected arrays on the CPU, .*got {make.__module__.split('.')[0]} arrays on cuda:0; move them"
    for call in (
        lambda: index.add(make(VALUES)),
        lambda: index.update([0], make(VALUES[:1])),
        lambda: index.search(make(VALUES), 1),
        lambda: index.mmr(make(VALUES), 1, relevance_weight=0.5),
    ):
        with pytest.raises(ArgumentError, match=where):
            call()
    with pytest.raises(ArgumentError, match="filter: "):
        index.search(VALUES, 1, filter=make(np.ones(3, np.bool_)))
    assert len(index) == 3


def test_default_streams_of_other_libraries_are_the_default_stream_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch makes a stream of its own, which waits for nobody, of the handle 0."""
    torch = install(monkeypatch, "torch")["torch"]
    torch.cuda.default_stream = lambda device: ("default", device)
    torch.cuda.ExternalStream = lambda handle, device: (handle, device)
    for handle in (0, 1, 2):
        assert foreign.torch_stream(torch, handle, 3) == ("default", "cuda:3")
    assert foreign.torch_stream(torch, 771, 3) == (771, "cuda:3")
