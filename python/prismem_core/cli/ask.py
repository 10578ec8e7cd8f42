"""`prismem ask`."""

from __future__ import annotations

import json
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from prismem_core.cli.models import BudgetOption, ChatOption, EmbedderOption, merged, model_values
from prismem_core.cli.options import Require, Sets, SettingsFile, Unsafe, Workers, parse_sets
from prismem_core.cli.terminal_text import terminal_text


def ask_command(
    memory: Annotated[
        str,
        typer.Argument(
            help="A saved memory, an exported program or another program file, or a library name (bm25_rag, ...).",
            show_default=False,
        ),
    ],
    question: Annotated[
        list[str] | None, typer.Option("--question", "-q", help="What to ask; may be repeated.", show_default=False)
    ] = None,
    data: Annotated[
        str | None,
        typer.Option("--data", help='Conversation to add before asking: "sample" or a path (docs/data.md).'),
    ] = None,
    conversation: Annotated[
        str | None, typer.Option("--conversation", help="Its id, where the data set has several.")
    ] = None,
    save: Annotated[
        Path | None, typer.Option("--save", help="Write the memory to this file; a saved memory there is replaced.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object a question: answer, query and retrieved text.")
    ] = False,
    chat: ChatOption = None,
    embedder: EmbedderOption = None,
    budget: BudgetOption = None,
    workers: Workers = None,
    settings: SettingsFile = None,
    sets: Sets = None,
    require: Require = None,
    unsafe_no_sandbox: Unsafe = False,
) -> None:
    """Put conversations into a memory and ask it.

    Examples:

      prismem ask bm25_rag --data my.jsonl --save my.memory --question "Where does Ana live?"

      prismem ask my.memory --question "Since when?"
    """
    from prismem_core.cli.isolation import tell_isolation
    from prismem_core.errors import SettingsError
    from prismem_core.jobs.settings import JobSettings, load_job_settings
    from prismem_core.memory import Memory
    from prismem_core.program import library

    if conversation is not None and data is None:
        raise SettingsError("--conversation names one of a data set; give it with --data")
    if not question and save is None:
        raise SettingsError('nothing to do: ask with --question "..." or keep the memory with --save FILE')
    job_sets, unknown = parse_sets(sets, set(JobSettings.model_fields))
    if unknown:
        raise SettingsError(
            f"{next(iter(unknown))!r} is no setting of a memory; see the table [job] in docs/settings.md"
        )
    given = {"workers": workers, "sandbox_require": require}
    values = {
        **{key: value for key, value in given.items() if value is not None},
        **model_values(chat=chat, embedder=embedder, budget=budget),
    }
    job, _ = load_job_settings(settings, merged(job_sets, values), {})
    make = Memory if memory.replace("-", "_") in library.names() else Memory.load
    with make(memory, settings=job, unsafe=unsafe_no_sandbox, on_isolation=tell_isolation) as one:
        if data is not None:
            with _told(f"reading {data}"):
                problems = one.add_file(data, conversation).problems
            for problem in problems:
                print(f"prismem: warning: {terminal_text(problem)}", file=sys.stderr)
        with _told("building the memory"):
            one.build()
        if save is not None:
            one.save(save)
        for text in question or []:
            with _told(text):
                answer = one.ask(text)
            if as_json:
                row = {
                    "question": text,
                    "answer": answer.text,
                    "query": dict(answer.query),
                    "retrieved": answer.retrieved,
                    "defect": answer.defect,
                }
                print(json.dumps(row, ensure_ascii=True))
            else:
                print(terminal_text(answer.text, keep="\n\t") or "(no answer)")


def _told(what: str) -> AbstractContextManager[object]:
    """Says on a terminal what is going on."""
    console = Console(stderr=True)
    return console.status(escape(terminal_text(what))) if console.is_terminal else nullcontext()
