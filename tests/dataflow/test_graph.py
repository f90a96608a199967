"""Graphs: building by plain calls, and every rule that verification holds."""

import dataclasses
import doctest

import pytest

from dataflow import graph as graph_module
from dataflow.graph import (
    Axes,
    Builder,
    Graph,
    GraphError,
    Node,
    Output,
    in_order,
    live,
    recurrences,
    verify,
)
from dataflow.index import affine


def running_sum():
    g = Builder("g", t=4, n=2)
    before = g.recur("before", "t", axis="t")
    x = g.reduce("sum", g.input("x", "t n"), over="n", name="row")
    g.output("y", g.close(before, g.map("add", before, x, name="after")))
    return g.build()


def test_builder_makes_the_nodes_that_its_calls_name():
    g = Builder("gemm")
    for axis, extent in {"i": 2, "j": 3, "k": 4}.items():
        g.axis(axis, extent)
    c = g.einsum("i k, k j -> i j", g.input("a", "i k"), g.input("b", "k j"), name="c")
    g.output("c", g.map("mul", c, 2, name="twice"))
    assert g.build() == Graph(
        "gemm",
        Axes({"i": 2, "j": 3, "k": 4}),
        (
            Node("a", "input", ("i", "k")),
            Node("b", "input", ("k", "j")),
            Node("c", "einsum", ("i", "j"), ("a", "b")),
            Node("number", "const", (), fn="number", fill=2.0),
            Node("twice", "map", ("i", "j"), ("c", "number"), fn="mul"),
        ),
        (Output("c", "twice", ("i", "j"), (affine("i"), affine("j"))),),
    )


def test_builder_keeps_names_unique_and_numbers_shared():
    g = Builder("g", n=2)
    x = g.input("exp", "n")
    y = g.map("add", g.map("exp", g.map("exp", x)), 1)
    z = g.map("add", y, 1.0)
    assert [g.node(n).name for n in y.args] == ["exp_3", "number"]
    assert z.args == ("add", "number")
    assert (g.fresh("add"), g.fresh_axis("n", 3)) == ("add_3", "n_2")


def test_builder_of_goes_on_from_a_graph():
    graph = running_sum()
    g = Builder.of(graph)
    assert g.build() == graph
    kept = Builder.of(graph, keep=["x"])
    kept.output("x", "x")
    assert [node.name for node in kept.build().nodes] == ["x"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda g: g.map("exp", "xx"), r"argument must be a node of the graph, got 'xx'; did you"),
        (lambda g: g.input("x", "n"), "node x: name must be unique, got it twice"),
        (lambda g: g.axis("n", 3), "axis n: extent must be 2, got 3"),
        (lambda g: g.extent("nn"), r"axis must be declared, got 'nn'; did you mean n\?"),
        (lambda g: g.einsum("n, n", "x", "x"), "it must hold ->, got none"),
        (lambda g: g.einsum("n -> n", "x", "x"), "arguments must be 1, got 2"),
        (lambda g: g.einsum("m, n -> m", "x", "x"), "axes of x must be n, got m"),
        (lambda g: g.reduce("sum", "x", over="m"), "over must be its axes, got m; known: n"),
        (lambda g: g.close("x", "x"), "close must be given an open recur"),
    ],
)
def test_builder_refuses_at_once_what_it_cannot_follow(call, message):
    g = Builder("g", n=2, m=3)
    g.input("x", "n")
    with pytest.raises(GraphError, match=message):
        call(g)


def test_graph_answers_by_name():
    graph = running_sum()
    assert graph.node("after").fn == "add"
    assert (graph.extent("t"), graph.shape(("n", "t"))) == (4, (2, 4))
    assert [node.name for node in graph.inputs] == ["x"]
    assert [node.name for node in graph.consumers("before")] == ["after"]
    assert [node.name for node in graph.consumers("after")] == ["before"]
    with pytest.raises(GraphError, match=r"got 'aftr'; did you mean after\?"):
        graph.node("aftr")
    with pytest.raises(GraphError, match="axis must be one of it, got 'q'; known: t, n"):
        graph.extent("q")


def test_graph_is_a_value():
    assert running_sum() == running_sum()
    assert hash(running_sum()) == hash(running_sum())
    assert running_sum() != dataclasses.replace(running_sum(), axes={"t": 4, "n": 3})


def test_recurrences_are_the_nodes_that_depend_on_themselves():
    groups = recurrences(running_sum())
    assert [[node.name for node in group] for group in groups] == [["before", "after"]]


def test_in_order_sorts_all_but_carried_edges_and_stays_put_where_it_can():
    nodes = running_sum().nodes
    assert in_order(nodes) == nodes
    assert [n.name for n in in_order(reversed(nodes))] == ["x", "before", "row", "after"]
    loop = (Node("a", "map", (), ("b",), fn="exp"), Node("b", "map", (), ("a",), fn="exp"))
    with pytest.raises(GraphError, match="nodes a, b: a cycle must pass an earlier node"):
        in_order(loop)


def test_live_drops_what_no_output_needs_but_no_input():
    g = Builder("g", n=2)
    x = g.input("x", "n")
    g.input("unused", "n")
    g.map("exp", x)
    g.output("y", g.map("neg", x))
    assert [node.name for node in live(g.build()).nodes] == ["x", "unused", "neg"]


def graph_of(*nodes, outputs=(), **extents):
    outputs = outputs or (Output("y", nodes[0].name, ("n",), (affine("n"),)),)
    return Graph("g", {"n": 4, "m": 3, **extents}, nodes, outputs)


X = Node("x", "input", ("n",))
FAULTS = [
    (Node("q", "mapp", ("n",)), "op must be one of the operations, got 'mapp'; did you mean map?"),
    (Node("q", "input", ("n", "k")), "axes must be axes of the graph, got 'k'; known: n, m"),
    (Node("q", "input", ("n", "n")), "axes must be distinct, got 'n' twice"),
    (
        Node("q", "map", ("n",), ("xx",), fn="exp"),
        "argument must be a node of the graph, got 'xx'; did you mean x?",
    ),
    (
        Node("q", "map", ("n",), ("q",), fn="exp"),
        "argument must stand before it, got 'q'; a cycle needs earlier",
    ),
    (
        Node("q", "map", ("n",), ("x",), fn="expp"),
        "fn must be a row of the table, got 'expp'; did you mean exp?",
    ),
    (Node("q", "map", ("n",), ("x",), fn="add"), "number of arguments must be 2, got 1"),
    (Node("q", "map", ("m",), ("x",), fn="exp"), "axes must hold those of x, got none of n"),
    (Node("q", "input", ("n",), fill=1.0), "fill must be left out of input, got 1.0"),
    (
        Node("q", "const", ("n",), fn="number", period=3),
        "period must be left out of const number, got 3",
    ),
    (
        Node("q", "const", ("n",), fn="affine"),
        "index must have 1 forms, got 0",
    ),
    (Node("q", "einsum", ("m",), ("x",)), "axes must be axes of its arguments, got 'm'; known: n"),
    (Node("q", "einsum", ("n",), ("x",) * 4), "number of arguments must be 1 or 2 or 3, got 4"),
    (
        Node("q", "reduce", (), ("x",), fn="prod"),
        "fn must be a row of the table, got 'prod'; known: sum, max, min",
    ),
    (Node("q", "reduce", ("n",), ("x",), fn="sum"), "axes must lack one of x, got all of them"),
    (Node("q", "reduce", ("m",), ("x",), fn="sum"), "axes must be axes of x, got m"),
    (Node("q", "mask", ("n",), ("x",)), "index must have 1 forms, got 0"),
    (
        Node("q", "mask", ("n",), ("x",), index=(affine("m"),)),
        "index must be over the node's axes, got 'm' in m; known: n",
    ),
    (Node("q", "read", ("m",), ("x",)), "index must have 1 forms, got 0"),
    (
        Node("q", "const", ("n",), fn="numbre"),
        "fn must be a kind of const, got 'numbre'; did you mean number?",
    ),
    (Node("q", "const", ("n",), fn="cos_turn"), "index must have at least one factor, got none"),
    (
        Node("q", "const", ("n",), fn="sin_turn", index=(affine("n"),), period=0),
        "period must be >= 1, got 0",
    ),
    (
        Node("q", "earlier", ("n",), ("x",), axis="m"),
        "axis must be one of the node's axes, got 'm'; known: n",
    ),
    (Node("q", "earlier", ("n",), axis="n"), "number of arguments must be 1, got 0"),
    (
        Node("q", "earlier", ("n",), ("x",), axis="n", init="x"),
        "init must have axes among [], got n in x",
    ),
    (Node("q", "last", (), ("x",), axis="m"), "axis must be one of x's axes, got 'm'; known: n"),
    (
        Node("q", "last", ("n",), ("x",), axis="n"),
        "axes must be those of x without n, got ('n',)",
    ),
]


@pytest.mark.parametrize(
    ("node", "fault"), FAULTS, ids=[f"{n.op}-{i}" for i, (n, _) in enumerate(FAULTS)]
)
def test_verify_names_the_node_and_the_rule(node, fault):
    with pytest.raises(GraphError) as raised:
        verify(graph_of(X, node))
    assert f"graph g, node q: {fault}" in raised.value.faults


def test_verify_lists_all_faults_in_one_raise():
    with pytest.raises(GraphError) as raised:
        verify(Graph("g", {"n": -1, "2": True}, (X, X, Node("a b", "input", ())), ()))
    assert raised.value.faults == (
        "graph g, axis n: extent must be a whole number >= 0, got -1",
        "graph g, axis '2': name must be letters, digits, _ and inner dots, got '2'",
        "graph g, axis 2: extent must be a whole number >= 0, got True",
        "graph g, node x: name must be unique, got 2 nodes of it",
        "graph g, node 'a b': name must be letters, digits, _ and inner dots, got 'a b'",
        "graph g, outputs: there must be at least one, got none",
    )


def test_verify_reports_an_argument_whose_own_axes_are_unknown():
    bad = Node("bad", "input", ("n", "k"))
    with pytest.raises(GraphError) as raised:
        verify(graph_of(bad, Node("q", "last", ("n",), ("bad",), axis="k")))
    assert raised.value.faults == (
        "graph g, node bad: axes must be axes of the graph, got 'k'; known: n, m",
    )


def test_verify_refuses_a_cycle_that_does_not_keep_its_step():
    before = Node("before", "earlier", ("n",), ("after",), axis="n")
    moved = Node("moved", "read", ("n",), ("before",), index=(affine("n") - 1,))
    after = Node("after", "map", ("n",), ("moved", "x"), fn="add")
    with pytest.raises(GraphError, match="node moved: index of n must keep the cycle's n, got n -"):
        verify(graph_of(X, before, moved, after))


def test_verify_refuses_a_cycle_that_sums_over_its_own_axis():
    before = Node("before", "earlier", ("n",), ("after",), axis="n")
    total = Node("total", "reduce", (), ("before",), fn="sum")
    after = Node("after", "map", ("n",), ("total", "x"), fn="add")
    with pytest.raises(GraphError, match="node total: axes must hold n, along which its cycle"):
        verify(graph_of(X, before, total, after))


def test_verify_refuses_a_cycle_along_two_axes():
    x = Node("x", "input", ("n", "m"))
    one = Node("one", "earlier", ("n", "m"), ("sum",), axis="n")
    two = Node("two", "earlier", ("n", "m"), ("sum",), axis="m")
    total = Node("sum", "map", ("n", "m"), ("one", "two"), fn="add")
    output = Output("y", "sum", ("n", "m"), (affine("n"), affine("m")))
    with pytest.raises(GraphError, match="nodes one, two, sum: a cycle must run along one axis"):
        verify(graph_of(x, one, two, total, outputs=(output,)))


@pytest.mark.parametrize(
    ("forms", "merge", "sound"),
    [
        (["3*n + m", "0"], "", True),  # digits: m < 3
        (["2*n + m", "0"], "", False),  # n=0 m=2 meets n=1 m=0
        (["2*n + m", "0"], "add", True),
        (["2*n + m", "n"], "", True),  # n fixes itself, then m
        (["n + m", "n - m"], "", True),  # no digits, but no two points meet
        (["n + m - 5", "0"], "", True),  # only n=3 m=2 falls inside
        (["n", "0"], "", False),
    ],
)
def test_verify_wants_a_merge_where_points_meet(forms, merge, sound):
    x = Node("x", "input", ("n", "m"))
    output = Output("y", "x", ("p", "q"), tuple(affine(f) for f in forms), merge)
    graph = graph_of(x, outputs=(output,), p=12 if "5" not in forms[0] else 1, q=4)
    if sound:
        assert verify(graph) is graph
    else:
        with pytest.raises(GraphError, match="output y: merge must be add or max where points"):
            verify(graph)


def test_verify_checks_outputs():
    outputs = (
        Output("y", "xx", ("n",), (affine("n"),)),
        Output("z", "x", ("n", "m"), (affine("n"),)),
        Output("w", "x", ("n",), (affine("m"),), "ad"),
    )
    with pytest.raises(GraphError) as raised:
        verify(graph_of(X, outputs=outputs))
    assert raised.value.faults == (
        "graph g, output y: node must be a node of the graph, got 'xx'; did you mean x?",
        "graph g, output z: index must have 2 forms, got 1",
        "graph g, output w: merge must be empty, add or max, got 'ad'; did you mean add?",
        "graph g, output w: index must be over the axes of x, got 'm'; known: n",
    )


def test_examples_in_docstrings_hold():
    failed, tried = doctest.testmod(graph_module)
    assert (failed, tried > 0) == (0, True)
