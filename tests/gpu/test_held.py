"""Tiles of 16 bits that a loop holds: widened anew at every step."""

import re

from dataflow import kernels
from dataflow.nodes import Graph, live
from gpu.defaults.schedule import default_schedule
from gpu.emit_triton.emit import source
from gpu.emit_triton.held import Widen, held_narrow
from gpu.lowering.lower import lower
from gpu.plan import Loop, Plan


def plan(points: int, precision: str = "bf16") -> Plan:
    sizes = {"batch": 64, "channels": 768, "n": points}
    graph: Graph = live(kernels.build("fft_conv", sizes, {"causal": True, "gated": True}))
    return lower(graph, default_schedule(graph, precision))


def test_twiddles_are_widened_in_the_loop_and_stand_before_it_as_loaded() -> None:
    text = source(plan(4096))
    head, loop = text.split("in tl.range(")
    widened = re.findall(r"(\w+)_wide = _anew\((\w+)\)\.to\(tl\.float32\)", loop)
    assert len(widened) == 4  # real and imaginary part, there and back
    assert "_anew(" not in head.split("def fft_conv")[1]
    for name, held in widened:
        assert f"    {name} = {held}.to(tl.float32)" in head
        assert not re.search(rf"\b{name}\b", loop)


def test_every_use_in_the_loop_is_of_what_the_step_widened() -> None:
    (kernel,) = plan(4096).kernels
    made = held_narrow(kernel)
    (loop,) = (s for s in made.body if isinstance(s, Loop))
    wide = [s for s in loop.body if isinstance(s, Widen)]
    assert [s.out.type for s in wide] == ["fp32"] * 4
    first = {s.out.name: loop.body.index(s) for s in wide}
    for name, place in first.items():
        readers = [i for i, s in enumerate(loop.body) if name in repr(s) and i != place]
        assert readers and min(readers) > place
    assert held_narrow(made) == made


def test_the_interpreter_and_wide_types_are_left_alone() -> None:
    assert "_anew" not in source(plan(4096), interpreted=True)
    assert "_anew" not in source(plan(4096, "tf32"))


def test_a_tile_of_few_numbers_a_thread_is_left_alone() -> None:
    graph = live(kernels.build("gemm", {"i": 4096, "j": 4096, "k": 64}, {"bias": True}))
    assert "_anew" not in source(lower(graph, default_schedule(graph, "bf16")))
