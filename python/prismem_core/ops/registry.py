"""What an op is, which implementations exist, and which one runs: by where the arrays live, unless one is forced."""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from prismem_core.arrays import Place, common_place
from prismem_core.errors import ArgumentError, NoImplementation, SettingsError
from prismem_core.ops import on_device

Call = TypeVar("Call")
Result = TypeVar("Result")
Outcome = tuple[str, int, int]
"""Returned by an implementation: the variant that ran and the first (query, key) without a finite score or (-1, -1)."""

IMPLEMENTATIONS: dict[tuple[str, str], str] = {
    ("similarity", "cpu"): "prismem_core._native:similarity",
    ("similarity", "triton"): "prismem_core.kernels.triton.similarity:similarity",
    ("similarity", "cuda"): "prismem_core.kernels.cuda:similarity",
    ("similarity", "reference"): "prismem_core.ops.similarity:reference",
    ("top_k", "cpu"): "prismem_core._native:top_k",
    ("top_k", "triton"): "prismem_core.kernels.triton.top_k:top_k",
    ("top_k", "cuda"): "prismem_core.kernels.cuda:top_k",
    ("top_k", "reference"): "prismem_core.ops.top_k:reference",
    ("mmr_select", "cpu"): "prismem_core._native:mmr_select",
    ("mmr_select", "triton"): "prismem_core.kernels.triton.mmr_select:mmr_select",
    ("mmr_select", "cuda"): "prismem_core.kernels.cuda:mmr_select",
    ("mmr_select", "reference"): "prismem_core.ops.mmr_select:reference",
    ("mmr_select_from", "cpu"): "prismem_core._native:mmr_select_from",
    ("mmr_select_from", "reference"): "prismem_core.ops.mmr_select_from:reference",
    ("segment_max_similarity", "cpu"): "prismem_core._native:segment_max_similarity",
    ("segment_max_similarity", "triton"): "prismem_core.kernels.triton.segment_max_similarity:segment_max_similarity",
    ("segment_max_similarity", "cuda"): "prismem_core.kernels.cuda:segment_max_similarity",
    ("segment_max_similarity", "reference"): "prismem_core.ops.segment_max_similarity:reference",
    ("segment_mean", "cpu"): "prismem_core._native:segment_mean",
    ("segment_mean", "triton"): "prismem_core.kernels.triton.segment_mean:segment_mean",
    ("segment_mean", "cuda"): "prismem_core.kernels.cuda:segment_mean",
    ("segment_mean", "reference"): "prismem_core.ops.segment_mean:reference",
    ("token_overlap", "cpu"): "prismem_core._native:token_overlap",
    ("token_overlap", "reference"): "prismem_core.ops.token_overlap:reference",
}
"""The one table of implementations: (op, backend) to "module:function"; text, so that nothing optional is imported."""


@dataclass(frozen=True)
class Example:
    """Arguments of one call, and a word for what is special about them."""

    label: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True)
class Op(Generic[Call, Result]):
    """All that is true of an operation, whichever code runs it.

    `check` turns the arguments of the public function into a checked call or raises ArgumentError; `reference` is the
    definition, in NumPy float64; `launch` allocates the outputs and lets an implementation fill them, as
    `launch_on_device` does for kernels of a device (None: there are none); `examples` are inputs that tests and
    benchmarks share; `agrees` compares a result with the definition so that near-ties may fall either way, and returns
    what is wrong or None; `tolerance` is the error allowed for rows of length 1, by the kind of the input.
    """

    name: str
    function: Callable[..., Result]
    check: Callable[..., Call]
    reference: Callable[[Call], Result]
    launch: Callable[[Call, Callable[..., Outcome]], Result]
    examples: Callable[[np.random.Generator], Iterator[Example]]
    agrees: Callable[[Result, Call], str | None]
    tolerance: Mapping[str, float]
    launch_on_device: Callable[[Call, on_device.Launcher], Result] | None = None


_ON_THE_CPU = Place("numpy", "cpu")


@dataclass(frozen=True)
class Choice:
    """The implementation that serves a call: `variant` is the instruction set on the CPU, `reason` why it was taken."""

    op: str
    backend: str
    target: str
    variant: str
    reason: str
    place: Place = _ON_THE_CPU


@dataclass(frozen=True)
class _Forced:
    backend: str | None = None
    threads: int | None = None


_NOTHING = _Forced()
_forced: ContextVar[_Forced] = ContextVar("prismem_forced_backend", default=_NOTHING)


@contextmanager
def use(backend: str | None = None, *, threads: int | None = None) -> Iterator[None]:
    """Force a backend ("reference", "cpu", "cpu/avx2", "triton", "cuda") or a number of threads inside the block.

    It holds for the current thread or task alone and wins over PRISMEM_BACKEND, PRISMEM_ISA and PRISMEM_THREADS.
    """
    before = _forced.get()
    if backend is not None:
        _split(backend, "ops.use")
    if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int) or threads < 1):
        raise ArgumentError(f"threads: expected a whole number of at least 1, got {threads!r}")
    token = _forced.set(
        _Forced(before.backend if backend is None else backend, before.threads if threads is None else threads)
    )
    try:
        yield
    finally:
        _forced.reset(token)


def backends() -> tuple[str, ...]:
    """Names of the backends in the table, in its order."""
    return tuple(dict.fromkeys(backend for _, backend in IMPLEMENTATIONS))


def instruction_sets() -> tuple[str, ...]:
    """Instruction sets that this build has and this CPU runs, worst first."""
    return tuple(native().isas())


def thread_count() -> int:
    """The most threads a call may use: `ops.use(threads=...)`, PRISMEM_THREADS, or 0 for all usable cores."""
    forced = _forced.get().threads
    if forced is not None:
        return forced
    text = _environment()[2]
    if not text:
        return 0
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise SettingsError(
            f"PRISMEM_THREADS: expected a whole number of at least 1, got {text!r}; unset it for all cores"
        )
    return min(int(text), 1 << 16)


def choose(op: str, place: Place) -> Choice:
    """The implementation of `op` for arrays at `place`; NoImplementation, naming what exists, where there is none."""
    backend, isa, _ = _environment()
    forced = _forced.get().backend
    if place.device == "cuda" or (forced or backend) in on_device.BACKENDS:
        return _choice_on_device(op, place, forced, backend)
    return _choice(op, place.library, place.device, place.index, forced, backend, isa)


def _choice_on_device(op: str, place: Place, forced: str | None, environment_backend: str) -> Choice:
    """The choice where arrays are on a device, or where one of its backends is asked for."""
    _check_op(op)
    spec, origin = (forced, "ops.use") if forced is not None else (environment_backend, "PRISMEM_BACKEND")
    if spec in ("", "auto"):
        wanted, reason = on_device.preferred(op), f"it was given {place}"
    else:
        wanted, reason = (_split(spec, origin)[0],), f"{origin} asks for {spec!r}"
    refused = []
    for backend in wanted:
        target = IMPLEMENTATIONS.get((op, backend))
        if target is None or backend not in on_device.BACKENDS:
            refused.append(f"{backend} has none" if target is None else f"{backend} reads arrays on the CPU")
        elif (why := on_device.why_not(backend, place)) is not None:
            refused.append(f"{backend}: {why}")
        else:
            return Choice(op, backend, target, "", reason if not refused else f"{reason} ({'; '.join(refused)})", place)
    raise NoImplementation(
        f"{op}: no implementation for {place}{'' if spec in ('', 'auto') else f' on {spec!r}'} ({'; '.join(refused)}); "
        f"there is {_existing(op)}: install what is missing or move the arrays"
    )


def _existing(op: str) -> str:
    return ", ".join(name for listed, name in IMPLEMENTATIONS if listed == op)


def _check_op(op: str) -> None:
    if not any(name == op for name, _ in IMPLEMENTATIONS):
        raise ArgumentError(f"op: expected one of {', '.join(_ops())}, got {op!r}")


@functools.lru_cache(maxsize=256)
def _choice(
    op: str, library: str, device: str, index: int, forced: str | None, environment_backend: str, environment_isa: str
) -> Choice:
    """The choice for these circumstances, which is the same in each call."""
    place = Place(library, device, index)
    _check_op(op)
    spec, origin = forced, "ops.use"
    if spec is None:
        spec, origin = environment_backend, "PRISMEM_BACKEND"
    if spec in ("", "auto"):
        backend, variant, reason = place.device, "", f"it was given {place}"
    else:
        backend, variant = _split(spec, origin)
        reason = f"{origin} asks for {spec!r}"
    target = IMPLEMENTATIONS.get((op, backend))
    if target is None or place.device != "cpu":
        raise NoImplementation(
            f"{op}: no implementation for {place}{'' if spec in ('', 'auto') else f' on {spec!r}'}; "
            f"there is {_existing(op)}, for arrays on the CPU or a CUDA device: move the arrays there"
        )
    if backend == "cpu":
        variant = _instruction_set(variant, environment_isa)
    return Choice(op, backend, target, variant, reason)


def explain(op: str, *arrays: Any) -> str:
    """One sentence on which implementation of `op` runs for these arrays, and why."""
    choice = choose(op, common_place(**{f"array {position}": array for position, array in enumerate(arrays)}))
    how = ""
    if choice.backend == "cpu":
        threads = thread_count()
        how = f" with {choice.variant} instructions on {f'up to {threads} threads' if threads else 'all usable cores'}"
    return f"{op} runs on {choice.backend!r} ({choice.target}){how}, because {choice.reason}."


def run(op: Op[Call, Result], choice: Choice, call: Call) -> Result:
    """Run a checked call on the implementation that was chosen."""
    if choice.backend == "reference":
        return op.reference(call)
    module, _, name = choice.target.partition(":")
    if choice.backend == "cpu":
        implementation = getattr(native(), name)
        return op.launch(call, functools.partial(implementation, isa=choice.variant, threads=thread_count()))
    if op.launch_on_device is None:
        raise NoImplementation(f"{op.name}: the backend {choice.backend!r} has no launch; this is a fault of the table")
    function = getattr(importlib.import_module(module), name)
    return op.launch_on_device(call, on_device.Launcher(choice.backend, choice.place, function))


def _ops() -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for name, _ in IMPLEMENTATIONS))


def _split(spec: str, origin: str) -> tuple[str, str]:
    backend, _, variant = spec.partition("/")
    if backend not in backends() or (variant and backend != "cpu"):
        raise SettingsError(f"{origin}: expected one of {', '.join(backends())} or cpu/<instruction set>, got {spec!r}")
    return backend, variant


def _instruction_set(wanted: str, environment_isa: str) -> str:
    """The set named, else PRISMEM_ISA, else the best; SettingsError where it cannot run here."""
    origin = "ops.use or PRISMEM_BACKEND" if wanted else "PRISMEM_ISA"
    name = wanted or environment_isa
    sets = instruction_sets()
    if not name:
        return sets[-1]
    if name not in sets:
        raise SettingsError(
            f"{origin}: the instruction set {name!r} is not available; this build on this CPU has {', '.join(sets)}"
        )
    return name


def _environment() -> tuple[str, str, str]:
    """PRISMEM_BACKEND, PRISMEM_ISA and PRISMEM_THREADS as they are now, "" where unset."""
    try:
        # Not os.environ, which would take a third of the time of a small call.
        settings: tuple[str, str, str] = native().settings()
        return settings
    except NoImplementation:
        backend, isa, threads = (os.environ.get(f"PRISMEM_{name}", "") for name in ("BACKEND", "ISA", "THREADS"))
        return backend, isa, threads


@functools.cache
def native() -> Any:
    """The C++ extension; NoImplementation, with the reason, where it cannot be loaded."""
    try:
        return importlib.import_module("prismem_core._native")
    except ImportError as error:
        raise NoImplementation(
            f"the C++ core could not be loaded ({error}); install the package again with pip, "
            "or set PRISMEM_BACKEND=reference for the slow NumPy definitions"
        ) from error
