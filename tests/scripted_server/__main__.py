"""The server's process: tells its port on standard output and ends when its standard input is closed."""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
import sys
import threading
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from tests.scripted_server.application import Application
from tests.scripted_server.record import Record

TRANSPORTS: dict[tuple[str, int], asyncio.Transport] = {}


class Connection(H11Protocol):
    """A connection that the application can find by the address of its client."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._address = tuple(transport.get_extra_info("peername")[:2])
        TRANSPORTS[self._address] = transport

    def connection_lost(self, exc: Exception | None) -> None:
        TRANSPORTS.pop(self._address, None)
        super().connection_lost(exc)


async def serve(port: int, log: Path | None) -> None:
    """Serve until the process is ended."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    config = uvicorn.Config(
        Application(Record(log), TRANSPORTS),
        http=Connection,
        lifespan="off",
        ws="none",
        log_level="critical",
        access_log=False,
        backlog=4096,
        timeout_keep_alive=60,
    )
    listener.listen(4096)
    print(listener.getsockname()[1], flush=True)
    await uvicorn.Server(config).serve(sockets=[listener])


def main() -> None:
    """Run the server."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--log", type=Path, default=None)
    given = parser.parse_args()

    def watch() -> None:
        sys.stdin.buffer.read()
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()
    asyncio.run(serve(given.port, given.log))


main()
