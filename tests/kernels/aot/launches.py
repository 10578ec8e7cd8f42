"""What the launchers really launch, without a device: each kernel with the types and constants triton derives itself.

    python -m tests.kernels.aot.launches 90        # one JSON object a kernel, as aot.Compiled

A driver that is none stands in, tensors have no memory, and instead of compiling and launching, each kernel is noted.
Then it is compiled for the architecture and held against the rules, as the variants are.
"""

from __future__ import annotations

import json
import sys
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, replace
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

    def __init__(self) -> None:
        self.held = self.most = 0
        """Bytes of the arrays that are left now, and the most there were at once."""

    def empty(self, shape: tuple[int, ...], dtype: str) -> Any:
        made = torch.empty(shape, dtype=getattr(torch, dtype), device="meta")
        size = made.numel() * made.element_size()
        self.held += size
        self.most = max(self.most, self.held)
        weakref.finalize(made, self._released, size)
        return made

    def _released(self, size: int) -> None:
        self.held -= size

    def full(self, shape: tuple[int, ...], dtype: str, value: float) -> Any:
        return self.empty(shape, dtype)

    def upload(self, values: Any) -> Any:
        return torch.empty(values.shape, dtype=torch.from_numpy(values).dtype, device="meta")


@contextmanager
def noted(sm: int) -> Iterator[list[Variant]]:
    """Kernels that are launched inside, as triton would compile them."""
    found: list[Variant] = []

    def note(
        kernel: Any, key: Any, signature: Any, device: Any, constants: Any, options: Any, attrs: Any, warmup: Any
    ) -> None:
        names = kernel.arg_names
        plain = {names[path[0]]: value for path, value in constants.items()}
        aligned = tuple(
            names[path[0]] for path, kinds in attrs.items() if any(kind == "tt.divisibility" for kind, _ in kinds)
        )
        types = {name: kind for name, kind in signature.items() if name not in plain}
        resources = {"warps": options.num_warps, "stages": options.num_stages, "registers": options.maxnreg}
        found.append(Variant(kernel.fn.__name__, "", kernel, types, plain, aligned, **resources))

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


def launched(sm: int) -> list[Variant]:
    """Each kernel that the calls launch, once, as a variant named after the first call."""
    device = NoMemory()
    shipped = {op: list(aot.variants([op], sm)) for op in aot.OPS}
    seen: dict[str, Variant] = {}
    for op, words, launcher, arguments in calls(device):
        with noted(sm) as found:
            launcher(*arguments, device=device)
        for variant in found:
            like = [other for others in shipped.values() for other in others if other.kernel is variant.kernel]
            notes = {name: text for other in like for name, text in other.notes.items()}
            batched = any(other.batched for other in like)
            name = f"{op} {words}: {variant.name}"
            if not like:  # no module names it, so it must be small, and its loads do not matter
                name, notes = f"{name}, small", {"loads": "a small kernel"}
            seen.setdefault(repr(variant), replace(variant, name=name, op=op, batched=batched, notes=notes))
    return list(seen.values())


def extra_bytes(sm: int, m: int, n: int, d: int, k: int) -> int:
    """The most memory that a search holds at once, results included."""
    from prismem_core.kernels.triton.top_k import top_k

    rows = NoMemory()
    left, right = rows.empty((m, d), "float16"), rows.empty((n, d), "float16")
    device = NoMemory()
    outputs = (device.empty((m, k), "float32"), device.empty((m, k), "int64"), device.empty((m,), "int64"))
    with noted(sm):
        top_k(left, right, None, None, None, k, False, None, *outputs, None, device=device)
    return device.most


def main() -> None:
    """Compile and print, or with --memory print what a million keys of 1024 dimensions take besides."""
    if sys.argv[1] == "--memory":
        for m, k in ((64, 10), (1024, 10), (1024, 100)):
            print(json.dumps({"m": m, "k": k, "share": extra_bytes(int(sys.argv[2]), m, 10**6, 1024, k) / (4e6 * m)}))
        return
    for word in sys.argv[1:]:
        for variant in launched(int(word)):
            print(json.dumps(asdict(aot.compile_variant(variant, int(word)))), flush=True)


if __name__ == "__main__":
    main()
