"""Products formed ahead of a recurrence, a block of points at a time: loads, values, and use."""

import numpy as np
import pytest

import hwspecs
from dataflow.graph import Builder
from dataflow.kernels import build
from dataflow.nodes import Graph
from dataflow.program import Access, Program
from dataflow.reference import evaluate
from dataflow.schedule import Schedule
from dataflow.sim import simulate
from hwspecs import Machine
from mapping import default_schedule, map_graph
from mapping.bounds import moved_elements

SIZES = {"batch": 2, "t": 8, "h": 24, "e": 16}


def _moved(program: Program, tensor: str) -> int:
    """Elements of an input that are loaded in a run, repeats counted."""
    name = f"input {tensor}"
    shapes = {each.name: each.shape for each in program.tensors}
    return sum(
        moved_elements(unit, unit.work, shapes[name])
        for unit in program.units
        if isinstance(unit.work, Access) and unit.work.tensor == name
    )


@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize("block", [2, 3, 4])  # 3 leaves a last block of 2 points
def test_weights_of_a_block_come_once_a_block_and_change_no_value(cell: str, block: int) -> None:
    graph = build(cell, SIZES)
    numbers = np.random.default_rng(3)
    inputs = {
        node.name: numbers.standard_normal(graph.shape(node.axes)).astype(np.float32)
        for node in graph.inputs
    }
    text = f"{{tile: {{t: {block}, e: 8}}, time: [batch, t.o, e.o, t]}}"
    program = map_graph(graph, hwspecs.load("plasticine"), Schedule.from_yaml(text)).program
    result = simulate(program, inputs, engine="simpy")
    for name, expected in evaluate(graph, inputs).items():
        np.testing.assert_allclose(result.outputs[name], expected, rtol=1e-4, atol=1e-5)
    gates = {"lstm": 4, "gru": 3}[cell]
    assert _moved(program, "w") == gates * 24 * 16 * 2 * -(-8 // block)
    assert _moved(program, "u") == gates * 24 * 24
    assert simulate(program, values=False, engine="fast").cycles == result.cycles


def _recurrent(capacity_kib: int) -> Machine:
    machine = hwspecs.load("plasticine_rnn")
    memory = machine.memory.model_copy(update={"capacity_bytes": capacity_kib * 1024})
    return machine.model_copy(update={"memory": memory})


def _layer() -> Graph:
    return build("lstm", {"h": 1024, "t": 64})


def test_blocks_are_used_where_the_weights_do_not_fit_on_chip() -> None:
    # 8 H^2 weights of a byte are 8 MiB; 384 memory units of 20 KiB hold 7.5, of 24 KiB 9.
    blocked = default_schedule(_layer(), _recurrent(20))
    assert blocked.tile["t"] in (32, 64)
    assert blocked.time.index("t.o") < blocked.time.index("e.o") < blocked.time.index("t")
    assert "t" not in default_schedule(_layer(), _recurrent(84)).tile


def test_blocks_are_used_for_any_number_of_steps() -> None:
    # 61 is prime: two blocks of 31, the last of which has 30 points
    blocked = default_schedule(build("lstm", {"h": 1024, "t": 61}), _recurrent(20))
    assert blocked.tile["t"] in (31, 61)


def _plain(t: int, *, final: bool = False, view: str = "") -> Graph:
    """y = tanh(x w + y' u), 1024 wide; all of y or its last point. The product of the input is read
    as it is, and at the hidden unit ("read") or the point ("earlier") before too."""
    g = Builder("plain", t=t, h=1024, k=1024, e=8192)
    x, w, u = g.input("x", "t e"), g.input("w", "h e"), g.input("u", "h k")
    before = g.recur("before", "t h", axis="t")
    state = g.read(before, "t k", ["t", "k"], name="state")
    wx = g.einsum("t e, h e -> t h", x, w, name="wx")
    entered = wx
    if view == "read":
        entered = g.map("add", wx, g.read(wx, "t h", ["t", "h - 1"], fill=0.0))
    if view == "earlier":
        entered = g.map("add", wx, g.earlier(wx, "t"))
    y = g.map("tanh", g.map("add", entered, g.einsum("t k, h k -> t h", state, u)), name="y")
    g.close(before, y)
    g.output("o", g.last(y, "t") if final else y)
    return g.build()


def test_blocks_divide_an_axis_of_which_the_last_point_is_wanted() -> None:
    # 262 = 2 x 131 points: blocks of 2, or of any size where points past the last may follow
    assert default_schedule(_plain(262, final=True), _recurrent(20)).tile["t"] == 2
    assert default_schedule(_plain(262), _recurrent(20)).tile["t"] > 16


def test_blocks_are_of_products_that_a_view_reads() -> None:
    blocked = default_schedule(_plain(64, view="read"), _recurrent(20))
    assert "t.o" in blocked.time


def test_products_that_the_next_point_reads_are_not_formed_ahead() -> None:
    assert "t" not in default_schedule(_plain(64, view="earlier"), _recurrent(20)).tile


def test_blocks_load_the_weights_of_the_input_less_often_than_once_a_step() -> None:
    machine = _recurrent(20)
    blocked = default_schedule(_layer(), machine)
    program = map_graph(_layer(), machine, blocked).program
    assert _moved(program, "w") == 4 * 1024**2 * (64 // blocked.tile["t"])
    assert _moved(program, "u") == 4 * 1024**2


def test_attention_over_many_keys_takes_no_blocks() -> None:
    # Queries and keys of 512 MiB do not fit 16 MiB of scratchpads, yet no weights are to be held:
    # each block of keys is another one, and each tile of queries is held by itself.
    graph = build("attention", {"heads": 16, "n": 65536, "m": 65536, "d": 128})
    assert "m.b" not in default_schedule(graph, hwspecs.load("plasticine")).tile
