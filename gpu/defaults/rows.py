"""Rows so long that a core holds two of them: one program a core walks over rows, loads ahead.

Programs that each work on a row hide each other's loads and stores where three or more share a
core. Of longer rows a program must hide its own: the loads of the next two rows are under way while
it works on one. On an H200 softmax over rows of 32768 in bf16 came to 86 % of the copy bandwidth
so, to 76 % with a row a program; over rows of 16384, four of which a core holds, to 87 and 94 %.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

REGISTER_BYTES = 256 * 1024
"""Registers of a core (CUDA C++ programming guide, compute capability 8.0 and 9.0)."""
FEWEST_SHARING = 3
"""Rows in fp32 in the registers of a core, from which on programs hide each other's transfers."""
STAGES = 3
"""Rows in shared memory: the one at work and two under way."""
WARPS = 32


def walked_rows(
    extents: Sequence[tuple[str, int]], elements: int, loads: int, cores: int, shared_bytes: int
) -> dict[str, Any]:
    """What a schedule says for one program a core that walks over rows; nothing where none should.

    extents: of the axes spread over programs, a row a point. elements: of a row; loads: tensors
    that are loaded, all of which the loop loads ahead. shared_bytes: of a core, for two-byte types.
    """
    long = elements * 4 * FEWEST_SHARING > REGISTER_BYTES
    fits = STAGES * elements * 2 <= shared_bytes
    if not extents or not long or not fits or loads != 1:
        return {}
    axis, extent = max(extents, key=lambda pair: pair[1])
    others = 1
    for name, count in extents:
        others *= count if name != axis else 1
    chunk = -(-extent // max(1, cores // others))
    if chunk < 2:
        return {}
    return {"loop": [axis], "chunk": {axis: chunk}, "warps": WARPS, "stages": STAGES}
