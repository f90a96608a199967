"""`tileloom map`: schedule, placement and routes as a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dataflow.cli.shell import check_writable, print_json, writing
from dataflow.cli.tasks import task_of
from dataflow.options import AsJson, Hw, Kernel, Rewrites, ScheduleFile, Settings


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

    check_writable({"--output": output})
    task = task_of(kernel, hw, set_ or [], rewrite or [], schedule)
    mapped = task.map()
    data = as_data(task.request, mapped.schedule, mapped.program)
    if output:
        with writing(output):
            output.write_text(hwspecs.write(data), encoding="utf-8")
    if json_:
        print_json(data)
    elif not output:
        print(hwspecs.write(data), end="")
    else:
        print(f"{output}: schedule, placement and routes of {kernel} on {task.machine.name}")
