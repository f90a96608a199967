"""The text of what goes to memory and comes from it: tiles, descriptors, and between programs."""

from __future__ import annotations

import math

from gpu.blocks import block_of, pointer
from gpu.emit_triton.forms import Forms
from gpu.emit_triton.words import TYPES, number, step_of
from gpu.plan import Barrier, Fetch, Load, Publish, Store


class Accesses(Forms):
    """Forms that can load, store and wait."""

    def load(self, load: Load) -> str:
        moved = block_of(self.tensors, self.kernel, load)
        if moved is not None:
            at = ", ".join(self.first(form) for form in moved.at)
            text = f"{moved.name}.load([{at}]).reshape{self.shape(moved.axes)}"
            places = ", ".join(str(moved.axes.index(axis)) for axis in load.out.axes)
            return text if moved.axes == load.out.axes else f"tl.permute({text}, ({places}))"
        mask = ""
        if load.guards:
            held = self.condition(load.guards, load.out.axes)
            mask = f", mask={held}, other={number(load.fill)}"
        return f"tl.load({self.address(load.tensor, load.index, load.out.axes)}{mask})"

    def store(self, store: Store) -> None:
        moved = block_of(self.tensors, self.kernel, store)
        if moved is not None:
            at = ", ".join(self.first(form) for form in moved.at)
            places = ", ".join(str(store.arg.axes.index(axis)) for axis in moved.axes)
            name = store.arg.name
            text = name if moved.axes == store.arg.axes else f"tl.permute({name}, ({places}))"
            shape = f"({', '.join(map(str, moved.block))})"
            self.put(f"{moved.name}.store([{at}], tl.reshape({text}, {shape}))")
            return
        mask = ""
        if store.guards:
            mask = f", mask={self.condition(store.guards, store.arg.axes)}"
        address = self.address(store.tensor, store.index, store.arg.axes)
        self.put(f"tl.store({address}, {store.arg.name}{mask})")

    def publish(self, publish: Publish) -> None:
        step = step_of(publish.loop)
        size = math.prod(self.tensors[publish.tensor].shape[1:])
        shape = self.tensors[publish.tensor].shape[1:]
        base = f"{pointer(publish.tensor)} + {step} % 2 * {size}"
        address = self.address(publish.tensor, publish.index, publish.arg.axes, base, shape)
        held = self.condition(publish.guards, publish.arg.axes) if publish.guards else ""
        mask = f", mask={held}" if held else ""
        type_ = TYPES[self.tensors[publish.tensor].type]
        self.put(f"tl.store({address}, {publish.arg.name}.to({type_}){mask})")

    def barrier(self, barrier: Barrier) -> None:
        """Arrive, then wait until as many have arrived as there are programs times steps."""
        counter = pointer(barrier.tensor)
        wanted = f"({step_of(barrier.loop)} + 1) * {self.kernel.programs}"
        self.put("tl.debug_barrier()")
        self.put(f'tl.atomic_add({counter}, 1, sem="release", scope="gpu")')
        # one thread of a program polls; a load would be done by all of them, and takes longer
        poll = f'tl.atomic_add({counter}, 0, sem="acquire", scope="gpu")'
        self.put(f"while {poll} < {wanted}:")
        self.put("    pass")
        self.put("tl.debug_barrier()")

    def fetch(self, fetch: Fetch) -> None:
        step = step_of(fetch.loop)
        shape = self.tensors[fetch.tensor].shape[1:]
        base = f"{pointer(fetch.tensor)} + ({step} + 1) % 2 * {math.prod(shape)}"
        address = self.address(fetch.tensor, fetch.index, fetch.out.axes, base, shape)
        mask = ""
        if fetch.guards:
            mask = f", mask={self.condition(fetch.guards, fetch.out.axes)}, other=0.0"
        self.put(f'{fetch.out.name} = tl.load({address}{mask}, cache_modifier=".cg")')
