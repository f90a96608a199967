"""Prints published figures beside ours."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from dataflow.deepbench import NEAR, Served, mean_ratio
from dataflow.render import pairs, term
from dataflow.report import MODEL_VERSION
from dataflow.tables import FittedTable
from dataflow.validate import (
    Comparison,
    mean_abs_error,
    rank_correlation,
    units_apart,
    worst_abs_error,
)

VALIDATION_TERMS = (
    "reference",
    "cycles",
    "error",
    "reference PCUs",
    "PCUs",
    "reference PMUs",
    "PMUs",
    "mean absolute error",
    "worst absolute error",
    "rank correlation",
    "PCUs apart",
    "PMUs apart",
)
SERVED_TERMS = (
    "reference ms",
    "ms",
    "reference TFLOP/s",
    "TFLOP/s",
    "ratio",
    "cycles/step",
    "bound by",
    "run ms",
    "mean ratio",
    "outside",
)


def validation(rows: Sequence[Comparison], machine: str, machine_hash: str) -> RenderableType:
    """Return published cycles and units beside ours, a case a row, and the errors over all."""
    names = [term(name) for name in VALIDATION_TERMS[:7]]
    table = FittedTable(["case", *names], wraps=("case",))
    for row in rows:
        units = (row.reference_pcus, row.pcus, row.reference_pmus, row.pmus)
        cycles = (f"{row.reference_cycles:,}", f"{row.cycles:,}", f"{row.error:+.1%}")
        table.add(row.case, *cycles, *("-" if count is None else str(count) for count in units))
    rank = rank_correlation(rows)
    overall = [
        (term("mean absolute error"), f"{mean_abs_error(rows):.2%}"),
        (term("worst absolute error"), f"{worst_abs_error(rows):.2%}"),
        (term("rank correlation"), "-" if rank is None else f"{rank:.4f}"),
        (term("PCUs apart"), _apart(rows, lambda row: (row.pcus, row.reference_pcus))),
        (term("PMUs apart"), _apart(rows, lambda row: (row.pmus, row.reference_pmus))),
    ]
    return Group(_head(len(rows), machine, machine_hash), table, pairs(overall))


def _apart(
    rows: Sequence[Comparison], counts: Callable[[Comparison], tuple[int | None, int | None]]
) -> str:
    apart = units_apart(counts(row) for row in rows)
    if not apart:
        return "-"
    equal = sum(difference == 0 for difference in apart)
    return f"{min(apart):+d} to {max(apart):+d}, none in {equal} of {len(apart)} cases"


def served(rows: Sequence[Served], machine: str, machine_hash: str) -> RenderableType:
    """Return published layers beside ours, a layer a row."""
    names = [term(name) for name in SERVED_TERMS[:8]]
    table = FittedTable(["case", "H", "T", *names], wraps=(), left=("case", "bound by"))
    for row in rows:
        layer = row.layer
        table.add(
            layer.name,
            str(layer.hidden),
            str(layer.steps),
            f"{layer.published_ms:.4f}",
            f"{row.ms:.4f}",
            f"{layer.tflops(layer.published_ms):.2f}",
            f"{layer.tflops(row.ms):.2f}",
            f"{row.ratio:.2f}",
            f"{row.step_cycles:,.0f}",
            f"{row.bound_by} {row.bound_share:.0%}",
            f"{row.run_ms:.4f}",
        )
    outside = [row.layer.name for row in rows if not row.near]
    overall = [
        (term("mean ratio"), f"{mean_ratio(rows):.2f}"),
        (term("outside"), ", ".join(outside) or f"none of {NEAR[0]} to {NEAR[1]}"),
    ]
    return Group(_head(len(rows), machine, machine_hash), table, pairs(overall))


def _head(count: int, machine: str, machine_hash: str) -> Text:
    return Text(f"{count} cases on {machine} {machine_hash}, model version {MODEL_VERSION}")
