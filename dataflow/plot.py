"""A picture of a placed Program: who sits where on the grid, how busy, and what the links carry.

Compute units are squares in the colour of their stream node, memory units discs; a cell is the
fuller in colour the larger the share of the run in which it was busy. Lines between cells are the
routes of both directions, the wider the more beats pass. Triangles at the edges are address
generators. Where cells are too small for names they carry the letter that the legend explains.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.colors import LinearSegmentedColormap, to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyBboxPatch, Polygon, Rectangle

from dataflow.program import Port, Program, Site, Unit
from dataflow.report import RunResult

PALETTE = (
    *("#2f6fb3", "#d9822b", "#3a9a5b", "#c0504d", "#7d5ba6", "#8c6d46", "#d070a8", "#1f9e9e"),
    *("#a3a02c", "#5c7fd6", "#b3592f", "#6b8f3a"),
)
OTHER, MEMORY, LOAD, STORE, LINK = "#8a8a8a", "#566573", "#2e8b57", "#b9770e", "#37474f"
CELL, DISC = 0.66, 0.30  # side of a compute cell, radius of a memory cell, in pitches of the grid
GENERATOR = 0.32  # how far inside its edge site a generator is drawn, in pitches
NAMES_FROM_IN = 0.5  # pitch from which cells and generators carry names
LEGEND_IN, MARGIN_IN, TITLE_IN = 3.0, 0.35, 0.95
DPI = 160

Colour = tuple[float, float, float]


@dataclass(frozen=True)
class _Group:
    """Units of one stream node: its colour, its letter in small cells, how busy they are."""

    name: str
    key: str
    colour: str
    cells: int
    busy: float | None


def draw_placement(
    program: Program,
    result: RunResult | None,
    path: str | Path,
    *,
    title: str = "",
    bound_cycles: int | None = None,
) -> Path:
    """Draw the placed `program` into the image file `path` (its ending picks the format).

    With a `result`, cells are shaded by how busy their units were and the title gets the cycles,
    with `bound_cycles` their distance from the bound too. Returns the path. Raises ValueError where
    the program has no sites.
    """
    if not program.sites:
        raise ValueError(f"draw_placement: program must be placed, {program.graph.name} is not")
    grid = program.machine.grid
    pitch_in = min(0.95, max(0.3, 13.5 / (grid.columns + 2)))
    width = (grid.columns + 2) * pitch_in + LEGEND_IN + 2 * MARGIN_IN
    map_height = max(grid.rows * pitch_in, 3.4)
    height = map_height + TITLE_IN + MARGIN_IN
    width = max(width, 8.2)
    figure = Figure(figsize=(width, height), dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)
    map_width = width - LEGEND_IN - 2 * MARGIN_IN
    axes = figure.add_axes(
        (MARGIN_IN / width, MARGIN_IN / height, map_width / width, map_height / height)
    )
    axes.set_xlim(-1.5, grid.columns + 0.5)
    axes.set_ylim(grid.rows - 0.5, -0.5)
    axes.set_aspect("equal", anchor="C")
    axes.set_axis_off()
    pitch_in = min(map_width / (grid.columns + 2), map_height / grid.rows)
    busy = _busy_shares(program, result)
    groups = _groups(program, busy)
    _draw_links(axes, program, pitch_in)
    _draw_cells(axes, program, busy, groups, pitch_in)
    _draw_generators(axes, program, pitch_in)
    left = 1 - (LEGEND_IN + MARGIN_IN * 0.4) / width
    _draw_legend(figure, left, groups, program, result is not None, pitch_in < NAMES_FROM_IN)
    _draw_title(figure, program, result, title, bound_cycles)
    figure.savefig(path)
    return Path(path)


def _busy_shares(program: Program, result: RunResult | None) -> dict[str, float] | None:
    """Share of the run in which each unit or scratchpad was busy, by the name that is placed."""
    if result is None:
        return None
    cycles = max(1, result.cycles)
    shares = {name: account.busy / cycles for name, account in result.accounts.items()}
    for pad in program.scratchpads:
        shares[pad.name] = max([0.0, *(shares.get(n, 0.0) for n in (*pad.writers, *pad.readers))])
    return shares


def node_of(name: str) -> str:
    """Return the stream node of a unit: its name without the copy.

    >>> node_of("scores@heads.0,m1")
    'scores'
    """
    return name.split("@")[0]


def _groups(program: Program, busy: Mapping[str, float] | None) -> dict[str, _Group]:
    """The compute units by stream node, the largest first; those past the palette share grey."""
    members: dict[str, list[Unit]] = {}
    for unit in program.units:
        if unit.kind == "compute" and not unit.within:
            members.setdefault(node_of(unit.name), []).append(unit)
    cells = {name: sum(unit.cells for unit in units) for name, units in members.items()}
    groups = {}
    for number, name in enumerate(sorted(members, key=lambda n: -cells[n])):
        share = None
        if busy is not None:
            used = [busy.get(unit.name, 0.0) * unit.cells for unit in members[name]]
            share = sum(used) / cells[name]
        colour = PALETTE[number] if number < len(PALETTE) else OTHER
        groups[name] = _Group(name, _letters(number), colour, cells[name], share)
    return groups


def _letters(number: int) -> str:
    """A, B, ... Z, AA, AB, ..."""
    head, tail = divmod(number, 26)
    return (_letters(head - 1) if head else "") + chr(ord("A") + tail)


def _shade(colour: str, share: float | None) -> Colour:
    """The colour, paler the smaller the share; a run of unknown shares has one middle shade."""
    strength = 0.75 if share is None else 0.16 + 0.84 * min(1.0, max(0.0, share))
    red, green, blue = to_rgb(colour)
    return (
        1 - strength * (1 - red),
        1 - strength * (1 - green),
        1 - strength * (1 - blue),
    )


def _ink(background: Colour) -> str:
    red, green, blue = background
    return "white" if 0.299 * red + 0.587 * green + 0.114 * blue < 0.58 else "#1b2631"


def _draw_cells(
    axes: Any,
    program: Program,
    busy: Mapping[str, float] | None,
    groups: Mapping[str, _Group],
    pitch_in: float,
) -> None:
    taken: set[Site] = set()
    for unit in program.units:
        if unit.kind == "compute" and not unit.within:
            group = groups[node_of(unit.name)]
            share = None if busy is None else busy.get(unit.name, 0.0)
            for site in program.sites[unit.name]:
                taken.add(site)
                face = _shade(group.colour, share)
                _square(axes, site, face, group.colour)
                _label(axes, site, group.name, group.key, share, face, pitch_in)
            _draw_chain(axes, program.sites[unit.name], group.colour)
    for pad in program.scratchpads:
        share = None if busy is None else busy[pad.name]
        face = _shade(MEMORY, share)
        for site in program.sites[pad.name]:
            taken.add(site)
            axes.add_patch(Circle((site[1], site[0]), DISC, fc=face, ec=MEMORY, lw=0.7, zorder=3))
            _label(axes, site, pad.value or pad.name, "", share, face, pitch_in * 0.86)
    grid = program.machine.grid
    for site in grid.sites("compute"):
        if site not in taken:
            _square(axes, site, (1.0, 1.0, 1.0), "#c8ced3")
    for site in grid.sites("memory"):
        if site not in taken:
            free = Circle((site[1], site[0]), DISC, fc="white", ec="#c8ced3", lw=0.6, zorder=3)
            axes.add_patch(free)


def _square(axes: Any, site: Site, face: Colour, edge: str) -> None:
    corner = (site[1] - CELL / 2 + 0.08, site[0] - CELL / 2 + 0.08)
    side = CELL - 0.16
    style = "round,pad=0.08,rounding_size=0.1"
    axes.add_patch(FancyBboxPatch(corner, side, side, style, fc=face, ec=edge, lw=0.7, zorder=3))


def _draw_chain(axes: Any, sites: tuple[Site, ...], colour: str) -> None:
    """A line through the cells of a chain, so that they read as one unit."""
    if len(sites) > 1:
        columns, rows = [site[1] for site in sites], [site[0] for site in sites]
        axes.plot(
            columns, rows, color=colour, lw=2.2, alpha=0.45, zorder=2.5, solid_capstyle="round"
        )


def _label(
    axes: Any,
    site: Site,
    name: str,
    key: str,
    share: float | None,
    face: Colour,
    pitch_in: float,
) -> None:
    """Write the name and the share into a cell, or the key where the name has no room."""
    room_points = CELL * pitch_in * 72 * 0.94
    lines, size = _fit(name, room_points) if pitch_in >= NAMES_FROM_IN else ([], 0.0)
    if not lines:
        lines, size = ([key] if key else []), min(9.0, 0.62 * room_points)
    elif share is not None:
        lines = [*lines, f"{100 * share:.0f} %"]
    text = "\n".join(lines)
    settings = {"ha": "center", "va": "center", "color": _ink(face), "linespacing": 1.05}
    axes.text(site[1], site[0], text, fontsize=size, zorder=4, **settings)


def _fit(name: str, room_points: float) -> tuple[list[str], float]:
    """The name in one or two lines and the font size at which it fits; no lines where none does."""
    for size in (8.0, 7.0, 6.0, 5.2):
        columns = int(room_points / (0.58 * size))
        if len(name) <= columns:
            return [name], size
        spaced = name.replace("_", "_ ").replace(".", ". ")
        lines = [line.replace(" ", "") for line in textwrap.wrap(spaced, max(1, columns))]
        if columns >= 5 and len(lines) == 2:
            return lines, size
    columns = int(room_points / (0.58 * 5.2))
    return ([name[: columns - 1] + "…"], 5.2) if columns >= 6 else ([], 0.0)


def _draw_links(axes: Any, program: Program, pitch_in: float) -> None:
    traffic = _traffic(program)
    if not traffic:
        return
    most = max(traffic.values())
    segments, widths, colours = [], [], []
    widest = min(5.0, pitch_in * 72 * 0.13) if program.routes else 1.2
    red, green, blue = to_rgb(LINK)
    columns = program.machine.grid.columns
    edges = {-1: GENERATOR - 1, columns: columns - GENERATOR}
    for ((row, column), (to_row, to_column)), beats in traffic.items():
        x, to_x = edges.get(column, column), edges.get(to_column, to_column)
        # Each direction keeps to its right, so that both can be seen.
        inside = x == column and to_x == to_column
        aside = 0.09 if inside and abs(row - to_row) + abs(column - to_column) == 1 else 0.0
        down, right = (to_column - column) * aside, -(to_row - row) * aside
        segments.append([(x + right, row + down), (to_x + right, to_row + down)])
        part = math.sqrt(beats / most)
        widths.append(0.4 + widest * part)
        colours.append((red, green, blue, (0.3 + 0.6 * part) if program.routes else 0.18))
    axes.add_collection(LineCollection(segments, linewidths=widths, colors=colours, zorder=1))


def _traffic(program: Program) -> dict[tuple[Site, Site], float]:
    """Beats of a run over each link; where channels have no routes, over the straight line.

    Channels of one writer that carry the same value share their links and count once.
    """
    place = _place_of(program)
    pushed = _beats_pushed(program)
    counted: dict[tuple[Site, Site], dict[tuple[str, str], float]] = {}
    for channel in program.channels:
        if channel.kind != "data":
            continue
        ends = (place[channel.writer][-1], place[channel.reader][0])
        path = program.routes.get(channel.name, ends if not program.routes else ())
        links = [*pairwise(program.routes.get(f"{channel.name}#in", ())), *pairwise(path)]
        for link in links:
            net = (channel.writer, channel.value or channel.name)
            beats = counted.setdefault(link, {})
            beats[net] = max(beats.get(net, 0.0), pushed[channel.name] * channel.wires)
    return {link: sum(nets.values()) for link, nets in counted.items() if link[0] != link[1]}


def _place_of(program: Program) -> dict[str, tuple[Site, ...]]:
    place = dict(program.sites)
    for pad in program.scratchpads:
        for name in (*pad.writers, *pad.readers):
            place[name] = program.sites[pad.name]
    for unit in program.units:
        if unit.within:
            place[unit.name] = program.sites[unit.within]
    return place


def _beats_pushed(program: Program) -> dict[str, float]:
    """Tokens that each channel carries in a run; turns of a port are taken as even."""
    pushed: dict[str, float] = {}
    for unit in program.units:
        for port in unit.outputs:
            for name in port.channels:
                pushed[name] = _uses(unit, port) / len(port.channels)
    return {channel.name: pushed.get(channel.name, 1.0) for channel in program.channels}


def _uses(unit: Unit, port: Port) -> int:
    counts = [loop.trips for i, loop in enumerate(unit.loops) if i < port.level]
    skipped = [unit.loops[i].trips for i in port.last if i < port.level]
    return math.prod(counts) // max(1, math.prod(skipped))


def _draw_generators(axes: Any, program: Program, pitch_in: float) -> None:
    """Triangles at the edges that point the way data goes; several in a row share its height."""
    at: dict[Site, list[Unit]] = {}
    for unit in program.units:
        if unit.kind in ("load", "store"):
            for site in program.sites[unit.name]:
                at.setdefault(site, []).append(unit)
    for (row, column), units in sorted(at.items()):
        step = 0.84 / len(units)
        half = min(0.17, step * 0.45)
        for number, unit in enumerate(units):
            middle = row + (number - (len(units) - 1) / 2) * step
            inward = 1 if column < 0 else -1
            way = inward if unit.kind == "load" else -inward
            near = column + GENERATOR * inward
            tip, tail = near + way * half, near - way * half
            corners = [(tip, middle), (tail, middle - half), (tail, middle + half)]
            colour = LOAD if unit.kind == "load" else STORE
            axes.add_patch(Polygon(corners, closed=True, fc=colour, ec="white", lw=0.4, zorder=3))
            size = min(7.0, step * pitch_in * 72 * 0.7)
            if size >= 4.2 and pitch_in >= NAMES_FROM_IN:
                outward = near - inward * (half + 0.08)
                side = "right" if column < 0 else "left"
                name = _shortened(node_of(unit.name), 0.85 * pitch_in * 72, size)
                settings: dict[str, Any] = {"ha": side, "va": "center", "color": colour}
                axes.text(outward, middle, name, fontsize=size, **settings)


def _shortened(name: str, room_points: float, size: float) -> str:
    columns = max(2, int(room_points / (0.56 * size)))
    return name if len(name) <= columns else name[: columns - 1] + "…"


def _draw_title(
    figure: Figure, program: Program, result: RunResult | None, title: str, bound_cycles: int | None
) -> None:
    machine = program.machine
    height = figure.get_figheight()
    head = title or f"{program.graph.name} on {machine.name}"
    if result is not None and f"{result.cycles:,}" not in head:
        head += f": {result.cycles:,} cycles"
    if result is not None and bound_cycles:
        head += f", {result.cycles / bound_cycles:.2f} x the bound of {bound_cycles:,}"
    left = MARGIN_IN / figure.get_figwidth()
    figure.text(left, 1 - 0.32 / height, head, fontsize=13, weight="bold", va="center")
    used = dict.fromkeys(("compute", "load", "store"), 0)
    for unit in program.units:
        if unit.kind in used:
            used[unit.kind] += unit.cells
    memory = sum(pad.cells for pad in program.scratchpads)
    grid = machine.grid
    parts = [
        f"{used['compute']} of {grid.compute_units} compute units",
        f"{memory} of {grid.memory_units} memory units",
        f"{used['load'] + used['store']} of {machine.generators.count} address generators",
    ]
    line = " · ".join(parts)
    figure.text(left, 1 - 0.62 / height, line, fontsize=9, color="#4d5656", va="center")


def _draw_legend(
    figure: Figure,
    left: float,
    groups: Mapping[str, _Group],
    program: Program,
    shaded: bool,
    lettered: bool,
) -> None:
    """Stream nodes with their colours, then what else the picture shows, from the top down."""
    width, height = figure.get_figwidth(), figure.get_figheight()
    axes = figure.add_axes((left, 0, 1 - left, 1))
    axes.set_xlim(0, (1 - left) * width)
    axes.set_ylim(height, 0)
    axes.set_axis_off()
    row_in, top = 0.225, TITLE_IN
    rows = max(1, int((height - top - 2.35) / row_in))
    shown = list(groups.values())[:rows]
    for number, group in enumerate(shown):
        y = top + number * row_in
        axes.add_patch(Rectangle((0, y - 0.075), 0.2, 0.15, fc=group.colour, ec="none"))
        key = group.key if lettered else ""
        axes.text(0.1, y, key, fontsize=6, color="white", ha="center", va="center")
        share = "" if group.busy is None else f", {100 * group.busy:.0f} % busy"
        text = f"{_shortened(group.name, 100, 8)}  {_units(group.cells)}{share}"
        axes.text(0.3, y, text, fontsize=8, va="center", color="#1b2631")
    y = top + len(shown) * row_in
    if len(groups) > len(shown):
        axes.text(0.3, y, f"and {len(groups) - len(shown)} nodes more", fontsize=8, va="center")
        y += row_in
    y += 0.12
    y = _symbols(axes, y, row_in, bool(program.routes))
    if shaded:
        shades = LinearSegmentedColormap.from_list("s", [_shade(MEMORY, 0), _shade(MEMORY, 1)])
        extent = (0.0, 1.3, y + 0.1, y - 0.05)
        axes.imshow([[i / 63 for i in range(64)]], cmap=shades, extent=extent, aspect="auto")
        axes.text(0, y + 0.2, "0 %", fontsize=7, va="center")
        axes.text(1.3, y + 0.2, "100 %", fontsize=7, va="center", ha="right")
        axes.text(1.4, y + 0.02, "of the run busy", fontsize=8, va="center")
        axes.set_xlim(0, (1 - left) * width)
        axes.set_ylim(height, 0)


def _units(count: int) -> str:
    return "1 unit" if count == 1 else f"{count} units"


def _symbols(axes: Any, y: float, row_in: float, routed: bool) -> float:
    """What squares, discs, triangles and lines mean; returns the height below them."""
    square = Rectangle((0.03, y - 0.07), 0.14, 0.14, fc=_shade(OTHER, 0.2), ec=OTHER, lw=0.7)
    axes.add_patch(square)
    axes.text(0.3, y, "compute unit", fontsize=8, va="center")
    y += row_in
    axes.plot([0, 0.2], [y, y], color=PALETTE[0], lw=2.2, alpha=0.45, solid_capstyle="butt")
    axes.text(0.3, y, "units in a chain", fontsize=8, va="center")
    y += row_in
    axes.add_patch(Circle((0.1, y), 0.075, fc=_shade(MEMORY, 0.4), ec=MEMORY, lw=0.7))
    axes.text(0.3, y, "memory unit", fontsize=8, va="center")
    for colour, way, text in ((LOAD, 1, "load"), (STORE, 1, "store")):
        y += row_in
        corners = [
            (0.1 + way * 0.07, y),
            (0.1 - way * 0.07, y - 0.07),
            (0.1 - way * 0.07, y + 0.07),
        ]
        axes.add_patch(Polygon(corners, closed=True, fc=colour, ec="none"))
        axes.text(0.3, y, f"{text} (address generator)", fontsize=8, va="center")
    y += row_in
    axes.plot([0, 0.2], [y, y], color=LINK, lw=2, solid_capstyle="butt")
    text = "links, the wider the more beats" if routed else "channels (a wire each), not routed"
    axes.text(0.3, y, text, fontsize=8, va="center")
    return y + row_in + 0.08
