"""CRC-32C (Castagnoli) of bytes: by the C++ core, or without it in NumPy, many lanes at a time."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismem_core.errors import NoImplementation
from prismem_core.ops.registry import native

Words = NDArray[np.uint32]

_POLYNOMIAL = 0x82F63B78  # reflected
_LANE_WORDS = 64
_LANES = 4096


def crc32c(data: Any, previous: int = 0) -> int:
    """The checksum of a bytes-like object or a contiguous array of bytes, continued from `previous`."""
    return _implementation()(data, previous)


@functools.cache
def _implementation() -> Callable[[Any, int], int]:
    try:
        implementation: Callable[[bytes, int], int] = native().crc32c
    except NoImplementation:
        return portable
    return lambda data, previous: implementation(bytes(data), previous)


def portable(data: Any, previous: int = 0) -> int:
    """The same without the C++ core, at some hundred megabytes a second."""
    values = np.frombuffer(data, np.uint8)
    state = ~previous & 0xFFFFFFFF
    lane_bytes = 4 * _LANE_WORDS
    whole = values.size - values.size % lane_bytes
    step = _LANES * lane_bytes
    for begin in range(0, whole, step):
        words = np.frombuffer(values[begin : min(begin + step, whole)].tobytes(), "<u4").reshape(-1, _LANE_WORDS)
        state = _lanes(words, state)
    low = _byte_table().tolist()
    for byte in values[whole:].tolist():
        state = low[(state ^ byte) & 0xFF] ^ (state >> 8)
    return ~state & 0xFFFFFFFF


def _lanes(words: Words, state: int) -> int:
    """The state after lanes (n, words) that lie one behind the other."""
    near, far = _word_tables()
    states = np.zeros(words.shape[0], np.uint32)
    states[0] = state
    for column in range(words.shape[1]):
        mixed = states ^ words[:, column]
        states = far[mixed & np.uint32(0xFFFF)] ^ near[mixed >> np.uint32(16)]
    # A state that more bytes follow is carried over them; then both halves of a pair are one lane of twice the length.
    carry = _carry_over(4 * words.shape[1])
    while states.shape[0] > 1:
        if states.shape[0] % 2:  # a lane of zeros in front, from a state of zero, changes nothing
            states = np.concatenate([np.zeros(1, np.uint32), states])
        states = _applied(carry, states[::2]) ^ states[1::2]
        carry = _applied(carry, carry)
    return int(states[0])


@functools.cache
def _byte_table() -> Words:
    """The state after one byte, from the state 0."""
    table: Words = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        mixed: Words = np.where(table & np.uint32(1), np.uint32(_POLYNOMIAL), np.uint32(0))
        table = (table >> np.uint32(1)) ^ mixed
    return table


def _after_zeros(states: Words, count: int) -> Words:
    for _ in range(count):
        states = _byte_table()[states & np.uint32(0xFF)] ^ (states >> np.uint32(8))
    return states


@functools.cache
def _word_tables() -> tuple[Words, Words]:
    """For a word that is mixed into the state: what its upper 16 bits come to after four bytes, and its lower ones."""
    halves = np.arange(1 << 16, dtype=np.uint32)
    return _after_zeros(halves << np.uint32(16), 4), _after_zeros(halves, 4)


@functools.cache
def _carry_over(count: int) -> Words:
    """What each of the 32 bits of a state comes to after `count` zero bytes."""
    return _after_zeros(np.left_shift(np.uint32(1), np.arange(32, dtype=np.uint32)), count)


def _applied(carry: Words, states: Words) -> Words:
    """Each state as the sum, modulo two, of what its bits come to."""
    bits = (states[:, None] >> np.arange(32, dtype=np.uint32)) & np.uint32(1)
    return np.asarray(np.bitwise_xor.reduce(np.where(bits != 0, carry, np.uint32(0)), axis=1), np.uint32)
