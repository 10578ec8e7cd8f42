"""Provisional."""

from __future__ import annotations

import os

from prismem_core.program.sandbox.kernel import landlock


def examine(without: frozenset[str], namespaces: tuple[str, str], root: tuple[str, str]) -> list[list[str]]:
    def on(name: str, ok: bool = True) -> list[str]:
        return [name, "off" if name in without else "witnessed" if ok else "missing", "provisional"]

    return [
        on("seccomp"),
        on("landlock", landlock.abi() > 0),
        ["namespaces", *namespaces],
        ["empty_root", *root],
        on("own_user", os.geteuid() == 0),
        on("limits"),
        ["copies", "off" if without & {"seccomp", "copies"} else "witnessed", ""],
    ]
