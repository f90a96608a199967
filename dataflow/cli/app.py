"""The whole command line: every command, in the order in which --help lists them."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from dataflow.cli.gpu_commands import lend_simulator
from dataflow.cli.lists import kernels, machines
from dataflow.cli.map import map_
from dataflow.cli.shell import register
from dataflow.cli.simulate import simulate
from dataflow.cli.validate import validate
from gpu import cli as gpu_cli

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Simulate dataflow kernels, cycle by cycle and value by value, on machines that YAML"
    " files describe.",
)
for _name, _function in (
    ("machines", machines),
    ("kernels", kernels),
    ("simulate", simulate),
    ("map", map_),
    ("validate", validate),
):
    register(app, _name, _function)

gpu_app = typer.Typer(no_args_is_help=True, help="The same kernels on a GPU.")
gpu_app.callback()(lend_simulator)
for _function in (gpu_cli.check, gpu_cli.bench, gpu_cli.compile, gpu_cli.source, gpu_cli.tune):
    register(gpu_app, _function.__name__, _function)
app.add_typer(gpu_app, name="gpu")


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        from dataflow.report import MODEL_VERSION

        print(f"tileloom {version('tileloom')}, model version {MODEL_VERSION}")
        raise typer.Exit


@app.callback()
def _top(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print versions.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line."""
    # Tiles are small: threads of a BLAS wait for one another longer than they compute.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    app(prog_name="tileloom")
