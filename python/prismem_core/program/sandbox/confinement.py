"""What a fresh worker gives up before it sees a program, in the order in which the kernel lets it.

Linux only; imports the standard library and `kernel/` only.
"""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import dataclass

from prismem_core.program.sandbox.kernel import calls, credentials, landlock, resource_limits, seccomp


@dataclass(frozen=True)
class Plan:
    """Which layers a worker puts on: those that were witnessed when the zygote started.

    `filter` is the seccomp program, None without that layer; `fork` how it treats a fork.
    """

    own_user: bool
    landlock: bool
    filter: bytes | None
    fork: seccomp.Fork


def adopt_orphans() -> None:
    """Make this process the parent of every orphaned descendant, so that none escapes its clean-up."""
    calls.prctl(calls.PR_SET_CHILD_SUBREAPER, 1)


def prefer_in_shortage() -> None:
    """Let the kernel end this process and its children before others when memory runs out."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("1000")


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when `parent`, whose single thread forked it, ends; also if it just did."""
    calls.prctl(calls.PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


def enter(plan: Plan, parent: int, serial: int, memory_bytes: int) -> int | None:
    """Confine this just forked process; `serial` chooses its user where the engine runs as root.

    Returns the listener on which the engine answers forks, None unless `plan.fork` is "notify". OSError if a layer of
    the plan cannot be put on.
    """
    os.setsid()
    users = credentials.SPARE_USERS
    own_user = plan.own_user and credentials.become(users[serial % len(users)])
    resource_limits.impose(
        memory_bytes, own_user=own_user, filtered=plan.filter is not None, descriptors=plan.fork != "notify"
    )
    credentials.drop_capabilities()
    calls.prctl(calls.PR_SET_NO_NEW_PRIVS, 1)
    calls.prctl(calls.PR_SET_DUMPABLE, 0)
    # After the change of user: the kernel forgets the parent-death signal there.
    die_with_parent(parent)
    if plan.landlock:
        landlock.deny_all()
    if plan.filter is None:
        return None
    return seccomp.install(plan.filter, listener=plan.fork == "notify")
