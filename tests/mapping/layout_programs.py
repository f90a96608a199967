"""Programs of units, scratchpads and channels alone, for the tests of placement and routing.

What the units compute does not matter here: all share a stub of work and a graph of one node.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

from dataflow.graph import Builder
from dataflow.program import Channel, Fetch, Host, Loop, Port, Program, Scratchpad, Site, Unit
from hwspecs import Machine, load


def variant(name: str, **parts: dict[str, object]) -> Machine:
    """The machine `name` with some attributes of its parts changed, unchecked."""
    machine = load(name)
    changed = {part: getattr(machine, part).model_copy(update=u) for part, u in parts.items()}
    return machine.model_copy(update=changed)


@dataclass
class Sketch:
    """A Program under construction: units by name, then channels between them."""

    machine: Machine
    units: dict[str, Unit] = field(default_factory=dict)
    channels: list[Channel] = field(default_factory=list)
    pads: list[Scratchpad] = field(default_factory=list)

    def unit(self, name: str, kind: str = "compute", cells: int = 1, trips: int = 8) -> str:
        work = Host("c", "c") if kind == "host" else Fetch(name)
        loops = (Loop("i", trips),)
        self.units[name] = Unit(name, kind, loops, 1, (), (), 6, work, cells=cells)
        return name

    def pad(self, name: str, readers: int = 1, cells: int = 1) -> tuple[str, list[str]]:
        """A scratchpad with its write unit, read units, tile and credit channels."""
        writer = self.unit(f"{name}.write", "write")
        reads = [self.unit(f"{name}.read{i}", "read") for i in range(readers)]
        for read in reads:
            self.wire(writer, read, kind="tile", lanes=1)
            self.wire(read, writer, kind="credit", lanes=1)
        self.pads.append(Scratchpad(name, "v", (writer,), tuple(reads), 64, 2, 512, cells, readers))
        return writer, reads

    def wire(self, writer: str, reader: str, name: str = "", **given: object) -> str:
        """A channel of 16 lanes, pushed by a port of its own at every firing.

        Without a name it carries the writer's one value; with one, a value of that name.
        """
        if name:
            given = {"value": name, **given}
        name = name or f"{writer}>{reader}"
        settings = {"capacity": 16, "latency_cycles": 2, "lanes": 16, "value": writer, **given}
        self.channels.append(Channel(name, writer, reader, **settings))  # type: ignore[arg-type]
        return name

    def program(self) -> Program:
        def ports(channels: list[Channel]) -> tuple[Port, ...]:
            return tuple(Port((channel.name,), 1, channel.value) for channel in channels)

        units = []
        for unit in self.units.values():
            inputs = ports([c for c in self.channels if c.reader == unit.name])
            outputs = ports([c for c in self.channels if c.writer == unit.name])
            units.append(
                Unit(
                    unit.name,
                    unit.kind,
                    unit.loops,
                    1,
                    inputs,
                    outputs,
                    6,
                    unit.work,
                    cells=unit.cells,
                )
            )
        g = Builder("sketch", i=8)
        g.output("c", g.input("a", "i"))
        channels = tuple(self.channels)
        return Program(g.build(), self.machine, tuple(units), channels, tuple(self.pads))


def placed_at(program: Program, sites: dict[str, Site]) -> Program:
    """The program with each unit of one cell where `sites` says."""
    return dataclasses.replace(program, sites={name: (site,) for name, site in sites.items()})


def matmul_like(machine: Machine, copies: int, chain: int = 1) -> Program:
    """A load multicast through a scratchpad to `copies` units, each with a pad of its own.

    Every fourth unit stores what the four computed, handed on from one to the next.
    """
    sketch = Sketch(machine)
    a, b = sketch.unit("load_a", "load"), sketch.unit("load_b", "load")
    write, reads = sketch.pad("pad_a")
    sketch.wire(a, write)
    for i in range(copies):
        unit = sketch.unit(f"mac@i{i}", cells=chain)
        pad_write, pad_reads = sketch.pad(f"pad_b@i{i}")
        sketch.wire(b, pad_write)
        sketch.wire(reads[0], unit)
        sketch.wire(pad_reads[0], unit)
        if i % 16 == 0:
            sketch.wire(unit, sketch.unit(f"store@i{i}", "store"), value=f"c{i}")
        else:
            sketch.wire(unit, f"mac@i{i - 1}", value=f"c{i}")
    return sketch.program()
