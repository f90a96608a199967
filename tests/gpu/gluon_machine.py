"""Runs Gluon text on NumPy, so that its values can be checked where there is no GPU.

Gluon has no interpreter. This one has what the emitter prints and no more. Partitions are threads
that take turns at barriers. What a GPU may do late is done as late as it may: a product reads its
operands when it is waited for, a copy moves when its barrier or its end is waited for. Text that
gives a tile back too early, or takes it before it is full, therefore gets wrong numbers or none,
not right ones by luck. Layouts are not looked at; the compiler checks those.
"""

from __future__ import annotations

import re
import threading
import types
from collections.abc import Callable
from typing import Any

import numpy as np

PATIENCE_S = 60.0
"""Seconds after which a barrier is held to be stuck."""


class Dtype:
    def __init__(self, name: str, numpy: Any):
        self.name, self.numpy = name, numpy


FLOAT32 = Dtype("float32", np.float32)
FLOAT16 = Dtype("float16", np.float16)
BFLOAT16 = Dtype("bfloat16", np.float32)
INT32 = Dtype("int32", np.int32)
INT64 = Dtype("int64", np.int64)


def rounded(values: np.ndarray, dtype: Dtype) -> np.ndarray:
    """Values as the type holds them; bf16 lies in fp32, rounded to the nearest even."""
    if dtype is not BFLOAT16:
        return np.asarray(values).astype(dtype.numpy)
    bits = np.asarray(values, np.float32).view(np.uint32)
    bits = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    return (bits & np.uint32(0xFFFF0000)).view(np.float32)


class Tile:
    """A tile in registers, or a number."""

    def __init__(self, values: Any):
        self.values = np.asarray(values)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    def to(self, dtype: Dtype) -> Tile:
        return Tile(rounded(self.values, dtype))

    def __getitem__(self, at: Any) -> Tile:
        return Tile(self.values[at])

    def __neg__(self) -> Tile:
        return Tile(-self.values)

    def __index__(self) -> int:
        return int(self.values)

    def __bool__(self) -> bool:
        return bool(self.values)

    def __hash__(self) -> int:
        return id(self)


def _binary(name: str) -> Callable[[Tile, Any], Tile]:
    def work(self: Tile, other: Any) -> Any:
        if isinstance(other, Pointer):
            return NotImplemented
        right = other.values if isinstance(other, Tile) else other
        if isinstance(right, float):
            right = np.float32(right)
        return Tile(getattr(self.values, name)(right))

    return work


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "and", "or", "xor"):
    for _prefix in ("__", "__r"):
        setattr(Tile, f"{_prefix}{_name}__", _binary(f"{_prefix}{_name}__"))
for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(Tile, f"__{_name}__", _binary(f"__{_name}__"))


class Pointer:
    """A pointer into flat memory, with an offset for each point of a tile."""

    def __init__(self, memory: np.ndarray, dtype: Dtype, offset: Any = 0):
        self.memory, self.dtype, self.offset = memory, dtype, offset

    def __add__(self, other: Any) -> Pointer:
        offset = other.values if isinstance(other, Tile) else other
        return Pointer(self.memory, self.dtype, np.asarray(self.offset) + offset)

    __radd__ = __add__


class Descriptor:
    """A tensor seen through boxes: zeros outside it, nothing written there."""

    def __init__(self, memory: np.ndarray, dtype: Dtype, block: tuple[int, ...]):
        self.memory, self.dtype, self.block = memory, dtype, block

    def _inside(self, at: list[Any]) -> tuple[Any, Any]:
        tensor, box = [], []
        for start, side, size in zip(map(int, at), self.block, self.memory.shape, strict=True):
            low, high = max(0, start), min(size, start + side)
            tensor.append(slice(low, max(low, high)))
            box.append(slice(low - start, max(low, high) - start))
        return tuple(tensor), tuple(box)

    def read(self, at: list[Any]) -> np.ndarray:
        found = np.zeros(self.block, self.memory.dtype)
        tensor, box = self._inside(at)
        found[box] = self.memory[tensor]
        return found

    def write(self, at: list[Any], values: np.ndarray) -> None:
        tensor, box = self._inside(at)
        self.memory[tensor] = values[box]


class Shared:
    """A view of shared memory."""

    def __init__(self, values: np.ndarray, dtype: Dtype):
        self.values, self.dtype = values, dtype

    def index(self, place: Any) -> Shared:
        assert 0 <= int(place) < self.values.shape[0], "a place outside its ring"
        return Shared(self.values[int(place)], self.dtype)

    def permute(self, order: tuple[int, ...]) -> Shared:
        return Shared(self.values.transpose(order), self.dtype)

    def reshape(self, shape: list[int]) -> Shared:
        view = self.values.view()
        view.shape = tuple(shape)
        return Shared(view, self.dtype)

    def store(self, tile: Tile) -> None:
        assert tile.shape == self.values.shape, (tile.shape, self.values.shape)
        self.values[...] = tile.values

    def load(self, layout: Any) -> Tile:
        return Tile(self.values.copy())


class Barriers:
    """An array of transaction barriers."""

    def __init__(self, count: int, machine: Machine):
        self.all = [Barrier(machine) for _ in range(count)]

    def index(self, place: Any) -> Barrier:
        assert 0 <= int(place) < len(self.all)
        return self.all[int(place)]


class Barrier:
    """A phase ends when all have arrived and all bytes expected have come."""

    def __init__(self, machine: Machine):
        self.machine = machine
        self.count = self.pending = self.bytes = self.phase = 0
        self.late: list[Callable[[], None]] = []

    def start(self, count: int) -> None:
        self.count = self.pending = count

    def change(self, arrivals: int, bytes_: int) -> None:
        with self.machine.changed:
            self.pending -= arrivals
            self.bytes += bytes_
            assert self.pending >= 0, "more arrivals than the barrier counts"
            if self.pending == 0 and self.bytes == 0:
                self.phase += 1
                self.pending = self.count
            self.machine.changed.notify_all()

    def wait(self, parity: int) -> None:
        """Until the phase of this parity has ended; what is copied comes now and not before."""
        with self.machine.changed:
            done = self.machine.changed.wait_for(lambda: self.ended(parity), PATIENCE_S)
            assert done and not self.machine.failed, "a barrier that never ends"

    def ended(self, parity: int) -> bool:
        while self.late:
            self.late.pop(0)()
        return self.phase % 2 != parity or bool(self.machine.failed)


class Product:
    """A product in flight: worked out when it is waited for."""

    def __init__(self, left: Any, right: Shared, acc: Any, use_acc: bool):
        self.left, self.right, self.acc, self.use_acc = left, right, acc, use_acc
        self.found: np.ndarray | None = None

    def finish(self) -> None:
        if self.found is not None:
            return
        found = self.left.values.astype(np.float32) @ self.right.values.astype(np.float32)
        if self.use_acc:
            acc = self.acc
            if isinstance(acc, Product):
                acc.finish()
                acc = Tile(acc.found)
            found = found + acc.values
        self.found = found
        self.left = self.right = self.acc = None


class Machine:
    """Shared state of one program, and the modules that its text sees."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.failed: list[BaseException] = []
        self.local = threading.local()
        self.program, self.programs = 0, 1

    # --- products and copies -------------------------------------------------------------------

    @property
    def flights(self) -> list[Product]:
        return self.local.__dict__.setdefault("flights", [])

    @property
    def copies(self) -> list[Callable[[], None]]:
        return self.local.__dict__.setdefault("copies", [])

    def mma(self, left, right, acc, *, use_acc=True, is_async=False):
        product = Product(left, right, acc, use_acc)
        self.flights.append(product)
        return product

    def mma_wait(self, num_outstanding=0, deps=None):
        flights = self.flights
        while len(flights) > num_outstanding:
            flights.pop(0).finish()
        # a result that is still in flight may be carried on as such
        found = tuple(
            Tile(d.found) if isinstance(d, Product) and d.found is not None else d for d in deps
        )
        return found[0] if len(found) == 1 else found

    def copy_out(self, descriptor, at, shared):
        self.copies.append(lambda: descriptor.write(at, shared.values))

    def store_wait(self, pendings):
        copies = self.copies
        while len(copies) > pendings:
            copies.pop(0)()

    def copy_in(self, descriptor, at, barrier, shared):
        def come():
            values = descriptor.read(at)
            assert values.shape == shared.values.shape, (values.shape, shared.values.shape)
            shared.values[...] = values
            item = 2 if shared.dtype is BFLOAT16 else values.itemsize
            barrier.change(0, -values.size * item)

        with self.changed:
            barrier.late.append(come)
            self.changed.notify_all()

    def finish(self):
        assert not self.flights, "products that nobody waited for"
        assert not self.copies, "copies to memory that nobody waited for"

    def specialize(self, parts, warps, registers):
        def run(function, arguments):
            try:
                function(*arguments)
                self.finish()
            except BaseException as error:
                with self.changed:
                    self.failed.append(error)
                    self.changed.notify_all()

        threads = [threading.Thread(target=run, args=part) for part in parts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self.failed:
            raise self.failed[0]

    def allocate(self, dtype, shape, layout):
        if dtype is INT64:
            return Barriers(shape[0], self)
        # what nobody has written is no number
        return Shared(np.full(shape, np.nan, dtype.numpy), dtype)

    # --- modules -------------------------------------------------------------------------------

    def language(self) -> types.SimpleNamespace:
        layout = lambda *args, **kwargs: None  # noqa: E731
        point = lambda fn: lambda *a: Tile(fn(*(_bare(x) for x in a)))  # noqa: E731
        return types.SimpleNamespace(
            float32=FLOAT32,
            float16=FLOAT16,
            bfloat16=BFLOAT16,
            int32=INT32,
            int64=INT64,
            constexpr=layout,
            NVMMADistributedLayout=layout,
            NVMMASharedLayout=layout,
            BlockedLayout=layout,
            SliceLayout=layout,
            DotOperandLayout=layout,
            program_id=lambda axis: Tile(np.int64(self.program)),
            num_programs=lambda axis: Tile(np.int64(self.programs)),
            arange=lambda start, end, layout: Tile(np.arange(start, end, dtype=np.int64)),
            full=lambda shape, value, dtype, layout: Tile(np.full(shape, value, dtype.numpy)),
            convert_layout=lambda tile, layout: Tile(_bare(tile)),
            permute=lambda tile, order: Tile(tile.values.transpose(order)),
            exp=point(np.exp),
            exp2=point(np.exp2),
            log=point(np.log),
            log2=point(np.log2),
            abs=point(np.abs),
            sqrt=point(np.sqrt),
            rsqrt=point(lambda x: np.float32(1) / np.sqrt(x)),
            sin=point(np.sin),
            cos=point(np.cos),
            maximum=point(np.maximum),
            minimum=point(np.minimum),
            where=point(np.where),
            max=lambda tile, axis: Tile(_bare(tile).max(axis)),
            min=lambda tile, axis: Tile(_bare(tile).min(axis)),
            sum=lambda tile, axis: Tile(_bare(tile).sum(axis)),
            load=_load,
            store=_store,
            thread_barrier=lambda: None,
            static_range=range,
            allocate_shared_memory=self.allocate,
            warp_specialize=self.specialize,
        )

    def hopper(self) -> dict[str, Any]:
        mbarrier = types.SimpleNamespace(
            MBarrierLayout=lambda: None,
            init=lambda barrier, count: barrier.start(count),
            wait=lambda barrier, parity: barrier.wait(int(parity)),
            arrive=lambda barrier, count=1, pred=True: barrier.change(count, 0) if pred else None,
            expect=lambda barrier, bytes_: barrier.change(1, bytes_),
        )
        tma = types.SimpleNamespace(
            async_load=self.copy_in,
            async_store=self.copy_out,
            store_wait=self.store_wait,
        )
        return {
            "fence_async_shared": lambda: None,
            "mbarrier": mbarrier,
            "tma": tma,
            "warpgroup_mma": self.mma,
            "warpgroup_mma_wait": self.mma_wait,
        }


def _bare(value: Any) -> Any:
    if isinstance(value, Product):
        raise AssertionError("a product that was used before it was waited for")
    if isinstance(value, Tile):
        return value.values
    return np.float32(value) if isinstance(value, float) else value


def _load(pointer: Pointer, mask: Tile | None = None, other: float = 0.0) -> Tile:
    offset, inside = np.asarray(pointer.offset), True
    if mask is not None:
        offset, inside = np.broadcast_arrays(offset, mask.values)
    safe = np.where(inside, offset, 0)
    found = pointer.memory[safe]
    return Tile(np.where(inside, found, np.asarray(other, found.dtype)))


def _store(pointer: Pointer, tile: Tile, mask: Tile | None = None) -> None:
    values = rounded(tile.values, pointer.dtype)
    offset, values = np.broadcast_arrays(pointer.offset, values)
    if mask is None:
        pointer.memory[offset] = values
    else:
        inside = np.broadcast_to(mask.values, offset.shape)
        pointer.memory[offset[inside]] = values[inside]


def run_program(text: str, name: str, arguments: list[Any], program: int, programs: int) -> None:
    """Run the kernel `name` of a module's text for one program of so many."""
    machine = Machine()
    machine.program, machine.programs = program, programs
    code = re.sub(r"^from [^\n(]*(\([^)]*\))?$", "", text, flags=re.MULTILINE)
    names: dict[str, Any] = {
        "gluon": types.SimpleNamespace(jit=lambda function: function),
        "gl": machine.language(),
        "range": lambda *ends: range(*(int(end) for end in ends)),
        **machine.hopper(),
    }
    exec(compile(code, "gluon text", "exec"), names)
    names[name](*arguments)
    machine.finish()
