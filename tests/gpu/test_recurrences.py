"""State that a loop carries: several states, one that carries another, two starts of one."""

import numpy as np
import pytest

from dataflow.graph import Builder, Graph
from dataflow.reference import draw_inputs, evaluate
from gpu.run import run


def two_steps_back(t: int = 9, n: int = 5) -> Graph:
    """y = y[t-1] / 2 + y[t-2] / 4 + x."""
    g = Builder("two_steps_back", t=t, n=n)
    x = g.input("x", "t n")
    b = g.recur("b", "t n", axis="t")
    c = g.recur("c", "t n", axis="t", init=1.0)
    half, quarter = g.map("mul", b, 0.5), g.map("mul", c, 0.25)
    y = g.map("add", half, g.map("add", quarter, x))
    g.close(b, y)
    g.close(c, b)
    g.output("y", y)
    return g.build()


def two_starts(t: int = 9, n: int = 5) -> Graph:
    """The same value a step back, from 0 and from 3."""
    g = Builder("two_starts", t=t, n=n)
    x = g.input("x", "t n")
    zero, three = g.earlier(x, "t", 0.0), g.earlier(x, "t", 3.0)
    g.output("y", g.map("sub", three, zero))
    return g.build()


def swapped(t: int = 8, n: int = 5) -> Graph:
    """Two states that change places at every step."""
    g = Builder("swapped", t=t, n=n)
    x = g.input("x", "t n")
    a = g.recur("a", "t n", axis="t", init=1.0)
    b = g.recur("b", "t n", axis="t", init=2.0)
    g.close(a, b)
    g.close(b, a)
    g.output("y", g.map("add", a, g.map("mul", x, 0.0)))
    return g.build()


def last_of_state(t: int = 9, n: int = 5) -> Graph:
    """What the state before the last step was, beside the last result."""
    g = Builder("last_of_state", t=t, n=n)
    x = g.input("x", "t n")
    b = g.recur("b", "t n", axis="t", init=1.0)
    y = g.close(b, g.map("tanh", g.map("add", b, x)))
    g.output("y", g.map("sub", g.last(y, "t"), g.last(b, "t")))
    return g.build()


@pytest.mark.parametrize("make", [two_steps_back, two_starts, swapped, last_of_state])
def test_state_is_what_the_step_before_left(make, where: str) -> None:
    graph = make()
    inputs = draw_inputs(graph, 1)
    made = run(graph, inputs, precision="fp32", where=where)
    np.testing.assert_allclose(
        made.outputs["y"], evaluate(graph, inputs)["y"], rtol=1e-5, atol=1e-5
    )
