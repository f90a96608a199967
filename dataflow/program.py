"""The Program: plain data, the contract between mapping, which writes it, and the simulator.

A Program is a list of units, each a loop nest, and of channels between them. A test may write one
by hand. Nothing here knows how a Program came to be or how it will be run.

The rules a reader needs (the simulator's own files restate them where they are executed):

* A unit fires `product(trips)` times, its loops counting like an odometer, innermost last. Its
  first `points` loops are its domain: one setting of them is a *point*, at which it works on one
  tile of each value. The loops after them walk inside the tile, one beat a firing.
* A port is *used* at a firing when every loop inside its `level` stands at its last trip, and every
  loop named in `last` does too. An output port is pushed when used. An input port is popped when
  used; its front token must have arrived for every firing, used or not, unless the port is `late`,
  which needs its token only when used.
* A port with several channels uses one of them at a firing: the mixed-radix number whose digits are
  `counter[loop] // divisor % modulus` for `(loop, divisor, modulus)` in `select`, first entry most
  significant.
* Firing n happens at max(firing n-1 + ii_cycles, arrival of every token needed, room in every
  channel pushed). A pushed token arrives at firing + latency_cycles + channel.latency_cycles. A
  popped slot may be filled again by a push that fires channel.credit_cycles after the pop.
* A scratchpad is `write` units, one for each copy that fills a part of its tiles, and `read` units:
  each writer pushes a tile token to each reader when its part of a tile is complete, each reader
  returns it on a credit channel that starts with as many tokens as the scratchpad has buffers. A
  writer's n-th tile goes to slot n mod depth (counted from the feedback's initial tiles).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from dataflow.graph import Graph, Node
from dataflow.index import Affine
from hwspecs import Machine


@dataclass(frozen=True)
class Loop:
    """One loop of a unit's nest: its digit's name and how often it turns."""

    digit: str
    trips: int


@dataclass(frozen=True)
class Piece:
    """A part of a digit's index: `step * (trip * copies + copy)`.

    `loop` names the domain loop of the unit that counts `trip`; where it is None the tile holds all
    of `copy, copy + copies, ...` below `count`.
    """

    step: int
    count: int
    loop: int | None = None
    copies: int = 1
    copy: int = 0


@dataclass(frozen=True)
class DigitWalk:
    """One digit of an axis: its stride in coordinates, its extent, the pieces that sum to its
    index."""

    stride: int
    extent: int
    pieces: tuple[Piece, ...]


@dataclass(frozen=True)
class AxisWalk:
    """The coordinates of one axis that a tile covers at a point: all sums of its digits below
    `extent`.

    An index past a digit's extent, or a coordinate past the axis's, drops out: the tile is smaller
    there, and empty for a copy that runs past the end.
    """

    axis: str
    extent: int
    digits: tuple[DigitWalk, ...]


Box = tuple[AxisWalk, ...]
"""One AxisWalk for every axis of a value, in the value's axis order."""


@dataclass(frozen=True)
class Port:
    """One end of channels at a unit. `value` names the graph node whose tiles pass ("" for bare
    tokens).

    `boxes` (input ports that carry a value): for each channel the box its tiles are expected to
    cover, with loops of *this* unit. A port that feeds a free node (`earlier`, `last`, `read`) of a
    value made elsewhere carries it under that node's own name.
    """

    channels: tuple[str, ...]
    level: int
    value: str = ""
    select: tuple[tuple[int, int, int], ...] = ()
    last: tuple[int, ...] = ()
    late: bool = False
    boxes: tuple[Box, ...] = ()


@dataclass(frozen=True)
class Channel:
    """A bounded first-in-first-out edge with one writer and one reader.

    capacity counts tokens, those in flight included; `initial` of them are there at cycle 0.
    kind is "data", "tile" (a scratchpad's tile token) or "credit" (its return). `lanes` is how many
    elements a beat carries and `wires` how many beats travel side by side as one token.
    """

    name: str
    writer: str
    reader: str
    capacity: int
    latency_cycles: int
    credit_cycles: int = 1
    initial: int = 0
    kind: str = "data"
    value: str = ""
    lanes: int = 1
    wires: int = 1


@dataclass(frozen=True)
class Operation:
    """One graph node evaluated inside a compute unit.

    `carried` are the domain loops it accumulates over (reduce, einsum): its state starts afresh
    where all of them stand at 0 and is a result where all stand at their last trip. For `earlier`,
    `carried` is the single loop of its axis. `terms` counts the partial results, one a copy of the
    producer, that are combined at each firing before the state is (0 for an ordinary operation).
    """

    node: Node
    carried: tuple[int, ...] = ()
    terms: int = 0


@dataclass(frozen=True)
class Compute:
    """What a compute unit works out at each point: its operations in order, over `axes`.

    `axes` gives the coordinates of every axis that any of its operations touches.
    """

    operations: tuple[Operation, ...]
    axes: Mapping[str, AxisWalk]


@dataclass(frozen=True)
class Buffer:
    """What a `write` unit fills: its part of the scratchpad's tiles of `value`, which cover `box`.

    The part is complete where the unit's loops inside `level` have wrapped; the tile is when all of
    the scratchpad's writers have said so. There are `depth` slots, the first `initial` of them
    filled at cycle 0.
    """

    scratchpad: str
    value: str
    box: Box
    level: int
    depth: int
    initial: int = 0


@dataclass(frozen=True)
class Fetch:
    """What a `read` unit passes on: the tile of its scratchpad's current slot."""

    scratchpad: str


@dataclass(frozen=True)
class Access:
    """What a `load` or `store` unit moves: a tile of an off-chip tensor.

    `box` gives the coordinates of the value's axes at a point, `index` the tensor coordinates as
    affine forms of them, one a tensor axis; `fill` is what a load sees outside the tensor (nothing
    is moved there). `order` lists the value's axes from the slowest to the fastest in which beats
    travel; `lanes` is the elements a beat moves along the last of them.
    """

    tensor: str
    value: str
    box: Box
    index: tuple[Affine, ...]
    order: tuple[str, ...]
    lanes: int
    fill: float = 0.0
    merge: str = ""


@dataclass(frozen=True)
class Host:
    """A `host` unit takes results of no axes into a register; it takes no time of its own."""

    output: str
    value: str


@dataclass(frozen=True)
class Unit:
    """A unit of hardware, or a chain of `cells` of them, that runs one loop nest.

    kind: "compute", "write", "read", "load", "store" or "host"; `work` is the matching Compute,
    Buffer, Fetch, Access or Host. array: a compute unit in systolic mode, and what its cells hold.
    within: the unit in whose cell it works, having none of its own (an array's `preload`).
    """

    name: str
    kind: str
    loops: tuple[Loop, ...]
    points: int
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    latency_cycles: int
    work: Compute | Buffer | Fetch | Access | Host
    ii_cycles: int = 1
    cells: int = 1
    stages: int = 0
    array: str = ""
    within: str = ""

    @property
    def firings(self) -> int:
        """How often the unit fires in a whole run."""
        count = 1
        for loop in self.loops:
            count *= loop.trips
        return count


@dataclass(frozen=True)
class Scratchpad:
    """Memory units that hold the tiles of one channel: `depth` buffers of `tile_elems` elements.

    `cells` memory units share it: enough for its bytes, for the beats written a cycle (one a
    writer) and for the `ports` beats read a cycle. Without writers it holds a deep FIFO or a
    running state. banking: how its tiles lie in the banks; what their conflicts cost is part of
    the units' ii_cycles.
    """

    name: str
    value: str
    writers: tuple[str, ...]
    readers: tuple[str, ...]
    tile_elems: int
    depth: int
    bytes: int
    cells: int
    ports: int = 1
    banking: str = "padded"


@dataclass(frozen=True)
class Tensor:
    """An off-chip array: row-major, at `base_bytes`, elements of `element_bytes`.

    kind is "input", "const" or "output"; `source` is the graph node or output it belongs to.
    """

    name: str
    kind: str
    source: str
    shape: tuple[int, ...]
    base_bytes: int
    element_bytes: int

    @property
    def bytes(self) -> int:
        """Bytes of the whole tensor."""
        return math.prod(self.shape) * self.element_bytes


Site = tuple[int, int]


@dataclass(frozen=True)
class Program:
    """Units, channels, scratchpads and tensors, with where they sit and how channels run.

    `sites`: for each unit or scratchpad name the grid cells (row, column) it takes, in order;
    address generators sit at the edge, column -1 or `columns`. `routes`: for each routed channel,
    the sites it passes, ends included.
    """

    graph: Graph
    machine: Machine
    units: tuple[Unit, ...]
    channels: tuple[Channel, ...]
    scratchpads: tuple[Scratchpad, ...] = ()
    tensors: tuple[Tensor, ...] = ()
    sites: Mapping[str, tuple[Site, ...]] = field(default_factory=dict)
    routes: Mapping[str, tuple[Site, ...]] = field(default_factory=dict)
