"""Prints what a little more of each resource brought, and what brought nothing."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from dataflow.gains import Gain
from dataflow.render import term
from dataflow.tables import FittedTable

COLUMNS = ("with", "in the file", "same schedule", "saved", "new schedule", "saved anew")
WORDS = ("with", "in the file")


def gains(found: list[Gain], cycles: int) -> RenderableType:
    """Return a table of the runs on variants beside the one at hand, which took `cycles`."""
    # In place of a run's cycles may stand the reason why there is none, so that they wrap too.
    wraps = (*WORDS, "same schedule", "new schedule")
    table = FittedTable([term(name) for name in COLUMNS], wraps=wraps, left=WORDS)
    for gain in found:
        if not gain.changes_nothing(cycles):
            table.add(*_row(gain, cycles))
    same = [gain.variant.name for gain in found if gain.changes_nothing(cycles)]
    rest = Text(f"no change with {'; '.join(same)}", style="dim") if same else Text("")
    return Group(Text("\nwhat a little more would bring", style="bold cyan"), table, rest)


def _row(gain: Gain, cycles: int) -> tuple[str, ...]:
    changes = "\n".join(f"{c.path}: {c.before} -> {c.after}" for c in gain.variant.changes)
    return (
        gain.variant.name,
        changes,
        f"{gain.cycles:,}" if gain.cycles is not None else gain.fault,
        _percent(gain.saved(gain.cycles, cycles)),
        f"{gain.anew:,}" if gain.anew is not None else gain.anew_fault or "-",
        _percent(gain.saved(gain.anew, cycles)),
    )


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.2%}"
