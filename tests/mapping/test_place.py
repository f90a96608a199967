"""Placement: every site once, nothing past the machine, short wires, the same sites every time."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataflow.program import Scratchpad
from hwspecs import load
from mapping.errors import MappingError
from mapping.place import (
    HOST_SITE,
    _sites,
    blocks,
    distance,
    edge_sites,
    ends,
    place,
    wire_length,
)
from tests.mapping.layout_programs import Sketch, matmul_like, variant


def check_sites(program):
    """Every block has its cells, on sites of its kind, none used twice."""
    machine = program.machine
    allowed = {kind: set(machine.grid.sites(kind)) for kind in ("compute", "memory")}
    used = Counter()
    for block in blocks(program):
        sites = program.sites[block.name]
        assert len(sites) == block.cells
        if block.kind in allowed:
            assert set(sites) <= allowed[block.kind]
            used.update(sites)
    assert not used or max(used.values()) == 1
    generators = Counter(
        site
        for block in blocks(program)
        if block.kind == "edge"
        for site in program.sites[block.name]
    )
    assert not generators - Counter(edge_sites(machine))


@pytest.mark.parametrize(
    ("name", "copies", "chain"),
    [("tiny", 1, 1), ("plasticine", 30, 2), ("plasticine", 60, 1), ("tungsten_20x20", 60, 3)],
)
def test_place_uses_every_site_once(name, copies, chain):
    check_sites(place(matmul_like(load(name), copies, chain)))


@settings(max_examples=25, deadline=None)
@given(
    copies=st.integers(1, 20),
    chain=st.integers(1, 3),
    readers=st.integers(1, 4),
    seed=st.integers(),
)
def test_place_holds_its_rules_for_any_program(copies, chain, readers, seed):
    sketch = Sketch(load("plasticine"))
    source = sketch.unit("x", "load")
    host = sketch.unit("h", "host")
    write, reads = sketch.pad("p", readers=readers, cells=chain)
    sketch.wire(source, write)
    for i in range(copies):
        sketch.wire(reads[i % readers], sketch.unit(f"c@i{i}", cells=chain))
        sketch.wire(f"c@i{i}", host, lanes=1)
    program = place(sketch.program(), seed)
    check_sites(program)
    assert program.sites["h"] == (HOST_SITE,)


def test_place_puts_wired_units_side_by_side():
    # A checkerboard has a memory unit beside each compute unit; the generator enters at the edge.
    # load -1-> pad -1-> mac -1-> store on the 2 x 2 grid: three channels of one hop each.
    sketch = Sketch(load("tiny"))
    write, (read,) = sketch.pad("p")
    sketch.wire(sketch.unit("x", "load"), write)
    sketch.wire(read, sketch.unit("mac"))
    sketch.wire("mac", sketch.unit("y", "store"))
    assert wire_length(place(sketch.program())) == 3


def test_place_is_worked_out_once_for_machines_that_differ_in_a_latency():
    machine = load("plasticine")
    slower = machine.network.model_copy(update={"channel_cycles": 5})
    taller = machine.grid.model_copy(update={"rows": 18})
    _sites.cache_clear()
    first = place(matmul_like(machine, 2, 3))
    second = place(matmul_like(machine.model_copy(update={"network": slower}), 2, 3))
    third = place(matmul_like(machine.model_copy(update={"grid": taller}), 2, 3))
    assert (_sites.cache_info().hits, _sites.cache_info().misses) == (1, 2)
    assert first.sites == second.sites
    check_sites(third)


def test_place_shortens_the_wires_of_a_random_order():
    # 30 compute units in a ring, each by a channel to the next: neighbours of one kind on a
    # checkerboard are 2 apart, so 60 is the least.
    sketch = Sketch(load("plasticine"))
    for i in range(30):
        sketch.unit(f"c{i * 7 % 30}")
    for i in range(30):
        sketch.wire(f"c{i}", f"c{(i + 1) % 30}")
    assert 60 <= wire_length(place(sketch.program())) <= 72


def test_place_keeps_the_cells_of_a_chain_together():
    program = place(matmul_like(load("plasticine"), 10, 3))
    for i in range(10):
        (r0, c0), (r1, c1), (r2, c2) = program.sites[f"mac@i{i}"]
        assert abs(r0 - r1) + abs(c0 - c1) <= 4
        assert abs(r1 - r2) + abs(c1 - c2) <= 4


def test_place_puts_the_scratchpad_of_a_deep_channel_between_its_ends():
    # Compute units are 2 apart at the least; the memory unit between them is 1 from each.
    sketch = Sketch(load("plasticine"))
    name = sketch.wire(sketch.unit("a"), sketch.unit("b"))
    sketch.pads.append(Scratchpad(name, "a", (), (), 4096, 1, 16384, 1))
    sites = place(sketch.program()).sites
    assert distance(sites["a"][0], sites[name][0]) == 1
    assert distance(sites["b"][0], sites[name][0]) == 1


def test_place_is_deterministic():
    program = matmul_like(load("plasticine"), 20, 2)
    assert place(program).sites == place(program).sites


def test_place_changes_only_the_sites():
    program = matmul_like(load("tiny"), 1)
    placed = place(program)
    assert (placed.units, placed.channels, placed.routes) == (program.units, program.channels, {})


def test_place_refuses_too_many_compute_units_with_the_numbers():
    with pytest.raises(MappingError) as caught:
        place(matmul_like(load("plasticine"), 35, 2))
    error = caught.value
    assert (error.resource, error.needed, error.available) == ("compute units", 70, 64)
    assert "at most 64, got 70 (over by 6)" in str(error)
    assert "at least 70" in str(error)


def test_place_refuses_all_shortages_at_once():
    sketch = Sketch(variant("tiny", generators={"count": 1}))
    for i in range(3):
        sketch.unit(f"c{i}")
        sketch.unit(f"x{i}", "load")
        sketch.pad(f"p{i}")
    with pytest.raises(MappingError) as caught:
        place(sketch.program())
    lines = str(caught.value).splitlines()
    assert len(lines) == 3
    assert "compute units must be at most 2, got 3" in lines[0]
    assert "memory units must be at most 2, got 3" in lines[1]
    assert "address generators must be at most 1, got 3" in lines[2]


def test_place_fills_a_machine_to_the_last_unit():
    sketch = Sketch(load("tiny"))
    for i in range(2):
        sketch.unit(f"c{i}")
        sketch.pad(f"p{i}")
    program = place(sketch.program())
    check_sites(program)


def test_edge_sites_are_as_many_as_the_generators():
    # Plasticine: 34 generators on 2 x 8 edge sites, so two sites take three and the others two.
    sites = Counter(edge_sites(load("plasticine")))
    assert sum(sites.values()) == 34
    assert sorted(sites.values()) == [2] * 14 + [3] * 2


def test_ends_give_each_reader_of_a_scratchpad_a_cell_of_its_own():
    sketch = Sketch(load("plasticine"))
    sketch.pad("p", readers=3, cells=2)
    sketch.unit("c", cells=4)
    found = ends(sketch.program())
    assert [found[f"p.read{i}"].leave for i in range(3)] == [0, 1, 0]
    assert (found["c"].enter, found["c"].leave) == (0, 3)
