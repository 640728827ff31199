"""Keeping a lease while work goes on, however long one step of it takes."""

import logging
import threading
import time
from types import TracebackType

from gristmill.errors import StorageError
from gristmill.store.queue import Queue

log = logging.getLogger(__name__)

_PATIENCE = 10
"""Leases that may pass without any progress before the work counts as stuck and is left to others."""


class LeaseKeeper:
    """Renews a lease in the background for as long as the context lasts and something moves in it."""

    def __init__(self, queue: Queue, lease: str, seconds: float) -> None:
        self._queue = queue
        self._lease = lease
        self._seconds = seconds
        self._moved = time.monotonic()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="lease", daemon=True)

    def progressed(self) -> None:
        """Say that something moved."""
        self._moved = time.monotonic()

    def __enter__(self) -> "LeaseKeeper":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # It may be waiting for the database; nobody waits for it.
        self._ended.set()

    def _keep(self) -> None:
        while not self._ended.wait(self._seconds / 4):
            if time.monotonic() - self._moved > _PATIENCE * self._seconds:
                log.warning("nothing moved for %.0f s; the lease is not renewed", time.monotonic() - self._moved)
                return
            try:
                self._queue.renew(self._lease, self._seconds)
            except StorageError as error:
                log.warning("the lease could not be renewed, and is tried again: %s", error)
