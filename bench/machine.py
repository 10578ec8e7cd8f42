"""Where and with what a measurement was made."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

from prismem_core import __version__, ops


def describe() -> dict[str, Any]:
    """The machine: processor, usable cores, caches, memory, huge pages, instruction sets."""
    return {
        "processor": _processor(),
        "cores": usable_cores(),
        "caches": {name: size for name in ("L1d", "L2", "L3") if (size := cache_bytes(name))},
        "memory_bytes": _memory_bytes(),
        "huge_pages": _huge_pages(),
        "instruction_sets": list(ops.instruction_sets()),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def usable_cores() -> int:
    """Cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def load() -> float:
    """The system's load over the last minute, or -1 where it does not say."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else -1.0


def versions(libraries: set[str]) -> dict[str, str]:
    """Versions of the distributions that took part, by name; of those that are installed."""
    found = {"prismem-core": __version__}
    for name in sorted(libraries - {"prismem-core"}):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def cache_bytes(name: str) -> int:
    """The size of the first core's cache of this name (L1d, L2, L3), 0 where the system does not say."""
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind, size = (_text(index / part) for part in ("level", "type", "size"))
        if f"L{level}{'d' if level == '1' and kind == 'Data' else ''}" == name and size.rstrip("KM").isdigit():
            return int(size.rstrip("KM")) << (20 if size.endswith("M") else 10 if size.endswith("K") else 0)
    return 0


def _processor() -> str:
    for line in _text(Path("/proc/cpuinfo")).splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _memory_bytes() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return 0


def _huge_pages() -> str:
    text = _text(Path("/sys/kernel/mm/transparent_hugepage/enabled"))
    return text.partition("[")[2].partition("]")[0]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
