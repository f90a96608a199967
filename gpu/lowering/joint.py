"""Values of one size that one kernel makes for products, in one tensor: loaded as one block.

The parts of a complex value between two kernels are such: the next kernel multiplies both by a
Fourier matrix, and what it loads as one block of a tensor its products take as it lies
(`gpu.lowering.stacks`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from dataflow.index import Affine
from gpu.plan import Load, Loop, Statement, Store, Tensor

Places = Mapping[str, tuple[str, int]]
"""Of a tensor: the joint one that holds it, and its place along that one's first dimension."""


def joint(made: Sequence[Tensor]) -> tuple[list[Tensor], Places]:
    """Return tensors that hold those of one shape and 16-bit type, and where each is in them."""
    groups: dict[tuple[tuple[int, ...], str], list[Tensor]] = {}
    for tensor in made:
        groups.setdefault((tensor.shape, tensor.type), []).append(tensor)
    whole: list[Tensor] = []
    places: dict[str, tuple[str, int]] = {}
    for (shape, type_), tensors in groups.items():
        if len(tensors) > 1 and type_ != "fp32":
            name = f"{tensors[0].name}.joint"
            whole.append(replace(tensors[0], name=name, shape=(len(tensors), *shape)))
            places.update((tensor.name, (name, i)) for i, tensor in enumerate(tensors))
    return whole, places


def placed(body: tuple[Statement, ...], places: Places) -> tuple[Statement, ...]:
    """Return `body` with what it loads and stores in joint tensors."""
    return tuple(_placed(statement, places) for statement in body)


def _placed(statement: Statement, places: Places) -> Statement:
    if isinstance(statement, Loop):
        return replace(statement, body=placed(statement.body, places))
    if isinstance(statement, Load | Store) and statement.tensor in places:
        name, place = places[statement.tensor]
        index = (Affine((), place), *statement.index)
        return replace(statement, tensor=name, index=index)
    return statement
