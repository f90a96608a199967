"""`tileloom gpu check | bench | source`: numbers, timings and generated text of the GPU path.

The functions here are commands; `dataflow/cli.py` registers them and turns what bad input raises
into messages. Everything heavy is imported when a command runs.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from dataflow.request import Request
    from gpu.check import Checked
    from gpu.schedule import GpuSchedule

Kernel = Annotated[str, typer.Argument(help="A kernel's name, or FILE.py:FUNCTION of your own.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="Sizes and options, such as n=4096 causal=true."),
]
Rewrites = Annotated[
    list[str] | None,
    typer.Option("--rewrite", help="Rewrites to apply; none for the plain form."),
]
ScheduleFile = Annotated[
    Path | None, typer.Option("--schedule", help="A GPU schedule (YAML); else the default one.")
]
Precision = Annotated[str, typer.Option("--precision", help="fp32, tf32, fp16, bf16 or fp8.")]
On = Annotated[str, typer.Option("--on", help="gpu, or interpreter (on the CPU).")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]

WRONG_VALUES = 1

Simulate = Callable[["Request", str, Any], tuple[dict[str, Any], int, float]]
"""Values by output, cycles and seconds of the simulated machine, for the same inputs."""


def check(
    context: typer.Context,
    kernel: Kernel,
    set_: Settings = None,
    rewrite: Rewrites = None,
    schedule: ScheduleFile = None,
    precision: Precision = "bf16",
    on: On = "gpu",
    hw: Annotated[
        str | None,
        typer.Option("--hw", help="Simulate this machine too, on the same inputs."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Of the random inputs.")] = 0,
    json_: AsJson = False,
) -> None:
    """Run a kernel's generated code and judge its values against float64."""
    from gpu.check import check as judge

    made = _request(kernel, set_, rewrite)
    checked = judge(made, _precision(precision), on, _schedule(schedule), seed)
    data: dict[str, Any] = {
        "kernel": kernel,
        "precision": precision,
        "where": checked.result.where,
        "device": checked.result.device,
        "versions": dict(checked.result.versions),
        "outputs": [asdict(verdict) for verdict in checked.verdicts],
        "passed": checked.passed,
    }
    if hw is not None:
        data["simulator"] = _simulated(context.obj, made, hw, checked)
    _print(data) if json_ else _print_check(data)
    if not checked.passed:
        raise typer.Exit(WRONG_VALUES)


def _simulated(simulate: Simulate, made: Request, hw: str, checked: Checked) -> dict[str, Any]:
    import numpy as np

    values, cycles, seconds = simulate(made, hw, checked.inputs)
    ours = checked.result.outputs
    apart = {name: float(np.max(np.abs(values[name] - ours[name]))) for name in ours}
    return {"machine": hw, "cycles": cycles, "seconds": seconds, "largest_difference": apart}


def source(
    kernel: Kernel,
    set_: Settings = None,
    rewrite: Rewrites = None,
    schedule: ScheduleFile = None,
    precision: Precision = "bf16",
    show_schedule: Annotated[
        bool, typer.Option("--show-schedule", help="Print the schedule (YAML), not the source.")
    ] = False,
) -> None:
    """Print the generated Triton source of a kernel, or the schedule behind it."""
    from gpu.default_schedule import default_schedule
    from gpu.emit_triton import source as text
    from gpu.lower import lower

    made = _request(kernel, set_, rewrite)
    chosen = _schedule(schedule) or default_schedule(made.graph, _precision(precision))
    print(chosen.to_yaml() if show_schedule else text(lower(made.graph, chosen)), end="")


def bench(
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
    json_: AsJson = False,
) -> None:
    """Time kernels on the GPU beside the best library calls, in one run."""
    from gpu.bench import Case, ceilings, read_cases, write_rows
    from gpu.bench import bench as measure
    from gpu.run import require_gpu

    require_gpu()
    if cases.endswith(".csv"):
        chosen = read_cases(Path(cases))
        starts = tuple(only or ())
        chosen = [case for case in chosen if not starts or case.case.startswith(starts)]
    else:
        name = " ".join([cases, *(set_ or [])])
        chosen = [
            Case(name, cases, " ".join(set_ or []), _precision(precision), " ".join(rewrite or []))
        ]
    limits = ceilings()
    rows = []
    for row in measure(chosen, limits):
        rows.append(row)
        if not json_:
            share = f"{row.of_bound:6.1%} of bound"
            beside = "" if row.call == "tileloom" else f"  {row.ratio:5.2f} x our time"
            print(
                f"{row.case:44s} {row.call:18s} {row.milliseconds:9.4f} ms  {share}{beside}",
                flush=True,
            )
        if output is not None:
            write_rows(output, rows, limits)
    if json_:
        _print({"ceilings": asdict(limits), "rows": [asdict(row) for row in rows]})


def _request(kernel: str, set_: list[str] | None, rewrite: list[str] | None) -> Request:
    from dataflow.request import read_settings, request

    return request(kernel, read_settings(set_ or []), rewrite or [])


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
    print(f"{data['kernel']} at {data['precision']} on {data['device']}")
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
