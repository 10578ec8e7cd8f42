"""The sandbox of a job: opened as its settings and its caller ask, refused with what to do, told to whoever watches."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any

from prismem_core.digests import digest_bytes
from prismem_core.errors import ProgramError, SandboxError, SettingsError
from prismem_core.pipeline.pipeline import Pipeline
from prismem_core.program.interface import Interface, ProgramInterface
from prismem_core.program.program import Program
from prismem_core.program.sandbox import BackendHandler, CollectionLimits, Limits, MemoryWorker, Sandbox
from prismem_core.program.sandbox.layers import Required
from prismem_core.program.validation import gate
from prismem_core.runs.isolation import FLAG, Isolation

OnIsolation = Callable[[Isolation], None]


def untold(isolation: Isolation) -> None:
    """Tell nobody."""


class CheckedSandbox(Sandbox):
    """A sandbox that may do without confinement, so that it runs no program which the static check refuses."""

    def __init__(self, interface: Interface) -> None:
        super().__init__(unsafe=True)
        self._interface: Interface = interface
        self._passed: set[str] = set()

    def open(
        self,
        source: str,
        backend: BackendHandler,
        limits: Limits | None = None,
        collections: CollectionLimits | None = None,
    ) -> MemoryWorker:
        """As `Sandbox.open`; ProgramError for a source that the static check refuses."""
        self.check(source)
        return super().open(source, backend, limits, collections)

    def describe(self, source: str) -> ProgramInterface:
        """As `Sandbox.describe`; ProgramError for a source that the static check refuses."""
        self.check(source)
        return super().describe(source)

    def check(self, source: str) -> None:
        """ProgramError for a source that the static check refuses."""
        digest = digest_bytes(source.encode("utf-8", "surrogatepass"))
        if digest in self._passed:
            return
        report = gate(source, self._interface)
        if report.outcome == "reject":
            raise ProgramError(report.code, report.message, report.line)
        self._passed.add(digest)


class CheckedPipeline(Pipeline):
    """A pipeline over such a sandbox: a revision may get into a worker of its parent, which `open` does not see."""

    def __init__(self, *arguments: Any, checked: CheckedSandbox) -> None:
        super().__init__(*arguments)
        self._checked = checked

    def interface(self, program: Program) -> ProgramInterface:
        """As `Pipeline.interface`, with which every run of a program begins; nothing stored spares the check."""
        self._checked.check(program.source)
        return super().interface(program)


class Confinement:
    """A started sandbox and what it is worth; a context manager that ends it."""

    def __init__(self, sandbox: Sandbox, isolation: Isolation) -> None:
        self.sandbox = sandbox
        self.isolation = isolation

    def __enter__(self) -> Confinement:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.sandbox.close()


def confine(
    require: Required = "standard",
    *,
    unsafe: bool = False,
    interface: Interface = "engine",
    on_isolation: OnIsolation = untold,
) -> Confinement:
    """Open a sandbox and tell what confines programs in it, before any of them runs.

    `unsafe` lets programs run where they cannot be confined, those of `interface` that pass the static check.
    SettingsError where it meets `require="strict"`, SandboxError where programs cannot be confined as asked.
    """
    if unsafe and require == "strict":
        raise SettingsError(
            f"{FLAG} and sandbox_require = 'strict' contradict each other; leave one out, or say --require standard"
        )
    if sys.platform != "linux":
        raise SandboxError(
            f"memory programs run on Linux only: their processes are made and confined by its means, so {FLAG} does "
            f"not help on {sys.platform}; use Linux, a container or WSL2 (docs/security.md)"
        )
    sandbox = CheckedSandbox(interface) if unsafe else Sandbox(require=require)
    try:
        found = isolation_of(sandbox, unsafe)
        on_isolation(found)
    except BaseException as error:
        sandbox.close()
        if isinstance(error, SandboxError) and require == "strict":
            raise _refusal_of_strict(error) from None
        raise
    return Confinement(sandbox, found)


def isolation_of(sandbox: Sandbox, unsafe: bool = False) -> Isolation:
    """The tier and the layers of a sandbox; starts it where it has not been."""
    layers = sandbox.layers()
    # A user of its own can be given to a worker by root alone.
    missing = [
        layer.name for layer in layers if layer.state != "witnessed" and (layer.name != "own_user" or os.geteuid() == 0)
    ]
    return Isolation(
        sandbox.tier,
        unsafe,
        {layer.name: {"state": layer.state, "witness": layer.witness} for layer in layers},
        tuple(missing),
    )


def _refusal_of_strict(error: SandboxError) -> SandboxError:
    """Strict may be refused where standard is not: then that is the way out, and not to go without a sandbox."""
    try:
        with Sandbox() as standard:
            found = isolation_of(standard)
    except SandboxError:
        return error
    if found.tier == "strict":
        return error
    why = "; ".join(f"{name}: {found.layers[name]['witness']}" for name in found.missing)
    return SandboxError(
        f"sandbox_require is 'strict', but here the tier is {found.tier} ({why}). Use a kernel and a container that "
        "allow Landlock and namespaces (docs/security.md), or say --require standard, which confines programs with "
        "what there is; a run keeps the weakest tier it had"
    )
