"""The kernels that an index on a device runs: those that `ops` would choose for tensors there."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from prismem_core.arrays.places import Place
from prismem_core.errors import NoImplementation
from prismem_core.ops.on_device import BACKENDS
from prismem_core.ops.registry import Choice, choose


@dataclass(frozen=True)
class Launchers:
    """Launchers of `prismem_core.kernels`, see there for their arguments; scales fit those of one `backend` alone.

    `row_scales(rows, device=...)` returns powers and inverse lengths (n,) float32.
    """

    top_k: Callable[..., None]
    mmr_select: Callable[..., None]
    row_scales: Callable[..., tuple[Any, Any]]
    backend: str
    codes: Any = None  # what `prismem_core.kernels.triton.codes` defines


def chosen(place: Place) -> Launchers:
    """Those of now, as `ops.use` and PRISMEM_BACKEND ask; NoImplementation where the device has none."""
    search, picks = choose("top_k", place), choose("mmr_select", place)
    for choice in (search, picks):
        if choice.backend not in BACKENDS:
            raise NoImplementation(
                f"VectorIndex: its rows lie on a device, which the backend {choice.backend!r} cannot search "
                f"({choice.reason}); use the kernels of Triton or CUDA"
            )
    if search.backend == "triton":
        codes = importlib.import_module("prismem_core.kernels.triton.codes")
        return Launchers(_function(search), _function(picks), _triton_scales, search.backend, codes)
    return Launchers(_function(search), _function(picks), _cuda_scales, search.backend)


def _function(choice: Choice) -> Callable[..., None]:
    module, _, name = choice.target.partition(":")
    function: Callable[..., None] = getattr(importlib.import_module(module), name)
    return function


def _triton_scales(rows: Any, *, device: Any) -> tuple[Any, Any]:
    module = importlib.import_module("prismem_core.kernels.triton.row_scales")
    powers, inverse = module.row_scales(rows, device=device)
    return powers, inverse


def _cuda_scales(rows: Any, *, device: Any) -> tuple[Any, Any]:
    powers, inverse = (device.empty((int(rows.shape[0]),), "float32") for _ in range(2))
    importlib.import_module("prismem_core.kernels.cuda").row_scales(rows, powers, inverse, device=device)
    return powers, inverse
