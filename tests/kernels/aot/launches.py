"""What the launchers really launch, without a device: each kernel with the types and constants triton derives itself.

    python -m tests.kernels.aot.launches 90        # one JSON object a kernel, as aot.Compiled

A driver that is none stands in, tensors have no memory, and instead of compiling and launching, each kernel is noted.
Then it is compiled for the architecture and held against the rules, as the variants are.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import triton
from triton.backends.compiler import GPUTarget

from prismem_core.kernels.triton import aot
from prismem_core.kernels.triton.launch import Variant

PROCESSORS = {80: 108, 90: 132}


class NoDriver:
    """As much of a driver as a launch asks before it compiles."""

    def __init__(self, sm: int) -> None:
        self._target = GPUTarget("cuda", sm, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_current_target(self) -> GPUTarget:
        return self._target


class NoMemory:
    """A device whose arrays have shapes and types alone."""

    index = 0
    stream = 0

    def empty(self, shape: tuple[int, ...], dtype: str) -> Any:
        return torch.empty(shape, dtype=getattr(torch, dtype), device="meta")

    def full(self, shape: tuple[int, ...], dtype: str, value: float) -> Any:
        return self.empty(shape, dtype)

    def upload(self, values: Any) -> Any:
        return torch.empty(values.shape, dtype=torch.from_numpy(values).dtype, device="meta")


@contextmanager
def noted(sm: int) -> Iterator[list[tuple[Any, dict[str, str], dict[str, Any], tuple[str, ...], int, int, Any]]]:
    """Kernels that are launched inside: kernel, signature, constants, aligned arguments, warps, stages."""
    found: list[tuple[Any, dict[str, str], dict[str, Any], tuple[str, ...], int, int, Any]] = []

    def note(
        kernel: Any, key: Any, signature: Any, device: Any, constants: Any, options: Any, attrs: Any, warmup: Any
    ) -> None:
        names = kernel.arg_names
        plain = {names[path[0]]: value for path, value in constants.items()}
        aligned = tuple(
            names[path[0]] for path, kinds in attrs.items() if any(kind == "tt.divisibility" for kind, _ in kinds)
        )
        types = {name: kind for name, kind in signature.items() if name not in plain}
        found.append((kernel, types, plain, aligned, options.num_warps, options.num_stages, options.maxnreg))

    jit, cuda = triton.runtime.jit.JITFunction, torch.cuda
    replaced = {
        (jit, "_do_compile"): note,
        (cuda, "device"): lambda index: nullcontext(),
        (cuda, "get_device_capability"): lambda index: divmod(sm, 10),
        (cuda, "get_device_properties"): lambda index: SimpleNamespace(multi_processor_count=PROCESSORS[sm]),
    }
    before = {(owner, name): getattr(owner, name) for owner, name in replaced}
    triton.runtime.driver.set_active(NoDriver(sm))
    for (owner, name), value in replaced.items():
        setattr(owner, name, value)
    try:
        yield found
    finally:
        for (owner, name), value in before.items():
            setattr(owner, name, value)


def calls(device: NoMemory) -> Iterator[tuple[str, str, Any, tuple[Any, ...]]]:
    """Calls of the sizes that docs/gpu.md speaks of: op, words, launcher and its arguments."""
    from prismem_core.kernels.triton.mmr_select import mmr_select
    from prismem_core.kernels.triton.segment_max_similarity import segment_max_similarity
    from prismem_core.kernels.triton.segment_mean import segment_mean
    from prismem_core.kernels.triton.similarity import similarity
    from prismem_core.kernels.triton.top_k import top_k

    def flag(raises: bool) -> Any:
        return device.empty((1,), "int64") if raises else None

    for kind in ("float16", "bfloat16", "float32"):
        for m in (1, 16, 64, 1024):
            for normalize, raises, n, d, k in (
                (False, False, 10**6, 1024, 100),
                (True, True, 10**6, 1024, 10),
                (False, True, 300_001, 384, 10),
            ):
                outputs = (device.empty((m, k), "float32"), device.empty((m, k), "int64"), device.empty((m,), "int64"))
                left, right = device.empty((m, d), kind), device.empty((n, d), kind)
                rest = (None, None, None, k, normalize, None, *outputs, flag(raises))
                words = f"{kind} {m} queries d={d}{' cosine' if normalize else ''}"
                yield "top_k", words, top_k, (left, right, *rest)
        for normalize in (False, True):
            x, y = device.empty((1024, 1024), kind), device.empty((100_000, 1024), kind)
            out = device.empty((1024, 100_000), "float32")
            yield (
                "similarity",
                f"{kind}{' cosine' if normalize else ''}",
                similarity,
                (x, y, normalize, out, flag(True)),
            )
        for share in (1, 16, 100):
            groups = np.repeat(np.arange(3000 // share), share).astype(np.int64)
            ends = np.cumsum(np.random.default_rng(0).integers(5, 200, len(groups) // share))
            ranges = np.stack([np.concatenate([[0], ends[:-1]]), ends], 1).astype(np.int64)
            rows = device.empty((len(groups), 1024), kind), device.empty((int(ends[-1]), 1024), kind)
            results = device.empty((len(groups),), "float32"), device.empty((len(groups),), "int64")
            arguments = (*rows, ranges, groups, share == 16, *results, flag(True))
            yield "segment_max_similarity", f"{kind} {share} share", segment_max_similarity, arguments
        for d, pool, k in ((1024, 200, 25), (384, 50, 10)):
            ranges = np.arange(256)[:, None] * pool + np.array([[0, pool]])
            rows = device.empty((256, d), kind), device.empty((256 * pool, d), kind)
            results = (
                device.empty((256, k), "int64"), device.empty((256, k), "float32"), device.empty((256,), "int64")
            )  # fmt: skip
            arguments = (*rows, ranges, None, None, k, 0.7, None, pool == 50, *results, flag(pool == 50))
            yield "mmr_select", f"{kind} {pool} to {k} d={d}", mmr_select, arguments
    values = device.empty((10**7,), "float32")
    offsets = np.arange(0, 10**7 + 1, 1000)
    yield "segment_mean", "float32", segment_mean, (values, offsets, device.empty((10**4,), "float64"))


def launched(sm: int) -> list[tuple[str, Variant]]:
    """Each kernel that the calls launch, once, as a variant named after the first call."""
    device = NoMemory()
    shipped = {op: list(aot.variants([op], sm)) for op in aot.OPS}
    seen: dict[str, tuple[str, Variant]] = {}
    for op, words, launcher, arguments in calls(device):
        with noted(sm) as found:
            launcher(*arguments, device=device)
        for kernel, signature, constants, aligned, warps, stages, registers in found:
            key = repr((kernel.fn.__qualname__, signature, constants, aligned, warps, stages))
            of_kernel = [variant for variants in shipped.values() for variant in variants if variant.kernel is kernel]
            notes = {name: text for variant in of_kernel for name, text in variant.notes.items()}
            batched = any(variant.batched for variant in of_kernel)
            name = f"{op} {words}: {kernel.fn.__name__}"
            variant = Variant(name, op, kernel, signature, constants, aligned, warps, stages, batched, notes, registers)
            seen.setdefault(key, (key, variant))
    return list(seen.values())


def main() -> None:
    """Compile and print."""
    for word in sys.argv[1:]:
        for _, variant in launched(int(word)):
            print(json.dumps(asdict(aot.compile_variant(variant, int(word)))), flush=True)


if __name__ == "__main__":
    main()
