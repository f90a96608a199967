"""Nodes of a StreamGraph: parts, totals, domains."""

import pytest

from dataflow.schedule import Schedule, ScheduleError
from dataflow.streams.split import streams
from tests.dataflow.streams.small import gemm, softmax
from tests.dataflow.streams.small import streams as derived

TILED = "tile: {i: 4, j: 3, k: 5}, time: [i.o, j.o, k.o], walk: [i, j, k]"


def nodes(graph, text):
    return {node.name: node for node in streams(graph, Schedule.from_yaml(text)).nodes}


def test_split_leaves_a_sum_inside_the_tile_whole() -> None:
    made = nodes(gemm(), "{time: [i]}")
    assert list(made) == ["c", "store c"]
    c = made["c"]
    assert (c.domain, c.walk, c.gone, c.carried) == (("i",), ("j", "k"), ("k",), ())
    assert c.emission == ("i", "j")


def test_split_of_a_sum_over_time_gives_a_part_and_its_total() -> None:
    made = nodes(gemm(), f"{{{TILED}}}")
    part, total = made["c.part"], made["c"]
    assert part.domain == ("i.o", "j.o", "k.o")
    assert (part.walk, part.gone, part.carried) == (("i", "j", "k"), ("k",), ())
    # The total adds up over k.o and emits once for each i.o, j.o.
    assert (total.walk, total.gone, total.carried) == (("i", "j"), (), ("k.o",))
    assert total.emits == ("i.o", "j.o")
    assert total.node.args == ("c.part",)


def test_split_walks_reduced_digits_innermost_unless_told() -> None:
    assert nodes(gemm(), "{walk: [k, i, j]}")["c"].walk == ("i", "j", "k")
    text = "{nodes: {c: {walk: [k, i, j]}}}"
    assert nodes(gemm(), text)["c"].walk == ("k", "i", "j")


@pytest.mark.parametrize("copies", [2, 5, 8, 32])
def test_split_joins_all_copies_of_a_sum(copies) -> None:
    made = nodes(gemm(k=32), f"{{nodes: {{c: {{unroll: {{k: {copies}}}}}}}}}")
    assert list(made) == ["c.part", "c", "store c"]
    assert dict(made["c.part"].unroll) == {"k": copies}
    assert dict(made["c"].merge) == {"k": copies}
    assert dict(made["c"].unroll) == {}


def test_split_joins_copies_over_two_reduced_digits() -> None:
    made = nodes(gemm(k=32), "{tile: {k: 8}, time: [k.o], nodes: {c: {unroll: {k.o: 4, k: 2}}}}")
    assert dict(made["c"].merge) == {"k.o": 4, "k": 2}


def test_split_of_one_copy_is_no_split() -> None:
    assert "c.part" not in nodes(gemm(), "{nodes: {c: {unroll: {k: 1}}}}")


def test_split_joins_parts_that_a_copied_argument_sends() -> None:
    made = nodes(softmax(), "{time: [n], nodes: {e: {unroll: {n: 2}}}}")
    assert dict(made["l"].merge) == {"n": 2}
    assert made["l"].carried == ("n",)


def test_split_stores_in_the_order_of_memory() -> None:
    made = nodes(gemm(), "{walk: [j, i, k]}")
    assert made["store c"].walk == ("i", "j")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("{nodes: {c: {vector: {q: 4}}}}", "nodes.c.vector.q must be a tile digit of c"),
        ("{time: [i], nodes: {c: {vector: {i: 4}}}}", "nodes.c.vector.i must be a tile digit"),
        ("{nodes: {c: {unroll: {q: 2}}}}", "nodes.c.unroll.q must be a loop of c"),
        ("{nodes: {c: {walk: [i, j]}}}", "nodes.c.walk must be an order of i, j, k"),
        ("{nodes: {d: {}}}", "nodes.d must be a node of the kernel, got 'd'"),
        (
            "{time: [k], nodes: {c: {unroll: {k: 2}}, c.part: {}}}",
            "must not copy c: it accumulates over k",
        ),
    ],
)
def test_split_refuses_settings_that_fit_no_node(text, fault) -> None:
    with pytest.raises(ScheduleError) as caught:
        streams(gemm(), Schedule.from_yaml(text))
    assert fault in str(caught.value)


def test_split_knows_loads_by_tensor_and_by_reader() -> None:
    text = "{channels: {load x -> e: {}}}"
    derived(softmax(), "{nodes: {load x: {}, load x -> x.shifted: {}}}")
    with pytest.raises(ScheduleError, match="must be a channel of the kernel"):
        derived(softmax(), text)
