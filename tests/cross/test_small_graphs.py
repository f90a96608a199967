"""Graphs of hardly any operation, and outputs that no unit makes: mapped, run, beside float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import hwspecs
from dataflow.check import round_to, unit_roundoff
from dataflow.graph import Builder
from dataflow.nodes import Graph
from dataflow.reference import draw_inputs, evaluate
from dataflow.sim import simulate
from mapping import map_graph

T, N = 9, 5


def stored(make: Callable[[Builder], object], **axes: int) -> Graph:
    """A graph whose output y is what `make` returns."""
    g = Builder("small", **(axes or {"t": T, "n": N}))
    g.output("y", make(g))  # pyright: ignore[reportArgumentType]
    return g.build()


def running(g: Builder):
    before = g.recur("before", "t n", axis="t", init=1.0)
    g.output("sum", g.close(before, g.map("add", before, g.input("x", "t n"))))
    return before


def two_back(g: Builder):
    one, two = g.recur("one", "t n", axis="t"), g.recur("two", "t n", axis="t", init=1.0)
    now = g.map("add", g.map("mul", one, 0.5), g.map("add", g.map("mul", two, 0.25), x_of(g)))
    g.close(one, now)
    g.close(two, one)
    g.output("now", now)
    return two


def x_of(g: Builder):
    return g.input("x", "t n")


def shifted(g: Builder, index: str):
    """A computed value at other points: of those, each copy of the reader needs some of others."""
    x = g.map("exp", g.input("x", "n"))
    return g.map("add", x, g.read(x, "n", [index]))


def convolved(g: Builder):
    x = g.map("exp", g.input("x", "n"))
    return g.contract("n", g.read(x, "n w", ["n - w"]), g.input("weight", "w"))


GRAPHS = {
    "an input as it is": stored(x_of),
    "a number": stored(lambda g: g.number(2.5, "t n")),
    "a counter": stored(lambda g: g.affine("2*t + n", "t n")),
    "an input turned round": stored(lambda g: g.read(x_of(g), "t n", [f"{T - 1} - t", "n"])),
    "an input one point back": stored(lambda g: g.earlier(x_of(g), "t", 1.0)),
    "an input two points back": stored(lambda g: g.earlier(g.earlier(x_of(g), "t"), "t", 2.0)),
    "a sum so far": stored(running),
    "a state two points back": stored(two_back),
    "a value one point back": stored(lambda g: shifted(g, "n - 1"), n=131),
    "a value turned round": stored(lambda g: shifted(g, "130 - n"), n=131),
    "a short convolution": stored(convolved, n=131, w=5),
}


def test_copies_have_names_of_their_own() -> None:
    graph = stored(lambda g: g.map("neg", x_of(g), name="x.copy"))
    graph = replace(graph, outputs=(*graph.outputs, replace(graph.outputs[0], name="z", node="x")))
    judge(graph, "plasticine")


@pytest.mark.parametrize("machine", ["plasticine", "sn10"])
@pytest.mark.parametrize("name", list(GRAPHS))
def test_values_are_the_graphs(name: str, machine: str) -> None:
    judge(GRAPHS[name], machine)


def judge(graph: Graph, machine: str) -> None:
    kind = hwspecs.load(machine).data_type
    inputs = {name: round_to(array, kind) for name, array in draw_inputs(graph).items()}
    result = simulate(map_graph(graph, hwspecs.load(machine)).program, inputs)
    near = 2 * T * unit_roundoff(kind)  # a rounding or two a point of t, of values of some units
    for output, expected in evaluate(graph, inputs).items():
        np.testing.assert_allclose(result.outputs[output], expected, rtol=near, atol=near)
