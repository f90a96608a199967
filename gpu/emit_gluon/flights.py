"""Products of a warp group in flight, and the rings and tiles in shared memory that they read.

Products are asynchronous: issued when their operands are there, waited for before the first use of
their result, the ring's tiles given back right after the wait that retires their last reader.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from gpu.emit_gluon.layout import Held, Layout, Ring, Tile, buffer
from gpu.emit_gluon.tiles import Pass, Tiles
from gpu.plan import Dot, Value


@dataclass
class Flight:
    """A product that was issued and not waited for; `keeps`: register operands that it reads."""

    name: str
    run: Pass | None
    rings: tuple[str, ...]
    keeps: tuple[str, ...]


class Flights(Tiles):
    """Text with products in flight: issue, wait, give the ring's tiles back."""

    def __init__(self, layout: Layout):
        super().__init__(layout)
        self.flights: list[Flight] = []

    # --- waits --------------------------------------------------------------------------------

    def need(self, names: Iterable[str]) -> None:
        """Wait for the products in flight among `names`."""
        wanted = set(names)
        last = max((i for i, f in enumerate(self.flights) if f.name in wanted), default=None)
        if last is not None:
            self._retire(last + 1)

    def flush(self, after: Sequence[str] = ()) -> None:
        """Wait for all products in flight, not before the tiles `after` are worked out."""
        if self.flights:
            self._retire(len(self.flights), after)

    def _retire(self, count: int, after: Sequence[str] = ()) -> None:
        gone, self.flights = self.flights[:count], self.flights[count:]
        alive = {flight.name for flight in self.flights}
        outs = [f.name for f in gone if f.name and f.name not in alive]
        outs = list(dict.fromkeys(outs))
        keeps = [name for f in gone for name in f.keeps]
        deps = ", ".join([*outs, *keeps, *after])
        names = ", ".join([*outs, *("_" for _ in keeps), *after])
        left = len(self.flights)
        self.put(f"{names} = warpgroup_mma_wait(num_outstanding={left}, deps=[{deps}])")
        for flight in gone:
            for ring in flight.rings:
                self.read_done(flight.run, ring)

    def read_done(self, run: Pass | None, ring: str) -> None:
        """Give a ring's tiles back after the last read of them in a pass."""
        if run is None or ring not in run.readers:
            return
        run.readers[ring] -= 1
        if run.readers[ring] == 0:
            self.put(f"mbarrier.arrive({ring}_empty.index({self.slot(run, ring)}), count=1)")

    def slot(self, run: Pass, ring: str) -> str:
        """The text of the place in the ring at the step of a pass."""
        found = next(r for r in self.layout.rings if r.name == ring)
        step = self.layout.count_of(run.step)
        return str(int(step) % found.depth) if step.isdigit() else f"{step} % {found.depth}"

    def full_tiles(self, ring: Ring) -> None:
        """Wait until the ring's tiles of the step at hand are there."""
        assert self.run is not None
        if ring.name not in self.run.waited:
            self.run.waited.add(ring.name)
            step = self.layout.count_of(self.run.step)
            turn = f"{step} // {ring.depth} & 1"
            if step.isdigit():
                turn = str(int(step) // ring.depth & 1)
            self.put(
                f"mbarrier.wait({ring.name}_full.index({self.slot(self.run, ring.name)}), {turn})"
            )

    def tile_text(self, ring: Ring, tile: Tile, axes: tuple[str, ...]) -> str:
        """A ring's tile as shared memory over `axes`."""
        assert self.run is not None
        place = self.slot(self.run, ring.name)
        if self.layout.count(tile) > 1:
            place = f"({place}) * {self.layout.groups} + group"
        text = f"{tile.name}_ring.index({place})"
        if len(tile.box.block) > 2:
            text += f".reshape([{tile.box.matrix[0]}, {tile.box.matrix[1]}])"
        return text if axes == tile.box.axes else f"{text}.permute((1, 0))"

    def own(self, held: Held) -> str:
        """The group's own copy of a held tile."""
        return f"{buffer(held)}.index({'group' if self.layout.count(held) > 1 else 0})"

    def held_text(self, value: Value) -> str:
        """The group's own copy of a held tile, with its dimensions as those of the value."""
        held, order = self.layout.held[value.name]
        text = self.own(held)
        return text if order == value.axes else f"{text}.permute((1, 0))"

    def product(self, dot: Dot) -> None:
        """Issue a product; its result is waited for where it is first used."""
        left, right = dot.left, dot.right
        self.need([left.name, right.name])
        flying = {f.name for f in self.flights}
        acc = dot.acc
        last_acc = acc is not None and acc.name in flying and self.uses[acc.name] == 1
        if acc is not None and not last_acc:
            self.need([acc.name])
        layout = self.layout_of(dot.out.axes)
        rings: list[str] = []
        keeps: tuple[str, ...] = ()
        texts = []
        for value, is_left in ((left, True), (right, False)):
            found = self.layout.tile(value.name)
            if found is not None:
                self.full_tiles(found[0])
                rings.append(found[0].name)
                texts.append(self.tile_text(*found, value.axes))
            elif value.name in self.layout.held:
                texts.append(self.held_text(value))
            else:
                assert is_left
                operand = f"{dot.out.name}_left"
                self.put(
                    f"{operand} = gl.convert_layout({value.name}, "
                    f"gl.DotOperandLayout(0, {layout}, 2))"
                )
                texts.append(operand)
                keeps = (operand,)
        if acc is None:
            texts.append(self.full(dot.out.axes, "0.0", "fp32", layout))
            use = ", use_acc=False"
        else:
            texts.append(acc.name)
            use = ""
        self.put(f"{dot.out.name} = warpgroup_mma({', '.join(texts)}{use}, is_async=True)")
        if last_acc:
            self.flights = [
                replace(f, name="") if acc is not None and f.name == acc.name else f
                for f in self.flights
            ]
        self.flights.append(Flight(dot.out.name, self.run, tuple(rings), keeps))
