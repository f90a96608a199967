"""Values of hand-written Programs against the same sums in NumPy."""

import dataclasses

import numpy as np
import pytest

import hwspecs
from dataflow.graph import Builder
from dataflow.index import affine
from dataflow.program import Access, Buffer, Compute, Fetch, Operation, Scratchpad
from dataflow.sim import DeadlockError, simulate, timing_graph
from dataflow.sim.simpy_engine import Run


@pytest.fixture(scope="module")
def tiny():
    return hwspecs.load("tiny")


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


class Gemm:
    """c[i, j] = sum over k of a[i, k] b[k, j], tiles of 4, loops io jo ko, one unit."""

    def __init__(self, wire, tiny, i=8, j=8, k=12):
        g = Builder("gemm", i=i, j=j, k=k)
        a, b = g.input("a", "i k"), g.input("b", "k j")
        c = g.einsum("i k, k j -> i j", a, b, name="c")
        g.output("c", c)
        self.graph = g.build()
        self.wire, self.machine = wire, tiny
        self.nest = [-(-i // 4), -(-j // 4), -(-k // 4)]
        walks = {"i": wire.walk("i", i, 0, 4), "j": wire.walk("j", j, 1, 4)}
        self.walks = {**walks, "k": wire.walk("k", k, 2, 4)}
        self.inputs = {"a": numbers(i, k), "b": numbers(k, j, seed=1)}
        self.tensors = [wire.tensor("a", i, k), wire.tensor("b", k, j, base=4096)]
        self.tensors.append(wire.tensor("c", i, j, base=8192, kind="output"))

    def box(self, axes, **walks):
        return tuple({**self.walks, **walks}[axis] for axis in axes)

    def load(self, name, axes, **walks):
        rows, cols = axes
        form = (affine(rows), affine(cols))
        return self.wire.unit(
            f"load_{name}",
            [*self.nest, 4],
            [],
            [self.wire.port(name, 4, value=name)],
            kind="load",
            points=3,
            latency=1,
            work=Access(name, name, self.box(axes, **walks), form, (rows, cols), 4),
        )

    def units(self, a_channel="a", **walks):
        port = self.wire.port
        inputs = [
            port(a_channel, 4, value="a", boxes=(self.box("ik"),)),
            port("b", 4, value="b", boxes=(self.box("kj"),)),
        ]
        work = Compute((Operation(self.graph.node("c"), carried=(2,)),), self.walks)
        # c's beats leave in the last of the k loop's rounds
        product = self.wire.unit(
            "product",
            [*self.nest, 4],
            inputs,
            [port("c", 4, value="c", last=(2,))],
            points=3,
            work=work,
        )
        store = self.wire.unit(
            "store",
            [*self.nest[:2], 4],
            [port("c", 3, value="c", boxes=(self.box("ij"),))],
            kind="store",
            points=2,
            latency=1,
            work=Access("c", "c", self.box("ij"), (affine("i"), affine("j")), ("i", "j"), 4),
        )
        return [self.load("a", "ik", **walks), self.load("b", "kj"), product, store]

    def program(self, units=None, **options):
        return self.wire.program(
            units or self.units(), self.machine, self.graph, tensors=self.tensors, **options
        )

    def product(self):
        return self.inputs["a"] @ self.inputs["b"]


@pytest.fixture
def gemm(wire, tiny):
    return Gemm(wire, tiny)


def test_tiled_product_accumulates_over_its_carried_loop(gemm):
    result = simulate(gemm.program(), gemm.inputs)
    np.testing.assert_allclose(result.outputs["c"], gemm.product(), rtol=1e-5, atol=1e-5)
    assert result.outputs["c"].dtype == np.float64


def test_tiles_at_the_edge_are_smaller(wire, tiny):
    gemm = Gemm(wire, tiny, i=7, j=5, k=9)
    result = simulate(gemm.program(), gemm.inputs)
    np.testing.assert_allclose(result.outputs["c"], gemm.product(), rtol=1e-5, atol=1e-5)


def test_values_do_not_change_the_cycles(gemm):
    program = gemm.program()
    assert simulate(program, gemm.inputs).cycles == simulate(program).cycles


def test_values_do_not_depend_on_latency_or_capacity(gemm):
    plain = simulate(gemm.program(), gemm.inputs).outputs["c"]
    other = gemm.program(capacity=5, latency=11, a={"capacity": 1})
    np.testing.assert_array_equal(simulate(other, gemm.inputs).outputs["c"], plain)


def test_tiles_in_a_wrong_order_give_wrong_values(wire, gemm):
    # the load's i and k blocks are counted by each other's loops
    swapped = {"i": wire.walk("i", 8, 2, 4), "k": wire.walk("k", 12, 0, 4)}
    result = simulate(gemm.program(gemm.units(**swapped)), gemm.inputs)
    wrong = np.abs(np.nan_to_num(result.outputs["c"], nan=1e9) - gemm.product())
    assert wrong.max() > 0.1


def test_output_that_nothing_stores_is_nan(gemm):
    units = gemm.units()
    nest = (dataclasses.replace(units[3].loops[0], trips=1), *units[3].loops[1:])
    short = [*units[:2], *(dataclasses.replace(u, loops=_first_row(u)) for u in units[2:3])]
    short += [dataclasses.replace(units[3], loops=nest)]
    short[:2] = [dataclasses.replace(u, loops=_first_row(u)) for u in units[:2]]
    result = simulate(gemm.program(short), gemm.inputs).outputs["c"]
    assert np.isnan(result[4:]).all()
    assert not np.isnan(result[:4]).any()


def _first_row(unit):
    return (dataclasses.replace(unit.loops[0], trips=1), *unit.loops[1:])


class Padded:
    """y[i] = x[i] * 2 by a unit that reads each tile of x `uses` times from a scratchpad.

    Loops: block, use, beat. y[use, i] so that every use shows.
    """

    def __init__(self, wire, tiny, depth, uses=2, blocks=4, credits=True, beats=2, slow=1):
        g = Builder("uses", u=uses, n=blocks * beats * 4)
        x = g.input("x", "n")
        y = g.einsum("n, u -> u n", x, g.input("w", "u"), name="y")
        g.output("y", y)
        self.graph, n = g.build(), blocks * beats * 4
        block = wire.walk("n", n, 0, beats * 4)
        use = wire.walk("u", uses, 1)
        port = wire.port
        units = [
            wire.unit(
                "load_x",
                [blocks, beats],
                [],
                [port("x_in", 2, value="x")],
                kind="load",
                points=1,
                latency=1,
                work=Access("x", "x", (block,), (affine("n"),), ("n",), 4),
            ),
            wire.unit(
                "load_w",
                [blocks, uses],
                [],
                [port("w", 2, value="w")],
                kind="load",
                points=2,
                latency=1,
                work=Access("w", "w", (use,), (affine("u"),), ("u",), 4),
            ),
            wire.unit(
                "write",
                [blocks, beats],
                [port("x_in", 2, value="x", boxes=((block,),))] + [port("free", 1)] * bool(credits),
                [port("full", 1)],
                kind="write",
                points=1,
                latency=1,
                work=Buffer("pad", "x", (block,), 1, depth),
            ),
            wire.unit(
                "read",
                [blocks, uses, beats],
                [port("full", 1)],
                [port("x_out", 3, value="x")] + [port("free", 1)] * bool(credits),
                kind="read",
                points=2,
                latency=1,
                ii=slow,
                work=Fetch("pad"),
            ),
            wire.unit(
                "times",
                [blocks, uses, beats],
                [
                    port("x_out", 3, value="x", boxes=((block,),)),
                    port("w", 2, value="w", boxes=((use,),)),
                ],
                [port("y", 3, value="y")],
                points=2,
                work=Compute((Operation(self.graph.node("y")),), {"n": block, "u": use}),
            ),
            wire.unit(
                "store",
                [blocks, uses, beats],
                [port("y", 3, value="y", boxes=((use, block),))],
                kind="store",
                points=2,
                latency=1,
                work=Access("y", "y", (use, block), (affine("u"), affine("n")), ("u", "n"), 4),
            ),
        ]
        special = {"full": {"capacity": 64, "kind": "tile", "latency_cycles": 1}}
        if credits:
            special["free"] = {
                "capacity": depth,
                "initial": depth,
                "kind": "credit",
                "latency_cycles": 1,
            }
        pad = Scratchpad("pad", "x", ("write",), ("read",), beats * 4, depth, 0, 1)
        self.program = wire.program(
            units,
            tiny,
            self.graph,
            scratchpads=[pad],
            tensors=[
                wire.tensor("x", n),
                wire.tensor("w", uses, base=4096),
                wire.tensor("y", uses, n, base=8192, kind="output"),
            ],
            **special,
        )
        self.inputs = {"x": numbers(n), "w": numbers(uses, seed=1)}
        self.expected = np.outer(self.inputs["w"], self.inputs["x"])


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_scratchpad_tile_is_read_as_often_as_its_reader_says(wire, tiny, depth):
    case = Padded(wire, tiny, depth, uses=3)
    result = simulate(case.program, case.inputs)
    np.testing.assert_allclose(result.outputs["y"], case.expected, rtol=1e-6)


def test_missing_credit_lets_the_writer_overwrite_what_is_read(wire, tiny):
    case = Padded(wire, tiny, 2, uses=3, credits=False, slow=8)
    result = simulate(case.program, case.inputs).outputs["y"]
    assert np.abs(result - case.expected).max() > 0.1
    # the last tile cannot be overwritten
    np.testing.assert_allclose(result[:, -8:], case.expected[:, -8:], rtol=1e-6)


def test_long_run_keeps_few_tiles(wire, tiny):
    case = Padded(wire, tiny, 2, blocks=600)
    run = Run(case.program, timing_graph.build(case.program, True), case.inputs)
    most = 0

    def watch(*_):
        nonlocal most
        held = sum(len(queue) for queue in run.values.queues.values())
        held += sum(len(puts) for slots in run.values.slots["pad"].history for puts in slots)
        held += sum(len(worker.pending) for worker in run.values.workers)
        most = max(most, held)

    fired = run.values.fired
    run.values.fired = lambda *given: (fired(*given), watch())
    result = run.go()
    np.testing.assert_allclose(result.outputs["y"], case.expected, rtol=1e-6)
    # channels hold at most 16 beats of 2 a tile, the scratchpad 2 tiles: nothing grows with blocks
    assert most < 100


def recurrence(wire, tiny, **options):
    """r[t] = r[t-1] * 0.5 + x[t] over t; r leaves at every t."""
    g = Builder("decay", t=8, n=4)
    x = g.input("x", "t n")
    before = g.recur("before", "t n", axis="t", init=1.0)
    half = g.map("mul", before, 0.5, name="half")
    r = g.map("add", half, x, name="r")
    g.close(before, r)
    g.output("r", r)
    graph = g.build()
    box = (wire.walk("t", 8, 0), wire.walk("n", 4))
    return graph, box


def expected_recurrence(x):
    rows, r = [], np.ones(x.shape[1])
    for row in x:
        r = r * 0.5 + row
        rows.append(r)
    return np.array(rows)


def number_ops(graph):
    return [Operation(node) for node in graph.nodes if node.op == "const"]


def wrap_recurrence(wire, tiny, graph, box, compute, **channels):
    form = (affine("t"), affine("n"))
    access = Access("x", "x", box, form, ("t", "n"), 4)
    units = [
        wire.unit(
            "load",
            [8],
            [],
            [wire.port("x", 1, value="x")],
            kind="load",
            latency=1,
            work=access,
        ),
        *compute,
        wire.unit(
            "store",
            [8],
            [wire.port("r", 1, value="r", boxes=(box,))],
            kind="store",
            latency=1,
            work=dataclasses.replace(access, tensor="r", value="r"),
        ),
    ]
    tensors = [wire.tensor("x", 8, 4), wire.tensor("r", 8, 4, base=4096, kind="output")]
    return wire.program(units, tiny, graph, tensors=tensors, **channels)


def test_earlier_inside_a_unit_is_its_state(wire, tiny):
    graph, box = recurrence(wire, tiny)
    node = graph.node
    operations = (
        *number_ops(graph),
        Operation(node("before"), carried=(0,)),
        Operation(node("half")),
        Operation(node("r")),
    )
    unit = wire.unit(
        "cell",
        [8],
        [wire.port("x", 1, value="x", boxes=(box,))],
        [wire.port("r", 1, value="r")],
        work=Compute(operations, {walk.axis: walk for walk in box}),
    )
    x = numbers(8, 4)
    result = simulate(wrap_recurrence(wire, tiny, graph, box, [unit]), {"x": x})
    np.testing.assert_allclose(result.outputs["r"], expected_recurrence(x), rtol=1e-6)


def test_carried_state_starts_afresh_for_each_row(wire, tiny):
    """m[i, j] = max(m[i, j-1], x[i, j]) over j, for every i."""
    g = Builder("running", i=3, j=4)
    x = g.input("x", "i j")
    before = g.recur("before", "i j", axis="j", init=-9.0)
    top = g.map("max", before, x, name="top")
    g.close(before, top)
    g.output("top", top)
    graph = g.build()
    walks = {"i": wire.walk("i", 3, 0), "j": wire.walk("j", 4, 1)}
    operations = [Operation(graph.node("before"), carried=(1,)), Operation(graph.node("top"))]
    program = small(wire, tiny, graph, operations, "x", "top", loops=(3, 4), walks=walks)
    x = numbers(3, 4)
    result = simulate(program, {"x": x}).outputs["top"]
    np.testing.assert_allclose(result, np.maximum.accumulate(x, axis=1), rtol=1e-6)


def test_earlier_from_another_unit_comes_through_a_channel_with_an_initial_token(wire, tiny):
    graph, box = recurrence(wire, tiny)
    node, port, axes = graph.node, wire.port, {walk.axis: walk for walk in box}
    halve = (*number_ops(graph), Operation(node("before"), carried=(0,)), Operation(node("half")))
    units = [
        wire.unit(
            "halve",
            [8],
            [port("back", 1, value="r", boxes=(box,))],
            [port("half", 1, value="half")],
            work=Compute(halve, axes),
        ),
        wire.unit(
            "add",
            [8],
            [
                port("half", 1, value="half", boxes=(box,)),
                port("x", 1, value="x", boxes=(box,)),
            ],
            [port("r", 1, value="r"), port("back", 1, value="r")],
            work=Compute((Operation(node("r")),), axes),
        ),
    ]
    x = numbers(8, 4)
    program = wrap_recurrence(wire, tiny, graph, box, units, back={"initial": 1, "capacity": 2})
    result = simulate(program, {"x": x})
    np.testing.assert_allclose(result.outputs["r"], expected_recurrence(x), rtol=1e-6)
    # the first x: memory at 4, moved 5, back 25, beat arrives at 29; r is back at 29 + 9 = 38; then
    # each round takes two units of 9 cycles
    assert result.accounts["halve"].waiting == 37 + 6 * 17


def small(wire, machine, graph, operations, source, target, loops=(1,), **fields):
    """load -> one compute unit -> store: whole tensors unless `fields` says otherwise."""
    port = wire.port
    walks = {axis: wire.walk(axis, extent) for axis, extent in graph.axes.items()}
    walks |= fields.pop("walks", {})

    def access(name, node):
        axes = graph.node(node).axes
        box = tuple(walks[axis] for axis in axes)
        return Access(name, node, box, tuple(map(affine, axes)), axes, 4), box

    load, load_box = access(source, source)
    save, save_box = access(target, target)
    save = dataclasses.replace(save, **fields)
    nest = [*loops, 64]
    points = len(loops)
    units = [
        wire.unit(
            "load",
            nest,
            [],
            [port("x", points + 1, value=source)],
            kind="load",
            points=points,
            latency=1,
            work=load,
        ),
        wire.unit(
            "work",
            nest,
            [port("x", points + 1, value=source, boxes=(load_box,))],
            [port("y", points + 1, value=target)],
            points=points,
            work=Compute(tuple(operations), walks),
        ),
        wire.unit(
            "store",
            nest,
            [port("y", points + 1, value=target, boxes=(save_box,))],
            kind="store",
            points=points,
            latency=1,
            work=save,
        ),
    ]
    output = graph.outputs[0]
    tensors = [
        wire.tensor(source, *graph.shape(graph.node(source).axes)),
        wire.tensor(target, *graph.shape(output.axes), base=1 << 16, kind="output"),
    ]
    return wire.program(units, machine, graph, tensors=tensors)


def test_read_shifts_and_fills(wire, tiny):
    g = Builder("shift", n=6)
    y = g.read(g.input("x", "n"), "n", [affine("n") - 2], fill=7.0, name="y")
    g.output("y", y)
    graph = g.build()
    x = numbers(6)
    program = small(wire, tiny, graph, [Operation(graph.node("y"))], "x", "y")
    expected = np.concatenate([[7.0, 7.0], x[:4]])
    np.testing.assert_allclose(simulate(program, {"x": x}).outputs["y"], expected, rtol=1e-6)


def test_mask_and_reduce(wire, tiny):
    g = Builder("masked", i=5, j=5)
    kept = g.mask(g.input("x", "i j"), affine("i") - affine("j"), fill=-1e30, name="kept")
    y = g.reduce("max", kept, over="j", name="y")
    g.output("y", y)
    graph = g.build()
    x = numbers(5, 5)
    operations = [Operation(graph.node("kept")), Operation(graph.node("y"))]
    program = small(wire, tiny, graph, operations, "x", "y")
    expected = [max(x[i, : i + 1]) for i in range(5)]
    np.testing.assert_allclose(simulate(program, {"x": x}).outputs["y"], expected, rtol=1e-6)


def test_values_are_rounded_where_they_leave_a_unit(wire, tiny):
    machine = tiny.model_copy(update={"data_type": "bf16"})
    g = Builder("twice", n=8)
    twice = g.map("add", g.input("x", "n"), 1.0, name="y")
    g.output("y", twice)
    graph = g.build()
    operations = [*number_ops(graph), Operation(graph.node("y"))]
    x = np.full(8, 1 + 2.0**-6)
    # 2 + 2^-6 needs 8 bits after the leading one; bf16 has 7 and ties to even
    program = small(wire, machine, graph, operations, "x", "y")
    result = simulate(program, {"x": x}).outputs["y"]
    assert (result == 2 + 2.0**-6).all()
    result = simulate(program, {"x": x + 2.0**-7}).outputs["y"]
    assert (result == 2 + 2.0**-5).all()


def test_store_drops_points_outside_and_leaves_unreached_ones_zero(wire, tiny):
    g = Builder("spread", n=4, m=6)
    y = g.map("neg", g.input("x", "n"), name="y")
    g.output("y", y, axes="m", index=[2 * affine("n") - 1])
    graph = g.build()
    x = numbers(4)
    program = small(
        wire,
        tiny,
        graph,
        [Operation(graph.node("y"))],
        "x",
        "y",
        index=(2 * affine("n") - 1,),
    )
    expected = [0, -x[1], 0, -x[2], 0, -x[3]]
    np.testing.assert_allclose(simulate(program, {"x": x}).outputs["y"], expected, rtol=1e-6)


def test_store_adds_where_its_merge_says_so(wire, tiny):
    g = Builder("fold", n=6, m=2)
    y = g.map("neg", g.input("x", "n"), name="y")
    g.output("y", y, axes="m", index=[affine(0)], merge="add")
    graph = g.build()
    x = numbers(6)
    program = small(
        wire,
        tiny,
        graph,
        [Operation(graph.node("y"))],
        "x",
        "y",
        index=(affine(0),),
        merge="add",
    )
    result = simulate(program, {"x": x}).outputs["y"]
    np.testing.assert_allclose(result[0], -x.sum(), rtol=1e-5)


def test_partial_results_of_copies_are_combined_before_they_are_accumulated(wire, tiny):
    """s = sum over n: two copies each sum their blocks of 4, a third unit adds both and goes on."""
    g = Builder("total", n=32)
    s = g.reduce("sum", g.input("x", "n"), over="n", name="s")
    g.output("s", s)
    graph, port = g.build(), wire.port

    def walk(copy):
        from dataflow.program import AxisWalk, DigitWalk, Piece

        # block = 2 * trip + copy
        return AxisWalk("n", 32, (DigitWalk(1, 32, (Piece(4, 8, 0, 2, copy), Piece(1, 4))),))

    units = []
    for copy in (0, 1):
        box = (walk(copy),)
        units += [
            wire.unit(
                f"load{copy}",
                [4],
                [],
                [port(f"x{copy}", 1, value="x")],
                kind="load",
                latency=1,
                work=Access("x", "x", box, (affine("n"),), ("n",), 4),
            ),
            wire.unit(
                f"sum{copy}",
                [4],
                [port(f"x{copy}", 1, value="x", boxes=(box,))],
                [port(f"s{copy}", 1, value="s")],
                work=Compute((Operation(graph.node("s")),), {"n": walk(copy)}),
            ),
        ]
    units += [
        wire.unit(
            "total",
            [4],
            [port(f"s{copy}", 1, value="s", boxes=((),)) for copy in (0, 1)],
            [port("s", 0, value="s")],
            work=Compute((Operation(graph.node("s"), carried=(0,), terms=2),), {}),
        ),
        wire.unit(
            "host",
            [1],
            [port("s", 1, value="s", boxes=((),))],
            kind="host",
            latency=0,
            work=wire.host("s", "s"),
        ),
    ]
    x = numbers(32)
    program = wire.program(units, tiny, graph, tensors=[wire.tensor("x", 32)])
    np.testing.assert_allclose(simulate(program, {"x": x}).outputs["s"], x.sum(), rtol=1e-5)


def test_scatter_and_gather_keep_the_order_of_tiles(wire, tiny):
    g = Builder("apart", n=32)
    y = g.map("neg", g.input("x", "n"), name="y")
    g.output("y", y)
    graph, port = g.build(), wire.port
    every = (wire.walk("n", 32, 0, 4),)
    from dataflow.program import AxisWalk, DigitWalk, Piece

    def share(copy):
        return (AxisWalk("n", 32, (DigitWalk(1, 32, (Piece(4, 8, 0, 2, copy), Piece(1, 4))),)),)

    access = Access("x", "x", every, (affine("n"),), ("n",), 4)
    units = [
        wire.unit(
            "load",
            [8],
            [],
            [port("x0 x1", 1, value="x", select=((0, 1, 2),))],
            kind="load",
            latency=1,
            work=access,
        ),
        *(
            wire.unit(
                f"neg{copy}",
                [4],
                [port(f"x{copy}", 1, value="x", boxes=(share(copy),))],
                [port(f"y{copy}", 1, value="y")],
                work=Compute((Operation(graph.node("y")),), {"n": share(copy)[0]}),
            )
            for copy in (0, 1)
        ),
        wire.unit(
            "store",
            [8],
            [port("y0 y1", 1, value="y", select=((0, 1, 2),), boxes=(every,) * 2)],
            kind="store",
            latency=1,
            work=dataclasses.replace(access, tensor="y", value="y"),
        ),
    ]
    tensors = [wire.tensor("x", 32), wire.tensor("y", 32, base=4096, kind="output")]
    x = numbers(32)
    result = simulate(wire.program(units, tiny, graph, tensors=tensors), {"x": x})
    np.testing.assert_allclose(result.outputs["y"], -x, rtol=1e-6)


def test_missing_and_misshapen_inputs_come_in_one_raise(gemm):
    with pytest.raises(ValueError, match=r"(?s)input a: shape must be.*input b: an array must"):
        simulate(gemm.program(), {"a": np.zeros((2, 2))})


def test_deadlock_in_a_run_with_values(gemm):
    # the product never gets b
    units = gemm.units()
    units[1] = dataclasses.replace(units[1], loops=_first_row(units[1]))
    with pytest.raises(DeadlockError):
        simulate(gemm.program(units), gemm.inputs)
