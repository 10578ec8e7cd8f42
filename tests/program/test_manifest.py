"""A manifest is comments above a source: it changes nothing that a program is judged by, and damage to it is told."""

from __future__ import annotations

import ast

import pytest

from prismem_core.errors import DataError
from prismem_core.pipeline.keys import stage_keys
from prismem_core.program import library
from prismem_core.program.manifest import body_of, split_manifest, with_manifest
from prismem_core.program.program import Program
from prismem_core.program.validation import gate

VALUES = {"program": "n07", "summary": "a \n second line \u2028 third 漢 \ud800 \x00 end of the manifest"}


@pytest.mark.parametrize("name", library.names())
def test_the_file_is_the_same_program_to_every_key_and_check(name: str) -> None:
    source = library.source(name)
    text = with_manifest(source, VALUES)
    values, body = split_manifest(text)
    assert body == source
    assert values is not None
    assert {key: values[key] for key in VALUES} == VALUES
    assert values["digest"] == Program(source).digest
    assert gate(text, "engine").outcome == gate(source, "engine").outcome != "reject"
    assert ast.dump(ast.parse(text)) == ast.dump(ast.parse(source))
    for mode in ("content", "paper"):
        assert stage_keys(Program(text), mode) == stage_keys(Program(source), mode)  # type: ignore[arg-type]


def test_equal_input_gives_equal_bytes_and_a_second_manifest_takes_the_place_of_the_first() -> None:
    source = library.source("seed")
    text = with_manifest(source, VALUES)
    assert text == with_manifest(source, dict(reversed(VALUES.items())))
    again = with_manifest(text, {"program": "n00"})
    assert split_manifest(again)[1] == source
    assert again.count("what follows as JSON is its manifest") == 1
    assert body_of(text) == body_of(source) == source


@pytest.mark.parametrize("source", ["", "\n", "x = 1", "# a comment\nx = 1\n", "x = '''\n# end of the manifest\n'''\n"])
def test_any_source_comes_back(source: str) -> None:
    assert split_manifest(with_manifest(source, VALUES))[1] == source
    assert body_of(with_manifest(source, VALUES)) == source


def test_a_program_without_a_manifest_is_itself() -> None:
    assert split_manifest(library.source("seed")) == (None, library.source("seed"))
    assert split_manifest("") == (None, "")


def test_damage_is_told() -> None:
    text = with_manifest(library.source("seed"), VALUES)
    head = text.index("\n") + 1
    with pytest.raises(DataError, match="is not the one its manifest speaks of"):
        split_manifest(text.replace("several memory units", "many memory units"))
    with pytest.raises(DataError, match="cut short"):
        split_manifest(text[: head + 40])
    with pytest.raises(DataError, match="damaged"):
        split_manifest(text[:head] + text[head:].replace("{", "[", 1))
    with pytest.raises(DataError, match="damaged"):
        split_manifest(text[:head] + text[head:].replace("{", "[" * 2000, 1))
    with pytest.raises(DataError, match="reads format 1"):
        split_manifest(text.replace("format 1", "format 2", 1))
    for end in range(len("# prismem memory program, format "), text.index("# end of the manifest"), 7):
        with pytest.raises(DataError):
            split_manifest(text[:end])
