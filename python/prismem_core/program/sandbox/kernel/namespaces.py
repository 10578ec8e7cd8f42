"""A third layer: namespaces of its own for the zygote and all it forks, and an empty file system in them.

Root has the right to make them; others get it through a user namespace, where the system allows those. See unshare(2).
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
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

_CONNECT_SECONDS = 1.0

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
        try:
            seen = _rehearse(flags)
        except OSError as error:
            refusals.append(error)
            continue
        _unshare(flags)
        return ", ".join(word for flag, word in _WORDS.items() if flags & flag) + seen
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


def _rehearse(flags: int) -> str:
    """Try this way in a child, down to a process 1 of its own; in words what it saw. OSError with what it met."""
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(readable)
        try:
            seen = _try(flags)
            os.write(writable, f"0 {seen}".encode())
        except OSError as error:
            os.write(writable, f"{error.errno or errno.EPERM} {error.strerror or error}".encode())
        finally:
            os._exit(0)
    os.close(writable)
    told = bytearray()
    while part := os.read(readable, 4096):
        told += part
    os.close(readable)
    _, status = os.waitpid(child, 0)
    if not told:
        raise OSError(errno.EPERM, f"unshare: ended the process (wait status {status})")
    number, _, text = told.decode("utf-8", "replace").partition(" ")
    if int(number):
        raise OSError(int(number), text)
    return text


def _try(flags: int) -> str:
    with socket.socket() as listener:
        reachable = _listens(listener) and _reaches(listener)
        _unshare(flags)
        if reachable and _reaches(listener):
            raise OSError(errno.EPERM, "unshare: a port of the old network namespace can still be reached")
    first = os.fork()
    if first == 0:
        os._exit(0)
    os.waitpid(first, 0)
    return "; a port that could be reached before is out of reach" if reachable else ""


def _listens(listener: socket.socket) -> bool:
    """Whether there is a loopback to listen on; the socket stays in the network namespace in which it was made."""
    try:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
    except OSError:
        return False
    return True


def _reaches(listener: socket.socket) -> bool:
    try:
        with socket.socket() as caller:
            caller.settimeout(_CONNECT_SECONDS)
            caller.connect(listener.getsockname())
    except OSError:
        return False
    return True


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
