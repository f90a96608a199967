"""The picture of a placement: a file that opens, cells in the right colours, names that fit."""

import matplotlib.image
import numpy as np
import pytest

from dataflow import plot
from dataflow.sim.account import Account
from dataflow.sim.result import Result
from hwspecs import load
from mapping.place import place
from mapping.route import route
from tests.mapping.layout_programs import Sketch, matmul_like


def a_result(program, cycles=1000, busy=400):
    account = Account(busy, cycles - busy, 0, 0, 0, 0, 0, busy)
    return Result(cycles, accounts={unit.name: account for unit in program.units})


@pytest.mark.parametrize("machine", ["tiny", "plasticine", "tungsten_20x20"])
def test_draw_placement_writes_a_picture(machine, tmp_path):
    program = route(place(matmul_like(load(machine), 1)))
    path = plot.draw_placement(program, a_result(program), tmp_path / "p.png", title="a title")
    picture = matplotlib.image.imread(path)
    assert picture.shape[0] > 400
    assert picture.shape[1] > 800


def test_draw_placement_draws_without_a_result(tmp_path):
    program = place(matmul_like(load("tiny"), 1))
    assert plot.draw_placement(program, None, tmp_path / "p.svg").read_text().startswith("<?xml")


def test_draw_placement_writes_the_distance_from_the_bound(tmp_path):
    program = place(matmul_like(load("tiny"), 1))
    picture = tmp_path / "p.svg"
    with plot_texts():
        plot.draw_placement(program, a_result(program), picture, bound_cycles=800)
    assert "1,000 cycles, 1.25 x the bound of 800" in picture.read_text()


def test_draw_placement_refuses_a_program_without_sites(tmp_path):
    with pytest.raises(ValueError, match="program must be placed"):
        plot.draw_placement(matmul_like(load("tiny"), 1), None, tmp_path / "p.png")


def test_draw_placement_gives_the_same_bytes_twice(tmp_path):
    program = route(place(matmul_like(load("tiny"), 1)))
    first, second = (
        plot.draw_placement(program, a_result(program), tmp_path / name).read_bytes()
        for name in ("a.png", "b.png")
    )
    assert first == second


def test_shades_grow_with_the_busy_share():
    shades = [np.mean(plot._shade("#2f6fb3", share)) for share in (0.0, 0.3, 0.7, 1.0)]
    assert shades == sorted(shades, reverse=True)


def test_busy_shares_take_a_scratchpads_busiest_unit():
    program = place(matmul_like(load("tiny"), 1))
    result = a_result(program)
    read = {**result.accounts, "pad_a.read0": Account(900, 100, 0, 0, 0, 0, 0, 900)}
    shares = plot._busy_shares(program, Result(1000, accounts=read))
    assert shares is not None
    assert (shares["pad_a"], shares["mac@i0"]) == (0.9, 0.4)


def test_traffic_counts_a_shared_value_once():
    # 8 beats from the load to each of two readers along the same first link.
    sketch = Sketch(load("tiny"))
    write, (read,) = sketch.pad("p")
    sketch.wire(sketch.unit("x", "load"), write)
    for name in ("a", "b"):
        sketch.wire(read, sketch.unit(name))
    program = route(place(sketch.program()))
    assert set(plot._traffic(program).values()) == {8.0}


def test_fit_breaks_shortens_or_leaves_out_names():
    # 0.58 of the font size a letter: 60 points hold 12 letters of 8 points.
    assert plot._fit("scores", 60) == (["scores"], 8.0)
    assert plot._fit("running_maximum", 60) == (["running_", "maximum"], 8.0)
    assert plot._fit("abcdefghijklmnopqrstuvw", 24) == (["abcdef…"], 5.2)
    assert plot._fit("scores", 10) == ([], 0.0)


def test_letters_go_on_after_z():
    assert [plot._letters(n) for n in (0, 25, 26, 52)] == ["A", "Z", "AA", "BA"]


def plot_texts():
    """Text as text in svg files, not as outlines."""
    import matplotlib

    return matplotlib.rc_context({"svg.fonttype": "none"})
