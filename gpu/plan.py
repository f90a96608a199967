"""The Plan: what a graph becomes on a GPU, before it is text. Both emitters print the same Plan.

A Plan is a list of kernels that run one after the other over tensors in device memory. A kernel is
a small program over tiles. Every axis of the graph has one `AxisPlan` in a kernel:

    coordinate = ((program * loop + step) * unroll + point) * tile + lane

where `program` is the program's place in the grid along the axis, `step` the loop's count, `point`
one of several tiles that are written out one after the other, and `lane` the place inside the tile.
Forms in statements are over the coordinate at point 0; lowering has added `point * tile`. A tile
value has one dimension for each axis of more than one lane, in the order of `Value.axes`; axes of
a single lane have none. Tile sizes are powers of two; points past an axis's extent are padding,
and lowering has put a mask wherever padding would show.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from dataflow.index import Affine

ITEM_BYTES = {"fp32": 4, "fp16": 2, "bf16": 2, "fp8e4m3": 1, "fp8e5m2": 1, "int32": 4}
"""Types of numbers in memory, and what one takes."""
MEMORY_TYPE = {"fp32": "fp32", "tf32": "fp32", "fp16": "fp16", "bf16": "bf16", "fp8": "fp8e4m3"}
"""The type of tensors in memory at each precision of a schedule."""
LARGEST_TILE = 2**20
"""Most elements of a tile (Triton's TRITON_MAX_TENSOR_NUMEL)."""


@dataclass(frozen=True)
class AxisPlan:
    """How a kernel runs along one axis of the graph (see the module's text)."""

    axis: str
    extent: int
    tile: int = 1
    loop: int = 1
    grid: int = 1
    unroll: int = 1

    @property
    def padded(self) -> bool:
        """Whether some coordinate lies past the extent."""
        return self.stride * self.loop * self.grid > self.extent

    @property
    def stride(self) -> int:
        """Points between two steps."""
        return self.tile * self.unroll

    @property
    def fixed(self) -> bool:
        """Whether the coordinate at point 0 is always 0."""
        return self.tile == self.loop == self.grid == 1

    @property
    def reach(self) -> int:
        """One more than the greatest coordinate at point 0."""
        return (self.loop * self.grid - 1) * self.stride + self.tile


@dataclass(frozen=True)
class Tensor:
    """A row-major array in device memory.

    kind: "input", "output", "const" (worked out on the host in float64, then rounded), "scratch"
    (written by one kernel, read by a later one), "exchange" (two copies that a kernel writes and
    reads in turn, one a step) or "barrier" (the counter of a grid barrier, zero before the launch).
    node: the graph node or output whose values it holds, times `scale` for a const.
    symmetric: a const of two dimensions that equals its transpose.
    blocks: a const that is a matrix of matrices, row by row (then it has no node of its own).
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    type: str
    node: str = ""
    scale: float = 1.0
    symmetric: bool = False
    blocks: tuple[tuple[Block, ...], ...] = ()


@dataclass(frozen=True)
class Block:
    """A matrix in a const made of several: a node's values times `scale`.

    turned: the transpose. shape: rows and columns, zeros past those of the node.
    """

    node: str
    scale: float
    turned: bool
    shape: tuple[int, int]


@dataclass(frozen=True)
class Value:
    """A tile: its variable's name, its dimensions, the type of its elements."""

    name: str
    axes: tuple[str, ...]
    type: str = "fp32"


Operand = Value | float


@dataclass(frozen=True)
class Load:
    """out = tensor[index] where every guard is >= 0, else `fill`.

    index: one affine form of graph axes for each dimension of the tensor. guards: forms that can
    be negative: a coordinate that leaves its dimension (`c` or `extent - 1 - c`), or a padded lane
    (`extent - 1 - axis`).
    """

    out: Value
    tensor: str
    index: tuple[Affine, ...]
    fill: float = 0.0
    guards: tuple[Affine, ...] = ()


@dataclass(frozen=True)
class Form:
    """out = the number that an affine form of the axes gives."""

    out: Value
    form: Affine


@dataclass(frozen=True)
class Map:
    """out = fn(args), pointwise; arguments with fewer dimensions are broadcast."""

    out: Value
    fn: str
    args: tuple[Operand, ...]


@dataclass(frozen=True)
class Mask:
    """out = arg where every form is >= 0, else `fill`."""

    out: Value
    arg: Value
    forms: tuple[Affine, ...]
    fill: float


@dataclass(frozen=True)
class Dot:
    """out = acc + left @ right, as matrices over (m, k) and (k, n); `batch` leads all three.

    precision: the type of the operands ("tf32" and "fp32" say how fp32 operands are multiplied).
    """

    out: Value
    left: Value
    right: Value
    acc: Value | None
    batch: tuple[str, ...]
    m: tuple[str, ...]
    n: tuple[str, ...]
    k: tuple[str, ...]
    precision: str


@dataclass(frozen=True)
class Reduce:
    """out = arg reduced along `axes` by `fn` (sum, max or min)."""

    out: Value
    fn: str
    arg: Value
    axes: tuple[str, ...]


@dataclass(frozen=True)
class Permute:
    """out = arg with its dimensions in the order of `out.axes`."""

    out: Value
    arg: Value


@dataclass(frozen=True)
class Stack:
    """out = the two args, one after the other along a new dimension `axis` of `out`."""

    out: Value
    args: tuple[Value, Value]
    axis: str


@dataclass(frozen=True)
class Unstack:
    """outs = what `arg` holds at point 0 and at point 1 of `axis`."""

    outs: tuple[Value, Value]
    arg: Value
    axis: str


@dataclass(frozen=True)
class Cast:
    """out = arg in the type of `out`."""

    out: Value
    arg: Value


@dataclass(frozen=True)
class Store:
    """tensor[index] = arg where every guard is >= 0 (see Load)."""

    tensor: str
    index: tuple[Affine, ...]
    arg: Value
    guards: tuple[Affine, ...] = ()


@dataclass(frozen=True)
class Carried:
    """State of a loop: `value` holds `init` before the first step and `next` after each."""

    value: Value
    init: Operand
    next: Value


@dataclass(frozen=True)
class Bound:
    """A number of steps that depends on the program: clamp(floor(form / step) + plus, 0, all).

    `form` is over axes of the grid (their first lane) and is what the mask's form comes to at
    step 0; `step` is how far one step of the loop moves it.
    """

    form: Affine
    step: int
    plus: int = 1


@dataclass(frozen=True)
class Loop:
    """The body, once for each step of `axis` from 0 to `stop` (None: all steps).

    Masks whose result's name is in `free` hold everywhere before step `free_until`, so that they
    may be left out there. stages: how many steps' loads are in flight.
    """

    axis: str
    body: tuple[Statement, ...]
    carried: tuple[Carried, ...] = ()
    stop: Bound | None = None
    free_until: Bound | None = None
    free: tuple[str, ...] = ()
    stages: int = 1


@dataclass(frozen=True)
class Publish:
    """A step's tile goes to the exchange tensor, where every program can read it.

    The tensor's first dimension is the parity of the step; `index` says the rest.
    """

    tensor: str
    loop: str
    index: tuple[Affine, ...]
    arg: Value
    guards: tuple[Affine, ...] = ()


@dataclass(frozen=True)
class Barrier:
    """All programs have come to the end of this step, and what they published can be seen."""

    tensor: str
    loop: str


@dataclass(frozen=True)
class Fetch:
    """out = what all programs published in the step before; in the first step anything at all."""

    out: Value
    tensor: str
    loop: str
    index: tuple[Affine, ...]
    guards: tuple[Affine, ...] = ()


Statement = (
    Load
    | Form
    | Map
    | Mask
    | Dot
    | Reduce
    | Permute
    | Stack
    | Unstack
    | Cast
    | Store
    | Loop
    | Publish
    | Barrier
    | Fetch
)


@dataclass(frozen=True)
class Kernel:
    """One launch. Its arguments are `args`, tensors by name, in order.

    grid: axes spread over programs, the one that varies fastest first. group: an axis of the grid
    and how many of its tiles stay together before the next tile of the others, for the L2 cache.
    cooperative: all programs must be resident at once, since they wait for each other.
    descriptors: tensors loaded and stored, or loaded only, through descriptors (the copy engine).
    """

    name: str
    args: tuple[str, ...]
    axes: Mapping[str, AxisPlan]
    grid: tuple[str, ...]
    body: tuple[Statement, ...]
    warps: int = 4
    stages: int = 2
    group: tuple[str, int] | None = None
    cooperative: bool = False
    descriptors: bool | Literal["loads"] = False

    @property
    def programs(self) -> int:
        """Programs of the launch."""
        count = 1
        for axis in self.grid:
            count *= self.axes[axis].grid
        return count

    def lanes(self, axis: str) -> int:
        """Size of the dimension that `axis` has in a tile; 1: none."""
        return self.axes[axis].tile

    def statements(self) -> Iterator[Statement]:
        """All statements, those of a loop after the loop itself."""
        yield from statements_of(self.body)


def statements_of(body: Iterable[Statement]) -> Iterator[Statement]:
    """All statements of a body, those of a loop after the loop itself."""
    for statement in body:
        yield statement
        if isinstance(statement, Loop):
            yield from statements_of(statement.body)


def with_values(statement: Statement, change: Callable[[Value], Value]) -> Statement:
    """The statement with `change` of every tile that it reads or makes; of a loop, its state's.

    >>> cast = Cast(Value("b", ("i",)), Value("a", ("i",), "bf16"))
    >>> with_values(cast, lambda value: replace(value, name=value.name.upper())).arg.name
    'A'
    """

    def changed(field: Any) -> Any:
        if isinstance(field, Value):
            return change(field)
        if isinstance(field, Carried):
            return Carried(change(field.value), changed(field.init), change(field.next))
        if isinstance(field, tuple):
            return tuple(changed(one) for one in field)
        return field

    return replace(
        statement,
        **{name: changed(field) for name, field in vars(statement).items() if name != "body"},
    )


@dataclass(frozen=True)
class Plan:
    """Kernels in the order in which they run, and the tensors between them."""

    name: str
    precision: str
    tensors: Mapping[str, Tensor]
    kernels: tuple[Kernel, ...]

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """Tensors that the caller gives, in the graph's order."""
        return tuple(t for t in self.tensors.values() if t.kind == "input")

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """Tensors that the caller gets, in the graph's order."""
        return tuple(t for t in self.tensors.values() if t.kind == "output")
