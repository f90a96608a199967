"""The contents of off-chip memory during a run: inputs and constants read, outputs written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dataflow.errors import FaultsError, did_you_mean
from dataflow.program import Access, Program, Tensor
from dataflow.reference import constant
from dataflow.reference import store as store_whole
from dataflow.sim.arithmetic import HELD, Arithmetic
from dataflow.sim.coordinates import Coordinates, elements

Array = NDArray[Any]


class InputError(FaultsError):
    """Input arrays that do not fit a Program's tensors."""


class Tensors:
    """Arrays by tensor name, in the machine's number types; registers of the host by output."""

    def __init__(self, program: Program, inputs: Mapping[str, Any], arithmetic: Arithmetic):
        _check(program, inputs)
        self.program = program
        self.tensors = {tensor.name: tensor for tensor in program.tensors}
        self.contents: dict[str, Array] = {}
        self.written: dict[str, NDArray[np.bool_]] = {}
        self.registers: dict[str, Array] = {}
        merges = {
            unit.work.tensor: unit.work.merge
            for unit in program.units
            if unit.kind == "store" and isinstance(unit.work, Access)
        }
        for tensor in program.tensors:
            if tensor.kind == "input":
                array = arithmetic.stored(inputs[tensor.source])
            elif tensor.kind == "const":
                array = arithmetic.stored(_constant_tensor(program, tensor))
            else:
                start = {"add": 0.0, "max": -np.inf}.get(merges.get(tensor.name, ""), np.nan)
                array = np.full(tensor.shape, start, dtype=HELD)
                self.written[tensor.name] = np.zeros(array.size, dtype=bool)
            self.contents[tensor.name] = array.reshape(-1)

    def load(self, access: Access, coords: Coordinates) -> Array:
        """Return the tile at `coords`, its dimensions in the order of the access's box."""
        order = [walk.axis for walk in access.box]
        offsets, inside = elements(access, self.tensors[access.tensor], coords, order)
        contents = self.contents[access.tensor]
        if inside is None:
            return contents[offsets]
        found = np.full(offsets.shape, access.fill, dtype=HELD)
        found[inside] = contents[offsets[inside]]
        return found

    def store(self, access: Access, coords: Coordinates, array: Array) -> None:
        """Put a tile into its tensor, merged as the access says; what lies outside is dropped."""
        order = [walk.axis for walk in access.box]
        offsets, inside = elements(access, self.tensors[access.tensor], coords, order)
        at = offsets.ravel() if inside is None else offsets[inside]
        values = array.ravel() if inside is None else array[inside]
        contents = self.contents[access.tensor]
        if access.merge == "add":
            np.add.at(contents, at, values)
        elif access.merge == "max":
            np.maximum.at(contents, at, values)
        else:
            contents[at] = values
        self.written[access.tensor][at] = True

    def keep(self, output: str, value: Array) -> None:
        """Take a result of no axes into the host's register."""
        self.registers[output] = value

    def outputs(self) -> dict[str, Array]:
        """Return the outputs by name, as float64.

        What no store wrote is NaN; points that the graph's output does not reach hold 0.
        """
        result = {name: np.asarray(value, np.float64) for name, value in self.registers.items()}
        for tensor in self.program.tensors:
            if tensor.kind == "output":
                array = self.contents[tensor.name].astype(np.float64).reshape(tensor.shape)
                missing = ~self.written[tensor.name].reshape(tensor.shape)
                if missing.any() and np.isnan(array[missing]).all():
                    array[missing & ~_reached(self.program, tensor)] = 0.0
                result[tensor.source] = array
        return result


def _check(program: Program, inputs: Mapping[str, Any]) -> None:
    """Raise InputError with every input that is missing or of another shape."""
    faults = []
    for tensor in program.tensors:
        if tensor.kind != "input":
            continue
        where = f"input {tensor.source}"
        if tensor.source not in inputs:
            hint = did_you_mean(tensor.source, inputs)
            faults.append(f"{where}: an array must be given, got none; {hint}")
        elif np.shape(inputs[tensor.source]) != tensor.shape:
            got = np.shape(inputs[tensor.source])
            faults.append(f"{where}: shape must be {tensor.shape}, got {got}")
    if faults:
        raise InputError(faults)


def _constant_tensor(program: Program, tensor: Tensor) -> Array:
    """The values of a const node over its whole axes."""
    node = program.graph.node(tensor.source)
    extents = program.graph.shape(node.axes)
    points = dict(zip(node.axes, np.indices(extents, sparse=True), strict=True))
    return np.broadcast_to(constant(node, points), extents).reshape(tensor.shape)


def _reached(program: Program, tensor: Tensor) -> NDArray[np.bool_]:
    """Which elements of an output tensor the graph writes."""
    found = [output for output in program.graph.outputs if output.name == tensor.source]
    if not found:
        return np.ones(tensor.shape, dtype=bool)
    node = program.graph.node(found[0].node)
    ones = np.ones(program.graph.shape(node.axes), dtype=np.float32)
    return store_whole(found[0], program.graph, ones) > 0
