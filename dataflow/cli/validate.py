"""`tileloom validate`: published figures beside ours."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dataflow.cli.shell import STOPPED, check_engine, print_, print_json
from dataflow.options import AsJson, Engine, Hw

if TYPE_CHECKING:
    from dataflow.validate import Comparison
    from hwspecs import Machine


def validate(
    cases: Annotated[
        Path | None, typer.Argument(help="A .csv list; without it the published 20 x 20 counts.")
    ] = None,
    hw: Hw = "tungsten_20x20",
    case: Annotated[list[str] | None, typer.Option(help="Only the cases of this name.")] = None,
    engine: Engine = "auto",
    explain: Annotated[
        bool, typer.Option("--explain", help="Say what each printed figure means.")
    ] = False,
    json_: AsJson = False,
) -> None:
    """Compare simulated cycles with published ones, case by case and overall."""
    import hwspecs
    from dataflow import render
    from dataflow.validate import Comparison, as_json, published, read_cases

    check_engine(engine)
    machine = hwspecs.load(hw)
    path = cases or published()
    rows: list[Comparison] = []
    stopped = False
    try:
        for row in _chosen(read_cases(path), case or [], path):
            cycles = _case_cycles(row, machine, engine)
            rows.append(Comparison(row.name, row.reference_cycles, cycles))
    except KeyboardInterrupt:
        if not rows:  # no case: no table and no means
            raise
        print("interrupted; the cases that had run:", file=sys.stderr)
        stopped = True
    if json_:
        print_json(as_json(rows))
    else:
        print_(render.validation(rows, machine.name, machine.content_hash))
        if explain:
            print_(render.explain(render.VALIDATION_TERMS))
    if stopped:
        raise typer.Exit(STOPPED)


def _chosen(cases: Any, names: list[str], path: Path) -> list[Any]:
    from dataflow.errors import did_you_mean
    from dataflow.request import RequestError

    known = [case.name for case in cases]
    faults = [
        f"--case: case must be one of {path}, got {name!r}; {did_you_mean(name, known)}"
        for name in names
        if name not in known
    ]
    if faults:
        raise RequestError(faults)
    return [case for case in cases if not names or case.name in names]


def _case_cycles(case: Any, machine: Machine, engine: str) -> int:
    from dataflow.cases import case_schedule
    from dataflow.sim import simulate as run
    from mapping import map_graph

    graph, schedule = case_schedule(case)
    program = map_graph(graph, machine, schedule).program
    return run(program, None, values=False, engine=engine).cycles
