"""Stage 2: units from segments, one task-model call a segment."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prismem_core.pipeline.segment import Segment
from prismem_core.pipeline.structured import Answered, CompletesWithSalt, Unusable, ask_structured, field_inputs
from prismem_core.program.interface import ProgramInterface, to_json_schema
from prismem_core.program.schema import check_value
from prismem_core.prompts.catalog import render
from prismem_core.roles.protocols import ChatRequest


@dataclass(frozen=True)
class Extraction:
    """Valid units of one segment in reply order, how many were dropped, and what the calls cost.

    `faults` names each unit that was dropped, by its position in the reply from 1, and its fields that are at fault.
    """

    units: tuple[Mapping[str, Any], ...]
    dropped: int
    calls: int
    input_tokens: int
    output_tokens: int
    problem: str = ""
    faults: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Read:
    """The units of a reply and what is wrong with those that were dropped."""

    units: tuple[Mapping[str, Any], ...]
    faults: tuple[str, ...]


def extract(
    chat: CompletesWithSalt,
    interface: ProgramInterface,
    segments: Sequence[Segment],
    *,
    retries: int,
    max_tokens: int,
    salt: str = "",
) -> list[Extraction]:
    """Extractions in the order of `segments`; equal segments are paid once.

    Invalid units are dropped and counted; a reply that is no object with a list `memory_units` is asked for again, and
    after the last attempt the extraction carries the `problem`.
    """
    fields = field_inputs(interface.unit)
    schema = {
        "type": "object",
        "properties": {"memory_units": {"type": "array", "items": to_json_schema(interface.unit, "MemoryUnit")}},
        "required": ["memory_units"],
        "additionalProperties": False,
    }

    def request(i: int, problem: str) -> ChatRequest:
        inputs = {"instruction": interface.extraction_instruction, "fields": fields, "text": segments[i].text}
        system, prompt = render("extraction", problem=problem, **inputs)
        return ChatRequest("extract", system, prompt, inputs, schema, max_tokens)

    def parse(i: int, text: str) -> _Read:
        try:
            reply = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise Unusable(f"it is not valid JSON ({error})") from error
        if not isinstance(reply, dict) or not isinstance(reply.get("memory_units"), list):
            raise Unusable('it is not an object with a list "memory_units"')
        checked = [check_value(unit, interface.unit) for unit in reply["memory_units"]]
        return _Read(
            tuple(c.value for c in checked if c.ok and c.value is not None),
            tuple(f"unit {n}: {c.words}" for n, c in enumerate(checked, start=1) if not c.ok),
        )

    answered: list[Answered[_Read]] = ask_structured(chat, request, len(segments), parse, retries, salt)
    nothing = _Read((), ())
    return [
        Extraction(
            (a.value or nothing).units,
            len((a.value or nothing).faults),
            a.calls,
            a.input_tokens,
            a.output_tokens,
            a.problem,
            (a.value or nothing).faults,
        )
        for a in answered
    ]
