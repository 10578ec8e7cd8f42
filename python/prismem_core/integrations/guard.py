"""Keeps a process from the network: no system that is compared contacts anyone whom the user did not name.

Two layers: a network namespace without interfaces, where the kernel gives one (it holds for native code and child
processes, too), and an audit hook that refuses and notes what Python code tries, wherever it runs.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import socket
import sys
from pathlib import Path
from typing import Any

_USER, _NETWORK = 0x10000000, 0x40000000

_ASKING = {"socket.getaddrinfo", "socket.gethostbyname"}
_GOING = {"socket.connect", "socket.sendto", "socket.sendmsg"}

ENVIRONMENT = {
    "MEM0_TELEMETRY": "False",
    "ANONYMIZED_TELEMETRY": "False",
    "DO_NOT_TRACK": "1",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
"""Variables that keep known libraries from trying what would be refused."""


class Contacts:
    """What was tried and refused, in order, each once."""

    def __init__(self) -> None:
        self.tried: list[str] = []

    def guard(self) -> None:
        """Leave the network for good; to be called before anything else is imported or started."""
        # Elsewhere than on Linux, and where the kernel refuses, there is the hook alone.
        with contextlib.suppress(OSError, AttributeError):
            _leave_network()
        sys.addaudithook(self._refuse)

    def _refuse(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in _ASKING:
            self._note(f"{arguments[0]}")
        elif event in _GOING:
            its_socket, address = arguments[0], arguments[-1]
            if getattr(its_socket, "family", None) != getattr(socket, "AF_UNIX", None):
                self._note(f"{address}")

    def _note(self, whom: str) -> None:
        if whom not in self.tried:
            self.tried.append(whom)
        raise OSError(errno.ENETUNREACH, f"{os.strerror(errno.ENETUNREACH)} (a compared system has none): {whom}")


def _leave_network() -> None:
    """Into a network namespace of its own; the sandbox's module for namespaces would start the threads of numpy."""
    unshare = ctypes.CDLL(None, use_errno=True).unshare
    uid, gid = os.geteuid(), os.getegid()
    if uid == 0 and unshare(_NETWORK) == 0:
        return
    if unshare(_USER | _NETWORK) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        Path("/proc/self", name).write_text(text, encoding="ascii")
