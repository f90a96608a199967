"""Where a kernel's tiles live on Hopper: rows of warp groups, rings, tiles in shared memory.

rows    the axis that leads every product is shared out to warp groups, 64 rows or more each
rings   tiles that the loader warp moves for each step of the loop, `stages` steps deep
held    operands of products that are not in a ring: a product takes its right operand from
        shared memory, and so the left one where it stays the same over the loop
tables  tiles that are loaded before the loop and that its pointwise code reads: in shared
        memory, so that they take registers only where they are used
stores  results leave through shared memory and the copy engine where a box fits them
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from dataflow.index import Affine
from gpu.blocks import descriptor
from gpu.emit_gluon.boxes import Box, box_of, swizzle
from gpu.emit_gluon.stages import Stages, stages
from gpu.emit_gluon.turn import turned
from gpu.module import GpuError
from gpu.plan import (
    ITEM_BYTES,
    Barrier,
    Cast,
    Dot,
    Fetch,
    Kernel,
    Load,
    Loop,
    Plan,
    Publish,
    Statement,
    Store,
    Value,
)
from gpu.uses import operands

GROUP_WARPS = 4
"""Warps of a warp group, which multiplies together: PTX ISA, wgmma."""
GROUP_ROWS = 64
"""Rows of one warp-group product: the same section."""
PRODUCT_TYPES = ("bf16", "fp16")


@dataclass(frozen=True)
class Tile:
    """A tile of a ring: the load it stands for; `shared_out`: each group has a box of its own."""

    load: Load
    box: Box
    shared_out: bool

    @property
    def name(self) -> str:
        return self.load.out.name


@dataclass(frozen=True)
class Ring:
    """Tiles that become full together, at each step of the loop, and `depth` steps of them."""

    name: str
    tiles: tuple[Tile, ...]
    depth: int

    def bytes(self, groups: int) -> int:
        """Bytes of one step."""
        return sum(t.box.bytes * (groups if t.shared_out else 1) for t in self.tiles)


@dataclass(frozen=True)
class Held:
    """A computed tile in shared memory; `shared_out`: each group keeps rows of its own."""

    name: str
    type: str
    shape: tuple[int, int]
    shared_out: bool

    @property
    def swizzle(self) -> int:
        return swizzle(self.shape, self.type)


@dataclass
class Layout:
    """All of a kernel that is decided before its text."""

    plan: Plan
    kernel: Kernel
    groups: int
    warps: int
    split: str | None
    lanes: dict[str, int]
    loop: Loop | None
    stages: Stages
    rings: tuple[Ring, ...] = ()
    held: dict[str, tuple[Held, tuple[str, ...]]] = field(default_factory=dict)
    tables: dict[str, Held] = field(default_factory=dict)
    stores: list[tuple[Store, Box, str]] = field(default_factory=list)
    descriptors: dict[tuple[str, tuple[int, ...], tuple[int, ...]], str] = field(
        default_factory=dict
    )

    def box(self, statement: Store) -> tuple[Box, str] | None:
        """The box of a store and the buffer it leaves through."""
        found = (entry[1:] for entry in self.stores if entry[0] is statement)
        return next(found, None)

    def tile(self, name: str) -> tuple[Ring, Tile] | None:
        """The ring that a loaded value comes from."""
        pairs = ((ring, tile) for ring in self.rings for tile in ring.tiles)
        return next((pair for pair in pairs if pair[1].name == name), None)

    def buffers(self) -> list[Held]:
        """Held tiles, each once."""
        held = [held for held, _ in self.held.values()] + list(self.tables.values())
        return list({one.name: one for one in held}.values())

    def descriptor(self, box: Box) -> str:
        """The parameter through which boxes like this one are moved."""
        return self.descriptors[box.tensor, box.view, box.block]

    @property
    def persistent(self) -> bool:
        """Whether a program works on tile after tile, so that loads never wait for results.

        Not where the tiles' loops differ in length, as the hardware hands programs out by who is
        done, nor where groups that are not at the same tile would share what a tile works out.
        """
        loop = self.loop
        even = loop is not None and loop.stop is None and bool(self.kernel.grid)
        own = self.groups == 1 or all(held.shared_out for held in self.buffers())
        return bool(self.rings) and even and own

    def count_of(self, step: str) -> str:
        """The text of the steps that the rings have seen before a step of the loop."""
        if not self.persistent:
            return step
        return "done" if step == "0" else f"(done + {step})"

    def count(self, tile: Tile | Held) -> int:
        """Boxes of a tile: one for each group, or one for all."""
        return self.groups if tile.shared_out else 1


def laid_out(plan: Plan, kernel: Kernel) -> Layout:
    """Decide the layout of `kernel`; GpuError names what cannot be printed."""
    kernel = turned(kernel)
    faults = [fault for s in kernel.statements() for fault in _faults(s)]
    loops = [s for s in kernel.statements() if isinstance(s, Loop)]
    if len(loops) > 1:
        faults.append(f"loop {loops[1].axis}: must be the only one, got {len(loops)} loops")
    if faults:
        raise GpuError([f"kernel {kernel.name} in Gluon: {fault}" for fault in faults])
    loop = loops[0] if loops else None
    dots = [s for s in kernel.statements() if isinstance(s, Dot)]
    lanes = {axis: plan_.tile for axis, plan_ in kernel.axes.items()}
    moved = [s for s in (loop.body if loop and dots else ()) if isinstance(s, Load)]
    ringed = [s for s in moved if box_of(plan.tensors, kernel.axes, s, lanes) is not None]
    groups = max(1, kernel.warps // GROUP_WARPS) if ringed else 1
    split = _split(kernel, dots, groups)
    if split is not None:
        lanes[split] //= groups
    found = Layout(
        plan,
        kernel,
        groups,
        GROUP_WARPS if ringed else kernel.warps,
        split,
        lanes,
        loop,
        stages(loop) if loop is not None else Stages(()),
    )
    if ringed and loop is not None:
        found.rings = _rings(found, loop, ringed)
    faults = [*_check_products(found, dots), *_never_empty(found)]
    if faults:
        raise GpuError(faults)
    _hold(found, dots)
    if found.rings:
        _tabulate(found)
    _boxes(found)
    return found


def _never_empty(found: Layout) -> list[str]:
    """A loop that overlaps steps runs its first one before it looks for an end."""
    loop = found.loop
    if loop is None or loop.stop is None or not found.stages.second:
        return []
    axes = found.kernel.axes
    extents = {a: axes[a].reach - axes[a].tile + 1 for a in loop.stop.form.symbols()}
    low, _ = loop.stop.form.bounds(extents)
    least = 0 if low < 0 else low // loop.stop.step + loop.stop.plus
    if least >= 1:
        return []
    return [
        f"kernel {found.kernel.name} in Gluon: loop {loop.axis} must have a step in every program, "
        f"got {max(0, least)} in some"
    ]


def _faults(statement: Statement) -> list[str]:
    """What keeps a statement out of Gluon text."""
    if isinstance(statement, Publish | Fetch | Barrier):
        what = type(statement).__name__.lower()
        return [f"{what} {statement.tensor}: must be left to the Triton emitter"]
    tiles = [value for value in operands(statement) if isinstance(value, Value)]
    out = getattr(statement, "out", None)
    tiles += [out] if isinstance(out, Value) else []
    faults = [
        f"{type(statement).__name__.lower()} {tile.name}: must have at most 2 dimensions, "
        f"got {', '.join(tile.axes)}"
        for tile in tiles
        if len(tile.axes) > 2
    ]
    if isinstance(statement, Dot):
        if statement.batch or any(len(s) != 1 for s in (statement.m, statement.n, statement.k)):
            faults.append(f"product {statement.out.name}: must be of matrices over one axis a side")
        if statement.precision not in PRODUCT_TYPES:
            faults.append(
                f"product {statement.out.name}: must be of bf16 or fp16, got {statement.precision}"
            )
    return faults[:1]


def _split(kernel: Kernel, dots: list[Dot], groups: int) -> str | None:
    """The axis whose rows are shared out to the groups."""
    if groups == 1:
        return None
    rows = {dot.m[0] for dot in dots}
    axis = min(rows)
    if len(rows) > 1 or any(axis in (*dot.n, *dot.k) for dot in dots):
        raise GpuError(
            f"kernel {kernel.name} in Gluon: warps must be {GROUP_WARPS}, got {kernel.warps}; "
            f"its products lead with several axes ({', '.join(sorted(rows))}), which warp groups "
            "cannot share"
        )
    tile = kernel.axes[axis].tile
    if tile % (groups * GROUP_ROWS):
        raise GpuError(
            f"kernel {kernel.name} in Gluon: tile of {axis} must be a multiple of "
            f"{groups * GROUP_ROWS} for {kernel.warps} warps, got {tile}; "
            f"each group of {GROUP_WARPS} warps has {GROUP_ROWS} rows or a multiple"
        )
    return axis


def _check_products(found: Layout, dots: list[Dot]) -> list[str]:
    faults = []
    for dot in dots:
        m, n, k = (found.lanes[side[0]] for side in (dot.m, dot.n, dot.k))
        if m % (GROUP_ROWS * found.warps // GROUP_WARPS) or n % 8 or k % 16 or n > 256:
            faults.append(
                f"kernel {found.kernel.name} in Gluon: product {dot.out.name} must have rows in "
                f"64s, at most 256 columns in 8s and a depth in 16s, got {m} x {n} x {k}"
            )
    if found.warps % GROUP_WARPS and dots:
        faults.append(
            f"kernel {found.kernel.name} in Gluon: warps must be a multiple of {GROUP_WARPS}, "
            f"got {found.warps}"
        )
    return faults


def _rings(found: Layout, loop: Loop, loads: list[Load]) -> tuple[Ring, ...]:
    """A ring for the loads of each stage of the loop."""
    rings = []
    for part in (found.stages.first, found.stages.second):
        tiles = []
        for load in (s for s in part if isinstance(s, Load) and any(s is one for one in loads)):
            box = box_of(found.plan.tensors, found.kernel.axes, load, found.lanes)
            assert box is not None
            tiles.append(Tile(load, box, found.split in load.out.axes))
        if tiles:
            rings.append(Ring(tiles[0].name, tuple(tiles), max(1, loop.stages)))
    return tuple(rings)


def _hold(found: Layout, dots: list[Dot]) -> None:
    """Operands in shared memory that do not come from a ring."""
    inside = {id(s) for s in (found.loop.body if found.loop else ())}
    loads = {s.out.name: s for s in found.kernel.body if isinstance(s, Load)}
    same: dict[tuple, list[tuple[Load, tuple[str, ...]]]] = {}
    outer = {
        name.name
        for s in found.kernel.body
        if not isinstance(s, Loop)
        for name in [getattr(s, "out", None)]
        if isinstance(name, Value)
    }
    for dot in dots:
        for value, left in ((dot.left, True), (dot.right, False)):
            kept = id(dot) in inside and value.name in outer
            if found.tile(value.name) is not None or (left and not kept):
                continue
            if value.name in found.held:
                continue
            load = loads.get(value.name)
            order = value.axes if load is None else _memory_order(load)
            rows, columns = (found.lanes[axis] for axis in order)
            shared_out = found.split in value.axes
            held = Held(value.name, value.type, (rows, columns), shared_out)
            if load is not None:
                key = (load.tensor, _places(load, order), shared_out, held.shape)
                same.setdefault(key, []).append((load, order))
            found.held[value.name] = (held, order)
    _merge(found, list(loads), same.values())


def _merge(
    found: Layout, order: list[str], same: Iterable[list[tuple[Load, tuple[str, ...]]]]
) -> None:
    """Loads of the same numbers share the memory that the first of them fills."""
    for loads in same:
        first = min((load.out.name for load, _ in loads), key=order.index)
        held = found.held[first][0]
        for load, axes in loads:
            found.held[load.out.name] = (held, axes)


def _tabulate(found: Layout) -> None:
    """Tables, and what widening makes of them before the loop."""
    body, loop = found.kernel.body, found.loop
    assert loop is not None
    before = body[: next(i for i, s in enumerate(body) if s is loop)]
    inside = {v.name for s in loop.body for v in operands(s) if isinstance(v, Value)}
    for load in (s for s in before if isinstance(s, Load) and len(s.out.axes) == 2):
        family = {load.out.name}
        for cast in (s for s in before if isinstance(s, Cast)):
            if cast.arg.name in family and cast.out.type in (cast.arg.type, "fp32"):
                family.add(cast.out.name)
        if load.out.name in found.held or not family & inside:
            continue
        rows, columns = (found.lanes[axis] for axis in load.out.axes)
        shared_out = found.split in load.out.axes
        held = Held(load.out.name, load.out.type, (rows, columns), shared_out)
        found.tables.update(dict.fromkeys(sorted(family), held))


def _memory_order(load: Load) -> tuple[str, ...]:
    """A loaded tile's axes as they follow each other in memory."""
    places = {axis: place for place, form in enumerate(load.index) for axis in form.symbols()}
    last = {axis: -load.index[places[axis]].coefficient(axis) for axis in load.out.axes}
    return tuple(sorted(load.out.axes, key=lambda axis: (places[axis], last[axis])))


def _places(load: Load, order: tuple[str, ...]) -> tuple:
    """What tells one loaded tile from another: its place in memory, not its axes' names."""
    names: dict[str, Affine | str | int] = {axis: f"_{i}" for i, axis in enumerate(order)}
    forms = (*load.index, *load.guards)
    return (load.fill, *(str(form.substitute(names)) for form in forms))


def _boxes(found: Layout) -> None:
    """Boxes of stores, and the parameters through which boxes are moved."""
    boxes = [tile.box for ring in found.rings for tile in ring.tiles]
    if found.rings:
        for store in (s for s in found.kernel.statements() if isinstance(s, Store)):
            box = box_of(found.plan.tensors, found.kernel.axes, store, found.lanes)
            if box is not None and store.arg.type == box.type:
                found.stores.append((store, box, _way_out(found, store, box)))
                boxes.append(box)
    for box in boxes:
        name = base = descriptor(box.tensor, box.block)
        key = (box.tensor, box.view, box.block)
        place = 2
        while key not in found.descriptors and name in found.descriptors.values():
            name, place = f"{base}_{place}", place + 1
        found.descriptors.setdefault(key, name)


def _way_out(found: Layout, store: Store, box: Box) -> str:
    """The buffer that a result leaves through: one that the loop has done with, or its own."""
    taken = {name for _, _, name in found.stores}
    if any(store is statement for statement in found.kernel.body):
        for held, _ in found.held.values():
            same = (held.type, held.shape, held.swizzle) == (box.type, box.block, box.swizzle)
            name = buffer(held)
            if same and held.shared_out == (found.groups > 1) and name not in taken:
                return name
    return f"{store.arg.name}_out"


def buffer(held: Held) -> str:
    """The name of a held tile's memory."""
    return f"{held.name}_held"


def shared_bytes(found: Layout) -> int:
    """Bytes of shared memory that the text allocates, barriers left out."""
    total = sum(ring.depth * ring.bytes(found.groups) for ring in found.rings)
    for held in found.buffers():
        rows, columns = held.shape
        total += rows * columns * ITEM_BYTES[held.type] * found.count(held)
    return total + sum(
        box.bytes * found.groups for _, box, name in found.stores if not name.endswith("_held")
    )
