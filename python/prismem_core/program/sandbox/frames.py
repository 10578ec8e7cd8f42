"""Frames between engine, zygote and workers: 4 bytes of length (little-endian), then one JSON object, never pickle.

Both sides read this file, so it imports the standard library only. Float arrays follow the frame that announces
their shape as plain little-endian float32 bytes.
"""

from __future__ import annotations

import json
import math
import struct
from typing import Any

LENGTH = struct.Struct("<I")
TO_WORKER_BYTES = 64 << 20
FROM_WORKER_BYTES = 8 << 20


class FrameError(ValueError):
    """Bytes that are no frame, or a message that does not fit into one."""


def encode(message: dict[str, Any], cap: int) -> bytes:
    """The frame of `message`; FrameError if it is longer than `cap` bytes or holds a value JSON cannot carry."""
    try:
        body = _encode(message).encode("ascii")
    except (TypeError, ValueError, RecursionError) as error:
        raise FrameError(f"the message cannot be written as JSON: {error}") from None
    if len(body) > cap:
        raise FrameError(f"the message has {len(body)} bytes, at most {cap} fit into a frame")
    return LENGTH.pack(len(body)) + body


def length(header: bytes | memoryview, cap: int) -> int:
    """The body's length in bytes; FrameError above `cap`."""
    size: int = LENGTH.unpack(header)[0]
    if size > cap:
        raise FrameError(f"a frame of {size} bytes was announced, at most {cap} are allowed")
    return size


def decode(body: bytes | bytearray | memoryview) -> dict[str, Any]:
    """The message in a frame's body; FrameError unless it is one JSON object with finite numbers."""
    try:
        message = _decode(str(body, "utf-8"))
    except (ValueError, RecursionError, MemoryError) as error:
        raise FrameError(f"a frame is no JSON: {str(error)[:200]}") from None
    if type(message) is not dict:
        raise FrameError("a frame holds no JSON object")
    return message


def plain_text(text: str) -> str:
    """`text` with lone surrogates replaced by U+FFFD, so that it can be encoded, hashed and sent to a model."""
    if text.isascii():
        return text
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def printable(text: str) -> str:
    """`text` on one line as any terminal may show it: control and format characters are written as escapes."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in plain_text(text))


def _refuse(token: str) -> float:
    raise ValueError(f"the number {token} is not finite")


def _finite(token: str) -> float:
    value = float(token)
    if not math.isfinite(value):
        raise ValueError(f"the number {token[:40]} is not finite")
    return value


# Bound here, because a program may replace the functions of the json module of its own process.
_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
_decode = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite).decode
