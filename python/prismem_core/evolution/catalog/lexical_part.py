"""Source of the lexical half of a catalogue program: words, Porter's stemmer, BM25."""

from __future__ import annotations

STOP_WORDS = '''\
# Words that tell nothing about what a text speaks of.
STOP_WORDS = frozenset(
    """
    a about above after again against all am an and any are as at be because been before being below between both but
    by can could did do does doing down during each few for from further had has have having he her here hers him his
    how i if in into is it its itself just me more most my no nor not now of off on once only or other our out over own
    same she should so some such than that the their them then there these they this those through to too under until
    up very was we were what when where which while who whom why will with would you your yours
    """.split()
)
'''

STEMMER = '''\
# Endings and their replacements in steps 2 and 3 of Porter's algorithm ("-": nothing), and those that step 4 drops.
ENDINGS = (
    "ational ate tional tion enci ence anci ance izer ize bli ble alli al entli ent eli e ousli ous ization ize "
    "ation ate ator ate alism al iveness ive fulness ful ousness ous aliti al iviti ive biliti ble fulli ful logi log",
    "icate ic ative - alize al iciti ic ical ic ful - ness -",
)
LAST_ENDINGS = "ement ance ence able ible ment ant ent ism ate iti ous ive ize ion al er ic ou".split()
REPLACED = [list(zip(row.split()[::2], row.replace("-", "").split(" ")[1::2])) for row in ENDINGS]


def shape(word: str) -> str:
    """A "v" for every vowel and a "c" for every consonant; y is a vowel after a consonant."""
    kinds = ""
    for letter in word:
        kinds += "v" if letter in "aeiou" or (letter == "y" and kinds[-1:] == "c") else "c"
    return kinds


def measure(word: str) -> int:
    """How often consonants follow vowels, Porter's m."""
    return shape(word).count("vc")


def stem(word: str) -> str:
    """Porter's stem of a lowercase word."""
    if len(word) < 3:
        return word
    if word.endswith(("sses", "ies")):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith("ss"):
        word = word[:-1]
    if word.endswith("eed"):
        word = word[:-1] if measure(word[:-3]) else word
    elif (word.endswith("ed") and "v" in shape(word[:-2])) or (word.endswith("ing") and "v" in shape(word[:-3])):
        word = word[:-2] if word.endswith("ed") else word[:-3]
        if word.endswith(("at", "bl", "iz")):
            word += "e"
        elif shape(word[-2:]) == "cc" and word[-1] == word[-2] and word[-1] not in "lsz":
            word = word[:-1]
        elif measure(word) == 1 and ends_short(word):
            word += "e"
    if word.endswith("y") and shape(word)[-2:] == "cv" and len(word) > 2:
        word = word[:-1] + "i"
    for pairs in REPLACED:
        for ending, other in pairs:
            if word.endswith(ending):
                base = word[: -len(ending)]
                word = base + other if measure(base) else word
                break
    for ending in LAST_ENDINGS:
        if word.endswith(ending):
            base = word[: -len(ending)]
            word = base if measure(base) > 1 and (ending != "ion" or base.endswith(("s", "t"))) else word
            break
    if word.endswith("e"):
        m = measure(word[:-1])
        word = word[:-1] if m > 1 or (m == 1 and not ends_short(word[:-1])) else word
    if word.endswith("ll") and measure(word) > 1:
        word = word[:-1]
    return word


def ends_short(word: str) -> bool:
    """Whether the word ends consonant, vowel, consonant, the last being none of w, x, y."""
    return shape(word)[-3:] == "cvc" and word[-1] not in "wxy"
'''

PLAIN_TERMS = '''\
    def _terms(self, text: str) -> list[str]:
        """The words of the text."""
        return re.findall(r"\\w+", text.lower())
'''

STEMMED_TERMS = '''\
    def _terms(self, text: str) -> list[str]:
        """Stems of the words that carry content; each word is stemmed once."""
        terms = []
        for word in re.findall(r"\\w+", text.lower()):
            if word not in STOP_WORDS:
                if word not in self.stems:
                    self.stems[word] = stem(word)
                terms.append(self.stems[word])
        return terms
'''

BM25 = '''\
    def _lexical(self, text: str) -> np.ndarray:
        """BM25 of every unit against the text."""
        scores = [0.0] * len(self.units)
        average = sum(self.lengths) / len(self.units) or 1.0
        for term in dict.fromkeys(self._terms(text)):
            postings = self.postings.get(term, [])
            rarity = math.log(1 + (len(self.units) - len(postings) + 0.5) / (len(postings) + 0.5))
            for position, count in postings:
                norm = BM25_K * (1 - BM25_B + BM25_B * self.lengths[position] / average)
                scores[position] += rarity * count * (BM25_K + 1) / (count + norm)
        return np.array(scores)
'''
