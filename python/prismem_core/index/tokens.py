"""Tokens for lexical search, in every script: also where words are written without spaces between them."""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Callable, Iterable
from functools import lru_cache

from prismem_core.errors import ArgumentError

_SPACELESS = tuple(
    range(first, last + 1)
    for first, last in (
        (0x0E00, 0x0E7F),  # Thai
        (0x0E80, 0x0EFF),  # Lao
        (0x0F00, 0x0FFF),  # Tibetan
        (0x1000, 0x109F),  # Myanmar, and its extensions below
        (0x1780, 0x17FF),  # Khmer
        (0x1950, 0x19DF),  # Tai Le, New Tai Lue
        (0x1A20, 0x1AAF),  # Tai Tham
        (0x1B00, 0x1B7F),  # Balinese
        (0x3005, 0x3007),  # the iteration mark and zero of Han
        (0x3021, 0x303C),  # Hangzhou numerals, marks of kana
        (0x3040, 0x30FF),  # Hiragana, Katakana
        (0x3105, 0x312F),  # Bopomofo
        (0x31A0, 0x31FF),  # Bopomofo and Katakana extensions
        (0x3400, 0x4DBF),  # Han
        (0x4E00, 0xA4CF),  # Han, Yi
        (0xA980, 0xA9FF),  # Javanese, Myanmar
        (0xAA60, 0xAADF),  # Myanmar, Tai Viet
        (0xF900, 0xFAFF),  # Han
        (0x16FE0, 0x18DFF),  # Tangut, Khitan
        (0x1AFF0, 0x1B2FF),  # Kana, Nushu
        (0x20000, 0x3FFFF),  # Han
    )
)
_HAN = (range(0x3400, 0x4DC0), range(0x4E00, 0xA000), range(0xF900, 0xFB00), range(0x20000, 0x40000))
_HANGUL = range(0xAC00, 0xD7A4)
_PICTURES = (range(0x2600, 0x27C0), range(0x1F000, 0x1FB00))

WORD, HANGUL, HAN, SPACELESS, MARK, PICTURE, BREAK = "wkhsmp "
"""Kinds of characters: letters and digits of words, syllables of Hangul, characters of Han, characters of other scripts
without spaces, marks that belong to the character before them, pictures, all else.
"""

_PIECES = re.compile(r"w[wm]*|k[km]*|[hs][hsm]*|p")
_UNITS = re.compile(r"[hs]m*")
_ASCII_WORD = re.compile(r"[a-z0-9]+")
_PLAIN_WORD = re.compile(r"[^\W_]+")
# Latin, Greek, Cyrillic and Armenian without marks, and punctuation: here words are what Python's \w says, but for "_".
_PLAIN = re.compile("[\0-\u02ff\u0370-\u0482\u048a-\u0556\u1e00-\u1fff\u2010-\u2027\u2030-\u205e\u20a0-\u20bf]*")
# Format characters, the Arabic tatweel, variation selectors, enclosing marks.
_UNSEEN = re.compile(
    "[\u00ad\u0600-\u0605\u061c\u0640\u06dd\u070f\u08e2\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u20dd-\u20e4"
    "\ufe00-\ufe0f\ufeff\ufff9-\ufffb\U000110bd\U000110cd\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e01ef]+"
)
_APOSTROPHE = re.compile("[\u2018\u2019\u02bc\uff07]")
_ENGLISH_END = re.compile(r"(?<=[^\W_])'(?:s|d|m|re|ve|ll)(?![^\W_]|')")
_ENGLISH_NOT = re.compile(r"(?<=n)'(?=t(?![^\W_]|'))")


def _kind(code: int) -> str:
    category = unicodedata.category(chr(code))
    if category[0] == "M":
        return MARK
    if category == "Nd":
        return WORD
    if any(code in block for block in _PICTURES):
        return PICTURE if category == "So" else BREAK
    if category[0] not in "LN":
        return BREAK
    if code in _HANGUL:
        return HANGUL
    if any(code in block for block in _HAN):
        return HAN
    return SPACELESS if any(code in block for block in _SPACELESS) else WORD


class _Kinds(dict[int, str]):
    """The kind of each code point for `str.translate`, worked out when it is first met: there are a million."""

    def __missing__(self, code: int) -> str:
        return self.setdefault(code, _kind(code))


_KINDS = _Kinds()


def tokens(text: str) -> list[str]:
    """The tokens of a text, in order, repeats kept; the same on every machine, whatever the locale.

    * The text is brought into one form: NFKC, casefold, NFKC. Characters that only say how to draw others (joiners,
      soft hyphens, marks of direction, variation selectors, tatweel) are left out before.
    * A word is a run of letters and digits with the marks on them; an underscore or any other character ends it. A mark
      never leaves its letter, so that words of Hindi or vocalised Arabic stay whole.
    * An apostrophe ends a word, too, but for English: the endings 's, 'd, 'm, 're, 've, 'll are left out, and n't stays
      with its word ("Ann's" ann, "don't" dont, "o'brien" o brien, "l'homme" l homme).
    * In scripts without spaces (Han, kana, Thai, Lao, Khmer, Myanmar, Tibetan and their kin) a run of characters gives
      its overlapping pairs, each character with its marks; a run of one gives that one. A character of Han is often a
      word of its own, so each is a token, too, after the pairs.
    * Hangul is written with spaces, but with particles attached: a word of more than two syllables gives the word and
      then its overlapping pairs.
    * An emoji or another pictograph is a token; skin tones and other symbols are left out.

    New characters of later Unicode versions have the kinds that the interpreter's `unicodedata` knows.
    """
    if text.isascii():
        return _ASCII_WORD.findall(_without_english_ends(text.lower()))
    text = _APOSTROPHE.sub("'", _UNSEEN.sub("", text))
    text = _without_english_ends(unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold()))
    if _PLAIN.fullmatch(text):
        return _PLAIN_WORD.findall(text)
    kinds = text.translate(_KINDS)
    found: list[str] = []
    for piece in _PIECES.finditer(kinds):
        begin, end = piece.span()
        run = text[begin:end]
        if kinds[begin] in (HAN, SPACELESS):
            found += _spaceless(run, piece[0])
        elif kinds[begin] == HANGUL and end - begin > 2:
            found.append(run)
            found += _pairs(run)
        else:
            found.append(run)
    return found


def _without_english_ends(text: str) -> str:
    return _ENGLISH_NOT.sub("", _ENGLISH_END.sub("", text)) if "'" in text else text


def _spaceless(run: str, kinds: str) -> list[str]:
    if len(run) == 1:
        return [run]
    if MARK not in kinds:
        pairs = _pairs(run)
    else:
        units = [run[unit.start() : unit.end()] for unit in _UNITS.finditer(kinds)]
        if len(units) == 1:
            return units
        pairs = [left + right for left, right in itertools.pairwise(units)]
    if HAN in kinds:
        pairs += [character for character, kind in zip(run, kinds, strict=True) if kind == HAN]
    return pairs


def _pairs(run: str) -> list[str]:
    return [run[place : place + 2] for place in range(len(run) - 1)]


class Tokenizer:
    """`tokens`, without stop words and with stems where you give them; what a lexical index reads texts with.

    `stop_words` are left out, then `stem` replaces each of the rest. `name` stands for both in saved indexes: an index
    is loaded with the tokenizer of the name that it was saved with, so give another rule another name.
    """

    def __init__(
        self,
        name: str = "plain",
        *,
        stop_words: Iterable[str] = (),
        stem: Callable[[str], str] | None = None,
    ) -> None:
        if not isinstance(name, str) or not name or not name.isprintable():
            raise ArgumentError(f"name: expected printable text, got {name!r}")
        self.name = name
        self._stop_words = frozenset(stop_words)
        self._stem = lru_cache(maxsize=1 << 16)(stem) if stem is not None else None

    def __call__(self, text: str) -> list[str]:
        found = tokens(text)
        if self._stop_words:
            found = [token for token in found if token not in self._stop_words]
        return found if self._stem is None else list(map(self._stem, found))

    def __repr__(self) -> str:
        return f"<Tokenizer {self.name!r}>"
