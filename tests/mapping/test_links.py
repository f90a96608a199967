"""Which copies talk to which, and in what turn, by hand."""

from hypothesis import given, settings
from hypothesis import strategies as st

from dataflow.nodes import Node
from dataflow.streams.edge import Edge
from dataflow.streams.node import StreamNode
from mapping.links import End, fifo_count, fifos, links
from mapping.partition import group_map, partition
from tests.cross.random_schedules import roomy
from tests.dataflow.streams.small import softmax, streams


def node(name, unroll=(), pack=(), merge=(), axes=("i", "j")):
    made = Node(name, "map", axes, fn="tanh")
    return StreamNode(
        name,
        "compute",
        made,
        axes,
        (),
        axes,
        unroll=dict(unroll),
        pack=dict(pack),
        merge=dict(merge),
    )


def channel(touch=("i", "j")):
    return Edge("p", "c", "p", "fifo", 0, touch)


def ends(found):
    """Each link as (writer copy and slot, reader copy and slot) texts."""
    return [[(str(a), str(b)) for a, b in link.pairs] for link in found]


def test_links_of_single_units_are_one_fifo() -> None:
    (link,) = links(channel(), node("p"), node("c"))
    assert ends([link]) == [[("", "")]]
    assert (link.source_select, link.target_select) == ({}, {})


def test_links_of_a_writer_take_its_readers_in_turn() -> None:
    (link,) = links(channel(), node("p"), node("c", unroll={"i": 2}))
    assert ends([link]) == [[("", "@i0"), ("", "@i1")]]
    # Point i goes to copy i mod 2; each copy has one writer.
    assert (link.source_select, link.target_select) == ({"i": 2}, {})


def test_links_of_two_writers_to_four_readers_keep_remainders_together() -> None:
    (link,) = links(channel(), node("p", unroll={"i": 2}), node("c", unroll={"i": 4}))
    assert ends([link]) == [[("@i0", "@i0"), ("@i1", "@i1"), ("@i0", "@i2"), ("@i1", "@i3")]]
    assert (link.source_select, link.target_select) == ({"i": 2}, {})


def test_links_of_more_writers_than_readers_are_taken_in_turn() -> None:
    (link,) = links(channel(), node("p", unroll={"i": 4}), node("c", unroll={"i": 2}))
    taken = {str(end): [str(e) for e in others] for end, others in link.from_target()}
    assert taken == {"@i0": ["@i0", "@i2"], "@i1": ["@i1", "@i3"]}
    assert link.target_select == {"i": 2}


def test_links_reach_packed_points_by_their_slot() -> None:
    (link,) = links(channel(), node("p", pack={"i": 2}), node("c", unroll={"i": 2}))
    assert ends([link]) == [[(".i0", "@i0"), (".i1", "@i1")]]


def test_links_of_copies_and_packed_points_count_both() -> None:
    (link,) = links(channel(), node("p", unroll={"i": 2}, pack={"i": 2}), node("c"))
    # i mod 4: copy 0 has points 0 and 1, copy 1 has 2 and 3.
    assert [str(a) for a, _ in link.pairs] == ["@i0.i0", "@i0.i1", "@i1.i0", "@i1.i1"]
    assert link.target_select == {"i": 4}


def test_links_to_copies_over_a_digit_that_the_value_lacks_carry_the_same() -> None:
    found = links(channel(touch=("i",)), node("p", axes=("i",)), node("c", unroll={"j": 3}))
    assert ends(found) == [[("", "@j0")], [("", "@j1")], [("", "@j2")]]
    assert all(not link.source_select for link in found)


def test_links_of_partial_results_come_through_a_fifo_each() -> None:
    reader = node("c", axes=("j",), merge={"i": 2})
    found = links(channel(touch=("i", "j")), node("p", unroll={"i": 2}), reader)
    assert ends(found) == [[("@i0", "")], [("@i1", "")]]


_COUNTS = st.sampled_from([1, 2, 3, 4])


@settings(max_examples=60, deadline=None, derandomize=True)
@given(base=_COUNTS, more=_COUNTS, pack=_COUNTS, readers_have_more=st.booleans())
def test_links_bring_every_point_to_the_one_who_wants_it(
    base, more, pack, readers_have_more
) -> None:
    few, many = (
        node("p", unroll={"i": base}),
        node("c", unroll={"i": base * more}, pack={"i": pack}),
    )
    source, target = (few, many) if readers_have_more else (many, few)
    (link,) = links(channel(touch=("i",)), source, target)
    assert fifo_count(channel(touch=("i",)), source, target) == base * more * pack
    for point in range(2 * base * more * pack):
        made, wanted = (
            End.of(n, {"i": point % (n.copies("i") * n.pack.get("i", 1))}) for n in (source, target)
        )
        assert (made, wanted) in link.pairs


def test_fifos_leave_out_what_stays_inside_a_unit() -> None:
    made = streams(softmax())
    groups = group_map(partition(made, roomy(16)))
    between = {edge.name for edge in fifos(made, groups)}
    inside = {e.name for e in made.edges if groups.get(e.source) is groups.get(e.target)}
    assert inside and not between & inside
