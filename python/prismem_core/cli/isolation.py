"""What a command says of the sandbox before it runs a program, always on stderr, which no result shares."""

from __future__ import annotations

import sys

from prismem_core.runs.isolation import FLAG, Isolation

_RULE = "!" * 78


def tell_isolation(isolation: Isolation) -> None:
    """A banner where the sandbox may be missing, one line where layers are, nothing where all are there."""
    missing = ", ".join(isolation.missing)
    if isolation.marked:
        reached = (
            "Programs run WITHOUT KERNEL CONFINEMENT: they can read your files and keys, use the\nnetwork and start"
            f" processes as you can. Only the static check looks at them.\nLayers missing: {missing}."
            if isolation.tier == "weak"
            else f"Here it was not needed: programs are confined (tier {isolation.tier})."
        )
        print(
            f"{_RULE}\nUNSAFE: {FLAG} was given.\n{reached}\nEvery result says so (docs/security.md).\n{_RULE}",
            file=sys.stderr,
        )
    if isolation.missing and isolation.tier != "weak":
        print(
            f"prismem: isolation: {isolation.tier}; layers missing: {missing} (`prismem doctor` says why)",
            file=sys.stderr,
        )
