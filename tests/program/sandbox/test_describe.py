"""`describe`: a program's interface comes from a throw-away process, its faults as codes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from prismem_core.errors import ProgramError
from prismem_core.program.interface import ProgramInterface
from prismem_core.program.sandbox import Sandbox
from prismem_core.program.sandbox.describe import interface_result
from prismem_core.program.sandbox.frames import FrameError

Build = Callable[..., str]


def test_the_interface_of_a_program(sandbox: Sandbox, program: Build) -> None:
    found = sandbox.describe(program())
    assert isinstance(found, ProgramInterface)
    assert [(field.name, field.type, field.optional, field.description) for field in found.unit] == [
        ("memory_text", "str", False, "One piece of information")
    ]
    assert [field.name for field in found.query] == ["query_text"]
    assert found.extraction_instruction == "Extract the key information from the text."
    assert found.planning_instruction == "Write a query that finds the relevant memory."
    assert found.answer_instruction == "Answer from the memory."
    assert found.segmentation == "session"


@pytest.mark.parametrize(
    ("change", "code", "line"),
    [
        (("class Query", "class Question"), "missing_definition", None),
        (('AnswerInstruction = "Answer from the memory."', 'AnswerInstruction = " "'), "bad_instruction", None),
        (("query_text: str", "query_text: dict"), "bad_schema", None),
        (("def retrieve(self, query)", "def retrieve(self, question)"), "bad_signature", None),
        (("@dataclass\nclass Query", "1 / 0\n\n@dataclass\nclass Query"), "load_error", 14),
        (("@dataclass\nclass Query", "import os\n\n@dataclass\nclass Query"), "load_error", 14),
        (("class Query:", "class Query"), "load_error", 15),
        (("@dataclass\nclass Query", "raise SystemExit\n\n@dataclass\nclass Query"), "load_error", 14),
    ],
)
def test_a_fault_is_a_program_error_with_its_code(
    sandbox: Sandbox, program: Build, change: tuple[str, str], code: str, line: int | None
) -> None:
    source = program()
    assert change[0] in source
    with pytest.raises(ProgramError) as caught:
        sandbox.describe(source.replace(*change))
    assert caught.value.code == code
    if line is not None:
        assert caught.value.line == line


def test_loading_calls_no_backend(bare_sandbox: Sandbox, program: Build) -> None:
    forged = "import os, struct\nbody = b'{\"call\":\"ask\"}'\nos.write(3, struct.pack('<I', len(body)) + body)\n"
    with pytest.raises(ProgramError, match="where none is allowed") as caught:
        bare_sandbox.describe(forged + program())
    assert caught.value.code == "load_error"


@pytest.mark.parametrize(
    "change",
    [
        {"unit": None},
        {"unit": [{"name": "a"}]},
        {"answer_instruction": 5},
        {"segmentation": "window:0:0"},
    ],
)
def test_a_forged_interface_of_the_wrong_form_is_a_breach(
    sandbox: Sandbox, program: Build, change: dict[str, object]
) -> None:
    honest = sandbox.describe(program())
    assert interface_result({"interface": honest.to_dict()}) == honest
    with pytest.raises(FrameError):
        interface_result({"interface": {**honest.to_dict(), **change}})
