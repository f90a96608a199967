"""The command line `tileloom`: the one file that may know every package.

Exit codes: 0 where it did what was asked; 1 where values do not fit their reference or a run took
fewer cycles than its bound; 2 for bad input, with the reason on standard error; 130 where the user
stopped it, after a report of what had run. Packages are imported where they are needed, so that
--help is quick.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from dataflow.options import (
    AsJson,
    Engine,
    Hw,
    Kernel,
    Rewrites,
    ScheduleFile,
    Settings,
    SettingsCommand,
)
from gpu import cli as gpu_cli

if TYPE_CHECKING:
    from dataflow.check import Check
    from dataflow.gains import Gain
    from dataflow.mapping_file import Plan
    from dataflow.program import Program
    from dataflow.report import Report
    from dataflow.request import Request
    from dataflow.sim import Result
    from hwspecs import Machine
    from mapping import Mapping as Mapped

Command = TypeVar("Command", bound=Callable[..., None])

ENGINES = ("auto", "simpy", "fast")
PICTURES = (".png", ".pdf", ".svg")
BAD_INPUT, WRONG_VALUES, BELOW_BOUND, STOPPED = 2, 1, 1, 130

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Simulate dataflow kernels, cycle by cycle and value by value, on machines that YAML"
    " files describe.",
)


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


def _faults() -> tuple[type[Exception], ...]:
    """The exceptions that mean bad input, not a bug."""
    from dataflow.errors import FaultsError
    from dataflow.sim import DeadlockError
    from dataflow.sim.result import EngineError
    from hwspecs import SpecError
    from mapping.errors import MappingError

    return (FaultsError, SpecError, MappingError, DeadlockError, EngineError)


def _command(name: str, group: typer.Typer = app) -> Callable[[Command], Command]:
    """Register a command; what bad input raises becomes a message and exit code 2."""

    def register(function: Command) -> Command:
        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> None:
            try:
                function(*args, **kwargs)
            except KeyboardInterrupt:
                _leave("interrupted", STOPPED)
            except (MemoryError, RecursionError):
                _leave("the sizes must fit this computer's memory; choose smaller ones", BAD_INPUT)
            except OSError as error:
                _leave(
                    f"{error.filename or 'standard output'}: {error.strerror or error}", BAD_INPUT
                )
            except _faults() as error:
                _leave(str(error), BAD_INPUT)

        group.command(name, cls=SettingsCommand)(run)
        return function

    return register


def _leave(message: str, code: int) -> None:
    print(message.encode("utf-8", "backslashreplace").decode(), file=sys.stderr)
    raise typer.Exit(code)


def _check_writable(files: Mapping[str, Path | None]) -> None:
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
def _writing(path: Path) -> Iterator[None]:
    """Name the file in errors of writing it; those of a full disk do not."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error


def _print_json(data: Any) -> None:
    print(json.dumps(data, indent=2, allow_nan=False))


def _print(*parts: Any) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal:  # a file or a pipe: tables as wide as they need to be
        console = Console(highlight=False, width=max(console.width, 140))
    for part in parts:
        console.print(part)


@_command("machines")
def machines(json_: AsJson = False) -> None:
    """List the machines that come with tileloom."""
    from dataflow.listing import machine_rows, machine_table

    rows = machine_rows()
    if json_:
        _print_json({"machines": rows})
    else:
        _print(machine_table(rows))


@_command("kernels")
def kernels(json_: AsJson = False) -> None:
    """List the kernels of the library with their sizes and options."""
    from dataflow.listing import kernel_rows, kernel_table

    rows = kernel_rows()
    if json_:
        _print_json({"kernels": rows})
    else:
        _print(kernel_table(rows))


@dataclass(frozen=True)
class Task:
    """What simulate and map have in common: a kernel on a machine, perhaps with a schedule."""

    request: Request
    machine: Machine
    plan: Plan | None

    def map(self) -> Mapped:
        """Map it, by the schedule given or the default one."""
        from mapping import map_graph

        mapped = map_graph(self.request.graph, self.machine, self.plan and self.plan.schedule)
        if self.plan:
            self.plan.places_as(mapped.program)
        return mapped


def _task(
    kernel: str, hw: str, texts: list[str], rewrites: list[str], schedule: Path | None
) -> Task:
    import hwspecs
    from dataflow.mapping_file import read_plan
    from dataflow.request import read_settings, request

    settings = read_settings(texts)
    plan = read_plan(schedule) if schedule else None
    if plan and plan.file:
        settings = {**plan.settings(), **settings}
        rewrites = rewrites or plan.file.rewrites or ["none"]
    machine = hwspecs.load(hw)
    asked = request(kernel, settings, rewrites)
    if plan:
        plan.agrees_with(asked, machine)
    return Task(asked, machine, plan)


def _check_engine(engine: str) -> None:
    from dataflow.errors import did_you_mean
    from dataflow.request import RequestError

    if engine not in ENGINES:
        hint = did_you_mean(engine, ENGINES)
        rule = f"engine must be one of {', '.join(ENGINES)}, got {engine!r}"
        raise RequestError(f"--engine: {rule}; {hint}")


@_command("simulate")
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

    _check_engine(engine)
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
    _check_writable({"--outputs": outputs, "--plot": plot})
    task = _task(kernel, hw, set_ or [], rewrite or [], schedule)
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
        with _writing(outputs):
            write_arrays(outputs, result.outputs)
    if plot:
        with _writing(plot):
            _draw(task, mapped, result, plot)
    _check_bounds(made)
    if stopped:
        raise typer.Exit(STOPPED)
    if check and check.failed:
        _leave("values: the outputs are further from float64 than rounding explains", WRONG_VALUES)


def _check_bounds(made: Report) -> None:
    """Leave where a run that ended took fewer cycles than a bound: one of the two is wrong."""
    least = max(made.bound, made.mapping_bound, key=lambda bound: bound.cycles)
    if made.complete and made.cycles < least.cycles:
        _leave(
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
    from dataflow.report import as_json as to_json
    from dataflow.report import links_json, report
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
        _print_json(data)
        return made
    _print(render.render(made))
    if chain:
        _print(render_why.why(chain, extra.why or 0))
    if extra.gains is not None:
        _print(render_gains.gains(extra.gains, made.cycles))
    if extra.explain:
        _print(render.explain(dict.fromkeys(terms)))
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


@_command("map")
def map_(
    kernel: Kernel,
    hw: Hw = "plasticine",
    set_: Settings = None,
    rewrite: Rewrites = None,
    schedule: ScheduleFile = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="The file; standard output without it.")
    ] = None,
    json_: AsJson = False,
) -> None:
    """Write a kernel's schedule, placement and routes as a file that simulate takes."""
    import hwspecs
    from dataflow.mapping_file import as_data

    _check_writable({"--output": output})
    task = _task(kernel, hw, set_ or [], rewrite or [], schedule)
    mapped = task.map()
    data = as_data(task.request, mapped.schedule, mapped.program)
    if output:
        with _writing(output):
            output.write_text(hwspecs.write(data), encoding="utf-8")
    if json_:
        _print_json(data)
    elif not output:
        print(hwspecs.write(data), end="")
    else:
        print(f"{output}: schedule, placement and routes of {kernel} on {task.machine.name}")


@_command("validate")
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

    _check_engine(engine)
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
        _print_json(as_json(rows))
    else:
        _print(render.validation(rows, machine.name, machine.content_hash))
        if explain:
            _print(render.explain(render.VALIDATION_TERMS))
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


def _simulated_values(
    made: Request, hw: str, inputs: Mapping[str, Any]
) -> tuple[dict[str, Any], int, float]:
    """The outputs, cycles and seconds of a simulated run on the inputs of a GPU run."""
    import hwspecs
    from dataflow.sim import simulate as run
    from mapping import map_graph

    machine = hwspecs.load(hw)
    result = run(map_graph(made.graph, machine).program, inputs)
    return dict(result.outputs), result.cycles, result.cycles / machine.clock_hz


def _predicted_seconds(hw: str, made: Request) -> float:
    """Seconds of a simulated run, its values left out."""
    import hwspecs
    from dataflow.sim import simulate as run
    from mapping import map_graph

    machine = hwspecs.load(hw)
    result = run(map_graph(made.graph, machine).program, None, values=False, engine="auto")
    return result.cycles / machine.clock_hz


gpu_app = typer.Typer(no_args_is_help=True, help="The same kernels on a GPU.")
for _function in (gpu_cli.check, gpu_cli.bench, gpu_cli.compile, gpu_cli.source, gpu_cli.tune):
    _command(_function.__name__, gpu_app)(_function)


@gpu_app.callback()
def _gpu(context: typer.Context) -> None:
    context.obj = gpu_cli.Simulator(_simulated_values, _predicted_seconds)


app.add_typer(gpu_app, name="gpu")


def main() -> None:
    """Run the command line."""
    # Tiles are small: threads of a BLAS wait for one another longer than they compute.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    app(prog_name="tileloom")


if __name__ == "__main__":
    main()
