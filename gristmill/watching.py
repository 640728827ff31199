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
_PULL_SECONDS = 5.0
"""Object storage is asked so often for what is new there."""
_CHUNK_SECONDS = 30.0
"""What is dropped while a batch is at work waits for its chunk, so that a chunk is to be over after so long."""
_FIRST_CHUNK, _SMALLEST_CHUNK = 64, 8


class Watcher:
    """Runs a pipeline whenever there is something to do. `report` is called after each run that did something, and
    `progress` as records of a batch finish, with how many of how many that are by then.

    The files that are complete at one moment are one batch. What comes while it is at work is taken in between two of
    its chunks and has a chunk of its own at once; what is longer than that waits with the rest. Failures are tried
    again by the retry policy as soon as they are due and nothing else is at work. It holds no state that matters: ended
    and started again, it goes on with what lies there.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        schema: str | None,
        report: Callable[[Report], None],
        progress: Callable[[int, int], None] = lambda _done, _due: None,
    ) -> None:
        self._pipeline = pipeline
        self._schema = schema
        self._report = report
        self._progress = progress
        self._limit = _FIRST_CHUNK
        self._pull_at = 0.0
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
        self._pull()
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
        done, due = 0, self._pipeline.due(run_id)

        def finished(count: int) -> None:
            nonlocal done
            done += count
            self._progress(done, max(done, due))

        began = time.monotonic()
        for records in self._pipeline.chunks(run_id, limit=lambda: self._limit, progress=finished):
            self._limit = max(_SMALLEST_CHUNK, round(records * _CHUNK_SECONDS / (time.monotonic() - began)))
            self._pull()
            if come := self._ready():
                self._put_between(come)
            began = time.monotonic()
        attempts = self._end(run_id, ready, mend=True)
        if not attempts and not ready:
            # What is due and could not be tried, for want of its schema, is not asked for in a circle.
            self._idle_until = time.monotonic() + _AGAIN_SECONDS

    def _put_between(self, ready: list[Path]) -> None:
        """A run for what has come while another is at work, of one chunk: what is left then is left to the other."""
        run_id = self._pipeline.begin("extract")
        taken = self._pipeline.take_in(run_id, schema=self._schema)
        new = [file.file.id for file in taken if not file.known]
        if new:
            next(self._pipeline.chunks(run_id, file_ids=new, limit=lambda: self._limit), None)
        self._end(run_id, ready, mend=False)

    def _end(self, run_id: str, ready: list[Path], *, mend: bool) -> int:
        """Report on a run, and note which of the files that were ready it left where they are; its attempts."""
        report = self._pipeline.report(run_id, mend=mend)
        for path in ready:
            if path.exists():
                self._refused[path] = (self._stamp(path), time.monotonic())
        if report.records or report.notes:
            self._report(report)
        return report.attempts

    def _pull(self) -> None:
        """See what is new in object storage, now and then."""
        if time.monotonic() >= self._pull_at:
            self._pipeline.pull()
            self._pull_at = time.monotonic() + _PULL_SECONDS

    def _ready(self) -> list[Path]:
        """Files that have been still for the time that the settings ask for and were not refused as they are."""
        now = time.monotonic()
        found = [path for path, _ in intake.inbox_files(self._pipeline.inbox)]
        since = {}
        for path in found:
            stamp = self._stamp(path)
            before, first = self._since.get(path, (None, now))
            since[path] = (stamp, first if stamp == before else now - self._age(path))
        self._since = since
        self._refused = {path: told for path, told in self._refused.items() if path in since}
        return [
            path
            for path, (stamp, first) in since.items()
            if now - first >= self._pipeline.settings.settle_seconds and not self._was_refused(path, stamp, now)
        ]

    def _age(self, path: Path) -> float:
        """Seconds since a file changed last, as far as the clock can be believed: it may have come while a chunk was at
        work, and has been still for as long."""
        try:
            return max(0.0, time.time() - path.stat().st_ctime)
        except FileNotFoundError:
            return 0.0

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
