"""`tileloom gpu check | bench | compile | source | tune`: the GPU path on the command line.

The functions here are commands; `dataflow/cli/` registers them and turns what bad input raises
into messages. Everything heavy is imported when a command runs.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dataflow.options import AsJson, GpuScheduleFile, Kernel, Rewrites, Settings

if TYPE_CHECKING:
    from dataflow.nodes import Graph
    from dataflow.request import Request
    from gpu.measure.bench import Case, Row
    from gpu.measure.check import Checked
    from gpu.schedule import GpuSchedule

Precision = Annotated[str, typer.Option("--precision", help="fp32, tf32, fp16, bf16 or fp8.")]
On = Annotated[str, typer.Option("--on", help="gpu, or interpreter (on the CPU).")]
EmittedBy = Annotated[
    str, typer.Option("--emitter", help="triton, gluon (Hopper), or auto: the faster one.")
]
AUTO = "auto"

WRONG_VALUES = 1


@dataclass(frozen=True)
class Simulator:
    """What `dataflow/cli/` lends the commands, as `gpu` knows no simulator.

    values: outputs by name, cycles and seconds of a request on a machine, for the same inputs.
    predict: seconds of a machine (named first) for a request.
    """

    values: Callable[[Request, str, Any], tuple[dict[str, Any], int, float]]
    predict: Callable[[str, Request], float]


def check(
    context: typer.Context,
    kernel: Kernel,
    set_: Settings = None,
    rewrite: Rewrites = None,
    schedule: GpuScheduleFile = None,
    precision: Precision = "bf16",
    on: On = "gpu",
    emitter: EmittedBy = AUTO,
    hw: Annotated[
        str | None,
        typer.Option("--hw", help="Simulate this machine too, on the same inputs."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Of the random inputs.")] = 0,
    json_: AsJson = False,
) -> None:
    """Run a kernel's generated code and judge its values against float64."""
    from gpu.measure.check import check as judge

    made = _request(kernel, set_, rewrite)
    given = _schedule(schedule)
    if given is None and emitter != AUTO:
        given = _chosen(made.graph, _precision(precision), emitter)
    checked = judge(made, _precision(precision), on, given, seed)
    data: dict[str, Any] = {
        "kernel": kernel,
        "precision": precision,
        "where": checked.result.where,
        "device": checked.result.device,
        "emitter": checked.result.emitter,
        "versions": dict(checked.result.versions),
        "outputs": [asdict(verdict) for verdict in checked.verdicts],
        "passed": checked.passed,
    }
    if hw is not None:
        data["simulator"] = _simulated(context.obj, made, hw, checked)
    _print(data) if json_ else _print_check(data)
    if not checked.passed:
        raise typer.Exit(WRONG_VALUES)


def _simulated(simulator: Simulator, made: Request, hw: str, checked: Checked) -> dict[str, Any]:
    import numpy as np

    values, cycles, seconds = simulator.values(made, hw, checked.inputs)
    ours = checked.result.outputs
    apart = {name: float(np.max(np.abs(values[name] - ours[name]))) for name in ours}
    return {"machine": hw, "cycles": cycles, "seconds": seconds, "largest_difference": apart}


def source(
    kernel: Kernel,
    set_: Settings = None,
    rewrite: Rewrites = None,
    schedule: GpuScheduleFile = None,
    precision: Precision = "bf16",
    emitter: EmittedBy = AUTO,
    show_schedule: Annotated[
        bool, typer.Option("--show-schedule", help="Print the schedule (YAML), not the source.")
    ] = False,
) -> None:
    """Print the generated Triton or Gluon source of a kernel, or the schedule behind it."""
    from gpu.emitters import printed
    from gpu.lowering.lower import lower

    made = _request(kernel, set_, rewrite)
    chosen = _schedule(schedule) or _chosen(made.graph, _precision(precision), emitter)
    if show_schedule:
        print(chosen.to_yaml(), end="")
    else:
        print(printed(lower(made.graph, chosen), chosen.emitter).text, end="")


def bench(
    context: typer.Context,
    cases: Annotated[str, typer.Argument(help="A CSV file of cases, or a kernel's name.")],
    set_: Settings = None,
    rewrite: Rewrites = None,
    precision: Precision = "bf16",
    only: Annotated[
        list[str] | None, typer.Option("--only", help="Cases whose name starts with this.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write the results as CSV.")
    ] = None,
    hw: Annotated[
        str | None, typer.Option("--hw", help="Predict each case on this machine, too.")
    ] = None,
    emitter: EmittedBy = AUTO,
    json_: AsJson = False,
) -> None:
    """Time kernels on the GPU beside the best library calls, in one run."""
    from gpu.measure.bench import bench as measure
    from gpu.measure.bench import best_ratios, ceilings, write_rows
    from gpu.run import require_gpu

    chosen = _cases(cases, set_, rewrite, precision, only)
    require_gpu()
    limits = ceilings()
    predict = None if hw is None else partial(context.obj.predict, hw)
    rows = []
    by = lambda made, precision: _chosen(made.graph, precision, emitter)  # noqa: E731
    for row in measure(chosen, limits, by, predict=predict):
        rows.append(row)
        if not json_:
            print(_bench_line(row), flush=True)
        if output is not None:
            write_rows(output, rows, limits)
    if json_:
        _print({"ceilings": asdict(limits), "rows": [asdict(row) for row in rows]})
    else:
        _print_ratios(best_ratios(rows))
    if any(row.call == "tileloom" and row.remark for row in rows):
        raise typer.Exit(WRONG_VALUES)


def _cases(
    cases: str,
    set_: list[str] | None,
    rewrite: list[str] | None,
    precision: str,
    only: list[str] | None,
) -> list[Case]:
    from gpu.measure.bench import Case, read_cases

    if not cases.endswith(".csv"):
        settings, rewrites = " ".join(set_ or []), " ".join(rewrite or [])
        return [Case(f"{cases} {settings}", cases, settings, _precision(precision), rewrites)]
    found = read_cases(Path(cases))
    starts = tuple(only or ("",))
    return [case for case in found if case.case.startswith(starts)]


def _bench_line(row: Row) -> str:
    if row.remark:
        return f"{row.case:40s} {row.call:18s} {row.remark}"
    rate = f"{row.gb_per_s:6.0f} GB/s" if row.tflops != row.tflops else f"{row.tflops:6.1f} TFLOP/s"
    spread = f"{row.low:.4f} to {row.high:.4f}"
    beside = "" if row.call == "tileloom" else f"  {row.gpu_ratio:5.2f} x our time"
    return (
        f"{row.case:40s} {row.call:18s} {row.gpu_milliseconds:9.4f} ms, {row.milliseconds:.4f} "
        f"with its launch ({spread})  {rate}  {row.of_bound:6.1%} of bound{beside}"
    )


def _print_ratios(best: dict[str, Row]) -> None:
    print("\ntime of the fastest library call over ours (above 1: ours is faster):")
    print("on the GPU alone, and as called with its launches")
    for case, row in best.items():
        print(f"  {case:40s} {row.gpu_ratio:6.2f} {row.ratio:6.2f}  {row.call}")


def compile(
    cases: Annotated[str, typer.Argument(help="A CSV file of cases, or a kernel's name.")],
    set_: Settings = None,
    rewrite: Rewrites = None,
    precision: Precision = "bf16",
    only: Annotated[
        list[str] | None, typer.Option("--only", help="Cases whose name starts with this.")
    ] = None,
    capability: Annotated[
        int, typer.Option("--capability", help="90: Hopper, sm_90; 80: Ampere, sm_80.")
    ] = 90,
    emitter: EmittedBy = AUTO,
    json_: AsJson = False,
) -> None:
    """Compile kernels for a card that need not be there, and say what they take of it."""
    from gpu.compile import faults, resources
    from gpu.defaults.schedule import default_schedule

    bad, data = False, []
    for case in _cases(cases, set_, rewrite, precision, only):
        graph = case.request().graph
        hopper = capability == 90
        chosen = (
            _chosen(graph, case.precision, emitter)
            if hopper
            else (default_schedule(graph, case.precision, "a100"))
        )
        for found in resources(graph, chosen, capability):
            wrong = faults(found, capability)
            bad = bad or bool(wrong)
            row = {**asdict(found), "case": case.case, "capability": capability, "faults": wrong}
            del row["ptx"]
            data.append(row)
            if not json_:
                print(
                    f"{case.case:40s} {found.kernel}: {found.registers} registers, "
                    f"{found.shared_bytes} B shared, {', '.join(found.matrix) or 'no products'}"
                    f"{'; ' + '; '.join(wrong) if wrong else ''}",
                    flush=True,
                )
    if json_:
        _print(data)
    if bad:
        raise typer.Exit(WRONG_VALUES)


def tune(
    kernel: Kernel,
    set_: Settings = None,
    rewrite: Rewrites = None,
    precision: Precision = "bf16",
    trials: Annotated[int, typer.Option("--trials", help="Schedules to time at most.")] = 64,
    json_: AsJson = False,
) -> None:
    """Search for a faster schedule on the GPU at hand, and keep the best one for later runs."""
    from gpu.measure.tune import tune as search

    made = _request(kernel, set_, rewrite)
    best, path = search(made, _precision(precision), trials)
    data = {
        "kernel": kernel,
        "milliseconds": best.milliseconds,
        "file": str(path),
        "schedule": best.schedule.as_data(),
    }
    if json_:
        _print(data)
    else:
        print(f"{kernel}: {best.milliseconds:.4f} ms, kept in {path}")
        print(best.schedule.to_yaml(), end="")


def _request(kernel: str, set_: list[str] | None, rewrite: list[str] | None) -> Request:
    from dataflow.request import read_settings, request

    return request(kernel, read_settings(set_ or []), rewrite or [])


def _chosen(graph: Graph, precision: str, emitter: str) -> GpuSchedule:
    """The schedule to run: the best one known, or the default of the emitter asked for."""
    from gpu.defaults.schedule import default_schedule
    from gpu.emit_gluon.schedule import gluon_schedule
    from gpu.measure.known import known_schedule
    from gpu.schedule import EMITTERS, GpuScheduleError

    if emitter == AUTO:
        return known_schedule(graph, precision)
    if emitter not in EMITTERS:
        known = ", ".join((AUTO, *EMITTERS))
        raise GpuScheduleError(f"--emitter: must be one of {known}, got {emitter!r}")
    make = gluon_schedule if emitter == "gluon" else default_schedule
    return make(graph, precision)


def _schedule(path: Path | None) -> GpuSchedule | None:
    from gpu.schedule import GpuSchedule

    return None if path is None else GpuSchedule.from_yaml(path)


def _precision(text: str) -> str:
    from gpu.schedule import PRECISIONS, GpuScheduleError

    if text not in PRECISIONS:
        raise GpuScheduleError(f"--precision: must be one of {', '.join(PRECISIONS)}, got {text!r}")
    return text


def _print(data: Any) -> None:
    print(json.dumps(data, indent=2))


def _print_check(data: dict[str, Any]) -> None:
    print(f"{data['kernel']} at {data['precision']} on {data['device']}, by {data['emitter']}")
    for verdict in data["outputs"]:
        state = "within" if verdict["passed"] else "BEYOND"
        sure = "" if verdict["decisive"] else "; the check proves nothing: zeros would pass"
        print(
            f"  {verdict['output']}: rms error {verdict['rms_error']:.3g}, {state} "
            f"{verdict['budget']:.3g} ({verdict['rule']}); rms value {verdict['size']:.3g}{sure}"
        )
    beside = data.get("simulator")
    if beside is not None:
        print(f"  {beside['machine']}: {beside['cycles']} cycles, {beside['seconds']:.3g} s")
        for name, apart in beside["largest_difference"].items():
            print(f"  {name}: simulator and {data['where']} differ by at most {apart:.3g}")
