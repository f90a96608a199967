"""Affine forms of the axes as Triton text.

A form is printed as a part that is one number for the whole program (its place in the grid, the
loops' steps) and a part over the lanes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dataflow.index import Affine
from gpu.blocks import pointer
from gpu.emit_triton.words import lane_of, program_of, step_of, subscript, total
from gpu.plan import Kernel, Loop, Plan, Tensor


class Forms:
    """The lines of one kernel, and its affine forms as text: places in tensors, conditions."""

    def __init__(self, plan: Plan, kernel: Kernel):
        self.plan = plan
        self.tensors: Mapping[str, Tensor] = plan.tensors
        self.kernel = kernel
        self.axes = kernel.axes
        self.lines: list[str] = []
        self.depth = 1
        self.program = "tl.program_id(0)"

    def put(self, text: str) -> None:
        """Add a line."""
        self.lines.append("    " * self.depth + text)

    def coordinate(self, axis: str) -> tuple[str, str]:
        """The coordinate of an axis: one number a program and step, and what a lane adds."""
        plan = self.axes[axis]
        parts = []
        if plan.grid > 1 and plan.loop > 1:
            parts.append(f"({program_of(axis)} * {plan.loop} + {step_of(axis)})")
        elif plan.grid > 1:
            parts.append(program_of(axis))
        elif plan.loop > 1 or axis in self._loops():
            parts.append(step_of(axis))
        base = f"{parts[0]} * {plan.stride}" if parts and plan.stride > 1 else "".join(parts)
        return base, lane_of(axis) if plan.tile > 1 else ""

    def _loops(self) -> set[str]:
        return {s.axis for s in self.kernel.statements() if isinstance(s, Loop)}

    def form(self, form: Affine, axes: tuple[str, ...]) -> str:
        """A form of the axes, with a dimension for each of `axes`."""
        scalar, lanes = self.parts(form, axes)
        if not scalar and not lanes:
            return "0"
        if not lanes or not scalar:
            return scalar or lanes
        return f"({scalar}) + ({lanes})"

    def first(self, form: Affine) -> str:
        """A form at the first lane of every axis."""
        terms = [(c, base) for axis, c in form.terms if (base := self.coordinate(axis)[0])]
        return total([*terms, *([(form.constant, "")] if form.constant else [])]) or "0"

    def parts(self, form: Affine, axes: tuple[str, ...]) -> tuple[str, str]:
        """The program's part of a form and the lanes' part."""
        scalar: list[tuple[int, str]] = []
        lanes: list[tuple[int, str]] = []
        for axis, coefficient in form.terms:
            base, lane = self.coordinate(axis)
            if base:
                scalar.append((coefficient, base))
            if lane:
                lanes.append((coefficient, lane + subscript((axis,), axes)))
        return self.first(form) if scalar or form.constant else "", total(lanes)

    def address(
        self,
        tensor: str,
        index: Sequence[Affine],
        axes: tuple[str, ...],
        base: str = "",
        shape: tuple[int, ...] | None = None,
    ) -> str:
        """A pointer, or a tile of pointers, into a row-major tensor."""
        shape = self.tensors[tensor].shape if shape is None else shape
        offset = Affine()
        stride = 1
        for form, size in reversed(list(zip(index, shape, strict=True))):
            offset = offset + form * stride
            stride *= size
        scalar, lanes = self.parts(offset, axes)
        if scalar and stride >= 2**31 and not scalar.isdigit():
            scalar = self.wide(offset)
        parts = [base or pointer(tensor)]
        parts += [f"({text})" for text in (scalar, lanes) if text]
        if any(not offset.coefficient(axis) for axis in axes):
            parts.append(self.flat(axes))
        return " + ".join(parts)

    def wide(self, offset: Affine) -> str:
        """The program's part of an offset in 64 bits."""
        terms = []
        for axis, coefficient in offset.terms:
            base, _ = self.coordinate(axis)
            if base:
                terms.append((coefficient, f"({base}).to(tl.int64)"))
        if offset.constant:
            terms.append((offset.constant, ""))
        return total(terms)

    def condition(self, forms: Sequence[Affine], axes: tuple[str, ...]) -> str:
        """Where every form is >= 0, over `axes`; see `flat` for what the whole program shares."""
        checks = []
        for form in forms:
            scalar, lanes = self.parts(form, axes)
            lanes = lanes or self.flat(axes)
            parts = [text for text in (scalar, lanes) if text]
            checks.append(f"({' + '.join(f'({text})' for text in parts)} >= 0)")
        return " & ".join(checks)

    def flat(self, axes: tuple[str, ...]) -> str:
        """A tile of zeros: the interpreter takes no mask that is partly one number."""
        return f"tl.zeros({self.shape(axes)}, tl.int32)" if axes else ""

    def shape(self, axes: Sequence[str]) -> str:
        """The shape of a tile as text."""
        sizes = [str(self.axes[axis].tile) for axis in axes]
        return f"({sizes[0]},)" if len(sizes) == 1 else f"({', '.join(sizes)})"
