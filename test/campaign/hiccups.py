"""How long this process itself stood still: what it heard late meanwhile says nothing of others."""

from __future__ import annotations

import threading
import time

PERIOD_S = 0.002


class Hiccups:
    """A thread that sleeps and notes by how much it overslept, as jHiccup does.

    `worst_s` is the longest that the process, or its interpreter lock, was held up since `clear`.
    """

    def __init__(self) -> None:
        self.worst_s = 0.0
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="hiccups", daemon=True)
        self._thread.start()

    def clear(self) -> None:
        """Begin anew."""
        self.worst_s = 0.0

    def close(self) -> None:
        """End the thread."""
        self._closed.set()
        self._thread.join()

    def _watch(self) -> None:
        due_s = time.monotonic() + PERIOD_S
        while not self._closed.wait(PERIOD_S):
            now_s = time.monotonic()
            self.worst_s = max(self.worst_s, now_s - due_s)
            due_s = now_s + PERIOD_S
