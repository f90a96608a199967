"""A network plan written into the fast engine's array; `fast_network.py` says what fields mean."""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dataflow.network_plan import OUTSIDE, NetworkPlan
from dataflow.sim import fast_kernel as kernel
from dataflow.sim import fast_network as fast


class Words:
    """An array in the making: words, and room for rings after them."""

    def __init__(self, count: int) -> None:
        self.words: list[int] = [0] * count
        self.room = 0
        self.rooms: set[int] = set()

    def array(self) -> np.ndarray:
        """Return the array: all words, then room for the rings (which costs nothing until used)."""
        size = len(self.words)
        s = np.zeros(size + self.room, np.int64)
        s[:size] = array("q", self.words)  # three times as fast as from the list
        s[list(self.rooms)] += size
        return s

    def add(self, values: Sequence[int]) -> int:
        """Append words; return their place."""
        place = len(self.words)
        self.words += values
        return place

    def rows(self, count: int, fields: int) -> range:
        """Append rows of zeros; return their places."""
        first = self.add([0] * (count * fields))
        return range(first, len(self.words), fields)

    def set(self, row: int, fields: dict[int, int]) -> None:
        """Set fields of a row, or words where it is 0."""
        for field, value in fields.items():
            self.words[row + field] = value

    def fill(self, rows: range, columns: Mapping[int, Sequence[int]]) -> None:
        """Set fields of all of `rows`, one value for each row in turn."""
        for field, values in columns.items():
            self.words[rows.start + field : rows.stop + field : rows.step] = values

    def reserve(self, place: int, size: int) -> None:
        """Let the word at `place` point to `size` words of room."""
        self.words[place] = self.room
        self.rooms.add(place)
        self.room += size

    def reserve_each(self, rows: range, field: int, sizes: Sequence[int]) -> None:
        """Let a field of each of `rows` point to room of its own."""
        ends = list(itertools.accumulate(sizes, initial=self.room))
        self.fill(rows, {field: ends[:-1]})
        self.rooms.update([row + field for row in rows])
        self.room = ends[-1]

    def share(self, place: int, other: int) -> None:
        """Let the word at `place` point to the room that the one at `other` points to."""
        self.words[place] = self.words[other]
        self.rooms.add(place)


@dataclass(frozen=True)
class Rows:
    """Where a network lies in the array: its own row, and those of its links, legs and sinks."""

    network: int
    links: range
    legs: range
    sinks: range


def add_network(
    words: Words, plan: NetworkPlan, leg_sizes: Sequence[int], sink_sizes: Sequence[int]
) -> Rows:
    """Add a network; sizes: the packets that the rings of each leg and sink hold."""
    packets = plan.packets
    network = words.rows(1, fast.NETWORK_FIELDS)[0]
    links = words.rows(len(plan.links), fast.LINK_FIELDS)
    legs = words.rows(len(plan.legs), fast.LEG_FIELDS)
    sinks = words.rows(len(plan.sinks), fast.SINK_FIELDS)
    _add_links(words, plan, links)
    _add_legs(words, plan, Rows(network, links, legs, sinks), leg_sizes)
    _add_sinks(words, plan, Rows(network, links, legs, sinks), sink_sizes)
    first, end = _add_entries(words, plan, links, legs)
    fields = {
        fast.ENTRIES: first,
        fast.ENTRIES_END: end,
        fast.FIRST_LINK: links[0],
        fast.LINKS_END: links[-1] + fast.LINK_FIELDS,
        fast.LANES: packets.virtual_channels,
        fast.DEPTH: packets.buffer_flits,
        fast.ROUTER_CYCLES: packets.router_cycles,
        fast.LINK_CYCLES: packets.link_cycles,
        fast.ARRIVED: kernel.NEVER,
    }
    words.set(network, fields)
    return Rows(network, links, legs, sinks)


def _add_links(words: Words, plan: NetworkPlan, links: range) -> None:
    """Fill the rows of links; add their buffers."""
    buffers = _add_buffers(words, plan)
    for place, link in enumerate(links):
        feeders = [b for feeder in plan.feeders(place) for b in buffers[feeder]]
        for number, b in enumerate(feeders):
            words.set(b, {fast.PLACE: number})  # the same for every link out of its router
        first = words.add(feeders)
        fields = {
            fast.BUFFERS: buffers[place][0] if buffers[place] else 0,
            fast.GIVEN: plan.packets.virtual_channels - 1,
            fast.FEEDERS: first,
            fast.FEEDERS_END: first + len(feeders),
            fast.ASKS: words.add([0] * len(feeders)),
            fast.TAKEN_LAST: len(feeders) - 1,
        }
        words.set(link, fields)


def _add_legs(words: Words, plan: NetworkPlan, rows: Rows, sizes: Sequence[int]) -> None:
    """Fill the rows of legs; add their ways."""
    for leg, row, size in zip(plan.legs, rows.legs, sizes, strict=True):
        ways = words.rows(len(leg.links), fast.WAY_FIELDS)
        for place, way in enumerate(ways):
            branches = [ways[onward] for onward in leg.branches(place)]
            sinks = [rows.sinks[sink] for sink in leg.sinks if plan.sinks[sink].place == place]
            first = words.add([*branches, *sinks])
            fields = {
                fast.WAY_LINK: rows.links[leg.links[place]],
                fast.BRANCHES: first,
                fast.BRANCHES_END: first + len(branches),
                fast.SINKS: first + len(branches),
                fast.SINKS_END: first + len(branches) + len(sinks),
            }
            words.set(way, fields)
        fields = {
            fast.FIRST_WAY: ways[0],
            fast.FLITS: leg.flits,
            fast.SINK_COUNT: len(leg.sinks),
            fast.KNOWN_AT: row + fast.SENT_COUNT,
            fast.SIZE: size,
        }
        words.set(row, fields)
        words.reserve(row + fast.SET_OUT, size)


def _add_sinks(words: Words, plan: NetworkPlan, rows: Rows, sizes: Sequence[int]) -> None:
    """Fill the rows of sinks; the leg after one has its packets set out where they arrive."""
    for sink, row, size in zip(plan.sinks, rows.sinks, sizes, strict=True):
        fields = {fast.PAUSE: sink.pause_cycles, fast.SINK_SIZE: size, fast.ARRIVED_AT: -1}
        words.set(row, fields)
        words.reserve(row + fast.OUT, size)
        words.reserve(row + fast.EARLY, size)
        if sink.following >= 0:
            leg = rows.legs[plan.sinks[sink.following].leg]
            words.set(row, {fast.FOLLOWING: leg})
            words.share(leg + fast.SET_OUT, row + fast.OUT)


def _add_buffers(words: Words, plan: NetworkPlan) -> list[range]:
    """Add the buffers at the end of each link."""
    buffers = []
    for _, end in plan.links:
        count = 0 if end == OUTSIDE else plan.packets.virtual_channels
        buffers.append(words.rows(count, fast.BUFFER_FIELDS))
        for b in buffers[-1]:
            words.set(b, {fast.LEFT_AT: -1})
            words.reserve(b + fast.FLITS_AT, plan.packets.buffer_flits * fast.FLIT_FIELDS)
            words.reserve(b + fast.ROOM_AT, plan.packets.buffer_flits)
    return buffers


def _add_entries(words: Words, plan: NetworkPlan, links: range, legs: range) -> tuple[int, int]:
    """Add the places where packets enter; return where their rows begin and end."""
    entering: dict[int, list[int]] = {}
    for leg, row in zip(plan.legs, legs, strict=True):
        entering.setdefault(leg.links[0], []).append(row)
    entries = words.rows(len(entering), fast.ENTRY_FIELDS)
    for e, (link, its) in zip(entries, entering.items(), strict=True):
        first = words.add(its)
        words.set(
            e,
            {
                fast.ENTRY_LINK: links[link],
                fast.ENTRY_LEGS: first,
                fast.ENTRY_LEGS_END: first + len(its),
            },
        )
    return entries[0], entries[-1] + fast.ENTRY_FIELDS
