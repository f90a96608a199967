"""What a little more of each resource would bring a kernel on a machine: computed, not guessed.

Every variant of the machine (`hwspecs.variants`) has the kernel laid out on it and run again: once
by the schedule at hand, once by the default schedule of the variant, as more of a resource may be
of use only to another schedule.
"""

from __future__ import annotations

from collections.abc import Callable

from dataflow.errors import FaultsError
from dataflow.gains import Gain
from dataflow.program import Program
from hwspecs.variants import Variant, variants
from mapping.errors import MappingError
from mapping.map import Mapping, map_graph

Cycles = Callable[[Program], "int | None"]
"""Runs a program: its cycles, or None where it deadlocks."""


def sensitivity(
    mapped: Mapping,
    cycles_of: Cycles,
    anew: bool = True,
    progress: Callable[[int, int, str], None] | None = None,
) -> list[Gain]:
    """Return what each variant of the machine of `mapped` brings, the most first.

    anew: also choose the default schedule of each variant.
    progress: called before each run with the variants done, all of them, and the name of the next.
    """
    program = mapped.program
    found = variants(program.machine)
    gains = []
    for number, variant in enumerate(found):
        if progress is not None:
            progress(number, len(found), variant.name)
        gains.append(_gain(mapped, variant, cycles_of, anew))
    return sorted(gains, key=lambda gain: gain.seconds)


def _gain(mapped: Mapping, variant: Variant, cycles_of: Cycles, anew: bool) -> Gain:
    """Run a variant by one or both schedules."""
    program, clock_hz = mapped.program, mapped.program.machine.clock_hz
    kept, fault = _laid_out(lambda: map_graph(program.graph, variant.machine, mapped.schedule))
    cycles, fault = _run(kept, fault, cycles_of)
    if not anew:
        return Gain(variant, cycles, None, clock_hz, fault)
    chosen, why = _laid_out(lambda: map_graph(program.graph, variant.machine, known=kept))
    if kept and chosen is kept:
        return Gain(variant, cycles, cycles, clock_hz, fault, fault)
    again, why = _run(chosen, why, cycles_of)
    return Gain(variant, cycles, again, clock_hz, fault, why)


def _run(laid_out: Mapping | None, fault: str, cycles_of: Cycles) -> tuple[int | None, str]:
    """Cycles of a layout, or None and why there are none: `fault`, or that the run deadlocks."""
    if laid_out is None:
        return None, fault
    cycles = cycles_of(laid_out.program)
    return cycles, "" if cycles is not None else "the run deadlocks"


def _laid_out(lay_out: Callable[[], Mapping]) -> tuple[Mapping | None, str]:
    """A mapping, or the first line of why there is none."""
    try:
        return lay_out(), ""
    except (FaultsError, MappingError) as error:
        return None, str(error).splitlines()[0]
