"""Ctrl-C stops a run between two firings, where all its accounts are in order."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

Progress = Callable[[int, int, int], None]
"""Told now and then: firings done, firings in all, the cycle reached."""


class Stoppable(Protocol):
    """A run that looks at `stop` between firings and then raises KeyboardInterrupt."""

    stop: bool


@contextmanager
def stop_on_signal(run: Stoppable) -> Iterator[None]:
    """Let Ctrl-C stop `run` between two firings; a second one stops it at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)

    def stop(*_: Any) -> None:
        run.stop = True
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
