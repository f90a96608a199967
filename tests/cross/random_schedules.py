"""Random schedules of small kernels, and a machine roomy enough to take most of them."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

import numpy as np

from dataflow import kernels
from dataflow.nodes import Graph
from dataflow.schedule import ChannelSchedule, NodeSchedule, Schedule
from dataflow.streams import StreamGraph, StreamNode, stream
from hwspecs import Machine, load

CASES: dict[str, tuple[str, dict[str, int], dict[str, Any], tuple[str, ...] | None]] = {
    "gemm": ("gemm", {"i": 3, "j": 5, "k": 7}, {}, None),
    "gemm with bias": (
        "gemm",
        {"i": 5, "j": 3, "k": 4},
        {"bias": True, "activation": "relu"},
        None,
    ),
    "softmax": ("softmax", {"rows": 3, "n": 7}, {}, None),
    "softmax online": ("softmax", {"rows": 3, "n": 8}, {"block": 4}, ("online_softmax",)),
    "layer_norm": ("layer_norm", {"rows": 3, "n": 5}, {}, None),
    "rms_norm": ("rms_norm", {"rows": 3, "n": 5}, {}, None),
    "attention plain": (
        "attention",
        {"batch": 1, "heads": 2, "n": 3, "m": 5, "d": 3},
        {},
        (),
    ),
    "attention online": (
        "attention",
        {"batch": 1, "heads": 2, "n": 3, "m": 6, "d": 3},
        {"block": 3},
        None,
    ),
    "attention causal": (
        "attention",
        {"batch": 1, "heads": 1, "n": 4, "m": 6, "d": 3},
        {"block": 2, "causal": True},
        None,
    ),
    "attention grouped": (
        "attention",
        {"batch": 1, "heads": 4, "n": 2, "m": 4, "d": 3},
        {"block": 2, "kv_heads": 2},
        None,
    ),
    "fft_conv": ("fft_conv", {"batch": 2, "channels": 1, "n": 6}, {}, None),
    "fft_conv causal": ("fft_conv", {"batch": 1, "channels": 2, "n": 4}, {"causal": True}, None),
    "lstm": ("lstm", {"batch": 2, "t": 4, "h": 3, "e": 2}, {}, None),
    "lstm plain": ("lstm", {"batch": 1, "t": 4, "h": 2, "e": 3}, {}, ()),
    "gru": ("gru", {"batch": 2, "t": 4, "h": 3, "e": 2}, {}, None),
    "gru plain": ("gru", {"batch": 1, "t": 4, "h": 2, "e": 3}, {}, ()),
    "sum_square": ("sum_square", {"n": 13}, {}, None),
    "generated_dot_product": ("generated_dot_product", {"n": 13}, {}, None),
    "accumulate_buffer": ("accumulate_buffer", {"n": 5, "d": 7}, {}, None),
    "dot_product": ("dot_product", {"n": 13}, {}, None),
    "outer_product": ("outer_product", {"i": 3, "j": 7}, {}, None),
    "filter_sum": ("filter_sum", {"n": 11}, {}, None),
}
"""Every kernel of the library, at sizes that most tiles and copies do not divide."""


@cache
def graph_of(case: str) -> Graph:
    """The graph of a case."""
    name, sizes, options, rewrites = CASES[case]
    return kernels.build(name, sizes, options, rewrites)


def inputs_of(graph: Graph) -> dict[str, np.ndarray]:
    """The same normal numbers each time, of single precision."""
    numbers = np.random.default_rng(7)
    return {
        node.name: numbers.standard_normal(graph.shape(node.axes)).astype(np.float32)
        for node in graph.inputs
    }


@cache
def roomy(stages: int = 4) -> Machine:
    """`tiny` with units, wires and registers enough for any small schedule."""
    tiny = load("tiny")
    grid = {"rows": 64, "columns": 64, "compute_units": 2048, "memory_units": 2048}
    wires = dict.fromkeys(("vector_in", "vector_out", "scalar_in", "scalar_out"), 64)
    return tiny.model_copy(
        update={
            "grid": tiny.grid.model_copy(update=grid),
            "compute": tiny.compute.model_copy(update={**wires, "stages": stages}),
            "generators": tiny.generators.model_copy(update={"count": 1024}),
            "network": tiny.network.model_copy(update={"kind": "ideal"}),
        }
    )


def random_schedule(graph: Graph, draw: random.Random, depths: bool = False) -> Schedule:
    """A schedule that fits the graph's axes; it may still break rules that only derivation finds.

    depths: whether channels may be given depths, which may be too small to run.
    """
    schedule = _loops(graph, draw)
    try:
        made = stream(graph, schedule, 4)
    except ValueError:
        return schedule
    nodes = _nodes(made, draw)
    schedule = schedule.model_copy(update={"nodes": nodes})
    return schedule.model_copy(update={"channels": _channels(made, draw, depths)})


def _loops(graph: Graph, draw: random.Random) -> Schedule:
    recurrent = {node.axis for node in graph.nodes if node.op == "earlier"}
    tile, time, inner = {}, [], []
    tiles = draw.choice((0.0, 0.3, 0.6))
    points = draw.choice((0.0, 0.1, 0.4))
    for axis, extent in graph.axes.items():
        if axis in recurrent:
            if draw.random() < 0.4:
                tile[axis] = draw.choice([n for n in range(1, extent + 1) if extent % n == 0])
                time.append(f"{axis}.o")
            time.append(axis)
            continue
        if draw.random() < tiles:
            tile[axis] = draw.randint(1, extent)
            time.append(f"{axis}.o")
        (time if draw.random() < points else inner).append(axis)
    draw.shuffle(time)
    if draw.random() < 0.7:
        time.sort(key=lambda digit: digit.removesuffix(".o") not in recurrent)
    for axis in sorted(recurrent & tile.keys()) if draw.random() < 0.9 else ():
        places = sorted((time.index(f"{axis}.o"), time.index(axis)))
        time[places[0]], time[places[1]] = f"{axis}.o", axis
    draw.shuffle(inner)
    if draw.random() < 0.3:
        inner = inner[: draw.randint(0, len(inner))]
    return Schedule(tile=tile, time=tuple(time), walk=tuple(inner))


def _nodes(made: StreamGraph, draw: random.Random) -> dict[str, NodeSchedule]:
    digits = list(made.digits.by_name)
    inner = [d for d in digits if not made.digits[d].time]
    lane = draw.choice(inner) if inner else ""
    lanes = draw.choice((1, 2, 3, 4))
    copied = {d: draw.choice((2, 3, 4)) for d in digits if draw.random() < 0.25}
    packed = {d: draw.choice((2, 3)) for d in inner if draw.random() < 0.1}
    alike = draw.random() < 0.6
    some = draw.choice((0.1, 0.5, 0.9))
    result = {}
    for node in made.nodes:
        walk, loops = node.walk, node.loops
        vector: dict[str, int] = {}
        if alike and lane in walk:
            vector = {lane: lanes}
        elif walk and draw.random() < some:
            vector = {draw.choice(walk): draw.choice((1, 2, 3, 4))}
        if alike or draw.random() < some:
            unroll = {d: n for d, n in copied.items() if d in loops}
            pack = {d: n for d, n in packed.items() if d in walk and d not in vector}
        else:
            unroll = {d: draw.choice((1, 2, 3, 5, 7)) for d in loops if draw.random() < 0.2}
            pack = {d: draw.choice((2, 3)) for d in walk if draw.random() < 0.1}
        if node.kind != "compute" and vector and draw.random() < 0.9:
            vector = {walk[-1]: next(iter(vector.values()))}
        if node.kind != "load" and draw.random() < 0.1:
            order = draw.sample(walk, len(walk))
            result[node.name] = NodeSchedule(walk=order, vector=vector, unroll=unroll, pack=pack)
        elif node.kind in ("compute", "load", "store"):
            pack = pack if node.kind == "compute" else {}
            result[node.name] = NodeSchedule(vector=vector, unroll=unroll, pack=pack)
        if node.kind != "compute" and (node.kind == "load" or draw.random() < 0.7):
            unroll = {d: n for d, n in unroll.items() if d in node.domain}
            result[node.name] = NodeSchedule(unroll=unroll)
        if node.name in result and draw.random() < 0.97:
            result[node.name] = _within(made, node, result[node.name])
    return result


def _within(made: StreamGraph, node: StreamNode, plan: NodeSchedule) -> NodeSchedule:
    """The plan with no more copies than there are points, but for one plan in thirty."""
    (lane, lanes), *_ = (*plan.vector.items(), ("", 1))
    groups = {d: -(-made.digits[d].extent // (lanes if d == lane else 1)) for d in node.loops}
    pack = {d: min(n, groups[d]) for d, n in plan.pack.items()}
    unroll = {d: min(n, -(-groups[d] // pack.get(d, 1))) for d, n in plan.unroll.items()}
    return plan.model_copy(update={"pack": pack, "unroll": unroll})


def _channels(made: StreamGraph, draw: random.Random, depths: bool) -> dict[str, ChannelSchedule]:
    result = {}
    for edge in made.edges:
        target = made.by_name[edge.target]
        plan: dict[str, Any] = {}
        if draw.random() < 0.15:
            plan["locality"] = "scratchpad"
        if draw.random() < 0.1:
            plan["at"] = draw.choice(("", *target.domain))
        if depths and draw.random() < 0.3:
            plan["depth"] = draw.choice((1, 2, 3, 40))
        if plan:
            result[edge.name] = ChannelSchedule(**plan)
    return result
