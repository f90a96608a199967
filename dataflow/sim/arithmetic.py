"""The machine's numbers: where values are rounded, and to what.

Units compute in the accumulate type: operands, constants made in a unit, running sums and what
`earlier` carries inside a unit. A value is rounded to the data type

* where it enters from off-chip memory, and
* where it leaves a unit through a port (to another unit, a scratchpad or off-chip memory),

except partial results on their way to the operation that goes on with them (an operation with
`terms`, or an `earlier`), which stay in the accumulate type. Arrays are held as float32 whatever
the type; numbers beyond fp8's largest stay at the largest, as the others' go to infinity.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dataflow.number_types import numpy_type
from hwspecs import Machine

Array = NDArray[Any]

HELD = np.float32

_FP8_LARGEST = 448.0


class Arithmetic:
    """Rounding to a machine's data type and accumulate type."""

    def __init__(self, machine: Machine | None):
        self.data_type = machine.data_type if machine else "fp32"
        self.accumulate_type = machine.accumulate_type if machine else "fp32"

    def stored(self, array: Any) -> Array:
        """Return `array` rounded to the data type."""
        return _rounded(array, self.data_type)

    def summed(self, array: Any) -> Array:
        """Return `array` rounded to the accumulate type."""
        return _rounded(array, self.accumulate_type)


def _rounded(array: Any, name: str) -> Array:
    held = np.asarray(array, dtype=HELD)
    if name == "fp32":
        return held
    if name == "fp8_e4m3":
        held = np.clip(held, -_FP8_LARGEST, _FP8_LARGEST)
    return held.astype(numpy_type(name)).astype(HELD)
