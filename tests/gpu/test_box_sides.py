"""Dimensions of a tensor as the copy engine sees them."""

from dataflow.index import affine
from dataflow.request import read_settings, request
from gpu.blocks import block_of
from gpu.box_sides import Side, folded, sides_of
from gpu.defaults.schedule import default_schedule
from gpu.defaults.stacks import without_stacks
from gpu.lowering.lower import lower
from gpu.plan import AxisPlan, Load, Loop, Store

LANES = {"a": 64, "b": 32}
AXES = {"a": AxisPlan("a", 64, 64), "b": AxisPlan("b", 32, 32), "h": AxisPlan("h", 8, 1, 1, 8)}


def test_a_dimension_of_rows_is_two() -> None:
    form = 32 * affine("a") + affine("b")
    made = sides_of(form, 2048, AXES, LANES, False)
    assert made == [Side(affine("a"), 64, "a", False), Side(affine("b"), 32, "b", False)]


def test_lanes_that_do_not_divide_a_dimension_have_no_sides() -> None:
    assert sides_of(24 * affine("a") + affine("b"), 24 * 64, AXES, LANES, False) is None
    assert sides_of(2 * affine("b"), 64, AXES, LANES, False) is None


def test_folded_joins_dimensions_without_lanes_that_nothing_guards() -> None:
    h = affine("h")
    sides = [
        Side(affine("p"), 2, "p", False),
        Side(h, 8, "", False),
        Side(affine("c"), 4, "", False),
        Side(affine("a"), 64, "a", False),
    ]
    joined = 256 * h + 64 * affine("c") + affine("a")
    assert folded(sides) == [sides[0], Side(joined, 8 * 4 * 64, "a", False)]
    guarded = [Side(h, 8, "", True), *sides[2:]]
    assert folded(guarded)[0] == guarded[0]


def test_copy_engine_moves_a_transform_of_a_row_as_a_matrix() -> None:
    settings = "batch=4 channels=2 n=4096 causal=true gated=true"
    graph = request("fft_conv", read_settings([settings])).graph
    plain = without_stacks(default_schedule(graph)).kernels[-1]
    for moved in (True, "loads", False):
        kernel = plain.model_copy(update={"descriptors": moved})
        schedule = default_schedule(graph).model_copy(update={"kernels": (kernel,)})
        plan = lower(graph, schedule)
        (loop,) = (s for s in plan.kernels[0].body if isinstance(s, Loop))
        load = next(s for s in loop.body if isinstance(s, Load) and s.tensor == "u")
        store = next(s for s in loop.body if isinstance(s, Store))
        block = block_of(plan.tensors, plan.kernels[0], load)
        assert (block is not None) == (moved is not False)
        if block is not None:
            assert (block.view, block.block) == ((4, 2, 64, 64), (1, 1, 64, 64))
        assert (block_of(plan.tensors, plan.kernels[0], store) is not None) == (moved is True)
