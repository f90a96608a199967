"""Pads digits so that every channel carries as many beats as are taken from it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from dataflow.streams.digits import Digits
from dataflow.streams.edge import Edge, scatter
from dataflow.streams.node import StreamNode


def padded_groups(
    digits: Digits, nodes: Mapping[str, StreamNode], edges: Iterable[Edge]
) -> dict[tuple[str, str], int]:
    """Pad every digit of every node so that channels carry as many beats as are taken."""
    keys = [(node.name, digit) for node in nodes.values() for digit in node.loops]
    parent = {key: key for key in keys}

    def find(key: tuple[str, str]) -> tuple[str, str]:
        while parent[key] != key:
            parent[key] = parent[parent[key]]
            key = parent[key]
        return key

    factor: dict[tuple[str, str], list[int]] = {key: [nodes[key[0]].spread(key[1])] for key in keys}
    for edge in edges:
        source, target = nodes[edge.source], nodes[edge.target]
        outside = set(target.domain[: edge.common])
        for digit in edge.touch:
            if digit not in source.loops:
                continue
            if edge.kind == "fifo" or digit in outside:
                parent[find((source.name, digit))] = find((target.name, digit))
            elif scatter(source, target, edge, digit) == "deal":
                block = target.grain(digit) * target.pack.get(digit, 1) // source.grain(digit)
                factor[source.name, digit].append(block * target.copies(digit))
        for digit in target.merge:
            if digit in source.loops and digit in target.loops:
                parent[find((source.name, digit))] = find((target.name, digit))
        for digit in outside - set(edge.touch):
            if digit in source.loops and digit in target.loops:
                parent[find((source.name, digit))] = find((target.name, digit))
    wanted: dict[tuple[str, str], list[int]] = {}
    for key in keys:
        wanted.setdefault(find(key), []).extend(factor[key])
    result = {}
    for name, digit in keys:
        least = -(-digits[digit].extent // nodes[name].grain(digit))
        step = math.lcm(*wanted[find((name, digit))])
        result[name, digit] = -(-least // step) * step
    return result
