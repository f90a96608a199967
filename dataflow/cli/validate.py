"""`tileloom validate`: published figures beside ours."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from dataflow.cli.deepbench import serve
from dataflow.cli.shell import STOPPED, check_engine, print_, print_json
from dataflow.options import AsJson, Engine

if TYPE_CHECKING:
    from dataflow.deepbench import Layer
    from dataflow.validate import Case, Measured
    from hwspecs import Machine

Row = TypeVar("Row", bound="Layer | Case")
Compared = TypeVar("Compared")

TUNGSTEN, DEEPBENCH = "tungsten", "deepbench"
MACHINES = {DEEPBENCH: "plasticine_rnn"}
"""The machine of a set; all others were published for USUAL_MACHINE."""
USUAL_MACHINE = "tungsten_20x20"


def validate(
    cases: Annotated[
        str, typer.Argument(help="tungsten, deepbench, or a .csv list of your own.")
    ] = TUNGSTEN,
    hw: Annotated[
        str | None, typer.Option("--hw", help="A machine; without it the one of the set.")
    ] = None,
    case: Annotated[list[str] | None, typer.Option(help="Only the cases of this name.")] = None,
    engine: Engine = "auto",
    explain: Annotated[
        bool, typer.Option("--explain", help="Say what each printed figure means.")
    ] = False,
    json_: AsJson = False,
) -> None:
    """Compare simulated figures with published ones, case by case and overall."""
    import hwspecs
    from dataflow import render, render_validation

    check_engine(engine)
    machine = hwspecs.load(hw or MACHINES.get(cases, USUAL_MACHINE))
    if cases == DEEPBENCH:
        from dataflow.deepbench import as_json

        rows, stopped = _layers(machine, case or [], engine)
        table, terms = render_validation.served, render_validation.SERVED_TERMS
    else:
        from dataflow.validate import as_json

        rows, stopped = _cases(cases, machine, case or [], engine)
        table, terms = render_validation.validation, render_validation.VALIDATION_TERMS
    if json_:
        print_json(as_json(rows))
    else:
        print_(table(rows, machine.name, machine.content_hash))
        if explain:
            print_(render.explain(terms))
    if stopped:
        raise typer.Exit(STOPPED)


def _layers(machine: Machine, names: list[str], engine: str) -> tuple[list[Any], bool]:
    """DeepBench's layers beside ours; the runs are worth the compiled engine."""
    from dataflow.deepbench import layers

    chosen = _chosen({layer.name: layer for layer in layers()}, names, DEEPBENCH)
    fast = "fast" if engine == "auto" else engine
    return _until_stopped(chosen, lambda layer: serve(layer, machine, fast))


def _cases(cases: str, machine: Machine, names: list[str], engine: str) -> tuple[list[Any], bool]:
    """The cases of a list beside ours; all rows have a schedule before the first one runs."""
    from dataflow.errors import did_you_mean
    from dataflow.request import RequestError
    from dataflow.validate import Comparison, published, read_cases

    path = published() if cases == TUNGSTEN else Path(cases)
    if not (path.suffix or path.exists()):
        hint = did_you_mean(cases, (TUNGSTEN, DEEPBENCH))
        rule = f"must be {TUNGSTEN}, {DEEPBENCH} or a .csv list"
        raise RequestError(f"CASES: it {rule}, got {cases!r}; {hint}")
    chosen = _chosen({case.name: case for case in read_cases(path)}, names, str(path))
    _check_schedules(chosen)
    return _until_stopped(
        chosen, lambda case: Comparison.of(case, _measured(case, machine, engine))
    )


def _check_schedules(cases: Iterable[Case]) -> None:
    """Refuse rows that no schedule can be made of, all in one CaseError."""
    from dataflow.cases import case_schedule
    from dataflow.validate import CaseError

    faults: list[str] = []
    for case in cases:
        try:
            case_schedule(case)
        except CaseError as error:
            faults += error.faults
    if faults:
        raise CaseError(faults)


def _until_stopped(
    rows: Sequence[Row], compared: Callable[[Row], Compared]
) -> tuple[list[Compared], bool]:
    """What each row gives, and whether the user stopped it before all had been run."""
    from dataflow.progress import steps

    done: list[Compared] = []
    try:
        with steps() as progress:
            for row in rows:
                if progress:
                    progress(len(done), len(rows), row.name)
                done.append(compared(row))
    except KeyboardInterrupt:
        if not done:  # no case: no table and no means
            raise
        print("interrupted; the cases that had run:", file=sys.stderr)
        return done, True
    return done, False


def _chosen(rows: dict[str, Row], names: Sequence[str], source: str) -> list[Row]:
    from dataflow.errors import did_you_mean
    from dataflow.request import RequestError

    faults = [
        f"--case: case must be one of {source}, got {name!r}; {did_you_mean(name, rows)}"
        for name in names
        if name not in rows
    ]
    if faults:
        raise RequestError(faults)
    return [row for name, row in rows.items() if not names or name in names]


def _measured(case: Case, machine: Machine, engine: str) -> Measured:
    """Cycles and units of a case on a machine, by the schedule it was published with.

    Raises CaseError, with the row's place, where it does not fit the machine or cannot run there.
    """
    from dataflow.cases import case_schedule
    from dataflow.schedule import ScheduleError
    from dataflow.sim import DeadlockError, simulate
    from dataflow.validate import CaseError, Measured
    from mapping import map_graph
    from mapping.errors import MappingError

    graph, schedule = case_schedule(case)
    try:
        program = map_graph(graph, machine, schedule).program
        cycles = simulate(program, None, values=False, engine=engine).cycles
    except (ScheduleError, MappingError, DeadlockError) as error:
        place = f"{case.where}: case {case.name}"
        raise CaseError([f"{place}: {fault}" for fault in str(error).splitlines()]) from error
    return Measured(
        cycles,
        sum(unit.cells for unit in program.units if unit.kind == "compute"),
        sum(pad.cells for pad in program.scratchpads),
    )
