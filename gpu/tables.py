"""The numbers of a plan's constant tensors, worked out on the host in float64."""

from __future__ import annotations

import numpy as np

from dataflow.nodes import Graph
from dataflow.reference import constant
from gpu.plan import Block, Tensor


def numbers(graph: Graph, tensor: Tensor) -> np.ndarray:
    """Return the values of a tensor of kind "const", in float64 and the tensor's shape."""
    if tensor.blocks:
        return np.block([[_block(graph, block) for block in row] for row in tensor.blocks])
    return np.broadcast_to(_values(graph, tensor.node) * tensor.scale, tensor.shape)


def _block(graph: Graph, block: Block) -> np.ndarray:
    values = _values(graph, block.node) * block.scale
    values = np.broadcast_to(values, graph.shape(graph.node(block.node).axes))
    values = values.T if block.turned else values
    full = np.zeros(block.shape)
    full[: values.shape[0], : values.shape[1]] = values
    return full


def _values(graph: Graph, name: str) -> np.ndarray:
    node = graph.node(name)
    points = {
        axis: np.arange(graph.extent(axis)).reshape([-1 if a == axis else 1 for a in node.axes])
        for axis in node.axes
    }
    return constant(node, points)
