"""Removing what ended long ago: rows, archived input, dead files, reports. The outbox is never touched."""

from dataclasses import dataclass
from pathlib import Path

from gristmill.outlet import output_paths
from gristmill.pipeline import Pipeline
from gristmill.store import Old
from gristmill.store.database import storage_errors


@dataclass(frozen=True, slots=True)
class Plan:
    """What would be removed."""

    files: tuple[Old, ...]
    archived: tuple[Path, ...]
    dead: tuple[Path, ...]
    reports: tuple[Path, ...]
    runs: tuple[str, ...]

    @property
    def records(self) -> int:
        """Records whose rows would go."""
        return sum(old.records for old in self.files)

    @property
    def bytes(self) -> int:
        """What the files on disk hold; rows are not among it."""
        return sum(path.stat().st_size for path in (*self.archived, *self.dead, *self.reports))


def plan(pipeline: Pipeline, cutoff: float) -> Plan:
    """What ended before `cutoff` (seconds since 1970).

    A file goes when all of its records are accepted or dead, its outputs are written, and nothing of it has changed
    since; with it go its rows, its copies in the archive and its dead file. Its outbox file stays, and so does the
    knowledge of its content and name. Of a file with one record still queued, everything stays.
    """
    old = pipeline.retention.ended_before(cutoff)
    archived = [pipeline.archive / place for one in old for place in one.archived]
    dead = []
    for one in old:
        for compress in (False, True):
            dead.append(output_paths(one.file, pipeline.outbox, pipeline.dead, compress=compress)[1])
    reports = [path for path in pipeline.reports.iterdir() if path.suffix in (".json", ".html")]
    return Plan(
        files=tuple(old),
        archived=tuple(path for path in archived if path.is_file()),
        dead=tuple(path for path in dead if path.is_file()),
        reports=tuple(sorted(path for path in reports if path.stat().st_mtime < cutoff)),
        runs=tuple(pipeline.retention.runs_before(cutoff)),
    )


def prune(pipeline: Pipeline, what: Plan) -> None:
    """Remove what was planned. Broken off in the middle, the next plan holds the rest.

    Raises:
        StorageError: something can't be removed.
    """
    # Rows go last: while they are there, a later plan finds what is left of their file.
    for path in (*what.archived, *what.dead, *what.reports):
        with storage_errors(str(path)):
            path.unlink(missing_ok=True)
    for old in what.files:
        pipeline.retention.forget_records(old.file.id)
    pipeline.retention.forget_runs(list(what.runs))
