"""What a default schedule is chosen for: a card, the work of one kernel, usual sizes of tiles."""

from __future__ import annotations

from dataclasses import dataclass

from dataflow.nodes import Graph, Node
from gpu.lowering.axes import product_sides

PRODUCT_ROWS = 128
"""Rows and columns of a product's tile: two warp groups of 64 rows fill a Hopper tensor core."""
WHOLE_ROW = 32768
"""Longest row of a kernel without products that lies whole in the tile."""
ROW_ELEMENTS = 4096
"""Elements that a program of a kernel without products works on at once."""


@dataclass(frozen=True)
class Card:
    """What a default needs to know of a card.

    cooperative: programs may wait for each other. copies: it has a copy engine for blocks, and
    shared memory and registers for 128 x 256 results (Hopper). shared_bytes: of shared memory that
    one program may have (CUDA programming guide, compute capabilities).
    """

    name: str
    cores: int
    cooperative: bool = True
    copies: bool = False
    shared_bytes: int = 163 * 1024


CARDS = {
    # NVIDIA H200 SXM and A100: cores (SM) as the devices report
    "h200": Card("h200", 132, copies=True, shared_bytes=227 * 1024),
    "a100": Card("a100", 108),
    "interpreter": Card("interpreter", 2, cooperative=False),
}


@dataclass(frozen=True)
class Work:
    """What one kernel works out: its nodes, and the axes of what it stores."""

    graph: Graph
    nodes: tuple[Node, ...]
    stored: tuple[tuple[str, ...], ...]

    @property
    def products(self) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes if product_sides(self.graph, node) is not None)
