"""Every op on a device against its float64 definition, for arrays of every library."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismem_core import ops
from prismem_core.ops import inputs
from prismem_core.ops.registry import IMPLEMENTATIONS, Example

from .stage import Stage, to_host

OPS = ("similarity", "top_k", "segment_max_similarity", "segment_mean", "mmr_select")
ARRAYS = ("x", "y", "queries", "keys", "evidence", "items", "values", "mask")
"""Names of arguments that live on the device; offsets and segments stay on the host."""


@dataclass(frozen=True)
class Case:
    """One call of one op on one backend, with arrays of one library."""

    op: str
    backend: str
    lender: str
    example: Example

    @property
    def name(self) -> str:
        """The case in words."""
        return f"{self.op}, {self.backend}, {self.lender}: {self.example.label}"


def cases(stage: Stage) -> list[Case]:
    """All cases that this machine can run: with torch every example, with other libraries the first and the large."""
    found = []
    for op in OPS:
        chosen = list(examples(op, stage.dry))
        for backend in stage.backends:
            if (op, backend) not in IMPLEMENTATIONS:
                continue
            for position, lender in enumerate(stage.lenders(backend)):
                few = chosen if position == 0 else [chosen[0], *(e for e in chosen if e.label.startswith("device"))]
                # The CUDA array interface has no word for bfloat16.
                found += [
                    Case(op, backend, lender, example)
                    for example in few
                    if lender != "interface" or "dtype" not in example.arguments
                ]
    return found


def examples(op: str, small: bool) -> Iterator[Example]:
    """The examples of an op, then some as large as a device wants them, in every kind of rows."""
    every = list(ops.OPS[op].examples(np.random.default_rng(7)))
    if not small:
        yield from every
    else:
        yield every[3]
    yield from device_examples(op, small)


def device_examples(op: str, small: bool) -> Iterator[Example]:
    """Calls that fill tiles: batches, aligned and not, in every kind; one hit a key more than tiles, many hits."""
    rng = np.random.default_rng(11)
    if op == "segment_mean":
        values = rng.standard_normal(5_000 if small else 1_000_003).astype(np.float32)
        cuts = np.sort(rng.integers(0, len(values), 40))
        yield Example("device float32", {"values": values, "offsets": cuts})
        return
    kinds = ("float32", "float16") if small else ("float32", "float16", "bfloat16")
    shapes = ((17, 300, 64),) if small else ((1, 4099, 256), (130, 5000, 128), (64, 3001, 100))
    for kind in kinds:
        for m, n, d in shapes:
            label = f"device {kind} {m}x{n}x{d}"
            left, right = inputs.unit_rows(rng, m, d), inputs.unit_rows(rng, n, d)
            yield Example(label, _arguments(op, rng, _as_kind(left, kind), _as_kind(right, kind), kind, small))


def _arguments(
    op: str, rng: np.random.Generator, left: NDArray[Any], right: NDArray[Any], kind: str, small: bool
) -> dict[str, Any]:
    more: dict[str, Any] = {"dtype": "bfloat16"} if kind == "bfloat16" else {}
    m, n = len(left), len(right)
    if op == "similarity":
        return {"x": left, "y": right, **more}
    if op == "top_k":
        k = 300 if not small and m == 64 else 32
        return {"queries": left, "keys": right, "k": k, "mask": rng.random(n) < 0.7, "normalize": m == 1, **more}
    bounds = np.sort(rng.integers(0, n, 4))
    groups = ops.Segments([0, *bounds.tolist(), n], rng.integers(0, 5, m))
    if op == "segment_max_similarity":
        return {"evidence": left, "items": right, "segments": groups, **more}
    pool = min(n, 60 if small else 400)
    weights = {"k": 4 if small else 25, "relevance_weight": 0.7}
    return {"queries": left[:9], "keys": right[:pool], **weights, "normalize": m != 1, **more}


def _as_kind(values: NDArray[np.float32], kind: str) -> NDArray[Any]:
    return inputs.bfloat16_bits(values) if kind == "bfloat16" else values.astype(kind)


def check(stage: Stage, case: Case) -> Mapping[str, Any]:
    """Run a case; the complaint is None where the result agrees with the definition."""
    op = ops.OPS[case.op]
    arguments = dict(case.example.arguments)
    kind = arguments.get("dtype")
    lend = stage.lenders(case.backend)[case.lender]
    moved = dict(arguments)
    for name in ARRAYS:
        if isinstance(arguments.get(name), np.ndarray):
            bits = kind if arguments[name].dtype == np.uint16 else None
            moved[name] = lend(stage.place(arguments[name], bits))
    with ops.use(case.backend), stage.poisoned(8):
        result = op.function(**moved)
    stage.sync()
    return {"complaint": op.agrees(on_host(result), op.check(**arguments))}


def on_host(result: Any) -> Any:
    """The result as arrays of numpy, without columns that no row uses; NaN where nobody wrote."""
    if not isinstance(result, tuple):
        return to_host(result)
    parts = {name: to_host(part) for name, part in zip(type(result)._fields, result, strict=True)}  # type: ignore[attr-defined]
    if "counts" in parts and len(parts["counts"]):
        used = int(parts["counts"].max())
        unused = {"scores": -np.inf, "indices": -1}
        for name, empty in unused.items():
            if not (parts[name][:, used:] == empty).all():
                raise ValueError(f"{name}: columns past the largest count hold something")
            parts[name] = parts[name][:, :used]
    return type(result)(**parts)
