"""How long a beat keeps the port of a scratchpad: lanes that meet in one bank take turns.

A tile lies in its scratchpad row by row, the value's last axis fastest. Of its word w the bank is

    strided      w mod banks                             neighbouring words in neighbouring banks
    padded       as strided, every axis padded to an odd number of words, so that lanes along any
                 axis meet no bank twice (of the padding, under a word a row, no account is kept)
    blocked      w // ceil(words of the tile / banks)    the tile cut into a block a bank
    duplicated   every bank: each holds the whole tile, so that lanes read what they like at once,
                 a beat written takes each bank as many turns as it has words, and a tile takes the
                 capacity of as many as there are banks

and a port's interval is the most words that a beat wants of one bank, of the slowest beat that its
stride allows; lanes that want the same word share it.

Strided and duplicated are modes of Plasticine's memory units (ISCA 2017, section 3.2); blocked and
padded are the other usual ways to cut an array into banks, as compilers for FPGAs do.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable

from dataflow.streams.edge import Edge, StreamGraph
from dataflow.streams.node import StreamNode
from hwspecs import Machine
from hwspecs.machine import DATA_BYTES, Banking

Lanes = tuple[tuple[int, int], ...]
"""The lanes of a beat: (elements from one to the next, how many), for each digit they run along."""


def banking_of(edge: Edge, machine: Machine) -> Banking:
    """The mode of the scratchpad of a channel: the schedule's, or the machine's own."""
    return edge.banking or machine.memory.banking or "padded"


def tile_copies(banking: Banking, machine: Machine) -> int:
    """How often a tile is held."""
    return machine.memory.banks if banking == "duplicated" else 1


def turns(banking: Banking, lanes: Lanes, tile_elems: int, machine: Machine, writes: bool) -> int:
    """Return the cycles for which a beat keeps its port.

    lanes: where the beat's elements lie in the tile of `tile_elems` elements.
    """
    size, word, banks = DATA_BYTES[machine.data_type], machine.word_bytes, machine.memory.banks
    offsets = [
        sum(offset)
        for offset in itertools.product(
            *(range(0, step * count, step) if step else (0,) for step, count in lanes)
        )
    ]

    def words(first: int) -> set[int]:
        return {(first + offset) * size // word for offset in offsets}

    if banking == "padded":
        return -(-len(words(0)) // banks)
    if banking == "strided":
        return _most(at % banks for at in words(0))
    if banking == "duplicated":
        return len(words(0)) if writes else 1
    block = -(-(tile_elems * size) // (word * banks))
    # a beat may start anywhere in a block
    firsts = range(max(1, min(block * word // size, tile_elems - max(offsets))))
    return max(_most(at // block for at in words(first)) for first in firsts)


def _most(banks: Iterable[int]) -> int:
    return max(Counter(banks).values())


def write_lanes(made: StreamGraph, edge: Edge, source: StreamNode) -> Lanes:
    """The lanes of the beats that a writer puts into the tile."""
    if source.vector not in source.emission or source.lanes == 1:
        return ()
    return ((tile_strides(made, edge).get(source.vector, 0), source.lanes),)


def read_lanes(made: StreamGraph, edge: Edge, target: StreamNode) -> Lanes:
    """The lanes of the beats that a reader takes out of it; packed scalars are lanes too."""
    strides = tile_strides(made, edge)
    if target.vector in edge.touch and target.lanes > 1:
        return ((strides.get(target.vector, 0), target.lanes),)
    packed = [(d, n) for d, n in target.pack.items() if d in edge.touch and n > 1]
    return tuple((strides.get(d, 0), n) for d, n in packed)


def tile_strides(made: StreamGraph, edge: Edge) -> dict[str, int]:
    """Elements from one index of a digit to the next, for the digits inside a tile."""
    source, target = made.by_name[edge.source], made.by_name[edge.target]
    outside = set(target.domain[: edge.common])
    inside = [d for d in source.emission if d not in outside]
    inside = [d for d in inside if made.digits[d].axis not in edge.last]
    axes = source.node.axes
    order = sorted(inside, key=lambda d: (axes.index(made.digits[d].axis), -made.digits[d].stride))
    strides, step = {}, 1
    for digit in reversed(order):
        strides[digit] = step
        step *= made.digits[digit].extent
    return strides
