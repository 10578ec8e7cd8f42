"""`prismem doctor` on GPUs: each thing that may be missing is named, with why and what to do."""

from __future__ import annotations

import ctypes
import types
from typing import Any

import numpy as np
import pytest
from tests.house.absent import installed, run_without

from prismem_core import ops
from prismem_core.jobs import gpu_examination

PRINTED = """
from prismem_core.jobs.gpu_examination import gpu_parts
for part, attempt in gpu_parts():
    print(part, *attempt(), sep="|")
"""


def findings(hidden: tuple[str, ...] = (), **environment: str) -> dict[str, tuple[str, str]]:
    lines = run_without(hidden, PRINTED, CUDA_VISIBLE_DEVICES="", **environment).splitlines()
    return {part: (state, message) for part, state, message in (line.split("|", 2) for line in lines)}


def test_all_parts_are_tried_and_none_of_them_breaks_the_main_job() -> None:
    found = findings()
    assert list(found) == ["GPU driver", "torch on a GPU", "Triton kernels", "CUDA kernels"]
    assert all(state in ("ok", "missing") for state, _ in found.values())


def test_neither_torch_nor_triton() -> None:
    found = findings(("torch", "triton", "cupy"))
    assert found["torch on a GPU"][0] == found["Triton kernels"][0] == "missing"
    assert "torch is not installed" in found["torch on a GPU"][1]
    for part in ("torch on a GPU", "Triton kernels"):
        assert found[part][1].endswith("pip install 'prismem-core[gpu]'")


@pytest.mark.skipif(not installed("triton"), reason="triton is not installed")
def test_triton_without_torch() -> None:
    state, message = findings(("torch",))["Triton kernels"]
    assert state == "missing"
    assert "is there, but it needs torch on a GPU: torch is not installed" in message


@pytest.mark.skipif(not installed("torch"), reason="torch is not installed")
def test_torch_without_triton() -> None:
    state, message = findings(("triton",))["Triton kernels"]
    assert (state, message) == (
        "missing",
        "triton is not installed, which the kernels for torch tensors need; pip install 'prismem-core[gpu]'",
    )


def test_a_library_of_cuda_kernels_that_is_not_there() -> None:
    state, message = findings(PRISMEM_CUDA_LIBRARY="/absent/libprismem_cuda.so")["CUDA kernels"]
    assert state == "missing"
    assert "CUDA kernels" in message


class Driver:
    """What libcuda answers."""

    def __init__(self, code: int = 0, version: int = 13000, names: tuple[str, ...] = ("NVIDIA H200",)) -> None:
        self.code, self.version, self.names = code, version, names

    def cuInit(self, flags: int) -> int:
        return self.code

    def cuDriverGetVersion(self, out: Any) -> int:
        out._obj.value = self.version
        return 0

    def cuDeviceGetCount(self, out: Any) -> int:
        out._obj.value = len(self.names)
        return 0

    def cuDeviceGetName(self, buffer: Any, size: int, index: int) -> int:
        ctypes.memmove(buffer, self.names[index].encode() + b"\0", len(self.names[index]) + 1)
        return 0


@pytest.mark.parametrize(
    ("library", "state", "words"),
    [
        (Driver(), "ok", "NVIDIA H200; the driver serves CUDA 13.0"),
        (Driver(names=("A", "B")), "ok", "A, B; the driver serves"),
        (Driver(version=12040), "missing", "serves CUDA 12.4: the CUDA library needs 13.0; update the driver"),
        (Driver(code=100), "missing", "the NVIDIA driver sees no GPU"),
        (Driver(code=999), "broken", "the NVIDIA driver does not start (code 999 of cuInit)"),
    ],
)
def test_what_the_driver_says(library: Driver, state: str, words: str) -> None:
    found = gpu_examination.driver(lambda name: library)
    assert found[0] == state
    assert words in found[1]


def test_no_driver() -> None:
    def absent(name: str) -> Any:
        raise OSError(f"{name}: cannot open shared object file")

    state, message = gpu_examination.driver(absent)
    assert state == "missing"
    assert message == ("no NVIDIA driver (there is no libcuda.so.1): everything runs on the CPU; install the driver")


def stand_in_torch(monkeypatch: pytest.MonkeyPatch, cuda: str | None, available: bool) -> None:
    """A torch that says of itself what is given."""
    torch: Any = types.ModuleType("torch")
    torch.__version__ = "2.11.0"
    torch.version = types.SimpleNamespace(cuda=cuda)
    torch.cuda = types.SimpleNamespace(
        is_available=lambda: available,
        device_count=lambda: 2,
        get_device_capability=lambda index: (9, index),
        mem_get_info=lambda index: (100 << 30, 140 << 30),
        get_device_name=lambda index: "NVIDIA H200",
    )
    torch.eye = lambda rows, columns, device: np.eye(rows, columns, dtype=np.float32)
    spec = types.SimpleNamespace()
    monkeypatch.setattr(gpu_examination.importlib.util, "find_spec", lambda name: spec)
    modules = {"torch": torch, "triton": types.SimpleNamespace(__version__="3.6.0")}
    monkeypatch.setattr(gpu_examination.importlib, "import_module", lambda name: modules[name])


def test_torch_of_every_sort(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        stand_in_torch(patch, None, False)
        assert gpu_examination.torch_on_gpu() == (
            "missing",
            "torch 2.11.0 is built without CUDA: install a build with it (https://pytorch.org)",
        )
    with monkeypatch.context() as patch:
        stand_in_torch(patch, "13.0", False)
        state, message = gpu_examination.torch_on_gpu()
        assert state == "missing"
        assert "is built for CUDA 13.0 and finds no usable GPU: see the driver" in message
        assert gpu_examination.triton_kernels()[1].startswith("triton 3.6.0 is there, but it needs torch on a GPU")
    with monkeypatch.context() as patch:
        stand_in_torch(patch, "13.0", True)
        assert gpu_examination.torch_on_gpu() == (
            "ok",
            "torch 2.11.0 (CUDA 13.0): cuda:0 sm_90, 100.0 of 140.0 GiB free; cuda:1 sm_91, 100.0 of 140.0 GiB free",
        )


@pytest.mark.parametrize(("row", "state"), [(2, "ok"), (0, "broken")])
def test_kernels_are_tried_not_inferred(monkeypatch: pytest.MonkeyPatch, row: int, state: str) -> None:
    asked = []

    def top_k(queries: Any, keys: Any, k: int) -> Any:
        asked.append((queries.tolist(), keys.shape, k))
        return types.SimpleNamespace(indices=np.array([[row]]))

    with monkeypatch.context() as patch:
        stand_in_torch(patch, "13.0", True)
        patch.setattr(ops, "top_k", top_k)
        found = gpu_examination.triton_kernels()
    assert found[0] == state
    assert found[1].startswith("triton 3.6.0: top_k found the ")
    assert asked == [([[0.0, 0.0, 1.0] + [0.0] * 13], (4, 16), 1)]
