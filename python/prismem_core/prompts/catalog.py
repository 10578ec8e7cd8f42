"""Prompt templates: Markdown files in this folder, one a role call, in two parts (system and prompt).

What a template shows of a history, a memory, a question or a reply is data: it stands in a `data` block.
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any

from jinja2 import Environment, StrictUndefined, Template

from prismem_core.digests import digest_bytes

_SYSTEM, _PROMPT = "{# system #}", "{# prompt #}"
_TAG_DIGITS = 12


def data(text: str, name: str) -> str:
    """`text` between tags that it cannot hold: `<name-...>`, with digits of the text's own digest.

    Whoever writes the text cannot know the tag while writing, so nothing in it ends the block; equal texts have equal
    blocks, so that equal prompts stay equal.
    """
    seed = text.encode("utf-8", "surrogatepass")
    tag = f"{name}-{digest_bytes(seed)[:_TAG_DIGITS]}"
    while tag in text:
        tag += digest_bytes(tag.encode() + seed)[:_TAG_DIGITS]
    return f"<{tag}>\n{text}\n</{tag}>"


@cache
def _text(name: str) -> str:
    return resources.files("prismem_core.prompts").joinpath(f"{name}.md").read_text(encoding="utf-8")


@cache
def _parts(name: str) -> tuple[Template, Template]:
    text = _text(name)
    before, _, rest = text.partition(_SYSTEM)
    system, found, prompt = rest.partition(_PROMPT)
    if before.strip() or not found:
        raise ValueError(f"prompt template {name!r} must hold the parts {_SYSTEM} and {_PROMPT}")
    # Programs' texts are data: nothing in them is ever interpreted as template code, and prompts are not HTML.
    environment = Environment(
        undefined=StrictUndefined, autoescape=False, trim_blocks=True, keep_trailing_newline=False
    )
    environment.filters["data"] = data
    return environment.from_string(system.strip()), environment.from_string(prompt.strip())


def render(name: str, **values: Any) -> tuple[str, str]:
    """The system and prompt text of template `name`; every variable the template uses must be given."""
    system, prompt = _parts(name)
    return system.render(**values), prompt.render(**values)


def version(*names: str) -> str:
    """Twelve digits that change with the text of any of the templates."""
    return digest_bytes("\0".join(_text(name) for name in names).encode())[:_TAG_DIGITS]
