"""Short forms for hand-written Programs."""

from functools import partial
from types import SimpleNamespace

import pytest

from dataflow import sim
from dataflow.graph import Graph
from dataflow.index import affine
from dataflow.program import (
    Access,
    AxisWalk,
    Channel,
    DigitWalk,
    Host,
    Loop,
    Piece,
    Port,
    Program,
    Tensor,
    Unit,
)


def make_unit(
    name, loops, inputs=(), outputs=(), *, kind="compute", points=None, latency=6, ii=1, work=None
):
    """A unit whose loops are (digit, trips) pairs or bare trips."""
    nest = tuple(
        Loop(*loop) if isinstance(loop, tuple) else Loop(f"d{place}", loop)
        for place, loop in enumerate(loops)
    )
    return Unit(
        name,
        kind,
        nest,
        len(nest) if points is None else points,
        tuple(inputs),
        tuple(outputs),
        latency,
        work if work is not None else Host("", ""),
        ii,
    )


def make_sink(name, loops, *inputs):
    """A host unit: it takes what comes and adds no time."""
    return make_unit(name, loops, inputs, kind="host", latency=0)


def make_port(channels, level, **options):
    """A port on one channel or several, space-separated."""
    return Port(tuple(channels.split()), level, **options)


def make_program(
    units, machine=None, graph=None, capacity=16, latency=3, scratchpads=(), tensors=(), **given
):
    """Wire `units`: channels are found in their ports; `given` overrides fields by channel name."""
    ends = {}
    for unit in units:
        for role, ports in (("reader", unit.inputs), ("writer", unit.outputs)):
            for name in (name for port in ports for name in port.channels):
                ends.setdefault(name, {})[role] = unit.name
    channels = tuple(
        Channel(
            **{
                "name": name,
                "capacity": capacity,
                "latency_cycles": latency,
                **roles,
                **given.pop(name, {}),
            }
        )
        for name, roles in ends.items()
    )
    assert not given, f"no such channel: {sorted(given)}"
    graph = graph or Graph("test", {}, (), ())
    return Program(graph, machine, tuple(units), channels, tuple(scratchpads), tuple(tensors))


def make_walk(axis, extent, loop=None, tile=None):
    """An axis of which a tile covers `tile` coordinates: block number = counter of `loop`."""
    tile = tile or (1 if loop is not None else extent)
    pieces = [Piece(tile, -(-extent // tile), loop)] if loop is not None else []
    inside = (Piece(1, tile),) if tile > 1 else ()
    return AxisWalk(axis, extent, (DigitWalk(1, extent, (*pieces, *inside)),))


def make_load(name, elems, tensor, out, *, tile, lanes=16, kind="load"):
    """A load (or store) of a vector over axis n, tile by tile."""
    access = Access(
        tensor, tensor, (make_walk("n", elems, 0, tile),), (affine("n"),), ("n",), lanes
    )
    port = [make_port(out, 2, value=tensor)]
    inputs, outputs = (port, []) if kind == "store" else ([], port)
    loops = [-(-elems // tile), -(-tile // lanes)]
    return make_unit(name, loops, inputs, outputs, kind=kind, points=1, latency=1, work=access)


def make_tensor(name, *shape, base=0, kind="input", element_bytes=4):
    """A row-major tensor whose source has its name."""
    return Tensor(name, kind, name, shape, base, element_bytes)


@pytest.fixture(scope="session")
def wire():
    """`wire.unit`, `wire.sink`, `wire.port`, `wire.program`."""
    return SimpleNamespace(
        unit=make_unit,
        sink=make_sink,
        port=make_port,
        program=make_program,
        walk=make_walk,
        load=make_load,
        tensor=make_tensor,
        host=Host,
    )


@pytest.fixture(scope="session", params=["simpy", "fast"])
def simulate(request):
    """`simulate` by one engine, then by the other."""
    return partial(sim.simulate, engine=request.param)
