"""Recordings of model calls: a run that was paid for once can be replayed without its models.

A recording is JSON Lines: a head with the settings of the models, then one line a reply or a batch of embeddings, in
the order in which they came. It holds prompts and replies in full, and no key.
"""

from __future__ import annotations

import base64
import json
import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismem_core.errors import RoleError, SettingsError
from prismem_core.roles.account import Account
from prismem_core.roles.meter import Meter
from prismem_core.roles.protocols import Chat, ChatReply, ChatRequest, CompletesEach, Embedder, embed_counted

FORMAT = "prismem-recording"
VERSION = 1
_SCRUBBED = "[scrubbed]"
_SHORTEST_SECRET = 8


class Recorder:
    """Appends calls to a file, one write(2) each; goes on with a recording of the same models.

    `models` are the settings of the roles' models. What stands in `secrets` is blotted out wherever it occurs.
    SettingsError for a file that is something else or cannot be written.
    """

    def __init__(self, path: Path, models: Mapping[str, Any], secrets: Iterable[str] = ()) -> None:
        self._path = path
        self._secrets = [secret for secret in secrets if len(secret) >= _SHORTEST_SECRET]
        self._lock = threading.Lock()
        head = {"format": FORMAT, "version": VERSION, "models": dict(models)}
        try:
            whole = _whole_lines(path)
            self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        except OSError as error:
            raise SettingsError(
                f"cannot write the recording {path}: {error.strerror}; name a file you may write"
            ) from error
        try:
            if whole:
                _check_head(path, whole[0], head)
            elif path.stat().st_size and not _dump(head).startswith(path.read_bytes()):
                _check_head(path, b"", head)
            if whole:
                os.ftruncate(self._descriptor, sum(len(line) + 1 for line in whole))
            else:
                os.ftruncate(self._descriptor, 0)
                self._write(head)
        except BaseException:
            os.close(self._descriptor)
            raise

    def reply(self, role: str, request: ChatRequest, reply: ChatReply) -> None:
        """Record a chat call."""
        self._write(
            {
                "role": role,
                "request": request.digest,
                "purpose": request.purpose,
                "system": request.system,
                "prompt": request.prompt,
                "sample": request.sample,
                "text": reply.text,
                "input_tokens": reply.input_tokens,
                "output_tokens": reply.output_tokens,
                "finish_reason": reply.finish_reason,
            }
        )

    def embedding(self, role: str, text: str, row: NDArray[np.float32], tokens: int) -> None:
        """Record the row of a text."""
        data = base64.b64encode(np.ascontiguousarray(row, "<f4").tobytes()).decode()
        self._write({"role": role, "embedded": text, "tokens": tokens, "row": data})

    def _write(self, line: Mapping[str, Any]) -> None:
        data = _dump(line, self._secrets)
        with self._lock:
            before = os.fstat(self._descriptor).st_size
            try:
                if os.write(self._descriptor, data) != len(data):
                    raise OSError("the disk is full")
            except OSError as error:
                os.ftruncate(self._descriptor, before)
                raise SettingsError(f"cannot write the recording {self._path}: {error}; free some space") from error

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1


def _dump(line: Mapping[str, Any], secrets: Sequence[str] = ()) -> bytes:
    text = json.dumps(line, ensure_ascii=False, sort_keys=True)
    for secret in secrets:
        text = text.replace(json.dumps(secret, ensure_ascii=False)[1:-1], _SCRUBBED)
    return (text + "\n").encode("utf-8", "surrogatepass")


def _whole_lines(path: Path) -> list[bytes]:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    return data[: data.rfind(b"\n") + 1].split(b"\n")[:-1]


def _check_head(path: Path, line: bytes, expected: Mapping[str, Any] | None) -> Mapping[str, Any]:
    try:
        head = json.loads(line)
    except (ValueError, RecursionError):
        head = None
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        raise SettingsError(f"{path} is no recording of model calls; name a file that --record made, or a new one")
    if head.get("version") != VERSION:
        raise SettingsError(f"{path} has recording format {head.get('version')!r}; this version knows {VERSION}")
    if expected is not None and head.get("models") != expected["models"]:
        raise SettingsError(f"{path} is a recording of other models or settings; record into a new file")
    return head


class _Recorded:
    """What the recorded and the plain client have in common for those who use it."""

    def __init__(self, client: Any, recorder: Recorder, role: str) -> None:
        self.identity: str = client.identity
        self._client = client
        self._recorder = recorder
        self._role = role
        for name in ("batch", "chunk", "concurrent"):
            if hasattr(client, name):
                setattr(self, name, getattr(client, name))

    def __getattr__(self, name: str) -> Any:
        if name in ("account", "meter", "stop"):
            return getattr(self._client, name)
        raise AttributeError(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "account":
            self._client.account = value
        else:
            super().__setattr__(name, value)

    def close(self) -> None:
        """Close the client."""
        if hasattr(self._client, "close"):
            self._client.close()


class RecordingChat(_Recorded):
    """A chat whose replies are recorded as they come."""

    def __init__(self, chat: Chat, recorder: Recorder, role: str) -> None:
        super().__init__(chat, recorder, role)

    def complete(self, requests: Sequence[ChatRequest]) -> list[ChatReply]:
        """As the chat's."""
        replies: dict[int, ChatReply] = dict(self.complete_each(requests))
        return [replies[position] for position in range(len(requests))]

    def complete_each(self, requests: Sequence[ChatRequest]) -> Iterator[tuple[int, ChatReply]]:
        """As the chat's; all at once where it has none."""
        chat = self._client
        each = chat.complete_each(requests) if isinstance(chat, CompletesEach) else enumerate(chat.complete(requests))
        for position, reply in each:
            self._recorder.reply(self._role, requests[position], reply)
            yield position, reply


class RecordingEmbedder(_Recorded):
    """An embedder whose rows are recorded."""

    def __init__(self, embedder: Embedder, recorder: Recorder, role: str) -> None:
        super().__init__(embedder, recorder, role)

    @property
    def dimension(self) -> int:
        """As the embedder's."""
        return int(self._client.dimension)

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """As the embedder's."""
        return self.embed_counted(texts)[0]

    def embed_counted(self, texts: Sequence[str]) -> tuple[NDArray[np.float32], Sequence[int]]:
        """As the embedder's; a quarter of the characters where it counts no tokens."""
        rows, tokens = embed_counted(self._client, texts)
        for text, row, count in zip(texts, rows, tokens, strict=True):
            self._recorder.embedding(self._role, text, row, count)
        return rows, tokens


class Recording:
    """A recording that was read: replies by request and rows by text, for each role.

    SettingsError for a file that is missing or is none.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            lines = _whole_lines(path)
        except OSError as error:
            raise SettingsError(f"cannot read the recording {path}: {error.strerror}") from error
        if not lines:
            raise SettingsError(f"no recording of model calls at {path}; make one with --record")
        self.models: Mapping[str, Any] = _check_head(path, lines[0], None)["models"]
        self.replies: dict[tuple[str, str], list[ChatReply]] = {}
        self.rows: dict[tuple[str, str], tuple[NDArray[np.float32], int]] = {}
        for number, line in enumerate(lines[1:], 2):
            try:
                self._read(json.loads(line))
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                raise SettingsError(f"{path}, line {number}, is damaged ({error}); record the run again") from None

    def _read(self, line: Mapping[str, Any]) -> None:
        role = str(line["role"])
        if "embedded" in line:
            row = np.frombuffer(base64.b64decode(line["row"]), "<f4").astype(np.float32)
            self.rows[role, str(line["embedded"])] = (row, int(line["tokens"]))
            return
        reply = ChatReply(
            str(line["text"]), int(line["input_tokens"]), int(line["output_tokens"]), str(line["finish_reason"])
        )
        self.replies.setdefault((role, str(line["request"])), []).append(reply)


class ReplayedChat:
    """A chat that answers from a recording alone: the nth asking of a request has its nth reply, then the last one."""

    def __init__(self, recording: Recording, role: str, identity: str) -> None:
        self.identity = identity
        self.account = Account(role)
        self.meter = Meter(1)
        self._recording = recording
        self._role = role
        self._asked: dict[str, int] = {}
        self._lock = threading.Lock()

    def complete(self, requests: Sequence[ChatRequest]) -> list[ChatReply]:
        """Replies in the order of `requests`; RoleError for one that was never recorded."""
        return [reply for _, reply in self.complete_each(requests)]

    def complete_each(self, requests: Sequence[ChatRequest]) -> Iterator[tuple[int, ChatReply]]:
        """Replies one by one, in order."""
        for position, request in enumerate(requests):
            key = request.digest
            replies = self._recording.replies.get((self._role, key))
            if replies is None:
                raise RoleError(
                    f"the recording {self._recording.path} has no reply to this call of the {self._role} model "
                    f"(purpose {request.purpose}): program, data or settings differ from its own; record anew"
                )
            self.account.admit()
            with self._lock:
                number = self._asked.get(key, 0)
                self._asked[key] = number + 1
            reply = replies[min(number, len(replies) - 1)]
            self.account.settle(reply.input_tokens, reply.output_tokens)
            yield position, reply


class ReplayedEmbedder:
    """An embedder that knows the texts of a recording alone."""

    def __init__(self, recording: Recording, role: str, identity: str) -> None:
        self.identity = identity
        self.account = Account(role)
        self._recording = recording
        self._role = role

    @property
    def dimension(self) -> int:
        """Size of the recorded rows; RoleError where there are none."""
        for (role, _), (row, _) in self._recording.rows.items():
            if role == self._role:
                return len(row)
        raise RoleError(f"the recording {self._recording.path} holds no embedding; record the run anew")

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Rows (n, d) in the order of `texts`."""
        return self.embed_counted(texts)[0]

    def embed_counted(self, texts: Sequence[str]) -> tuple[NDArray[np.float32], Sequence[int]]:
        """Rows and tokens; RoleError for a text that was never recorded."""
        found = [self._recording.rows.get((self._role, text)) for text in texts]
        if any(entry is None for entry in found):
            raise RoleError(
                f"the recording {self._recording.path} lacks the embedding of a text: program, data or settings differ "
                "from the recorded run; record it anew"
            )
        known = [entry for entry in found if entry is not None]
        self.account.admit()
        for _, tokens in known:
            self.account.settle(tokens, 0)
        rows = np.stack([row for row, _ in known]) if known else np.empty((0, self.dimension), np.float32)
        return rows, [tokens for _, tokens in known]
