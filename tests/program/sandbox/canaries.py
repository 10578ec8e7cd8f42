"""Things an attack may reach for, as attacks/README.md lists them, and the traces it would leave."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType

SECRET = "CANARY-in-the-environment"
"""For a variable of the engine's environment as it starts: what is added later is not where others could read it."""


class Canaries:
    """A file, a folder, listeners on TCP, UDP and an abstract UNIX socket, a signal handler.

    Belongs to the main thread: it sets a handler for SIGUSR1.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._arrived: list[str] = []
        self._tcp = socket.create_server(("127.0.0.1", 0))
        self._port = self._tcp.getsockname()[1]
        self._udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._udp.bind(("127.0.0.1", self._port))
        self._unix_name = f"prismem-canary-{os.getpid()}"
        self._unix = socket.socket(socket.AF_UNIX)
        self._unix.bind("\0" + self._unix_name)
        self._unix.listen()
        self._own: dict[object, threading.Event] = {}
        self._closing = False
        self._threads = [
            threading.Thread(target=self._serve, args=(take, what), daemon=True)
            for take, what in (
                (lambda: _accepted(self._tcp), "a connection over TCP"),
                (lambda: self._udp.recvfrom(1 << 16)[1], "a datagram"),
                (lambda: _accepted(self._unix), "a connection over a UNIX socket"),
            )
        ]

    def __enter__(self) -> Canaries:
        self._before = signal.signal(signal.SIGUSR1, lambda *_: self._arrived.append("a signal"))
        self._folder.chmod(0o777)
        self.restore()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._closing = True
        signal.signal(signal.SIGUSR1, self._before)
        for listener in (self._tcp, self._udp, self._unix):
            # Closing alone wakes no thread that waits on a socket.
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        for thread in self._threads:
            thread.join(5)

    @property
    def _file(self) -> Path:
        return self._folder / "canary.txt"

    def raw_text(self) -> str:
        lines = {
            "canary_file": self._file,
            "canary_dir": self._folder,
            "canary_port": self._port,
            "canary_unix": self._unix_name,
            "engine_pid": os.getpid(),
        }
        return "\n".join(f"{name}={value}" for name, value in lines.items())

    def traces(self) -> Iterator[str]:
        """What arrived or changed since the last `restore`."""
        self._await_listeners()
        yield from self._arrived
        for path in self._folder.iterdir():
            if path != self._file:
                yield f"the file {path.name}"
        try:
            state = self._file.stat()
        except FileNotFoundError:
            yield "the canary file is gone"
            return
        if state.st_mode & 0o777 != 0o666:
            yield "the mode of the canary file"
        if int(state.st_mtime) != 0 or self._file.read_text() != "CANARY-in-a-file\n":
            yield "the content or times of the canary file"
        if state.st_nlink != 1:
            yield "a further link to the canary file"

    def restore(self) -> None:
        """All as at the start."""
        self._arrived.clear()
        for path in self._folder.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        self._file.write_text("CANARY-in-a-file\n")
        self._file.chmod(0o666)
        os.utime(self._file, (0, 0))

    def _await_listeners(self) -> None:
        """Return once every listener has taken what came before now: it takes one connection after another."""
        with (
            socket.socket() as tcp,
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
            socket.socket(socket.AF_UNIX) as unix,
        ):
            tcp.bind(("127.0.0.1", 0))
            udp.bind(("127.0.0.1", 0))
            unix.bind(f"\0{self._unix_name}-own")
            taken = [threading.Event() for _ in range(3)]
            self._own = dict(zip((tcp.getsockname(), udp.getsockname(), unix.getsockname()), taken, strict=True))
            tcp.connect(("127.0.0.1", self._port))
            unix.connect("\0" + self._unix_name)
            deadline = time.monotonic() + 30
            while not all(event.is_set() for event in taken):
                if time.monotonic() > deadline:
                    raise AssertionError("a canary's listener does not answer any more")
                # A full buffer drops datagrams.
                udp.sendto(b"", ("127.0.0.1", self._port))
                for event in taken:
                    event.wait(0.2)

    def _serve(self, take: Callable[[], object], what: str) -> None:
        while True:
            try:
                sender = take()
            except OSError:
                # A connection that its maker aborted is no end of listening.
                if self._closing:
                    return
                continue
            own = self._own.get(sender)
            if own is not None:
                own.set()
            else:
                self._arrived.append(what)


def _accepted(listener: socket.socket) -> object:
    connection, sender = listener.accept()
    connection.close()
    return sender
