"""Which outside systems there are: those with an adapter here, by name, and the user's own as `python:MODULE:CLASS`."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from prismem_core.errors import SettingsError

_OWN = "python:"


@dataclass(frozen=True)
class SystemSpec:
    """A system by the name that the user gave: where its adapter's class is and what it needs.

    `package` is the distribution that must be installed and `extra` the one of this project that brings it;
    `first` is what must be installed by itself before it. `needs_chat` says that the embedded default, which follows no
    instructions, cannot be its model.
    """

    name: str
    module: str
    class_name: str
    package: str = ""
    extra: str = ""
    needs_chat: bool = False
    first: str = ""


SYSTEMS = {
    "mem0": SystemSpec("mem0", "prismem_core.integrations.mem0_system", "Mem0", "mem0ai", "mem0", True),
    "a-mem": SystemSpec(
        "a-mem", "prismem_core.integrations.a_mem_system", "AMem", "a-mem", "a-mem", True, "torch==2.13.0"
    ),
}
"""The systems that have an adapter here."""


def system_spec(name: str) -> SystemSpec | None:
    """The outside system of that name, None where it names none; hyphens may be underscores.

    SettingsError where it names one that is not installed, or `python:` without a module and a class.
    """
    if name.startswith(_OWN):
        module, _, class_name = name.removeprefix(_OWN).partition(":")
        if not all(part.isidentifier() for part in module.split(".")) or not class_name.isidentifier():
            raise SettingsError(
                f"{name!r} names no class; write python:MODULE:CLASS, such as python:my_memory:MyMemory"
            )
        return SystemSpec(name, module, class_name)
    spec = SYSTEMS.get(name.replace("_", "-"))
    if spec is not None and not installed_version(spec.package):
        first = f"pip install {spec.first}, then " if spec.first else ""
        raise SettingsError(
            f"{spec.name} is not installed here: {first}pip install 'prismem-core[{spec.extra}]' (docs/compare.md says "
            "what it brings)"
        )
    return spec


def installed_version(package: str) -> str:
    """The version of an installed distribution, "" where there is none."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
