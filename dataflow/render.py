"""Prints reports as tables that a person can read; `dataflow.explain` defines every term."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from dataflow.check import Check
from dataflow.explain import definition
from dataflow.report import MODEL_VERSION, STALLS, Report, UnitRow
from dataflow.tables import FittedTable

BUSIEST = 8
DEEPEST = 12
# Unit kinds as the loss table groups them.
GROUPS = (
    ("compute", ("compute",)),
    ("scratchpad", ("write", "read")),
    ("load and store", ("load", "store")),
)
STALL_TERMS = {name: name.replace("off_chip", "off-chip") for name in STALLS}


def term(name: str) -> str:
    """Return a term to print; KeyError where `--explain` could not define it."""
    definition(name)
    return name


def terms_of(report: Report) -> tuple[str, ...]:
    """Return every term that `render` prints for a report, in order of first appearance."""
    names = ["machine", "model version"]
    names += [name for name, _ in (*_summary(report), *_traffic(report), *_values(report))]
    names += [*UNIT_COLUMNS, *STALL_TERMS.values(), *BUFFER_COLUMNS]
    return tuple(dict.fromkeys(names))


def render(report: Report) -> RenderableType:
    """Return a report as rich tables: figures, busiest units, losses, buffers."""
    parts: list[RenderableType] = [_head(report), pairs(_summary(report))]
    parts += [_title("busiest units"), _units(_busiest(report.units), report.cycles)]
    parts += [_title("where cycles went, in % of each group's unit-cycles"), _losses(report)]
    if report.buffers:
        parts += [_title("buffers"), _buffers(report)]
    parts += [_title("off-chip"), pairs(_traffic(report))]
    parts += [_title("values"), pairs(_values(report))]
    return Group(*parts)


def explain(terms: Iterable[str]) -> RenderableType:
    """Return the definitions of terms, one a row."""
    table = _plain_table()
    for name in terms:
        table.add_row(Text(name, style="bold"), definition(name))
    return Group(_title("what each figure means"), table)


def _head(report: Report) -> Text:
    sizes = " ".join(f"{name}={value}" for name, value in report.sizes.items())
    options = " ".join(f"{name}={setting(value)}" for name, value in report.options.items())
    rewrites = ", ".join(report.rewrites) or "plain form"
    head = Text(report.kernel, style="bold")
    for part in (sizes, options, f"({rewrites})"):
        if part:
            head.append(f"  {part}", style="not bold")
    head.append(f"\non machine {report.machine} {report.machine_hash}")
    head.append(f", model version {MODEL_VERSION}, engine {report.engine}")
    if not report.complete:
        head.append("\nINTERRUPTED: the figures are those up to the cycle reached", style="red")
    return head


def setting(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _summary(report: Report) -> list[tuple[str, str]]:
    bound, own = report.bound, report.mapping_bound
    return [
        (term("cycles"), f"{report.cycles:,}"),
        (term("time"), seconds(report.seconds)),
        (term("bound"), f"{bound.cycles:,} cycles"),
        (term("bound by"), bound.by),
        (term("distance"), f"{report.distance:.2f} x the bound"),
        (term("mapping bound"), f"{own.cycles:,} cycles, by {own.by}"),
        (term("critical"), critical(report)),
        (term("utilisation"), f"{report.utilisation:.1%}"),
        (term("compute units"), f"{report.compute_cells} of {report.compute_units}"),
        (term("memory units"), f"{report.memory_cells} of {report.memory_units}"),
        (term("generators"), f"{report.generators} of {report.generators_there}"),
        (term("mapping time"), f"{report.mapping_seconds:.2f} s"),
        (term("wall time"), f"{report.wall_seconds:.2f} s"),
        (term("firings a second"), _per_second(report)),
    ]


def critical(report: Report) -> str:
    """Return the resource that the chain of causes names, with what its cycles went to."""
    if report.chain is None:
        return f"not traced: {report.untraced_because}"
    name, parts = report.chain.critical()
    cycles = sum(part.cycles for part in parts)
    most = ", ".join(f"{part.kind} {_share(part.cycles, report.cycles)}" for part in parts[:4])
    return f"{name}, {_share(cycles, report.cycles)} of the run ({most})"


def _per_second(report: Report) -> str:
    if not report.wall_seconds:
        return f"{report.firings:,} firings"
    return f"{report.firings / report.wall_seconds:,.0f} ({report.firings:,} in all)"


def _traffic(report: Report) -> list[tuple[str, str]]:
    rate, peak = report.bytes_per_s, report.peak_bytes_per_s
    share = f", {rate / peak:.0%} of the peak {peak / 1e9:.1f} GB/s" if peak else ""
    return [
        (term("off-chip read"), quantity(report.read_bytes)),
        (term("off-chip written"), quantity(report.written_bytes)),
        (term("off-chip useful"), quantity(report.useful_bytes)),
        (term("off-chip rate"), f"{rate / 1e9:.1f} GB/s{share}"),
        *_banks(report),
    ]


def _banks(report: Report) -> list[tuple[str, str]]:
    """The rows that bursts met and the refreshes, where the machine's banks are described."""
    bursts = sum(row.bursts for row in report.banks)
    if not bursts:
        return []
    hits, misses, conflicts = (
        sum(getattr(row, name) for row in report.banks)
        for name in ("row_hits", "row_misses", "row_conflicts")
    )
    rates = [f"{rate / 1e9:.1f}" for rate in sorted(report.banks_bytes_per_s)]
    spread = " to ".join(dict.fromkeys((rates[0], rates[-1])))
    return [
        (term("row hits"), f"{hits / bursts:.1%} of {bursts:,} bursts"),
        (term("row misses"), f"{misses:,} with no row open, {conflicts:,} with another"),
        (term("refreshes"), _refreshes(report)),
        (term("rate a channel"), f"{spread} GB/s, {len(report.banks)} channels"),
    ]


def _refreshes(report: Report) -> str:
    count = sum(row.refreshes for row in report.banks)
    if not count:
        return "none in a run as short"
    most = max(row.refresh_cycles for row in report.banks)
    return f"{count:,}, of at most {most:,} cycles a channel ({_share(most, report.cycles)})"


def _values(report: Report) -> list[tuple[str, str]]:
    if report.check is None:
        return [(term("values"), f"not checked: {report.unchecked_because}")]
    return values(report.check)


def values(check: Check) -> list[tuple[str, str]]:
    """Return the verdict on the values as terms and texts, for the output nearest its bound."""
    worst = check.worst
    verdict = "within rounding of" if check.passed else "WRONG beside"
    if not check.decisive and not check.failed:
        verdict = f"not decided ({check.undecided_because}) beside"
    return [
        (term("values"), f"{verdict} {check.reference}"),
        (term("largest error"), f"{worst.max_abs_error:.3g} in {worst.name}"),
        (term("error bound"), f"{worst.bound:.3g}"),
        (term("rms error"), f"{worst.rms_error:.3g}, bound {worst.rms_bound:.3g}"),
    ]


UNIT_COLUMNS = ("unit", "kind", "copies", "cells", "firings", "busy")


def _busiest(units: Sequence[UnitRow]) -> list[list[UnitRow]]:
    """Return the busiest groups of copies of a unit, each with all its copies."""
    groups: dict[str, list[UnitRow]] = {}
    for unit in units:
        groups.setdefault(without_copy(unit.name), []).append(unit)
    busy = {name: sum(unit.busy for unit in group) / len(group) for name, group in groups.items()}
    return [groups[name] for name in sorted(groups, key=lambda name: (-busy[name], name))][:BUSIEST]


def _units(groups: Sequence[Sequence[UnitRow]], cycles: int) -> RenderableType:
    names = [term(name) for name in (*UNIT_COLUMNS, *STALL_TERMS.values())]
    table = FittedTable(names, wraps=("unit",), left=("unit", "kind"))
    for group in groups:
        whole = cycles * len(group)
        counts = [len(group), sum(unit.cells for unit in group), sum(u.firings for u in group)]
        parts = [sum(unit.busy for unit in group)]
        parts += [sum(unit.stalls[name] for unit in group) for name in STALLS]
        cells = [f"{count:,}" for count in counts] + [_share(part, whole) for part in parts]
        table.add(without_copy(group[0].name), group[0].kind, *cells)
    return table


def without_copy(name: str) -> str:
    """Return a unit's name without the marks of its copy.

    >>> without_copy("load u -> uy.f@h0,d1 read")
    'load u -> uy.f read'
    """
    return re.sub(r"@[^ ]*", "", name)


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole and part else "-"


def _losses(report: Report) -> RenderableType:
    names = [term(name) for name in ("busy", *STALL_TERMS.values())]
    table = FittedTable(["", *names], wraps=("",))
    for title, kinds in GROUPS:
        units = [unit for unit in report.units if unit.kind in kinds]
        whole = len(units) * report.cycles
        if units:
            busy = _share(sum(unit.busy for unit in units), whole)
            lost = report.stalls(kinds)
            shares = [_share(lost[name], whole) for name in STALLS]
            table.add(f"{len(units)} {title}", busy, *shares)
    return table


BUFFER_COLUMNS = ("channel", "place", "copies", "depth", "peak", "bytes", "because")


def _buffers(report: Report) -> RenderableType:
    names = [term(name) for name in BUFFER_COLUMNS]
    words = ("channel", "because")
    table = FittedTable(names, wraps=words, left=(*words, "place"))
    shown = sorted(report.buffers, key=lambda row: (row.ordinary, -(row.bytes or 0), -row.depth))
    for row in shown[:DEEPEST]:
        peak = "-" if row.peak is None else f"{row.peak:,}"
        size = "" if row.bytes is None else quantity(row.bytes)
        cells = (row.name, row.place, str(row.copies), f"{row.depth:,}", peak, size, row.because)
        table.add(*cells)
    rest = len(report.buffers) - DEEPEST
    more = [Text(f"and {rest} more; --json lists all", style="dim")] if rest > 0 else []
    return Group(table, *more)


def _title(text: str) -> Text:
    return Text(f"\n{text}", style="bold cyan")


def _plain_table() -> Table:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    return table


def pairs(rows: Sequence[tuple[str, str]]) -> Table:
    """Return names with what they are, a pair a line."""
    table = _plain_table()
    for name, text in rows:
        table.add_row(Text(name), Text(text))  # a name may hold brackets: no markup
    return table


def seconds(value: float) -> str:
    """Return a time in the unit that reads best.

    >>> seconds(0.0000125)
    '12.5 us'
    """
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if value * factor >= 1:
            return f"{value * factor:.4g} {unit}"
    return f"{value * 1e9:.4g} ns"


def quantity(size_bytes: int) -> str:
    """Return bytes in the unit that reads best.

    >>> quantity(3 * 2**20)
    '3 MiB'
    """
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size_bytes >= size:
            return f"{size_bytes / size:.4g} {unit}"
    return f"{size_bytes} B"
