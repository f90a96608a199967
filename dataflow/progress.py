"""The progress bars of long work, on standard error of a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PATIENCE_S = 2.0


@contextmanager
def shown() -> Iterator[Callable[[int, int, int], None] | None]:
    """Yield what draws a run's bar from firings done, firings in all and the cycle reached."""
    with _bar() as draw:
        if draw is None:
            yield None
            return

        def show(done: int, total: int, cycle: int) -> None:
            draw(done, total, f"{done:,} of {total:,} firings, cycle {cycle:,}")

        yield show


@contextmanager
def steps() -> Iterator[Callable[[int, int, str], None] | None]:
    """Yield what draws a bar of steps from those done, all of them, and the name of the next."""
    with _bar() as draw:
        if draw is None:
            yield None
            return

        def show(done: int, total: int, name: str) -> None:
            draw(done, total, f"{done} of {total}: {name}")

        yield show


@contextmanager
def _bar() -> Iterator[Callable[[int, int, str], None] | None]:
    """Yield what draws a bar, on a terminal, for work of over two seconds."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (BarColumn(), TextColumn("{task.description}"), TimeRemainingColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task("")
    started = time.monotonic()

    def draw(done: int, total: int, text: str) -> None:
        if not bar.live.is_started and time.monotonic() - started > PATIENCE_S:
            bar.start()
        bar.update(task, completed=done, total=total, description=text)

    try:
        yield draw
    finally:
        bar.stop()
