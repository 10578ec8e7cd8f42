"""Tokens: every script gives words or pairs, marks stay with their letters, English endings, stop words, stems."""

from __future__ import annotations

import sys
import unicodedata
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prismem_core.errors import ArgumentError
from prismem_core.index import Tokenizer, tokens
from prismem_core.index.tokens import _KINDS, _PLAIN, BREAK, WORD
from prismem_core.tasks import text as rules

SENTENCES = {
    "Chinese": ("昨天我和朋友们一起去看电影。", "电影", 8),
    "Japanese": ("猫が好きなので、東京で猫カフェに行きました。", "東京", 12),
    "Japanese kana": ("わたしはコーヒーがすきです", "コーヒー", 8),
    "Thai": ("เมื่อวานฉันไปดูหนังกับเพื่อน", "ดูหนัง", 8),
    "Lao": ("ຂ້ອຍມັກກິນເຂົ້າຫນຽວ", "ເຂົ້າ", 6),
    "Khmer": ("ខ្ញុំចូលចិត្តញ៉ាំបាយ", "បាយ", 6),
    "Burmese": ("ကျွန်တော်ထမင်းစားချင်တယ်", "ထမင်း", 6),
    "Tibetan": ("ང་བོད་སྐད་ཤེས་ཀྱི་ཡོད།", "སྐད", 5),
    "Korean": ("어제 고양이를 보러 동물원에 갔습니다", "고양이", 8),
    "Arabic": ("ذهبت أمس إلى السينما مع أصدقائي", "السينما", 6),
    "Hebrew": ("אתמול הלכתי לקולנוע עם חברים", "לקולנוע", 5),
    "Persian": ("دیروز با دوستانم به سینما رفتم", "سینما", 6),
    "Hindi": ("कल मैं दोस्तों के साथ हिन्दी फ़िल्म देखने गया", "हिन्दी", 9),
    "Tamil": ("நேற்று நண்பர்களுடன் திரைப்படம் பார்த்தேன்", "திரைப்படம்", 4),
    "Russian": ("Вчера я ходил с друзьями в кино", "КИНО", 7),
    "Greek": ("Χθες πήγα στο σινεμά με φίλους", "ΧΘΕΣ", 6),
    "Armenian": ("Երեկ ընկերներիս հետ կինո գնացի", "կինո", 5),
    "Georgian": ("გუშინ მეგობრებთან ერთად კინოში წავედი", "კინოში", 5),
    "Amharic": ("ትናንት ከጓደኞቼ ጋር ሲኒማ ሄድኩ", "ሲኒማ", 5),
    "Turkish": ("Dün arkadaşlarımla sinemaya gittim", "sinemaya", 4),
    "Vietnamese": ("Hôm qua tôi đi xem phim với bạn bè", "PHIM", 9),
    "mixed": ("Yesterday I saw 東京物語 (1953) в кино with Ann's 친구들", "東京", 10),
}


@pytest.mark.parametrize("language", SENTENCES)
def test_a_sentence_is_neither_one_token_nor_none(language: str) -> None:
    sentence, word, least = SENTENCES[language]
    found = tokens(sentence)
    assert len(found) >= least
    assert set(tokens(word)) & set(found), "a word of the sentence finds it"
    assert all(token.strip() and not token.isspace() for token in found)
    assert max(map(len, found)) < len(sentence) / 2


@pytest.mark.parametrize("language", ["Hindi", "Tamil", "Arabic", "Hebrew", "Persian", "Georgian", "Amharic"])
def test_words_stay_whole_where_there_are_spaces(language: str) -> None:
    sentence = unicodedata.normalize("NFKC", SENTENCES[language][0])
    assert tokens(sentence) == sentence.split()


def test_scripts_without_spaces_give_pairs() -> None:
    assert tokens("苹果好") == ["苹果", "果好", "苹", "果", "好"]
    assert tokens("猫") == ["猫"]
    assert tokens("猫が好き") == ["猫が", "が好", "好き", "猫", "好"]
    assert tokens("タワー") == ["タワ", "ワー"]
    assert tokens("กิน ข้าว") == ["กิน", "ข้า", "าว"]
    assert tokens("Python3入門") == ["python3", "入門", "入", "門"]
    assert tokens("ｶﾞｲﾄﾞ") == tokens("ガイド") == ["ガイ", "イド"]
    assert tokens("人々") == ["人々", "人"]


def test_hangul_gives_words_and_pairs() -> None:
    assert tokens("고양이를 저는 나") == ["고양이를", "고양", "양이", "이를", "저는", "나"]
    assert tokens("2023년 KBS뉴스") == ["2023", "년", "kbs", "뉴스"]
    assert tokens(unicodedata.normalize("NFD", "고양이")) == tokens("고양이")


def test_one_form() -> None:
    assert tokens("Straße STRASSE ﬁne Ⅳ m²") == ["strasse", "strasse", "fine", "iv", "m2"]
    assert tokens("Ὀδυσσεύς ὈΔΥΣΣΕΎΣ")[0] == tokens("Ὀδυσσεύς ὈΔΥΣΣΕΎΣ")[1]
    assert tokens("cafe\u0301 café CAFÉ") == ["café"] * 3
    assert tokens("Ｆｕｌｌ １２３") == ["full", "123"]
    assert tokens("co\u00adoperate می\u200cخواهم مـحـمد") == ["cooperate", "میخواهم", "محمد"]
    assert tokens("foo_bar 3.14 a-b") == ["foo", "bar", "3", "14", "a", "b"]


def test_english_endings() -> None:
    for apostrophe in "'’ʼ":
        text = "Ann's cats' didn't they're I'd we've it'll can't O'Brien l'homme rock'n'roll 'tis".replace(
            "'", apostrophe
        )
        expected = "ann cats didnt they i we it cant o brien l homme rock n roll tis"
        assert tokens(text) == expected.split()
    assert tokens("м'ята d'accord s't") == ["м", "ята", "d", "accord", "s", "t"]


def test_pictures_are_tokens_and_other_symbols_are_not() -> None:
    assert tokens("I ❤️ 🎂 👍🏽 👩\u200d💻 1️⃣ → ™ €5 ©") == ["i", "❤", "🎂", "👍", "👩", "💻", "1", "tm", "5"]
    assert tokens("🎂🎂") == ["🎂", "🎂"]


def test_nothing_gives_nothing() -> None:
    for text in ("", " \t\n", "...!?", "\u0301", "\u200d", "\ud800", "\x00", "_"):
        assert tokens(text) == []


def test_plain_text_needs_no_kinds() -> None:
    for code in range(sys.maxunicode + 1):
        character = chr(code)
        if _PLAIN.fullmatch(character):
            assert _KINDS[code] == (WORD if character.isalnum() else BREAK), hex(code)


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=30))
def test_tokens_lose_no_letter(text: str) -> None:
    found = tokens(text)
    assert found == tokens(text)
    assert all(found)
    normal = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    letters = [character for character in normal if character.isalpha() and character not in "ʼ\u0640"]
    if "'" not in text and not any(mark in normal for mark in "'’ʼ"):
        assert set(letters) <= set("".join(found))
    "".join(found).encode("utf-8")  # no half of a surrogate pair


@settings(max_examples=200, deadline=None)
@given(st.text(st.characters(max_codepoint=127), max_size=40))
def test_ascii_has_the_words_of_the_other_path(text: str) -> None:
    # A letter outside of ASCII sends the text the long way.
    assert [*tokens(text), "é"] == tokens(f"{text} é")


def test_without_apostrophes_ascii_words_are_those_of_the_metrics() -> None:
    text = "Caroline went to the LGBTQ+ support-group on 7 May, 2023 (again)!"
    assert tokens(text) == rules.tokens(text)


def test_stop_words_and_stems() -> None:
    tokenizer = Tokenizer("english", stop_words=rules.STOP_WORDS, stem=rules.stem)
    text = "The cats were painting lakes"
    assert tokenizer(text) == rules.content_stems(text) == ["cat", "paint", "lake"]
    assert (tokenizer.name, repr(tokenizer)) == ("english", "<Tokenizer 'english'>")
    assert Tokenizer()(text) == tokens(text)
    assert Tokenizer("stems", stem=str.upper)("a b a") == ["A", "B", "A"]


@pytest.mark.parametrize("name", ["", "a\nb", "\ud800", None])
def test_a_name_is_printable_text(name: Any) -> None:
    with pytest.raises(ArgumentError, match="name: expected printable text, got"):
        Tokenizer(name)
