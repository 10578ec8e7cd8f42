"""Frames: what is refused, and that what is written can be read back."""

from __future__ import annotations

import pytest

from prismem_core.program.sandbox import frames


def test_a_message_survives_the_round_trip() -> None:
    message = {"text": "naïve \N{SNOWMAN} \U0001f600 \ud800", "number": 0.1, "none": None, "list": ["", 1, True]}
    frame = frames.encode(message, 1000)
    assert frames.length(frame[:4], 1000) == len(frame) - 4
    assert frames.decode(frame[4:]) == message


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[1]",
        b'"text"',
        b'{"a": NaN}',
        b'{"a": -Infinity}',
        b'{"a": 1e999}',
        b'{"a": "\xff"}',
        b'{"a": 1} {"b": 2}',
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"a": ' + b"9" * 5000 + b"}",
    ],
)
def test_a_body_that_is_no_finite_json_object_is_refused(body: bytes) -> None:
    with pytest.raises(frames.FrameError):
        frames.decode(body)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1, 2}, b"bytes"])
def test_a_value_that_json_cannot_carry_is_refused(value: object) -> None:
    with pytest.raises(frames.FrameError):
        frames.encode({"a": value}, 1000)


def test_sizes_above_the_cap_are_refused_on_both_sides() -> None:
    assert len(frames.encode({"a": "x" * 92}, 100)) == 104
    with pytest.raises(frames.FrameError, match="101 bytes"):
        frames.encode({"a": "x" * 93}, 100)
    assert frames.length(b"\x64\0\0\0", 100) == 100
    with pytest.raises(frames.FrameError, match="4294967295 bytes"):
        frames.length(b"\xff\xff\xff\xff", 100)


@pytest.mark.parametrize(
    ("text", "plain"),
    [("a\ud800b", "a\ufffdb"), ("\udfff", "\ufffd"), ("\ud83d\ude00", "\U0001f600"), ("\U0001f600é", "\U0001f600é")],
)
def test_lone_surrogates_become_replacement_characters(text: str, plain: str) -> None:
    assert frames.plain_text(text) == plain
