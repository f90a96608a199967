"""`tileloom simulate`: run a kernel on a machine and report it."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dataflow.cli.shell import (
    BELOW_BOUND,
    STOPPED,
    WRONG_VALUES,
    check_engine,
    check_writable,
    leave,
    print_,
    print_json,
    writing,
)
from dataflow.cli.tasks import Task, task_of
from dataflow.options import AsJson, Engine, Hw, Kernel, Rewrites, ScheduleFile, Settings

if TYPE_CHECKING:
    from dataflow.check import Check
    from dataflow.gains import Gain
    from dataflow.program import Program
    from dataflow.report import Report
    from dataflow.sim import Result
    from mapping import Mapping as Mapped

PICTURES = (".png", ".pdf", ".svg")


def simulate(
    kernel: Kernel,
    hw: Hw = "plasticine",
    set_: Settings = None,
    rewrite: Rewrites = None,
    schedule: ScheduleFile = None,
    engine: Engine = "auto",
    inputs: Annotated[
        Path | None, typer.Option(help="An .npz file of arrays by input name.")
    ] = None,
    outputs: Annotated[
        Path | None, typer.Option(help="Keep what the machine computed in this .npz file.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Draws the inputs that no file gives.")] = 0,
    no_values: Annotated[
        bool, typer.Option("--no-values", help="Timing only: compute and check no values.")
    ] = False,
    max_cycles: Annotated[
        int | None, typer.Option(min=1, help="Stop at this cycle and report what had run.")
    ] = None,
    why: Annotated[
        int | None,
        typer.Option(min=1, help="List so many links of the chain of causes behind the end."),
    ] = None,
    sensitivity: Annotated[
        bool,
        typer.Option("--sensitivity", help="Run again with a little more of each resource."),
    ] = False,
    plot: Annotated[
        Path | None, typer.Option(help="Draw placement, routes and utilisation (.png).")
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Say what each printed figure means.")
    ] = False,
    json_: AsJson = False,
) -> None:
    """Run a kernel on a machine: cycles, the bound, lost cycles, buffers, checked values."""
    from dataflow.request import RequestError, write_arrays

    check_engine(engine)
    if why and engine == "fast":
        raise RequestError("--why: the fast engine keeps no causes; leave --engine out")
    if engine == "fast" and max_cycles and not no_values:
        raise RequestError("--engine: fast gives no values of a run cut short; add --no-values")
    if no_values and (inputs or outputs):
        raise RequestError("--no-values: it must stand without --inputs and --outputs, got both")
    if sensitivity and max_cycles:
        raise RequestError("--sensitivity: it must stand without --max-cycles, got both")
    if plot and plot.suffix not in PICTURES:
        rule = f"file must end in {', '.join(PICTURES)}"
        raise RequestError(f"--plot: {rule}, got {str(plot)!r}")
    check_writable({"--outputs": outputs, "--plot": plot})
    task = task_of(kernel, hw, set_ or [], rewrite or [], schedule)
    arrays = None if no_values else _arrays(task, inputs, seed)
    started = time.perf_counter()
    mapped = task.map()
    mapping_seconds = time.perf_counter() - started
    result, stopped = _run(mapped, arrays, engine, max_cycles, why)
    check, reason = None, "interrupted"
    try:
        check, reason = _judge(task, arrays, result)
    except KeyboardInterrupt:  # the run has ended: its figures are worth printing
        print("interrupted; the values were not checked", file=sys.stderr)
        stopped = True
    gains = _gains(task, mapped, engine) if sensitivity and not stopped else None
    extra = Extra(why, gains, explain, mapping_seconds)
    made = _report(task, mapped, result, check, reason, extra, as_json=json_)
    if outputs:
        with writing(outputs):
            write_arrays(outputs, result.outputs)
    if plot:
        with writing(plot):
            _draw(task, mapped, result, plot)
    _check_bounds(made)
    if stopped:
        raise typer.Exit(STOPPED)
    if check and check.failed:
        leave("values: the outputs are further from float64 than rounding explains", WRONG_VALUES)


def _check_bounds(made: Report) -> None:
    """Leave where a run that ended took fewer cycles than a bound: one of the two is wrong."""
    least = max(made.bound, made.mapping_bound, key=lambda bound: bound.cycles)
    if made.complete and made.cycles < least.cycles:
        leave(
            f"cycles: {made.cycles} cycles are fewer than the bound of {least.cycles} ({least.by});"
            " this is a bug of tileloom, please report it with this command and its files",
            BELOW_BOUND,
        )


def _arrays(task: Task, file: Path | None, seed: int) -> dict[str, Any]:
    """Return the inputs, rounded to the machine's data type; remarks go to standard error."""
    import numpy as np

    from dataflow.check import largest_of, round_to
    from dataflow.request import inputs_of

    arrays, remarks = inputs_of(task.request.graph, file, seed)
    rounded = {name: round_to(array, task.machine.data_type) for name, array in arrays.items()}
    kind = task.machine.data_type
    for name, array in arrays.items():
        lost = int(np.sum(np.isfinite(array) & (np.abs(array) > largest_of(kind))))
        if lost:
            remarks = (*remarks, f"input {name}: {lost} values are beyond the range of {kind}")
    for remark in remarks:
        print(f"note: {remark}", file=sys.stderr)
    return rounded


def _run(
    mapped: Mapped,
    arrays: Mapping[str, Any] | None,
    engine: str,
    max_cycles: int | None,
    why: int | None,
) -> tuple[Result, bool]:
    """Simulate with a progress bar; the second result says whether the user stopped it.

    The chain of causes comes with values where the engine that runs keeps it.
    """
    from dataflow.progress import shown
    from dataflow.sim import Interrupted, engine_for
    from dataflow.sim import simulate as run

    values = arrays is not None
    chosen = engine_for(mapped.program, engine, values=values, max_cycles=max_cycles, why=bool(why))
    try:
        with shown() as progress:
            return run(
                mapped.program,
                arrays,
                values=values,
                engine=chosen,
                progress=progress,
                max_cycles=max_cycles,
                why=bool(why) or (values and chosen == "simpy"),
            ), False
    except Interrupted as stop:
        print("interrupted; what had run:", file=sys.stderr)
        return stop.result, True


def _judge(
    task: Task, arrays: Mapping[str, Any] | None, result: Result
) -> tuple[Check | None, str]:
    """Compare the values with float64; without a verdict, the second result says why."""
    from dataflow.check import check

    if arrays is None:
        return None, "--no-values was given"
    if not result.complete:
        return None, "the run did not end"
    if not result.outputs:
        return None, "interrupted before all values were worked out"
    machine, asked = task.machine, task.request
    types = (machine.data_type, machine.accumulate_type)
    return check(asked.graph, arrays, result.outputs, *types, plain=asked.plain), ""


@dataclass(frozen=True)
class Extra:
    """What simulate prints beside the run itself: links of the chain, gains, definitions, the
    seconds that mapping took."""

    why: int | None
    gains: list[Gain] | None
    explain: bool
    mapping_seconds: float


def _gains(task: Task, mapped: Mapped, engine: str) -> list[Gain] | None:
    """Run again on machines with a little more of each resource; None where the user stops it.

    Some 50 runs are worth the compiled engine, unless the other one is asked for.
    """
    from dataflow.progress import steps
    from dataflow.sim import DeadlockError
    from dataflow.sim import simulate as run
    from mapping.sensitivity import sensitivity

    chosen = "simpy" if engine == "simpy" else "fast"

    def cycles_of(program: Program) -> int | None:
        try:
            return run(program, None, values=False, engine=chosen).cycles
        except DeadlockError:
            return None

    try:
        with steps() as progress:
            return sensitivity(mapped, cycles_of, anew=task.plan is None, progress=progress)
    except KeyboardInterrupt:
        print("interrupted; the machines with a little more were left out", file=sys.stderr)
        return None


def _report(
    task: Task,
    mapped: Mapped,
    result: Result,
    check: Check | None,
    reason: str,
    extra: Extra,
    *,
    as_json: bool,
) -> Report:
    """Print the report, as tables or JSON, and return it."""
    from dataflow import render, render_gains, render_why
    from dataflow.explain import definition
    from dataflow.gains import gains_json
    from dataflow.report import report
    from dataflow.report_json import as_json as to_json
    from dataflow.report_json import links_json
    from mapping.bounds import bound, program_bound

    asked = task.request
    made = report(
        mapped.program,
        result,
        bound(asked.graph, task.machine),
        program_bound(mapped.program),
        kernel=asked.kernel,
        sizes=asked.sizes,
        options=asked.options,
        rewrites=asked.rewrites,
        engine=result.engine,
        check=check,
        unchecked_because=reason,
        untraced_because=_untraced(result),
        mapping_seconds=extra.mapping_seconds,
        reasons=_reasons(mapped),
    )
    chain = made.chain if extra.why else None
    terms = [*render.terms_of(made)]
    terms += render_why.terms_of(chain, extra.why or 0) if chain else ()
    terms += render_gains.COLUMNS if extra.gains is not None else ()
    if as_json:
        data = to_json(made)
        if chain:
            data["critical"]["links"] = links_json(chain, extra.why or 0)
        if extra.gains is not None:
            data["sensitivity"] = gains_json(extra.gains, made.cycles)
        if extra.explain:
            data["terms"] = {term: definition(term) for term in dict.fromkeys(terms)}
        print_json(data)
        return made
    print_(render.render(made))
    if chain:
        print_(render_why.why(chain, extra.why or 0))
    if extra.gains is not None:
        print_(render_gains.gains(extra.gains, made.cycles))
    if extra.explain:
        print_(render.explain(dict.fromkeys(terms)))
    return made


def _untraced(result: Result) -> str:
    """Why a run has no chain of causes."""
    if result.engine == "fast":
        return "the fast engine keeps no causes; --why 20 runs the other one"
    return "--why 20 traces the run" if result.complete else "the run was interrupted"


def _reasons(mapped: Mapped) -> dict[str, str]:
    """Return why each channel is as deep as it is, as it was derived with the stream."""
    return {edge.name: edge.why for edge in mapped.stream.edges if edge.why}


def _draw(task: Task, mapped: Mapped, result: Result, path: Path) -> None:
    from dataflow.plot import draw_placement
    from mapping.bounds import bound

    title = f"{task.request.kernel} on {task.machine.name}"
    least = bound(task.request.graph, task.machine).cycles
    draw_placement(mapped.program, result, path, title=title, bound_cycles=least)
    print(f"picture: {path}", file=sys.stderr)
