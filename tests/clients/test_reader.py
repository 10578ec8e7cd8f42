"""The extractive reader: what each word of an instruction switches on, and that nothing is on without one."""

from __future__ import annotations

import pytest

from prismem_core.clients.offline.reader import read, respond
from prismem_core.clients.offline.reader.question import analyse, kind_of
from prismem_core.clients.offline.reader.rules import Rules, rules_of

PLAIN = "Based on the retrieved memory and the original question, provide a short answer without explanation."
MEMORY = "\n".join(
    [
        "[8 May 2023] Ana: I went to the pottery fair yesterday and bought a blue teapot.",
        "[8 May 2023] Ben: Lovely! How often do you row?",
        "[8 May 2023] Ana: About three times a week, with my cousin Mia.",
        "[12 June 2023] Ben: I have been learning the cello for two years.",
        "[12 June 2023] Ana: Last week I repaired my kayak.",
        "[20 June 2023] Ben: My favourite season is winter.",
    ]
)


def ask(question: str, extra: str = "", memory: str = MEMORY) -> str:
    return read(f"{PLAIN} {extra}", memory, question)


def test_the_plain_reader_never_abstains_and_resolves_no_dates() -> None:
    assert rules_of(PLAIN) == Rules()
    assert "7 May 2023" not in ask("When did Ana go to the pottery fair?")
    assert ask("What did Ben buy at the pottery fair?") != ""


def test_short_answers_come_from_the_best_line() -> None:
    assert "blue teapot" in ask("What did Ana buy at the pottery fair?")
    assert "cello" in ask("Which instrument is Ben learning?")


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("When did Ana go to the pottery fair?", "7 May 2023"),
        ("When did Ana repair her kayak?", "the week before 12 June 2023"),
        ("In which month did Ana repair her kayak?", "June 2023"),
        ("What year did Ana go to the pottery fair?", "2023"),
    ],
)
def test_dates_are_resolved_where_the_instruction_asks_for_them(question: str, answer: str) -> None:
    assert ask(question, "Answer with a date where one is asked for.") == answer


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("How often does Ana row?", "three times a week"),
        ("How long has Ben been learning the cello?", "for two years"),
    ],
)
def test_answers_of_a_kind(question: str, answer: str) -> None:
    assert ask(question).lower().endswith(answer)


def test_abstains_where_somebody_else_said_it() -> None:
    told = "If the person asked about never said it, answer 'No information available'."
    assert ask("What did Ben buy at the pottery fair?", told) == "No information available"
    assert "teapot" in ask("What did Ana buy at the pottery fair?", told)


def test_abstains_with_the_words_of_the_instruction() -> None:
    told = 'Otherwise say "Not mentioned in the conversation".'
    assert ask("What did Ben buy at the pottery fair?", told) == "Not mentioned in the conversation"
    assert read(told, "", "Who?") == "Not mentioned in the conversation"
    assert read(PLAIN, "", "Who?") == ""


def test_lists_hold_several_items() -> None:
    memory = "Ana: I collect stamps.\nBen: Hm.\nAna: Also, I collect old maps.\nAna: The weather is dull."
    reply = ask("What things does Ana collect?", "List them, separated by a comma.", memory)
    assert "stamps" in reply and "maps" in reply and "," in reply
    assert "," not in ask("What things does Ana collect?", "", memory)


def test_the_latest_of_lines_that_score_alike_wins() -> None:
    memory = "[1 May 2023] Ana: My score is 10 points.\n[9 May 2023] Ana: My score is 25 points."
    assert "10" in ask("What is the score of Ana?", "", memory)
    assert "25" in ask("What is the score of Ana?", "Use the most recent statement.", memory)


def test_yes_or_no() -> None:
    memory = "Ana: I have never tried sailing.\nAna: I do enjoy rowing a lot."
    told = "Answer yes or no questions with that word."
    assert ask("Does Ana enjoy rowing?", told, memory) == "Yes"
    assert ask("Has Ana tried sailing?", told, memory) == "No"


def test_long_answers_are_whole_sentences() -> None:
    told = "Answer in complete sentences with all relevant details."
    reply = ask("What did Ana do with her kayak and at the pottery fair?", told)
    assert "Last week I repaired my kayak." in reply
    assert "I went to the pottery fair yesterday and bought a blue teapot." in reply


def test_contradictions_are_told_on_both_sides() -> None:
    memory = "user: I have never used Flask routes.\nassistant: ok\nuser: I implemented Flask routes for the homepage."
    told = "Answer with all relevant details. If two statements contradict each other tell both sides."
    reply = ask("Have I used Flask routes?", told, memory)
    assert "never used Flask routes" in reply and "implemented Flask routes" in reply


def test_preferences_join_advice() -> None:
    memory = "user: I prefer small libraries.\nassistant: Django is a framework.\nuser: Which framework suits my site?"
    told = "Answer with all relevant details and follow preferences and standing instructions."
    assert "I prefer small libraries." in ask("Can you recommend libraries or a framework?", told, memory)


def test_events_are_told_in_order() -> None:
    memory = "[9 May 2023] user: I deployed the garden app.\n[1 May 2023] user: I designed the garden app."
    told = "Answer in complete sentences with all relevant details. Tell the order of events."
    reply = ask("In what order did I work on the garden app?", told, memory)
    assert reply.index("designed") < reply.index("deployed")


def test_a_reply_is_found_by_the_question_before_it() -> None:
    memory = "Ben: What did you name the puppy?\nAna: Biscuit!\nAna: The puppy likes the garden very much."
    assert "Biscuit" in ask("What did Ana name the puppy?", "", memory)


@pytest.mark.parametrize(
    ("question", "kind"),
    [
        ("When did it happen?", "when"),
        ("What year did it happen?", "when"),
        ("How long did it take?", "duration"),
        ("How long ago was it?", "ago"),
        ("How many dogs are there?", "count"),
        ("How often?", "frequency"),
        ("How old is she?", "age"),
        ("Whose is it?", "who"),
        ("Where was it?", "where"),
        ("Why?", "why"),
        ("Did she go?", "yes_no"),
        ("What books has she read?", "list"),
        ("What is her status?", "what"),
        ("What does she like?", "what"),
        ("Can you list the order in which it came up?", "order"),
        ("How did she do it?", "how"),
    ],
)
def test_kinds_of_questions(question: str, kind: str) -> None:
    assert kind_of(question) == kind


def test_persons_are_speakers_named_in_full_or_in_short() -> None:
    question = analyse("What did Mel's friend and Bo tell Melanie?", ["Melanie", "Bob", "Caroline"])
    assert question.persons == ("Melanie",)
    assert question.neutral == "What did friend and Bo tell"


def test_free_prompts_get_the_sentences_nearest_to_their_last_line() -> None:
    assert respond("", False) == ""
    assert respond("Ana rows. Ben sings.\nWho sings?", False).startswith("Ana rows. Ben sings.")
