"""Bounds against figures worked out by hand; the arithmetic stands beside each."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataflow import kernels
from dataflow.graph import Builder
from dataflow.index import affine
from dataflow.program import Access, AxisWalk, DigitWalk, Loop, Piece, Tensor, Unit
from hwspecs import load
from mapping.bounds import (
    bound,
    compute_cycles,
    moved_elements,
    off_chip_cycles,
    operation_slots,
    program_bound,
    recurrence_cycles,
    touched,
)
from tests.mapping.layout_programs import Sketch, variant


def slots(graph, machine=None):
    """Slots of every node, by name, those without left out."""
    machine = machine or load("plasticine")
    found = {node.name: operation_slots(node, graph, machine) for node in graph.nodes}
    return {name: count for name, count in found.items() if count}


def test_bound_of_gemm_512_on_plasticine_is_off_chip():
    found = bound(kernels.build("gemm", {"i": 512, "j": 512, "k": 512}), load("plasticine"))
    # three matrices of 4 B over 51.2 B a cycle: 3 x 512 x 512 x 4 / 51.2 = 61440
    assert found.parts["off_chip"] == 61440
    # 512 products and 511 additions an element: 512 x 512 x 1023 / (64 x 16 x 6) = 43648
    assert found.parts["compute"] == 43648
    # a load: generator 8, CL 13.75 + burst 5 = 18.75 ns, memory 1; a store: 8, CWL 10 + 5, 1;
    # the load's cycle 1, two channels of 2, the unit 6
    assert found.parts["latency"] == (8 + 18 + 1) + (8 + 15 + 1) + 1 + 2 * 2 + 6
    assert found.parts["recurrence"] == 0
    assert (found.cycles, found.by) == (61440, "off_chip")


def test_bound_of_online_attention_counts_each_node():
    sizes = {"batch": 1, "heads": 1, "n": 128, "d": 16}
    graph = kernels.build("attention", sizes)
    blocks = graph.extent("m.b")
    rows, scores = 128, 128 * 128
    expected = rows * 16  # the scale folded onto q
    expected += scores * (2 * 16 - 1)  # q k
    expected += rows * (128 - blocks)  # maxima within blocks
    expected += rows * blocks * (1 + 2)  # running maximum, its correction: subtract and exp
    expected += scores * 2  # exp(s - r)
    expected += rows * (128 - blocks) + rows * blocks * 2  # sums of p, running sum
    expected += rows * 16 * (blocks * 2 * (128 // blocks) - blocks)  # p v
    expected += rows * 16 * blocks * 2  # the running result: times and plus
    expected += rows * 16  # one division at the end
    assert sum(slots(graph).values()) == expected
    assert compute_cycles(graph, load("plasticine")) == -(-expected // 6144)
    # q, k, v and o: 4 x 128 x 16 x 4 B / 51.2 B = 640
    assert off_chip_cycles(graph, load("plasticine")) == 640
    # the running values stay in their lane: one cycle a block
    assert recurrence_cycles(graph, load("plasticine")) == blocks


def test_bound_of_lstm_on_the_recurrent_plasticine():
    h, t = 256, 5
    graph = kernels.build("lstm", {"h": h, "t": t})
    found = bound(graph, load("plasticine_rnn"))
    # Each step goes round through one unit and one channel: 5 x (4 + 2).
    assert found.parts["recurrence"] == 5 * (4 + 2)
    # 8 weight matrices of 1 B an element, 4 biases, x and y: 527872 B over 76.8 B a cycle = 6873.3
    assert 8 * h * h + 4 * h + 2 * t * h == 527872
    assert found.parts["off_chip"] == 6874
    # Each dot product of 256: 64 packed multiplies, 64 stages that add in the lane, 63 additions.
    packed = 8 * t * h * (64 + 64 + 63)
    products = sum(
        operation_slots(node, graph, load("plasticine_rnn"))
        for node in graph.nodes
        if node.op == "einsum"
    )
    assert products == packed
    assert found.parts["compute"] >= packed // (192 * 16 * 4)


def test_operation_slots_of_a_map_follow_the_machine_file():
    machine = variant("plasticine", compute={"operations": {}})
    g = Builder("k", i=10)
    g.output("y", g.map("exp", g.input("x", "i"), name="e"))
    graph = g.build()
    assert slots(graph, machine) == {"e": 10}
    slow = (
        load("plasticine")
        .compute.operation("none")
        .model_copy(update={"stages": 2, "ii_cycles": 3})
    )
    machine = variant("plasticine", compute={"operations": {"exp": slow}})
    assert slots(graph, machine) == {"e": 10 * 2 * 3}


def test_operation_slots_of_moves_are_none():
    g = Builder("k", i=8, j=4)
    x = g.map("identity", g.input("x", "i"))
    g.output("y", g.read(x, "j", ["2*j"]))
    assert slots(g.build()) == {}


def test_operation_slots_of_a_broadcast_map_count_what_feeds_it():
    g = Builder("k", i=8, j=4)
    g.output("y", g.map("exp", g.input("x", "i"), axes="i j", name="e"))
    assert slots(g.build()) == {"e": 8}


def test_operation_slots_of_sums_and_outer_products():
    g = Builder("k", i=8, j=4)
    a, b = g.input("a", "i"), g.input("b", "j")
    g.output("o", g.einsum("i, j -> i j", a, b, name="outer"))
    g.output("s", g.reduce("sum", a, "i", name="total"))
    # 32 products without a sum; 7 additions of 8 numbers
    assert slots(g.build()) == {"outer": 32, "total": 7}


def test_operation_slots_take_a_free_reduction_tree_as_free():
    g = Builder("k", i=8)
    a = g.input("a", "i")
    g.output("s", g.einsum("i, i ->", a, a, name="dot"))
    machine = variant("plasticine", compute={"reduction_stages": 0})
    assert slots(g.build(), machine) == {"dot": 8}
    assert slots(g.build()) == {"dot": 8 + 7}


def test_compute_ignores_nodes_that_no_output_needs():
    g = Builder("k", i=6144)
    x = g.input("x", "i")
    g.map("exp", x)
    g.output("y", g.map("neg", x))
    assert bound(g.build(), load("plasticine")).parts["compute"] == 1


def test_off_chip_counts_only_what_is_read():
    # Every second of 512 elements, and one shared with the first read: 256 + 256 - 0 = 512 B x 4.
    g = Builder("k", i=512, j=128)
    x = g.input("x", "i")
    even, fourth = g.read(x, "j", ["2*j"]), g.read(x, "j", ["4*j + 1"])
    g.output("y", g.map("add", even, fourth))
    # even: 0, 2, .. 254 (128); fourth: 1, 5, .. 509 (128), none shared; out: 128
    assert off_chip_cycles(g.build(), load("plasticine")) == -(-(128 + 128 + 128) * 4 * 10 // 512)


def test_off_chip_skips_padding_and_the_hosts_registers():
    g = Builder("k", i=100, j=128)
    x = g.read(g.input("x", "i"), "j", ["j - 28"])
    g.output("total", g.reduce("sum", x, "j"))
    # 100 elements in, the other 28 are fill; the total goes to a register: 400 / 51.2 -> 8
    assert off_chip_cycles(g.build(), load("plasticine")) == 8


def test_recurrence_of_an_element_wise_sum_is_one_cycle_a_point():
    g = Builder("k", t=50, i=4)
    before = g.recur("before", "t i", axis="t")
    g.output("y", g.close(before, g.map("add", before, g.input("x", "t i"))))
    assert recurrence_cycles(g.build(), load("plasticine")) == 50
    machine = variant("plasticine", compute={"accumulate_latency_cycles": 3})
    assert recurrence_cycles(g.build(), machine) == 49 * 3 + 1


def test_recurrence_through_a_contraction_takes_a_unit_and_a_channel():
    g = Builder("k", t=50, i=4, j=4)
    before = g.recur("before", "t i", axis="t")
    turned = g.read(before, "t j", ["t", "j"])
    x = g.einsum("t j, i j -> t i", turned, g.input("w", "i j"))
    g.output("y", g.close(before, g.map("tanh", x)))
    assert recurrence_cycles(g.build(), load("plasticine")) == 50 * (6 + 2)


def test_recurrence_through_a_mask_proves_nothing():
    g = Builder("k", t=50, i=4)
    before = g.recur("before", "t i", axis="t")
    g.output("y", g.close(before, g.mask(before, "i - t")))
    assert recurrence_cycles(g.build(), load("plasticine")) == 0


@settings(max_examples=40, deadline=None)
@given(
    shape=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    terms=st.lists(
        st.tuples(
            *(st.integers(-3, 3),) * 2,
            st.integers(-4, 8),
            *(st.integers(-2, 2),) * 2,
            st.integers(0, 3),
        ),
        min_size=1,
        max_size=3,
    ),
)
def test_touched_counts_the_union_of_images(shape, terms):
    extents = {"a": 4, "b": 5}
    maps = [
        (p * affine("a") + q * affine("b") + r, s * affine("a") + u * affine("b") + v)
        for p, q, r, s, u, v in terms
    ]
    hit = {
        tuple(form.evaluate({"a": a, "b": b}) for form in forms)
        for forms in maps
        for a in range(4)
        for b in range(5)
    }
    inside = [p for p in hit if 0 <= p[0] < shape[0] and 0 <= p[1] < shape[1]]
    assert touched(maps, shape, extents) == len(inside)


def walk(axis, extent, *pieces, stride=1):
    return AxisWalk(axis, extent, (DigitWalk(stride, extent, pieces),))


def loader(trips, box, index, kind="load"):
    loops = tuple(Loop(f"d{i}", count) for i, count in enumerate(trips))
    access = Access("x", "x", box, index, tuple(w.axis for w in box), 16)
    return Unit("x", kind, loops, len(loops), (), (), 1, access), access


def test_moved_elements_counts_every_time_a_tile_is_read_again():
    # 3 x 4 points; rows of 8 follow the first loop, the second reads them again: 4 x 24 elements.
    box = (walk("i", 3, Piece(1, 3, 0)), walk("k", 8, Piece(1, 8)))
    unit, access = loader((3, 4), box, (affine("i"), affine("k")))
    assert moved_elements(unit, access, (3, 8)) == 4 * 24


def test_moved_elements_leaves_out_copies_past_the_end():
    # Copy 1 of 2 of 5 rows has rows 1 and 3; its third trip runs past the end.
    box = (walk("i", 5, Piece(1, 5, 0, copies=2, copy=1)),)
    unit, access = loader((3,), box, (affine("i"),))
    assert moved_elements(unit, access, (5,)) == 2


def test_moved_elements_leaves_out_padding_of_a_split_axis():
    # n = 4 n1 + n2 below 10: of 12 points two are outside.
    box = (walk("n1", 3, Piece(1, 3, 0)), walk("n2", 4, Piece(1, 4)))
    unit, access = loader((3,), box, (4 * affine("n1") + "n2",))
    assert moved_elements(unit, access, (10,)) == 10


def test_program_bound_names_the_busiest_unit():
    sketch = Sketch(load("plasticine"))
    sketch.unit("slow", trips=1000)
    sketch.unit("fast", trips=10)
    sketch.pad("p")
    found = program_bound(sketch.program())
    assert (found.cycles, found.by, found.at) == (1000, "compute", "slow")
    assert found.parts["scratchpad"] == 8


def test_program_bound_counts_the_initiation_interval_between_firings():
    sketch = Sketch(load("plasticine"))
    sketch.unit("u", trips=10)
    program = sketch.program()
    units = tuple(dataclasses.replace(unit, ii_cycles=4) for unit in program.units)
    assert program_bound(dataclasses.replace(program, units=units)).cycles == 9 * 4 + 1


def test_program_bound_counts_the_bytes_that_move():
    # 100 trips over a tile of 64 elements of 4 B at 51.2 B a cycle: 500 cycles.
    unit, _ = loader((100,), (walk("k", 64, Piece(1, 64)),), (affine("k"),))
    program = dataclasses.replace(
        Sketch(load("plasticine")).program(),
        units=(unit,),
        tensors=(Tensor("x", "input", "x", (64,), 0, 4),),
    )
    found = program_bound(program)
    assert (found.parts["off_chip"], found.by) == (500, "off_chip")


@pytest.mark.parametrize("machine", ["plasticine", "tungsten_20x20", "sn40l", "tiny"])
@pytest.mark.parametrize("kernel", sorted(kernels.KERNELS))
def test_bound_is_the_largest_part_for_every_kernel(kernel, machine):
    found = bound(kernels.build(kernel), load(machine))
    assert found.cycles == max(found.parts.values()) > 0
    assert found.parts[found.by] == found.cycles
