"""Prompt templates: Markdown files in this folder, one a role call, in two parts (system and prompt)."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any

from jinja2 import Environment, StrictUndefined, Template

_SYSTEM, _PROMPT = "{# system #}", "{# prompt #}"


@cache
def _parts(name: str) -> tuple[Template, Template]:
    text = resources.files("prismem_core.prompts").joinpath(f"{name}.md").read_text(encoding="utf-8")
    before, _, rest = text.partition(_SYSTEM)
    system, found, prompt = rest.partition(_PROMPT)
    if before.strip() or not found:
        raise ValueError(f"prompt template {name!r} must hold the parts {_SYSTEM} and {_PROMPT}")
    # Programs' texts are data: nothing in them is ever interpreted as template code, and prompts are not HTML.
    environment = Environment(
        undefined=StrictUndefined, autoescape=False, trim_blocks=True, keep_trailing_newline=False
    )
    return environment.from_string(system.strip()), environment.from_string(prompt.strip())


def render(name: str, **values: Any) -> tuple[str, str]:
    """The system and prompt text of template `name`; every variable the template uses must be given."""
    system, prompt = _parts(name)
    return system.render(**values), prompt.render(**values)
