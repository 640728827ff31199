"""Removing what ended long ago: rows, archived input, dead files, reports. The outbox is never touched."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from gristmill.outlet import output_paths
from gristmill.pipeline import Pipeline
from gristmill.store import Old
from gristmill.store.database import storage_errors


@dataclass(frozen=True, slots=True)
class Going:
    """One file that would go, with what of it lies on disk beside its outbox file."""

    old: Old
    archived: tuple[Path, ...]
    dead: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """What would be removed, of what ended before `cutoff` (seconds since 1970)."""

    cutoff: float
    files: tuple[Going, ...]
    reports: tuple[Path, ...]
    runs: tuple[str, ...]

    @property
    def records(self) -> int:
        """Records whose rows would go."""
        return sum(going.old.records for going in self.files)

    @property
    def paths(self) -> list[Path]:
        """Everything on disk that would go."""
        return [*(path for going in self.files for path in (*going.archived, *going.dead)), *self.reports]

    @property
    def bytes(self) -> int:
        """What the files on disk hold; rows are not among it."""
        return sum(path.stat().st_size for path in self.paths if path.exists())


def plan(pipeline: Pipeline, cutoff: float) -> Plan:
    """What ended before `cutoff` (seconds since 1970).

    A file goes when all of its records are accepted or dead, its outputs are written, and nothing of it has changed
    since; with it go its rows, its copies in the archive and its dead file. Its outbox file stays, and so does the
    knowledge of its content and name. Of a file with one record still queued, everything stays.
    """
    reports = [path for path in pipeline.reports.iterdir() if path.suffix in (".json", ".html")]
    return Plan(
        cutoff,
        tuple(_going(pipeline, old) for old in pipeline.retention.ended_before(cutoff)),
        tuple(sorted(path for path in reports if path.stat().st_mtime < cutoff)),
        tuple(pipeline.retention.runs_before(cutoff)),
    )


def prune(pipeline: Pipeline, what: Plan) -> int:
    """Remove what was planned, but files of which somebody has put a record in again since; how many files went.

    Broken off in the middle, the next plan holds the rest.

    Raises:
        StorageError: something can't be removed.
    """
    gone = 0
    for going in what.files:
        remove = partial(_remove, (*going.archived, *going.dead))
        gone += pipeline.retention.forget(going.old, what.cutoff, remove)
    _remove(what.reports)
    pipeline.retention.forget_runs(list(what.runs))
    return gone


def _going(pipeline: Pipeline, old: Old) -> Going:
    archived = (pipeline.archive / place for place in old.archived)
    dead = (output_paths(old.file, pipeline.outbox, pipeline.dead, compress=compress)[1] for compress in (False, True))
    return Going(old, tuple(p for p in archived if p.is_file()), tuple(p for p in dead if p.is_file()))


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        with storage_errors(str(path)):
            path.unlink(missing_ok=True)
