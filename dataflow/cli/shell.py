"""What all commands share: exit codes, messages, and output.

Exit codes: 0 where it did what was asked; 1 where values do not fit their reference or a run took
fewer cycles than its bound; 2 for bad input, with the reason on standard error; 130 where the user
stopped it, after a report of what had run.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

from dataflow.options import SettingsCommand

ENGINES = ("auto", "simpy", "fast")
BAD_INPUT, WRONG_VALUES, BELOW_BOUND, STOPPED = 2, 1, 1, 130


def _faults() -> tuple[type[Exception], ...]:
    """The exceptions that mean bad input, not a bug."""
    from dataflow.errors import FaultsError
    from dataflow.sim import DeadlockError
    from dataflow.sim.result import EngineError
    from hwspecs import SpecError
    from mapping.errors import MappingError

    return (FaultsError, SpecError, MappingError, DeadlockError, EngineError)


def register(group: typer.Typer, name: str, function: Callable[..., None]) -> None:
    """Make `function` a command; what bad input raises becomes a message and exit code 2."""

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            function(*args, **kwargs)
        except KeyboardInterrupt:
            leave("interrupted", STOPPED)
        except (MemoryError, RecursionError):
            leave("the sizes must fit this computer's memory; choose smaller ones", BAD_INPUT)
        except OSError as error:
            leave(f"{error.filename or 'standard output'}: {error.strerror or error}", BAD_INPUT)
        except _faults() as error:
            leave(str(error), BAD_INPUT)

    group.command(name, cls=SettingsCommand)(run)


def leave(message: str, code: int) -> None:
    """Leave the command with a message on standard error; raises typer.Exit."""
    print(message.encode("utf-8", "backslashreplace").decode(), file=sys.stderr)
    raise typer.Exit(code)


def check_writable(files: Mapping[str, Path | None]) -> None:
    """Refuse files, by option, that could not be written once a run has ended."""
    from dataflow.request import RequestError

    faults = []
    for option, path in files.items():
        if path is None:
            continue
        if path.is_dir():
            faults.append(f"{option}: file must be no folder, got '{path}'")
        elif not path.parent.is_dir():
            faults.append(f"{option}: folder must exist, got '{path.parent}' for '{path}'")
        elif not os.access(path if path.exists() else path.parent, os.W_OK):
            faults.append(f"{option}: file must be writable, got '{path}'")
    if faults:
        raise RequestError(faults)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Name the file in errors of writing it; those of a full disk do not."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error


def print_json(data: Any) -> None:
    """Print plain data as JSON; ValueError where a figure is not finite."""
    print(json.dumps(data, indent=2, allow_nan=False))


def print_(*parts: Any) -> None:
    """Print what rich renders, in the width of the terminal."""
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal:  # a file or a pipe: tables as wide as they need to be
        console = Console(highlight=False, width=max(console.width, 140))
    for part in parts:
        console.print(part)


def check_engine(engine: str) -> None:
    """Refuse an engine that there is not; RequestError with the nearest one."""
    from dataflow.errors import did_you_mean
    from dataflow.request import RequestError

    if engine not in ENGINES:
        hint = did_you_mean(engine, ENGINES)
        rule = f"engine must be one of {', '.join(ENGINES)}, got {engine!r}"
        raise RequestError(f"--engine: {rule}; {hint}")
