"""The process that an outside memory system runs in: `python -m prismem_core.integrations.host DESCRIPTOR FOLDER`.

It takes orders over a socket and does them one by one. What the system asks of a model goes back over the same socket,
to be answered by the engine, which has the keys, the cache and the network.
"""

from __future__ import annotations

import os
import select
import shutil
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from prismem_core.integrations.guard import Contacts

ONLINE = "online"
_TEXTS_AT_ONCE = 256


def main(descriptor: int, folder: str, online: bool) -> None:
    """Serve orders until the engine goes away; `folder` holds all files of this process."""
    # What a system starts must not keep the socket open.
    os.set_inheritable(descriptor, False)
    contacts = Contacts()
    if not online:
        contacts.guard()
    threading.Thread(target=_end_with_engine, args=(descriptor, folder), daemon=True).start()
    # Imported late: the guard must come before the threads of numpy.
    from prismem_core.integrations.channel import Channel

    channel = Channel.of_descriptor(descriptor)
    host = Host(channel)
    while (order := channel.receive()) is not None:
        try:
            reply = {"done": host.do(order)}
        except (SystemExit, Exception) as error:
            reply = {"failed": f"{type(error).__name__}: {error}"}
        channel.send({**reply, "contacts": contacts.tried})


def _end_with_engine(descriptor: int, folder: str) -> None:
    """End this process at once when the engine has gone, be it killed, whatever the system is busy with."""
    hung_up = select.poll()
    hung_up.register(descriptor, getattr(select, "POLLRDHUP", 0))
    hung_up.poll()
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)


class Host:
    """Holds the system's class and the memory of one history at a time."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel
        self._class: Any = None
        self._memory: Any = None

    def do(self, order: Mapping[str, Any]) -> Any:
        """The result of one order."""
        name = order["do"]
        if name == "load":
            return self._load(order["module"], order["name"])
        if name == "begin":
            self._memory = None
            self._memory = self._class(RemoteModels(self._channel, order["models"]), Path(order["folder"]))
            return None
        if name == "add":
            from prismem_core.tasks.history import Session, Turn

            turns = tuple(Turn(*turn) for turn in order["turns"])
            self._memory.add(Session(order["id"], order["timestamp"], turns))
            return None
        if name == "retrieve":
            found = self._memory.retrieve(order["question"])
            if not isinstance(found, str):
                raise TypeError(f"retrieve gave {type(found).__name__}, expected str")
            return found
        memory, self._memory = self._memory, None
        if memory is not None:
            memory.close()
        return None

    def _load(self, module: str, name: str) -> dict[str, str]:
        import importlib

        from prismem_core.digests import digest_bytes

        loaded = importlib.import_module(module)
        self._class = getattr(loaded, name)
        for method in ("add", "retrieve", "close"):
            if not callable(getattr(self._class, method, None)):
                raise TypeError(f"{module}:{name} has no method {method}")
        identity = getattr(self._class, "identity", None)
        if not isinstance(identity, str) or not identity:
            raise TypeError(f"{module}:{name} has no identity, a text that names it and its settings")
        source = Path(loaded.__file__ or "")
        return {"identity": identity, "code": digest_bytes(source.read_bytes()) if source.is_file() else ""}


class RemoteModels:
    """`memory_system.Models`, whose calls the engine answers."""

    def __init__(self, channel: Any, described: Mapping[str, Any]) -> None:
        self._channel = channel
        # A system may call from threads of its own.
        self._lock = threading.Lock()
        self.dimension = int(described["dimension"])
        self.chat_identity = str(described["chat"])
        self.embedder_identity = str(described["embedder"])

    def chat(self, prompt: str, system: str = "", schema: Mapping[str, Any] | None = None) -> str:
        wanted = None if schema is None else dict(schema)
        text: str = self._call({"chat": {"prompt": str(prompt), "system": str(system), "schema": wanted}})
        return text

    def embed(self, texts: Sequence[str]) -> Any:
        import numpy as np

        given = [str(text) for text in texts]
        rows = [
            row
            for start in range(0, len(given), _TEXTS_AT_ONCE)
            for row in self._call({"embed": given[start : start + _TEXTS_AT_ONCE]})
        ]
        return np.array(rows, np.float32).reshape(len(given), self.dimension)

    def _call(self, message: dict[str, Any]) -> Any:
        with self._lock:
            self._channel.send(message)
            answer = self._channel.receive()
        if answer is None:
            # The engine has gone, or does not want the result any more.
            os._exit(1)
        return answer["answer"]


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], ONLINE in sys.argv[3:])
