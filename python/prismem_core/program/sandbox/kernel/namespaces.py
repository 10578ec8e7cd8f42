"""A third layer: namespaces of its own for the zygote and all it forks, and an empty file system in them.

Root has the right to make them; others get it through a user namespace, where the system allows those. See unshare(2).
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat

from prismem_core.program.sandbox.kernel import calls

_MOUNT, _CGROUP, _UTS, _IPC = 0x00020000, 0x02000000, 0x04000000, 0x08000000
_USER, _PID, _NETWORK = 0x10000000, 0x20000000, 0x40000000
_WORDS = {
    _NETWORK: "network",
    _PID: "process",
    _IPC: "IPC",
    _UTS: "host name",
    _MOUNT: "mount",
    _CGROUP: "cgroup",
    _USER: "user",
}
_NEEDED = _NETWORK | _PID | _IPC | _UTS | _MOUNT

_READ_ONLY, _NO_SUID, _NO_DEVICES, _NO_EXECUTION = 1, 2, 4, 8
_MOVE, _RECURSIVE, _PRIVATE = 1 << 13, 1 << 14, 1 << 18
_DETACH = 2

_HERE = b"."
_EMPTY = b"size=4k,mode=0555"


def enter() -> str:
    """Move this process into new namespaces; its next child is process 1 of the new process namespace.

    To be called while the process has one thread. Returns in words which there are. OSError if the system refuses; the
    process is then as it was, because every way is tried in a throw-away child first.
    """
    # Old kernels have no cgroup namespace; nothing rests on it.
    ways = [extra | _NEEDED for extra in (_CGROUP, 0)]
    if os.geteuid() == 0:
        ways += [way | _USER for way in ways]
    else:
        ways = [way | _USER for way in ways]
    refusals = []
    for flags in ways:
        refusal = _refusal(flags)
        if refusal is None:
            _unshare(flags)
            return ", ".join(word for flag, word in _WORDS.items() if flags & flag)
        refusals.append(refusal)
    raise refusals[0] if os.geteuid() else _both(refusals)


def _both(refusals: list[OSError]) -> OSError:
    plain, user = refusals[0], refusals[-1]
    return OSError(plain.errno, f"as root {plain.strerror}; in a user namespace {user.strerror}")


def _unshare(flags: int) -> None:
    uid, gid = os.geteuid(), os.getegid()
    calls.syscall("unshare", flags)
    if flags & _USER:
        # The kernel takes a map of groups from a process without rights only after setgroups is given up.
        _write_map("setgroups", "deny")
        _write_map("uid_map", f"{uid} {uid} 1")
        _write_map("gid_map", f"{gid} {gid} 1")


def _write_map(name: str, text: str) -> None:
    path = f"/proc/self/{name}"
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)
    except OSError as error:
        raise OSError(error.errno, f"writing {path}: {error.strerror}") from error


def _refusal(flags: int) -> OSError | None:
    """What a child met that tried this way, down to a process 1 of its own; None if it worked."""
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(readable)
        try:
            _unshare(flags)
            first = os.fork()
            if first == 0:
                os._exit(0)
            os.waitpid(first, 0)
        except OSError as error:
            os.write(writable, f"{error.errno or 0} {error.strerror or error}".encode())
        finally:
            os._exit(0)
    os.close(writable)
    told = bytearray()
    while part := os.read(readable, 4096):
        told += part
    os.close(readable)
    _, status = os.waitpid(child, 0)
    if told:
        number, _, text = told.decode("utf-8", "replace").partition(" ")
        return OSError(int(number), text)
    if os.WIFSIGNALED(status):
        return OSError(errno.EPERM, f"unshare: ended the process by signal {os.WTERMSIG(status)}")
    return None


def empty_root() -> str:
    """Replace the whole file system by an empty read-only one, in words; only in a mount namespace of its own.

    What is open stays open. OSError if the kernel refuses; then the old file system is still there.
    """
    place = _mount_point()
    _mount(b"none", b"/", None, _RECURSIVE | _PRIVATE)
    _mount(b"tmpfs", place, b"tmpfs", _READ_ONLY | _NO_SUID | _NO_DEVICES | _NO_EXECUTION, _EMPTY)
    try:
        os.chdir(place)
        try:
            # Both names are the new root: the old one then lies over it, where it can be taken away.
            calls.syscall("pivot_root", _address(_HERE), _address(_HERE))
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            # The first file system of a machine without disks cannot be pivoted away.
            _mount(_HERE, b"/", None, _MOVE)
            os.chroot(".")
        else:
            calls.syscall("umount2", _address(_HERE), _DETACH)
    except OSError:
        with contextlib.suppress(OSError):
            os.chdir("/")
            calls.syscall("umount2", _address(place), _DETACH)
        raise
    os.chdir("/")
    return "an empty read-only file system is the root"


def _mount_point() -> bytes:
    for name in (b"tmp", *sorted(os.listdir(b"/"))):
        with contextlib.suppress(OSError):
            if stat.S_ISDIR(os.lstat(b"/" + name).st_mode):
                return b"/" + name
    raise OSError(errno.ENOENT, "/ has no folder that an empty file system could be mounted on")


def _mount(source: bytes, target: bytes, kind: bytes | None, flags: int, options: bytes | None = None) -> None:
    try:
        calls.syscall("mount", *map(_address, (source, target, kind)), flags, _address(options))
    except OSError as error:
        raise OSError(error.errno, f"mount on {os.fsdecode(target)}: {os.strerror(error.errno or 0)}") from error


def _address(text: bytes | None) -> int:
    return 0 if text is None else calls.address(text)
