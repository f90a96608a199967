"""The progress bar of a long run, on standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PATIENCE_S = 2.0


@contextmanager
def shown() -> Iterator[Callable[[int, int, int], None] | None]:
    """Yield what draws a bar on standard error: on a terminal, for runs of over two seconds."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (BarColumn(), TextColumn("{task.description}"), TimeRemainingColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task("")
    started = time.monotonic()

    def show(done: int, total: int, cycle: int) -> None:
        if not bar.live.is_started and time.monotonic() - started > PATIENCE_S:
            bar.start()
        text = f"{done:,} of {total:,} firings, cycle {cycle:,}"
        bar.update(task, completed=done, total=total, description=text)

    try:
        yield show
    finally:
        bar.stop()
