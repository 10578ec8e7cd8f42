"""The command `prismem`: each subcommand parses its words, calls one job and prints the result."""

from __future__ import annotations

import logging
import os
import signal
import sys
import warnings
from types import FrameType
from typing import Annotated, NoReturn, TextIO

import typer

from prismem_core import __version__
from prismem_core.cli import (
    ask,
    bench,
    cache,
    compare,
    data,
    doctor,
    evaluate,
    evolve,
    explain_reuse,
    export,
    forecast,
    judge_agreement,
    kernels,
    report,
    validate,
)
from prismem_core.errors import PrismemError

app = typer.Typer(
    name="prismem",
    help=(
        "Evolve, evaluate and inspect agent-memory programs.\n\n"
        "First steps: `prismem evolve --data sample --run runs/first`, then `prismem report runs/first`. "
        "Without further settings everything runs on the embedded default: no GPU, no key, no network."
    ),
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"prismem-core {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Options of the command itself."""


app.command("evolve")(evolve.evolve_command)
app.command("resume")(evolve.resume_command)
app.command("forecast")(forecast.forecast_command)
app.command("evaluate")(evaluate.evaluate_command)
app.command("compare")(compare.compare_command)
app.command("validate")(validate.validate_command)
app.command("explain-reuse")(explain_reuse.explain_reuse_command)
app.command("judge-agreement")(judge_agreement.judge_agreement_command)
app.command("report")(report.report_command)
app.command("export")(export.export_command)
app.command("ask")(ask.ask_command)
app.command("doctor")(doctor.doctor_command)
app.command("bench")(bench.bench_command)
app.add_typer(cache.app, name="cache")
app.add_typer(kernels.app, name="kernels")
app.add_typer(data.app, name="data")


_INTERRUPTED_CODE = 130
_INTERRUPTED = "interrupted; what a run or a cache was given is kept: a run goes on with `prismem resume DIR`"

# Some versions of typer carry a click of their own, so the class of its errors is taken from typer itself.
_USAGE_ERROR: type[Exception] = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")


def main() -> NoReturn:
    """Run the command line; every error a user can cause is one line on stderr and an exit code other than 0."""
    signal.signal(signal.SIGINT, _Interrupts())
    warnings.showwarning = _warn
    logging.getLogger("prismem_core").addHandler(_Lines(logging.WARNING))
    try:
        result = app(standalone_mode=False)
    except KeyboardInterrupt:
        _fail(_INTERRUPTED, _INTERRUPTED_CODE)
    except PrismemError as error:
        _fail(str(error), error.exit_code)
    except typer.Exit as error:
        result = error.exit_code
    except typer.Abort:
        _fail(_INTERRUPTED, _INTERRUPTED_CODE)
    except _USAGE_ERROR as error:
        message = error.format_message()  # type: ignore[attr-defined]
        # Without any word the help itself is what is printed, and the message is empty.
        _fail(f"{message or 'no command was given'}; see `prismem --help`", error.exit_code)  # type: ignore[attr-defined]
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except MemoryError:
        _fail("out of memory; use fewer --workers or a smaller data set", 1)
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        _fail(f"{error.strerror or error}{where}; nothing that was finished is lost", 1)
    # Some versions of typer turn an interrupt into this exit code themselves.
    if result == _INTERRUPTED_CODE:
        _fail(_INTERRUPTED, _INTERRUPTED_CODE)
    sys.exit(result if isinstance(result, int) else 0)


class _Interrupts:
    """The first Ctrl-C ends the job in order, the second at once: the journal is whole after every event anyway."""

    def __init__(self) -> None:
        self._seen = 0

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self._seen += 1
        if self._seen > 1:
            os.write(2, b"prismem: stopped at once; what was finished is kept: go on with `prismem resume DIR`\n")
            os._exit(_INTERRUPTED_CODE)
        raise KeyboardInterrupt


class _Lines(logging.Handler):
    """A warning of the library is one line for the user, as one of the interpreter is."""

    def emit(self, record: logging.LogRecord) -> None:
        print(f"prismem: {record.levelname.lower()}: {' '.join(record.getMessage().split())}", file=sys.stderr)


def _warn(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """A warning is one line for the user, without the place in this library that gave it."""
    print(f"prismem: warning: {' '.join(str(message).split())}", file=sys.stderr)


def _fail(message: str, code: int) -> NoReturn:
    print(f"prismem: {' '.join(message.split())}", file=sys.stderr)
    if code == _INTERRUPTED_CODE:
        # All is closed by now; leaving at once keeps a second Ctrl-C from ending the interpreter with a traceback.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)
