"""Prints the chain of causes behind a run's end: what it was spent on, and its last links."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from dataflow.chain import Chain
from dataflow.render import term
from dataflow.tables import FittedTable

PARTS = 12
PART_COLUMNS = ("resource", "spent on", "cycles", "share", "links")
WORDS = ("resource", "spent on")
LINK_COLUMNS = ("since", "cycles", "spent on", "resource")


def terms_of(chain: Chain, count: int) -> tuple[str, ...]:
    """Return every term that `why` prints, in order of first appearance."""
    kinds = [part.kind for part in chain.parts()[:PARTS]]
    kinds += [link.kind for link in chain.last(count)]
    return tuple(dict.fromkeys((*PART_COLUMNS, *LINK_COLUMNS, *kinds)))


def why(chain: Chain, count: int) -> RenderableType:
    """Return what a chain was spent on, and its last `count` links, the last one first."""
    shown = min(count, len(chain))
    return Group(
        Text("\nwhat the run's end waited for", style="bold cyan"),
        _parts(chain),
        Text(f"\nthe last {shown:,} of {len(chain):,} links, backwards", style="bold cyan"),
        _links(chain, count),
    )


def _parts(chain: Chain) -> RenderableType:
    table = FittedTable([term(name) for name in PART_COLUMNS], wraps=("resource",), left=WORDS)
    parts = chain.parts()
    for part in parts[:PARTS]:
        share = f"{part.cycles / chain.cycles:.1%}"
        table.add(part.resource, term(part.kind), f"{part.cycles:,}", share, f"{part.links:,}")
    rest = sum(part.cycles for part in parts[PARTS:])
    more = f"and {len(parts) - PARTS} more of {rest:,} cycles; --json lists all"
    return Group(table, *([Text(more, style="dim")] if rest else []))


def _links(chain: Chain, count: int) -> RenderableType:
    table = FittedTable([term(name) for name in LINK_COLUMNS], wraps=("resource",), left=WORDS)
    for link in reversed(chain.last(count)):
        table.add(f"{link.since:,}", f"{link.cycles:,}", term(link.kind), link.resource)
    return table
