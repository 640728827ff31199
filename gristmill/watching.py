"""Watching the inbox: what is complete there is done within seconds, with the model kept warm in between."""

import logging
import time
from collections.abc import Callable
from pathlib import Path

from gristmill import intake
from gristmill.errors import StorageError
from gristmill.pipeline import Pipeline
from gristmill.report import Report
from gristmill.schema import schema_files
from gristmill.store import RecordState

log = logging.getLogger(__name__)

_LOOK_SECONDS = 0.5
_SHORTEST_PAUSE, _LONGEST_PAUSE = 2.0, 60.0
_AGAIN_SECONDS = 300.0
"""A file that could not be taken is looked at again after so long, or as soon as it or a schema changes."""


class Watcher:
    """Runs a pipeline whenever there is something to do. `report` is called after each run that did something.

    The files that are complete at one moment are one batch. Failures are tried again by the retry policy as soon as
    they are due. It holds no state that matters: ended and started again, it goes on with what lies there.
    """

    def __init__(self, pipeline: Pipeline, schema: str | None, report: Callable[[Report], None]) -> None:
        self._pipeline = pipeline
        self._schema = schema
        self._report = report
        self._refused: dict[Path, tuple[object, float]] = {}
        self._since: dict[Path, tuple[object, float]] = {}
        self._idle_until = 0.0

    def run(self) -> None:
        """Watch until the process is ended; a database or folder that is away for a while is waited for."""
        pause = _SHORTEST_PAUSE
        while True:
            try:
                if not self.look():
                    time.sleep(_LOOK_SECONDS)
                pause = _SHORTEST_PAUSE
            except StorageError as error:
                log.warning("%s; trying again in %.0f s", error, pause, extra={"action": "storage_away"})
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)

    def look(self) -> bool:
        """Do what there is to do now; whether there was something."""
        ready, queue = self._ready(), self._pipeline.queue
        rested = time.monotonic() >= self._idle_until
        if ready or (rested and queue.due(RecordState.WAITING, float("inf"))):
            self._work("extract", ready)
        elif rested and queue.due(RecordState.QUEUED, time.time()):
            self._work("retry", [])
        else:
            return False
        return True

    def _work(self, kind: str, ready: list[Path]) -> None:
        run_id = self._pipeline.begin(kind)
        if kind == "extract":
            self._pipeline.take_in(run_id, schema=self._schema)
        report = self._pipeline.run(run_id)
        for path in ready:
            if path.exists():
                self._refused[path] = (self._stamp(path), time.monotonic())
        if not report.attempts and not ready:
            # What is due and could not be tried, for want of its schema, is not asked for in a circle.
            self._idle_until = time.monotonic() + _AGAIN_SECONDS
        if report.records or report.notes:
            self._report(report)

    def _ready(self) -> list[Path]:
        """Files that have been still for the time that the settings ask for and were not refused as they are."""
        now = time.monotonic()
        found = [path for path, _ in intake.inbox_files(self._pipeline.inbox)]
        since = {}
        for path in found:
            stamp = self._stamp(path)
            before, first = self._since.get(path, (None, now))
            since[path] = (stamp, first if stamp == before else now)
        self._since = since
        self._refused = {path: told for path, told in self._refused.items() if path in since}
        return [
            path
            for path, (stamp, first) in since.items()
            if now - first >= self._pipeline.settings.settle_seconds and not self._was_refused(path, stamp, now)
        ]

    def _was_refused(self, path: Path, stamp: object, now: float) -> bool:
        told, at = self._refused.get(path, (None, 0.0))
        return told == stamp and now - at < _AGAIN_SECONDS

    def _stamp(self, path: Path) -> object:
        """Changes with the file and with any schema."""
        schemas = self._pipeline.settings.schemas
        of_schemas = tuple((p.name, p.stat().st_mtime_ns) for p in schema_files(schemas))
        try:
            status = path.stat()
        except FileNotFoundError:
            return None
        return status.st_size, status.st_mtime_ns, of_schemas
