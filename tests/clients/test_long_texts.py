"""Long texts in pieces, and the row of the whole: the same for a server and for an engine in this process."""

from __future__ import annotations

import numpy as np

from prismem_core.clients.long_texts import joined, pieces, split_text, unit


def words(count: int) -> str:
    return " ".join(f"word{i}" for i in range(count))


def test_rows_at_the_ends_of_the_range_have_length_one() -> None:
    rows = unit(np.asarray([[3e-300, 4e-300], [3e300, 4e300], [0.0, 0.0]]))
    np.testing.assert_allclose(rows, [[0.6, 0.8], [0.6, 0.8], [0, 0]], rtol=1e-6)


def test_pieces_hold_every_word_and_part_no_pair() -> None:
    text = words(301)
    for count in (2, 3, 7, 50):
        pieces = split_text(text, count)
        assert " ".join(pieces) == text
        assert abs(len(pieces) - count) <= 1
    assert split_text("a", 2) == ["a"]
    assert "".join(split_text("字" * 11, 3)) == "字" * 11
    assert split_text("e\u0301" * 2, 2) == ["e\u0301"] * 2
    assert split_text("aaae\u0301aa", 2) == ["aaae\u0301", "aa"]


def test_the_row_of_a_whole_is_the_weighted_mean() -> None:
    rows = [np.asarray([1.0, 0.0], np.float32), np.asarray([0.0, 1.0], np.float32)]
    np.testing.assert_allclose(joined(rows, [3, 1]), np.asarray([3, 1]) / np.sqrt(10), rtol=1e-6)
    assert not joined([rows[0], -rows[0]], [1, 1]).any()


def test_halves_are_halved_until_all_fit() -> None:
    text = words(100)
    parts = pieces(text, lambda piece: len(piece) <= 50)
    assert " ".join(parts) == text and all(len(part) <= 50 for part in parts)
    solid = pieces("x" * 100, lambda piece: len(piece) <= 30)
    assert "".join(solid) == "x" * 100 and max(map(len, solid)) <= 30
    assert pieces("whole", lambda piece: True) == ["whole"]
    assert pieces("a", lambda piece: False) == ["a"]


def test_white_space_around_a_text_does_not_keep_it_from_being_split() -> None:
    assert split_text("aaaa" + " " * 40, 2) == ["aa", "aa"]
    assert pieces(" " * 40 + "abcd\n", lambda piece: len(piece) <= 2) == ["ab", "cd"]
    assert split_text("   ", 2) == ["   "]
