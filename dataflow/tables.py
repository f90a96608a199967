"""Tables that fit a terminal: words wrap, figures are never cut, what is too wide goes on below.

A table whose columns do not fit beside one another, however narrow its texts, comes in pieces one
below the other. Each piece begins with the first column again, so that its rows can be told.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from rich import box
from rich.console import Console, ConsoleOptions
from rich.table import Table
from rich.text import Text

GAP = 3
"""Characters between two columns: a space on either side, and where a line would be."""
EDGES = 2
NARROWEST = 12
"""Characters that a text keeps, where it has as many, before a table goes on below."""


class FittedTable:
    """Rows of plain text under names, as wide as the console that prints them allows.

    wraps: columns whose words wrap; all others are never cut.
    left: columns that stand on the left, those that wrap unless given; all others on the right.
    """

    def __init__(
        self,
        names: Sequence[str],
        *,
        wraps: Collection[str],
        left: Collection[str] | None = None,
    ):
        self._names = tuple(names)
        self._wraps, self._left = wraps, wraps if left is None else left
        self._rows: list[tuple[str, ...]] = []

    def add(self, *cells: str) -> None:
        """Add a row, a cell a name; brackets in it are brackets, not rich's markup."""
        self._rows.append(cells)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Table]:
        """Yield the pieces; rich calls this where the table is printed."""
        for columns in self._pieces(options.max_width):
            yield self._piece(columns)

    def _pieces(self, width: int) -> list[list[int]]:
        """Columns by place, in pieces of at most `width`, or of two columns where that is wider."""
        least = [self._least_width(place) for place in range(len(self._names))]
        pieces = [[0]]
        for place in range(1, len(self._names)):
            columns = [*pieces[-1], place]
            used = sum(least[column] for column in columns) + GAP * (len(columns) - 1) + EDGES
            if used > width and len(columns) > 2:
                pieces.append([0, place])
            else:
                pieces[-1] = columns
        return pieces

    def _least_width(self, place: int) -> int:
        """What a column needs: a figure its longest line, a text its longest word and a little."""
        cells = [self._names[place], *(row[place] for row in self._rows)]
        widest = max(len(line) for cell in cells for line in cell.split("\n"))
        if self._names[place] not in self._wraps:
            return widest
        word = max((len(word) for cell in cells for word in cell.split()), default=0)
        return max(word, min(widest, NARROWEST))

    def _piece(self, columns: Sequence[int]) -> Table:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for place in columns:
            name = self._names[place]
            justify = "left" if name in self._left else "right"
            table.add_column(
                Text(name), justify=justify, no_wrap=name not in self._wraps, overflow="fold"
            )
        for row in self._rows:
            table.add_row(*(Text(row[place]) for place in columns))
        return table
