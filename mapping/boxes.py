"""Which coordinates the tiles of a node, a scratchpad or a port cover, as boxes of a Program."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dataflow.program import AxisWalk, Box, DigitWalk, Piece
from dataflow.streams.digits import Digit, Digits
from dataflow.streams.node import StreamNode

Copy = Mapping[str, int]
"""Which copy of a node: for each unrolled digit, its index."""

Loops = Mapping[str, int]
"""Position of each digit in a unit's domain."""


def counted(digit: Digit, loop: int, copies: int = 1, copy: int = 0) -> DigitWalk:
    """A digit that a domain loop counts."""
    return _walk(digit, (Piece(1, digit.extent, loop, copies, copy),))


def whole(digit: Digit) -> DigitWalk:
    """A digit of which the tile holds everything."""
    return _walk(digit, (Piece(1, digit.extent),))


def single(digit: Digit) -> DigitWalk:
    """A digit of which the tile holds one index, whichever it is."""
    return _walk(digit, (Piece(1, 1),))


def blocks(digit: Digit, block: int, copies: int, copy: int) -> DigitWalk:
    """A digit dealt out to `copies` in blocks of `block` points."""
    if copies == 1:
        return whole(digit)
    if block == 1:
        return _walk(digit, (Piece(1, digit.extent, None, copies, copy),))
    count = -(-digit.extent // block)
    return _walk(digit, (Piece(block, count, None, copies, copy), Piece(1, block)))


def share(node: StreamNode, digit: Digit, copy: Copy) -> DigitWalk:
    """What one copy of `node` holds of a tile digit."""
    block = node.grain(digit.name) * node.pack.get(digit.name, 1)
    return blocks(digit, block, node.copies(digit.name), copy.get(digit.name, 0))


def node_axis(digits: Digits, node: StreamNode, axis: str, copy: Copy) -> AxisWalk:
    """Coordinates of `axis` that a copy of `node` works on at a point of its domain."""
    walks = []
    for name in digits.of_axis[axis]:
        digit = digits[name]
        if name in node.domain:
            loop = node.domain.index(name)
            copies = node.copies(name) * node.merge.get(name, 1)
            walks.append(counted(digit, loop, copies, copy.get(name, 0)))
        else:
            walks.append(share(node, digit, copy))
    return axis_walk(digits, axis, walks)


def axis_walk(digits: Digits, axis: str, walks: Iterable[DigitWalk]) -> AxisWalk:
    """An axis as the sum of its digits."""
    return AxisWalk(axis, digits.extent(axis), tuple(walks))


def box_of(digits: Digits, axes: Iterable[str], node: StreamNode, copy: Copy) -> Box:
    """The box of a value over `axes` at a copy of `node`."""
    return tuple(node_axis(digits, node, axis, copy) for axis in axes)


def _walk(digit: Digit, pieces: tuple[Piece, ...]) -> DigitWalk:
    return DigitWalk(digit.stride, digit.extent, pieces)
