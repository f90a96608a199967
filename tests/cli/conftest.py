"""Runs the command line inside the test's own process."""

import json
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from typing import Any

import pytest

from dataflow import cli


@dataclass(frozen=True)
class Outcome:
    """What a command left: its exit code and what it wrote."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Outcome]


@pytest.fixture(scope="session")
def tileloom() -> Run:
    """Run `tileloom *args`; what is raised beside SystemExit reaches the test."""

    def run(*args: object) -> Outcome:
        out, err = StringIO(), StringIO()
        code: Any = 0
        with redirect_stdout(out), redirect_stderr(err):
            try:
                cli.app([str(arg) for arg in args], prog_name="tileloom")
            except SystemExit as stop:
                code = stop.code
        return Outcome(int(code or 0), out.getvalue(), err.getvalue())

    return run
