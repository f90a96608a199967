"""What there is: the machines and the kernels, as plain rows and as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import RenderableType

import hwspecs
from dataflow.kernels import KERNELS
from dataflow.render import quantity, setting
from dataflow.tables import FittedTable
from hwspecs import Machine


def machine_rows() -> list[dict[str, Any]]:
    """Return the machines that come with the package, by name."""
    return [_machine_row(hwspecs.load(name)) for name in hwspecs.names()]


def _machine_row(machine: Machine) -> dict[str, Any]:
    grid, off_chip = machine.grid, machine.off_chip
    return {
        "machine": machine.name,
        "machine_hash": machine.content_hash,
        "summary": machine.summary,
        "clock_hz": machine.clock_hz,
        "compute_units": grid.compute_units,
        "memory_units": grid.memory_units,
        "lanes": machine.compute.lanes,
        "stages": machine.compute.stages,
        "data_type": machine.data_type,
        "scratchpad_bytes": grid.memory_units * machine.memory.capacity_bytes,
        "peak_ops_per_s": machine.peak_ops_per_cycle * machine.clock_hz,
        "off_chip": off_chip.standard,
        "off_chip_peak_bytes_per_s": off_chip.channels * off_chip.peak_bytes_per_s,
    }


def kernel_rows() -> list[dict[str, Any]]:
    """Return the kernels of the library, with the defaults of their sizes and options."""
    return [
        {
            "kernel": kernel.name,
            "summary": kernel.summary,
            "sizes": dict(kernel.sizes),
            "options": dict(kernel.options),
            "choices": {name: list(choices) for name, choices in kernel.choices.items()},
            "rewrites": list(kernel.rewrites),
        }
        for kernel in KERNELS.values()
    ]


def machine_table(rows: Sequence[Mapping[str, Any]]) -> RenderableType:
    """Return machines as a table, a machine a row."""
    figures = ("machine", "units", "lanes x stages", "type", "clock", "peak", "on chip")
    words = ("off-chip", "what it is")
    table = FittedTable((*figures, *words), wraps=words, left=(*figures, *words))
    for row in rows:
        table.add(
            row["machine"],
            f"{row['compute_units']} + {row['memory_units']}",
            f"{row['lanes']} x {row['stages']}",
            row["data_type"],
            f"{row['clock_hz'] / 1e9:g} GHz",
            f"{row['peak_ops_per_s'] / 1e12:.3g} Top/s",
            quantity(row["scratchpad_bytes"]),
            f"{row['off_chip']}, {row['off_chip_peak_bytes_per_s'] / 1e9:.4g} GB/s",
            row["summary"],
        )
    return table


def kernel_table(rows: Sequence[Mapping[str, Any]]) -> RenderableType:
    """Return kernels as a table, a kernel a row, with sizes and options at their defaults."""
    words = ("sizes", "options", "rewrites", "what it is")
    table = FittedTable(("kernel", *words), wraps=words, left=("kernel", *words))
    for row in rows:
        sizes = " ".join(f"{axis}={extent}" for axis, extent in row["sizes"].items())
        options = " ".join(f"{name}={setting(value)}" for name, value in row["options"].items())
        table.add(row["kernel"], sizes, options, " ".join(row["rewrites"]), row["summary"])
    return table
