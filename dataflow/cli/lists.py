"""`tileloom machines` and `tileloom kernels`: what there is."""

from __future__ import annotations

from dataflow.cli.shell import print_, print_json
from dataflow.options import AsJson


def machines(json_: AsJson = False) -> None:
    """List the machines that come with tileloom."""
    from dataflow.listing import machine_rows, machine_table

    rows = machine_rows()
    if json_:
        print_json({"machines": rows})
    else:
        print_(machine_table(rows))


def kernels(json_: AsJson = False) -> None:
    """List the kernels of the library with their sizes and options."""
    from dataflow.listing import kernel_rows, kernel_table

    rows = kernel_rows()
    if json_:
        print_json({"kernels": rows})
    else:
        print_(kernel_table(rows))
