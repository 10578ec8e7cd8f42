"""Which implementation runs, who may force it, and proofs that it is the one that ran."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from prismem_core import _native, ops
from prismem_core.arrays import Place
from prismem_core.errors import ArgumentError, NoImplementation, SettingsError
from prismem_core.ops import on_device, registry
from prismem_core.ops.registry import thread_count

CPU = Place("numpy", "cpu")

# Two products that fall on one lane: fused, 2**-24 survives the subtraction; rounded after the product, it is lost.
FUSED = np.zeros((1, 16), np.float32)
FUSED[0, [0, 8]] = 1, 1 + 2.0**-12
FUSED_WITH = np.zeros((1, 16), np.float32)
FUSED_WITH[0, [0, 8]] = -(1 + 2.0**-11), 1 + 2.0**-12


def run_python(code: str, **environment: str) -> str:
    script = f"import numpy as np\nfrom prismem_core import ops\n{code}"
    done = subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, **environment}, capture_output=True, text=True, timeout=120
    )
    return done.stdout.strip() or done.stderr.strip().splitlines()[-1]


@pytest.mark.parametrize("variant", ["portable", "avx2", "avx512"])
def test_the_named_instruction_set_is_the_one_that_runs(variant: str) -> None:
    if variant not in ops.instruction_sets():
        pytest.skip("not on this CPU")
    out = np.empty((1, 1), np.float32)
    assert _native.similarity(FUSED, FUSED_WITH, False, out, isa=variant)[0] == variant
    with ops.use(f"cpu/{variant}"):
        assert f"with {variant} instructions" in ops.explain("similarity", FUSED)
        score = ops.similarity(FUSED, FUSED_WITH)[0, 0]
    if variant != "portable":
        assert score == 2.0**-24
    elif "avx2" in ops.instruction_sets():
        assert score == 0.0  # the baseline of x86-64 has no fused instructions


@pytest.mark.parametrize("variant", ["portable", "avx2", "avx512"])
def test_the_environment_forces_an_instruction_set(variant: str) -> None:
    if variant not in ops.instruction_sets():
        pytest.skip("not on this CPU")
    code = (
        "from prismem_core import _native, arrays\n"
        "print(ops.choose('top_k', arrays.Place('numpy', 'cpu')).variant, _native.chosen_isa())"
    )
    assert run_python(code, PRISMEM_ISA=variant) == f"{variant} {variant}"


def test_an_instruction_set_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRISMEM_ISA", "avx9")
    with pytest.raises(
        SettingsError, match=r"PRISMEM_ISA: the instruction set 'avx9' is not available; .* has portable"
    ):
        ops.similarity(FUSED, FUSED)
    with pytest.raises(ValueError, match='"avx9" is not available'):
        _native.chosen_isa()
    monkeypatch.delenv("PRISMEM_ISA")
    with pytest.raises(SettingsError, match=r"ops.use or PRISMEM_BACKEND: .*'sse9'"), ops.use("cpu/sse9"):
        ops.similarity(FUSED, FUSED)


def test_a_backend_can_be_forced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PRISMEM_BACKEND", raising=False)
    assert ops.choose("top_k", CPU).backend == "cpu"
    with ops.use("reference"):
        assert ops.choose("top_k", CPU).target == "prismem_core.ops.top_k:reference"
        with ops.use("cpu"):
            assert ops.choose("top_k", CPU).backend == "cpu"
        with ops.use(threads=2):
            assert (ops.choose("top_k", CPU).backend, thread_count()) == ("reference", 2)
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(ops.choose, "top_k", CPU).result().backend == "cpu"
    monkeypatch.setenv("PRISMEM_BACKEND", "reference")
    assert ops.choose("top_k", CPU).reason == "PRISMEM_BACKEND asks for 'reference'"
    with ops.use("cpu"):
        assert ops.choose("top_k", CPU).backend == "cpu"
    for wrong in ("gpu", "reference/fast"):
        monkeypatch.setenv("PRISMEM_BACKEND", wrong)
        with pytest.raises(
            SettingsError, match=f"PRISMEM_BACKEND: expected one of cpu, triton, cuda, reference .* got '{wrong}'"
        ):
            ops.choose("top_k", CPU)
        with pytest.raises(SettingsError, match=r"ops.use: expected one of"), ops.use(wrong):
            pass


def test_the_environment_is_read_in_each_call_also_without_the_native_core(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> Any:
        raise NoImplementation("not built")

    for name, value in (("BACKEND", "reference"), ("ISA", "portable"), ("THREADS", "7")):
        monkeypatch.setenv(f"PRISMEM_{name}", value)
    assert _native.settings() == ("reference", "portable", "7")
    assert (ops.choose("top_k", CPU).backend, thread_count()) == ("reference", 7)
    monkeypatch.setattr(registry, "native", missing)
    assert (ops.choose("top_k", CPU).backend, thread_count()) == ("reference", 7)
    for name in ("BACKEND", "ISA", "THREADS"):
        monkeypatch.delenv(f"PRISMEM_{name}")
    assert thread_count() == 0
    monkeypatch.undo()
    monkeypatch.setenv("PRISMEM_BACKEND", "cpu")
    monkeypatch.setenv("PRISMEM_ISA", "portable")
    assert ops.choose("top_k", CPU).variant == "portable"
    monkeypatch.setenv("PRISMEM_ISA", "")
    assert ops.choose("top_k", CPU).variant == ops.instruction_sets()[-1]


def test_the_definition_really_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise AssertionError("the native core was called")

    monkeypatch.setattr(_native, "similarity", broken)
    with ops.use("reference"):
        assert ops.similarity(FUSED, FUSED_WITH)[0, 0] == np.float32(2.0**-24)
    with pytest.raises(AssertionError), ops.use("cpu"):
        ops.similarity(FUSED, FUSED_WITH)


def test_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PRISMEM_THREADS", raising=False)
    assert thread_count() == 0
    monkeypatch.setenv("PRISMEM_THREADS", "3")
    assert thread_count() == 3
    assert "up to 3 threads" in ops.explain("top_k", FUSED)
    for wrong in ("0", "-1", "two", "1.5", "²"):
        monkeypatch.setenv("PRISMEM_THREADS", wrong)
        with pytest.raises(SettingsError, match="PRISMEM_THREADS: expected a whole number of at least 1"):
            ops.similarity(FUSED, FUSED)
    for number in (0, True, 1.0):
        with pytest.raises(ArgumentError, match="threads: expected"), ops.use(threads=number):  # type: ignore[arg-type]
            pass


class DeviceArray:
    """What a tensor on a GPU shows before any of its memory is touched."""

    shape = (2, 3)

    def __init__(self, device: tuple[int, int] = (2, 0)) -> None:
        self.device = device

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device


class Tensor(DeviceArray):
    __module__ = "torch"


def test_arrays_on_a_gpu_are_not_moved_where_nothing_can_read_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_device, "why_not", lambda backend, place: f"no {backend} for {place}")
    with pytest.raises(NoImplementation) as caught:
        ops.top_k(Tensor(), Tensor(), 1)
    assert "top_k: no implementation for torch arrays on cuda:0 (triton: no triton for" in str(caught.value)
    assert "there is cpu, triton, cuda, reference: install what is missing or move the arrays" in str(caught.value)
    with (
        pytest.raises(NoImplementation, match=r"on 'reference' \(reference reads arrays on the CPU\)"),
        ops.use("reference"),
    ):
        ops.top_k(Tensor(), Tensor(), 1)


def test_kernels_of_a_device_need_a_reason_to_run_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.delenv("PRISMEM_CUDA_LIBRARY", raising=False)
    for backend in ("triton", "cuda"):
        with (
            pytest.raises(
                NoImplementation, match=rf"top_k: no implementation for numpy arrays on the CPU on '{backend}'"
            ),
            ops.use(backend),
        ):
            ops.top_k(FUSED, FUSED, 1)
    with pytest.raises(NoImplementation, match=r"token_overlap: .*triton has none"), ops.use("triton"):
        ops.choose("token_overlap", CPU)


def test_a_child_forked_from_a_process_with_a_device_is_told_so() -> None:
    code = (
        "import os\n"
        "from prismem_core.errors import NoImplementation\n"
        "from prismem_core.ops.on_device import hold_device\n"
        "hold_device(); hold_device()\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    try:\n"
        "        hold_device()\n"
        "    except NoImplementation as error:\n"
        "        os._exit(7 if 'was forked from process' in str(error) and 'spawn' in str(error) else 1)\n"
        "    os._exit(2)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    assert run_python(code) == "7"


def test_mixed_places_are_refused() -> None:
    with pytest.raises(
        ArgumentError, match="keys: expected torch arrays on cuda:0, as queries is, got numpy arrays on the CPU"
    ):
        ops.top_k(Tensor(), FUSED, 1)
    with pytest.raises(ArgumentError, match=r"keys: expected torch arrays on cuda:0, .* got torch arrays on cuda:1"):
        ops.top_k(Tensor(), Tensor((2, 1)), 1)
    with pytest.raises(ArgumentError, match="arrays of tests are not supported"):
        ops.top_k(DeviceArray((1, 0)), DeviceArray((1, 0)), 1)
    with pytest.raises(ArgumentError, match="arrays of tests are not supported"):
        ops.top_k(DeviceArray((10, 0)), DeviceArray((10, 0)), 1)


def test_explain_is_a_sentence() -> None:
    with ops.use("reference"):
        assert ops.explain("similarity", FUSED, FUSED) == (
            "similarity runs on 'reference' (prismem_core.ops.similarity:reference), "
            "because ops.use asks for 'reference'."
        )
    assert ops.explain("top_k", FUSED, FUSED).endswith("because it was given numpy arrays on the CPU.")
    with pytest.raises(ArgumentError, match="op: expected one of similarity, top_k"):
        ops.explain("sort", FUSED)


def test_importing_the_ops_loads_no_library_and_starts_no_thread() -> None:
    code = (
        "import sys, threading\n"
        "print([name for name in ('torch', 'cupy', 'ml_dtypes', 'prismem_core._native') if name in sys.modules],"
        " threading.active_count())"
    )
    assert run_python(code) == "[] 1"


def test_the_interpreter_lock_is_released() -> None:
    """Python code of another thread goes on while the native core works."""
    keys = np.random.default_rng(0).standard_normal((60_000, 256)).astype(np.float32)
    scores, indices, counts = np.empty((40, 3), np.float32), np.empty((40, 3), np.int64), np.empty(40, np.int64)
    ticks: list[int] = []
    done: list[bool] = []

    def tick() -> None:
        while not done:
            ticks.append(1)
            time.sleep(0.0005)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1000)  # nobody is made to give the lock up: only who releases it lets others run
    try:
        with ThreadPoolExecutor(1) as pool:
            ticking = pool.submit(tick)
            started = len(ticks)
            _native.top_k(keys[:40], keys, None, None, None, 3, False, None, scores, indices, counts, threads=1)
            during = len(ticks) - started
            done.append(True)
            ticking.result()
    finally:
        sys.setswitchinterval(before)
    assert during >= 3


def test_native_functions_never_cast() -> None:
    rows, out = np.zeros((2, 3), np.float32), np.zeros((2, 2), np.float32)
    with pytest.raises(TypeError):
        _native.similarity(rows.tolist(), rows, False, out)
    with pytest.raises(TypeError):
        _native.similarity(rows, rows, False, out.astype(np.float64))
    with pytest.raises(ValueError, match="x: expected float32"):
        _native.similarity(rows.astype(np.float64), rows, False, out)
    with pytest.raises(ValueError, match="out: expected"):
        _native.similarity(rows, rows, False, out[:1])
    with pytest.raises(ValueError, match="rows without gaps"):
        _native.similarity(rows, np.zeros((3, 2), np.float32).T, False, out)
