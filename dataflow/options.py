"""Options of the command line that several commands share; nothing here knows what they do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

Kernel = Annotated[str, typer.Argument(help="A kernel's name, or FILE.py:FUNCTION of your own.")]
Hw = Annotated[str, typer.Option("--hw", help="A machine's name, or a .yaml file of your own.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="Sizes and options, such as n=4096 causal=true."),
]
Rewrites = Annotated[
    list[str] | None,
    typer.Option("--rewrite", help="Rewrites to apply; none for the plain form."),
]
ScheduleFile = Annotated[
    Path | None, typer.Option("--schedule", help="A schedule, or a file made by tileloom map.")
]
GpuScheduleFile = Annotated[
    Path | None, typer.Option("--schedule", help="A GPU schedule (YAML); else the default one.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Engine = Annotated[str, typer.Option("--engine", help="auto, simpy, or fast (compiled, equal).")]


class SettingsCommand(TyperCommand):
    """A command whose --set takes several settings: `--set n=4096 d=128`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put --set before every setting that follows one."""
        return super().parse_args(ctx, list(_spread(args)))


def _spread(args: Iterable[str]) -> Iterator[str]:
    setting = False
    for place, arg in enumerate(args := list(args)):
        follows = setting and "=" in arg and not arg.startswith("-")
        if follows and args[place - 1] != "--set":
            yield "--set"
        setting = arg == "--set" or follows
        yield arg
