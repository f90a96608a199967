"""Address generators and host ports: one a copy of a load or a store."""

from __future__ import annotations

from dataflow.index import affine
from dataflow.program import Access, Box, Host, Tensor
from dataflow.streams.node import StreamNode
from hwspecs.machine import DATA_BYTES
from mapping.boxes import box_of
from mapping.building.draft import Building, Draft
from mapping.pads import copies_of, copy_name
from mapping.tensors import base_bytes


def add_off_chip(b: Building, node: StreamNode) -> None:
    """Add the address generator, or the host port, of every copy of a load or a store."""
    loops = b.loops(node)
    for copy in copies_of(node):
        name = copy_name(node.name, copy)
        axes = node.node.axes if node.kind != "load" else node.axes
        box = box_of(b.digits, axes, node, copy)
        if node.kind == "host":
            assert node.output is not None
            work: Access | Host = Host(node.output.name, node.node.name)
            b.drafts[name] = Draft(name, "host", loops, len(node.domain), 1, work)
            continue
        work = _access(b, node, box)
        b.drafts[name] = Draft(name, node.kind, loops, len(node.domain), 1, work)


def _access(b: Building, node: StreamNode, box: Box) -> Access:
    # An axis of several digits moves as fast as its fastest one.
    order = tuple(dict.fromkeys(b.digits[d].axis for d in reversed(node.walk)))[::-1]
    order = (*(a for a in node.node.axes if a not in order), *order)
    if node.kind == "load":
        base = node.argument
        assert base is not None
        index = node.node.index if node.node.op == "read" else tuple(map(affine, base.axes))
        kind = "const" if base.op == "const" else "input"
        tensor = _tensor(b, base.name, kind, base.axes)
        fill = node.node.fill if node.node.op == "read" else 0.0
        return Access(tensor, node.node.name, box, index, order, node.lanes, fill)
    output = node.output
    assert output is not None
    tensor = _tensor(b, output.name, "output", output.axes)
    return Access(tensor, node.node.name, box, output.index, order, node.lanes, 0.0, output.merge)


def _tensor(b: Building, source: str, kind: str, axes: tuple[str, ...]) -> str:
    name = f"{kind} {source}"
    if name not in b.tensors:
        shape = tuple(b.made.graph.extent(axis) for axis in axes)
        size = DATA_BYTES[b.machine.data_type]
        base = base_bytes(b.machine, b.end_bytes, len(b.tensors))
        b.tensors[name] = tensor = Tensor(name, kind, source, shape, base, size)
        b.end_bytes = base + tensor.bytes
    return name
