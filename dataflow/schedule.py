"""The Schedule: what turns a Graph into a StreamGraph. Everything else is derived from it.

A schedule splits axes into digits, says which digits are time (one point of the domain at a time)
and in what order, and for single nodes how their beats walk the tile and how many lanes and
copies they get. In YAML:

    tile: {i: 64, k: 64}        # axis i becomes the digits i.o (over tiles) and i (inside one)
    time: [i.o, j.o, k.o]       # the domain's digits, outermost first; every X.o must be here
    walk: [i, j, k]             # the order of tile digits; a reduced digit goes innermost
    nodes:
      c:
        vector: {j: 16}         # lanes run along j, 16 wide
        pack: {i: 3}            # three points of i share one firing of one unit
        array: weight           # on a systolic array: vector its columns, pack its rows
        unroll: {j: 4}          # four units, each with every fourth group of j
    channels:
      a -> c: {at: i.o, depth: 2}   # a's tile is loaded once a point of the loops down to i.o
      s -> p: {depth: 514}          # beats of a FIFO, tiles of a scratchpad

A node is named after the graph node it works out. One that reduces over time digits, or is unrolled
over a reduced digit, comes in two: `c.part` reduces inside the tile, `c` adds the parts up. The
off-chip ends are `load a -> c` and `store c`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, StringConstraints

from dataflow.errors import FaultsError
from hwspecs import Located, check, read, write
from hwspecs.machine import Banking, Dataflow

MOST = 2**31
"""The largest count of a schedule."""
Digit = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Count = Annotated[int, Field(strict=True, ge=1, le=MOST)]
Counts = Annotated[dict[Digit, Count], Field(max_length=64)]
Digits = Annotated[tuple[Digit, ...], Field(max_length=64)]


class ScheduleError(FaultsError):
    """A schedule that does not fit its graph; each fault has its place."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class NodeSchedule(_Part):
    """How one node uses its units.

    walk: order of its tile digits, slowest first (default: the schedule's walk, reduced digits
    innermost). vector: at most one digit and its lanes. pack: points of a digit that share a
    firing of one unit. unroll: copies of the node over a digit, each with its own unit. array: run
    an einsum on a systolic array, the named operand (or the result) held in its cells.
    """

    walk: Digits | None = None
    vector: Annotated[dict[Digit, Count], Field(max_length=1)] = Field(default_factory=dict)
    pack: Counts = Field(default_factory=dict)
    unroll: Counts = Field(default_factory=dict)
    array: Dataflow | None = None


class ChannelSchedule(_Part):
    """Where a channel waits.

    locality: "fifo" or "scratchpad" (default: a FIFO wherever the reader takes beats in the order
    in which the writer makes them). at: for loads, the innermost time digit outside the tile, ""
    for a tile that is loaded once. depth: beats of a FIFO, tiles of a scratchpad. banking: how a
    scratchpad's tiles lie in its banks (default: the machine's mode).
    """

    locality: Literal["fifo", "scratchpad"] | None = None
    at: str | None = None
    depth: Count | None = None
    banking: Banking | None = None


class Schedule(_Part):
    """See the module's text for the meaning of each field."""

    tile: Counts = Field(default_factory=dict)
    time: Digits = ()
    walk: Digits = ()
    nodes: Annotated[dict[Digit, NodeSchedule], Field(max_length=4096)] = Field(
        default_factory=dict
    )
    channels: Annotated[dict[Digit, ChannelSchedule], Field(max_length=4096)] = Field(
        default_factory=dict
    )
    _located: Located | None = PrivateAttr(default=None)
    _root: tuple[str | int, ...] = PrivateAttr(default=())

    def __eq__(self, other: object) -> bool:
        """Schedules are equal where they say the same; the file they came from does not count."""
        return isinstance(other, Schedule) and self.as_data() == other.as_data()

    __hash__ = None  # type: ignore[assignment]

    @classmethod
    def from_yaml(cls, text_or_path: str | Path) -> Schedule:
        """Read a schedule from a file (a Path) or a text (a str).

        Raises SpecError with every fault of the file and its place.
        """
        return cls.from_located(read(text_or_path, "schedule"))

    @classmethod
    def from_located(cls, located: Located, root: tuple[str | int, ...] = ()) -> Schedule:
        """Read a schedule that stands at `root` of a file already read."""
        part = located if not root else _below(located, root)
        schedule = check(cls, part)
        schedule._located = part
        return schedule

    def to_yaml(self) -> str:
        """The schedule as text that `from_yaml` reads back to an equal one."""
        return write(self.as_data())

    @property
    def read_at(self) -> int:
        """Tells schedules apart that were read from different texts, for as long as they live."""
        return id(self._located)

    def as_data(self) -> dict[str, Any]:
        """Plain dicts and lists, what equals its default left out."""
        data = self.model_dump(exclude_defaults=True, exclude_none=True)
        return _plain(data)

    def node(self, name: str) -> NodeSchedule:
        """The settings of a node, defaults where the schedule has none."""
        return self.nodes.get(name) or NodeSchedule()

    def channel(self, source: str, target: str) -> ChannelSchedule:
        """The settings of the channel from `source` to `target`, defaults where it has none."""
        return self.channels.get(f"{source} -> {target}") or ChannelSchedule()

    def fault(self, path: tuple[str | int, ...], message: str, at_key: bool = False) -> str:
        """One fault as text, with file, line and column where the schedule came from a file."""
        if self._located is not None:
            return str(self._located.fault(path, message, at_key=at_key))
        return f"schedule: {'.'.join(str(step) for step in path)} {message}"


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        plain = {str(key): _plain(item) for key, item in value.items()}
        return {key: item for key, item in plain.items() if item not in ({}, None)}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value


def _below(located: Located, root: tuple[str | int, ...]) -> Located:
    """The part of a file at `root`, its places kept."""
    content = located.content
    for step in root:
        content = content[step]
    cut = len(root)

    def inside(places: Mapping[Any, Any]) -> dict[Any, Any]:
        return {path[cut:]: place for path, place in places.items() if path[:cut] == root}

    return Located(
        located.source,
        content,
        inside(located.value_places),
        inside(located.key_places),
        located.faults,
    )
