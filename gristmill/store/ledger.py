"""Runs and files: what was taken in, under which name, and what came of it."""

import json
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, RowMapping, delete, func, insert, select, update

from gristmill.errors import InputError
from gristmill.presets import get_preset
from gristmill.records import Line, Record
from gristmill.store import owner as owners
from gristmill.store.database import Database
from gristmill.store.life import RecordState
from gristmill.store.tables import AT_WORK, files, records, runs

_PAGE_BYTES = 8 << 20
_READING_LAPSES_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class RunRow:
    """One run: its kind (`extract`, `retry`, `file`), its parameters, and its times in seconds since 1970."""

    id: str
    kind: str
    parameters: Mapping[str, Any]
    started_at: float
    ended_at: float | None
    model_seconds: float
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FileRow:
    """One file that was taken in. `lines` counts those that are not blank; a pruned one has no records any more."""

    id: int
    key: str
    schema: str
    preset: str
    name: str
    output_name: str
    lines: int
    duplicate_ids: int
    run_id: str
    pruned: bool


class Ledger(Database):
    """Runs and files in the store."""

    def start_run(self, kind: str, parameters: Mapping[str, Any]) -> str:
        """Open a run and return its id, which sorts by time."""
        now = time.time()
        run_id = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime(now))}-{kind}-{secrets.token_hex(4)}"
        with self._writing() as db:
            row = {"id": run_id, "kind": kind, "owner": owners.owner(), "parameters": json.dumps(parameters)}
            zero = {"model_seconds": 0.0, "notes": "[]", "known_files": "[]"}
            db.execute(insert(runs).values(**row, **zero, started_at=now))
        return run_id

    def end_run(self, run_id: str) -> None:
        """Note the time at which the run ended."""
        with self._writing() as db:
            db.execute(update(runs).where(runs.c.id == run_id).values(ended_at=time.time()))

    def run(self, run_id: str) -> RunRow:
        """The run of that id.

        Raises:
            KeyError: there is none.
        """
        with self._reading() as db:
            row = db.execute(select(runs).where(runs.c.id == run_id)).mappings().one_or_none()
        if row is None:
            raise KeyError(run_id)
        return RunRow(
            run_id,
            row["kind"],
            json.loads(row["parameters"]),
            row["started_at"],
            row["ended_at"],
            row["model_seconds"],
            tuple(json.loads(row["notes"])),
        )

    def note(self, run_id: str, *texts: str) -> None:
        """Add sentences to what the run's report says beside its numbers."""
        with self._writing() as db:
            had = json.loads(db.execute(select(runs.c.notes).where(runs.c.id == run_id)).scalar_one())
            new = had + [text for text in texts if text not in had]
            db.execute(update(runs).where(runs.c.id == run_id).values(notes=json.dumps(new)))

    def note_known(self, run_id: str, file_ids: Sequence[int]) -> None:
        """Remember that files were dropped again whose content was known."""
        with self._writing() as db:
            db.execute(update(runs).where(runs.c.id == run_id).values(known_files=json.dumps(list(file_ids))))

    def add_model_seconds(self, run_id: str, seconds: float) -> None:
        """Add to the time that the run spent in the model."""
        with self._writing() as db:
            db.execute(update(runs).where(runs.c.id == run_id).values(model_seconds=runs.c.model_seconds + seconds))

    def find_file(self, key: str) -> FileRow | None:
        """The file that was completely taken in under this key."""
        with self._reading() as db:
            row = db.execute(select(files).where(files.c.key == key, files.c.complete == 1)).mappings().one_or_none()
        return None if row is None else file_row(row)

    def add_file(
        self,
        run_id: str,
        lines: Iterable[Line],
        *,
        key: str,
        content_sha256: str,
        schema: str,
        preset: str,
        model: str,
        name: str,
        in_use: Callable[[str], bool] = lambda _: False,
        unchanged: Callable[[], bool] = lambda: True,
        page: int = 2000,
    ) -> FileRow | None:
        """Take a file in: all of its lines or, after a crash, none. None where another process is taking it in.

        Lines are written in pages of `page`; the file counts as taken only with the last, and only if `unchanged`
        then says that what was read is what was meant. Unreadable lines are dead at once. The output's name is
        `name`, with the first 8 digits of the key behind it where other content has that name.

        Raises:
            InputError: the file changed while it was read; nothing of it is kept.
        """
        begun = self._begin_file(run_id, key, content_sha256, schema, preset, model, name, in_use)
        if begun is None:
            return None
        file_id, output_name = begun
        budget = get_preset(preset).max_new_tokens
        now = time.time()
        fresh = {"file_id": file_id, "preset": preset, "due_at": now, "run_id": run_id}
        fresh |= {"attempts": 0, "attempts_before_requeue": 0}
        count = held = 0
        batch: list[dict[str, Any]] = []
        for line in lines:
            count += 1
            held += len(line.raw)
            batch.append(_record_row(line, output_name, budget) | fresh)
            if len(batch) >= page or held >= _PAGE_BYTES:
                with self._writing() as db:
                    db.execute(insert(records), batch)
                    db.execute(update(files).where(files.c.id == file_id).values(read_at=time.time()))
                batch, held = [], 0
        with self._writing() as db:
            if batch:
                db.execute(insert(records), batch)
            counts = select(func.count(), func.count(records.c.record_id.distinct()))
            there, ids = db.execute(counts.where(records.c.file_id == file_id)).one()
            if there != count or not unchanged():
                _forget(db, file_id)
                count = -1
            else:
                done = {"complete": 1, "lines": count, "duplicate_ids": count - ids, "changed_at": time.time()}
                db.execute(update(files).where(files.c.id == file_id).values(**done))
        if count < 0:
            raise InputError(f"{name} changed while it was read; it is taken by the next run")
        return FileRow(file_id, key, schema, preset, name, output_name, count, count - ids, run_id, pruned=False)

    def _begin_file(
        self,
        run_id: str,
        key: str,
        content: str,
        schema: str,
        preset: str,
        model: str,
        name: str,
        in_use: Callable[[str], bool],
    ) -> tuple[int, str] | None:
        with self._writing(alone=True) as db:
            for old in db.execute(select(files).where(files.c.key == key)).all():
                if old.complete or (_reads_on(old.reader, old.read_at) and old.reader != owners.owner()):
                    return None
                # Its reader died, or gave up; nothing of it was claimable.
                _forget(db, old.id)
            taken = set(db.execute(select(files.c.output_name).where(files.c.schema == schema)).scalars())
            # A name also counts as taken where a file of unknown origin lies under it in the outbox.
            names = (name, *(f"{name}-{key[:digits]}" for digits in (8, 16, 32, 64)))
            output_name = next(one for one in names if one not in taken and not in_use(one))
            row = {"key": key, "content_sha256": content, "schema": schema, "preset": preset, "model": model[:200]}
            row |= {"name": name, "output_name": output_name, "run_id": run_id, "reader": owners.owner()}
            zero = {"complete": 0, "lines": 0, "duplicate_ids": 0, "version": 1, "written_version": 0}
            file_id = db.execute(
                insert(files).values(**row, **zero, read_at=time.time()).returning(files.c.id)
            ).scalar_one()
            return file_id, output_name

    def files(self) -> list[FileRow]:
        """Every file that was completely taken in, the oldest first."""
        with self._reading() as db:
            query = select(files).where(files.c.complete == 1).order_by(files.c.id)
            return [file_row(row) for row in db.execute(query).mappings()]

    def files_of_run(self, run_id: str) -> list[FileRow]:
        """Files that the run took in, found again, or some of whose records it worked on."""
        touched = select(records.c.file_id).where(records.c.run_id == run_id).distinct()
        with self._reading() as db:
            known = json.loads(db.execute(select(runs.c.known_files).where(runs.c.id == run_id)).scalar_one())
            its_own = files.c.id.in_(touched) | files.c.id.in_(known) | (files.c.run_id == run_id)
            query = select(files).where(files.c.complete == 1, its_own)
            return [file_row(row) for row in db.execute(query.order_by(files.c.id)).mappings()]

    def forget_half_read(self) -> None:
        """Files whose reader died before the last line count as never seen; they still lie where they lay."""
        with self._writing(alone=True) as db:
            half = db.execute(select(files).where(files.c.complete == 0)).all()
            for file in half:
                if not _reads_on(file.reader, file.read_at):
                    _forget(db, file.id)

    def being_read(self) -> bool:
        """Whether another living process is taking in a file at this moment."""
        query = select(files.c.reader, files.c.read_at).where(files.c.complete == 0)
        with self._reading() as db:
            readers = db.execute(query.where(files.c.reader != owners.owner())).all()
        return any(_reads_on(reader, at) for reader, at in readers)

    def note_archived(self, file_id: int, place: str) -> None:
        """Remember where a copy of the file lies, relative to the archive."""
        with self._writing(alone=True) as db:
            had = json.loads(db.execute(select(files.c.archived).where(files.c.id == file_id)).scalar_one())
            if place not in had:
                # What was dropped again is as young as its last copy.
                new = {"archived": json.dumps([*had, place]), "changed_at": time.time()}
                db.execute(update(files).where(files.c.id == file_id).values(**new))

    def schemas(self) -> list[str]:
        """The schemas of all files that were taken in."""
        with self._reading() as db:
            names = select(files.c.schema).where(files.c.complete == 1).distinct()
            return sorted(db.execute(names).scalars())

    def unfinished(self) -> dict[str, dict[RecordState, int]]:
        """How many records are waiting, leased or queued, by schema."""
        found: dict[str, dict[RecordState, int]] = {}
        with self._reading() as db:
            # Two questions, each of which has an index.
            for which in (AT_WORK, records.c.lease.is_not(None)):
                query = (
                    select(files.c.schema, records.c.state, func.count())
                    .join(files, files.c.id == records.c.file_id)
                    .where(which, files.c.complete == 1)
                    .group_by(files.c.schema, records.c.state)
                )
                for schema, state, count in db.execute(query):
                    found.setdefault(schema, {})[RecordState(state)] = count
        return found


def _reads_on(reader: str, read_at: float) -> bool:
    """Whether a process is still reading a file of which it wrote a page at `read_at`."""
    # One of a machine that never comes back would be waited for without end.
    return owners.lives(reader) and time.time() - read_at < _READING_LAPSES_SECONDS


def _forget(db: Connection, file_id: int) -> None:
    db.execute(delete(records).where(records.c.file_id == file_id))
    db.execute(delete(files).where(files.c.id == file_id))


def _record_row(line: Line, output_name: str, budget: int) -> dict[str, Any]:
    content = line.content
    if isinstance(content, Record):
        return {
            "line": line.number,
            "form": "openai" if content.messages else "record",
            "max_new_tokens": min(budget, content.max_tokens or budget),
            "record_id": content.id,
            "raw": line.raw,
            "state": RecordState.WAITING.value,
            "fault_code": None,
            "fault": None,
            "ended_at": None,
        }
    return {
        "line": line.number,
        "form": "record",
        "max_new_tokens": budget,
        "record_id": f"{output_name}:{line.number}",
        "raw": line.raw,
        "state": RecordState.DEAD.value,
        "fault_code": content.code.value,
        "fault": json.dumps(content.as_json()),
        "ended_at": time.time(),
    }


def file_row(row: RowMapping) -> FileRow:
    """A row of the table as it is handed out."""
    return FileRow(
        row["id"],
        row["key"],
        row["schema"],
        row["preset"],
        row["name"],
        row["output_name"],
        row["lines"],
        row["duplicate_ids"],
        row["run_id"],
        row["pruned_at"] is not None,
    )
