"""The steps of a run: take in, claim, generate, check, route, report. Each works by ids and commits as it goes.

A step can be repeated or continued by another process: what a run has in hand stands in the store, not here.
"""

import logging
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any

from gristmill import intake
from gristmill.checking import check
from gristmill.engine import Engine, FinishReason, as_quantized, engine_for
from gristmill.errors import InputError, SchemaError, StorageError
from gristmill.faults import Fault
from gristmill.generating import GROUP, Generation
from gristmill.grammar.constraint import announce
from gristmill.intake import Identity, Taken
from gristmill.models.locate import open_model
from gristmill.outlet import drop_leftovers, output_paths, outputs_exist, write_outputs
from gristmill.policy import decide
from gristmill.presets import get_preset
from gristmill.records import Record, parse_line, readable
from gristmill.remote import Remote
from gristmill.report import FileReport, Report, collect, file_report, write_report
from gristmill.schema import Schema, load_schema
from gristmill.settings import Settings
from gristmill.store import (
    Claim,
    Desk,
    Ends,
    Figures,
    FileRow,
    Invariants,
    Ledger,
    Outputs,
    Queue,
    RecordState,
    Retention,
    Settled,
    Verdict,
    open_database,
)
from gristmill.store.database import hurried

log = logging.getLogger(__name__)

_READING_SECONDS = 0.5

Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Checked:
    """How many candidates were judged, and how many of them were accepted."""

    judged: int
    accepted: int


class Pipeline:
    """The steps of a run over one data folder. Give `engine` to use another than the settings' model.

    Raises:
        SetupError: a setting can't be used. StorageError: the data folder or database can't be written.
    """

    def __init__(self, settings: Settings, engine: Engine | None = None) -> None:
        self.settings = settings
        self._engine = engine
        self._schemas: dict[str, tuple[tuple[tuple[str, int, int], ...], Schema]] = {}
        self._recovered: set[str] = set()
        self._early: dict[str, Checked] = {}
        self._said_waiting: set[tuple[str, str]] = set()
        for folder in (self.inbox, self.outbox, self.dead, self.archive, self.reports):
            intake.writable(folder)
        self._remote = Remote(settings.remote) if settings.remote else None
        self._see_that_nothing_is_missing()
        self._database = database = open_database(settings.url)
        self.ledger = Ledger(database)
        self.queue = Queue(database)
        self.desk = Desk(database)
        self.outputs = Outputs(database)
        self.figures = Figures(database)
        self.invariants = Invariants(database)
        self.retention = Retention(database)

    def _see_that_nothing_is_missing(self) -> None:
        """A data folder with results but without its database is none to begin anew in."""
        if self.settings.database_url.get_secret_value() or (self.settings.data / "gristmill.sqlite3").exists():
            return
        if left := next((path for path in self.outbox.rglob("*.jsonl*") if not path.name.startswith(".")), None):
            raise StorageError(
                f"{self.settings.data / 'gristmill.sqlite3'} is not there, but {left} is a result of it; nothing was "
                "changed; put a backup of the database in its place, or to begin anew move outbox and archive away"
            )

    def close(self) -> None:
        """Close the connections to the database; used again, it opens new ones."""
        self._database.dispose()

    @property
    def inbox(self) -> Path:
        """Where files are dropped."""
        return self.settings.data / "inbox"

    @property
    def outbox(self) -> Path:
        """Where accepted lines appear."""
        return self.settings.data / "outbox"

    @property
    def dead(self) -> Path:
        """Where dead lines appear."""
        return self.settings.data / "dead"

    @property
    def archive(self) -> Path:
        """Where taken files go."""
        return self.settings.data / "archive"

    @property
    def reports(self) -> Path:
        """Where reports go."""
        return self.settings.data / "reports"

    def begin(self, kind: str) -> str:
        """Open a run, after seeing that model and preset can be used; its id.

        Raises:
            ModelError: the model directory is incomplete; nothing was begun.
        """
        name = self.check_model()
        get_preset(self.settings.preset)
        parameters = self.settings.model_dump(mode="json", exclude={"database_url"})
        self.ledger.forget_half_read()
        drop_leftovers(self.outbox, self.dead, self.reports)
        intake.put_back_leftovers(self.inbox)
        run_id = self.ledger.start_run(kind, parameters | {"model": name})
        log.info("run %s begun with model %s", run_id, name, extra={"action": "run_begun"})
        return run_id

    def check_model(self) -> str:
        """See that the model's directory can be used, without loading it; its name.

        Raises:
            ModelError: it can't.
        """
        return self._model_identity()[0]

    def take_in(self, run_id: str, *, schema: str | None = None, again: bool = False) -> list[Taken]:
        """Take in every file of the inbox that nobody is writing to any more, and archive it.

        Files that can't be taken stay where they are; the run's notes say why.
        """
        self.pull()
        found = dict(intake.inbox_files(self.inbox))
        ready, moving = intake.settled(list(found), self.settings.settle_seconds)
        notes = [f"{readable(path.name)} is still being written; it is taken by the next run" for path in moving]
        notes += [
            f"{self._in_inbox(path)} stays in the inbox: only .jsonl and .jsonl.gz files directly in it or in "
            "a folder named like a schema are taken"
            for path in intake.strangers(self.inbox)
        ]
        taken: list[Taken] = []
        for path in ready:
            try:
                done = self.take_file(run_id, path, self.schema(intake.schema_name(found[path], schema)), again)
            except (SchemaError, InputError) as error:
                if path.exists():
                    notes.append(f"{self._in_inbox(path)} stays in the inbox: {error}")
                continue
            if done is None:
                notes.append(f"{self._in_inbox(path)} is being taken in by another run")
                continue
            taken.append(done)
            try:
                intake.archive(done, self.archive, partial(self.ledger.note_archived, done.file.id))
                if self._remote is not None:
                    self._remote.taken(self.inbox, path)
            except FileNotFoundError:
                log.info("%s was moved by another run", readable(path.name), extra={"action": "file_gone"})
            except (OSError, InputError) as error:
                reason = error.strerror if isinstance(error, OSError) else str(error)
                notes.append(f"{self._in_inbox(path)} was taken in but can't be moved to the archive: {reason}")
        known = [t for t in taken if t.known]
        if known:
            self.ledger.note_known(run_id, [t.file.id for t in known])
            pruned = " (its rows were pruned, its outbox file is as it was)"
            names = ", ".join(sorted(readable(t.path.name) + pruned * t.file.pruned for t in known))
            notes.append(f"already done before, not done again: {names} (the option again repeats it)")
        notes += [f"{readable(t.path.name)} holds no records" for t in taken if t.file.lines == 0]
        notes += [
            f"{readable(t.path.name)} has {t.file.duplicate_ids} lines whose id stood before in it; "
            "each keeps its own line"
            for t in taken
            if t.file.duplicate_ids
        ]
        self.ledger.note(run_id, *notes)
        for note in notes:
            log.info(note, extra={"action": "intake_note"})
        return taken

    def _in_inbox(self, path: Path) -> str:
        return readable(str(path.relative_to(self.inbox)))

    def take_file(self, run_id: str, path: Path, schema: Schema, again: bool) -> Taken | None:
        """Take in one file from anywhere; it stays where it is. None where another process is taking it in."""
        name, fingerprint = self._model_identity()
        identity = Identity(self.settings.preset, fingerprint, name, run_id if again else "")
        done = intake.take_in(
            path,
            schema,
            ledger=self.ledger,
            run_id=run_id,
            identity=identity,
            max_line_bytes=self.settings.max_line_bytes,
            in_use=partial(outputs_exist, self.outbox / schema.name),
        )
        if done is None:
            log.info("%s is being taken in by another run", readable(path.name), extra={"action": "file_busy"})
            return None
        log.info(
            "%s: %d lines for schema %s%s",
            readable(path.name),
            done.file.lines,
            schema.name,
            ", known from before" if done.known else "",
            extra={"action": "file_taken"},
        )
        return done

    def next_chunk(
        self,
        run_id: str,
        *,
        file_ids: Sequence[int] | None = None,
        ignore_due: bool = False,
        limit: int | None = None,
    ) -> Claim:
        """What the run has to generate, check and route next: first what dead runs had in hand, at its beginning and
        again before it ends; else the next chunk, of `limit` records where the settings allow as many. Empty when
        nothing is left."""
        if run_id not in self._recovered:
            self._recovered.add(run_id)
            if (orphans := self._recover(run_id)).records:
                return orphans
        if (claim := self._claim(run_id, file_ids, ignore_due, limit)).records:
            return claim
        if (orphans := self._recover(run_id)).records:
            return orphans
        # What another process is taking in at this moment is work for this one too.
        while file_ids is None and self.ledger.being_read():
            time.sleep(_READING_SECONDS)
        # So are records that were given back untouched.
        return self._claim(run_id, file_ids, ignore_due, limit)

    def due(self, run_id: str, *, ignore_due: bool = False) -> int:
        """How many records there are at this moment that the run could claim."""
        run = self.ledger.run(run_id)
        if run.kind != "retry":
            return self.queue.due(RecordState.WAITING, float("inf"))
        return self.queue.due(RecordState.QUEUED, float("inf") if ignore_due else run.started_at)

    def _recover(self, run_id: str) -> Claim:
        claim = self.queue.recover(run_id, lease_seconds=self.settings.lease_seconds)
        if claim.records:
            log.warning(
                "%d records that an earlier run left unfinished are taken over",
                claim.records,
                extra={"action": "recovered"},
            )
        return claim

    def _claim(self, run_id: str, file_ids: Sequence[int] | None, ignore_due: bool, limit: int | None) -> Claim:
        """Lease records never tried, or in a retry run the queued ones that were due when it began."""
        run = self.ledger.run(run_id)
        retry = run.kind == "retry"
        # Records never tried are always due, whatever a clock that was set back says.
        due_by = run.started_at if retry and not ignore_due else float("inf")
        return self.queue.claim(
            run_id,
            [RecordState.QUEUED] if retry else [RecordState.WAITING],
            min(limit or self.settings.chunk_records, self.settings.chunk_records),
            lease_seconds=self.settings.lease_seconds,
            schemas=self._usable_schemas(run_id),
            file_ids=file_ids,
            due_by=due_by,
        )

    def generate(self, run_id: str, lease: str, progress: Progress = lambda _: None) -> int:
        """Make an attempt for each record under the lease that has none under way (see `Generation`); how many.

        Raises:
            InvariantError: the engine or the store broke its contract.
        """
        engine = self._loaded()
        named = cache(self.schema)

        def judge() -> None:
            # What was judged while the chunk was in the model counts with the rest of it.
            self._early[lease] = self.check(lease)

        work = Generation(engine, self.queue, run_id, lease, schema_named=named, progress=progress, judge=judge)
        try:
            count = work.run(self.settings.lease_seconds)
        except BaseException:
            # What ended it is to be told, not that a figure of the report is lost.
            with suppress(StorageError), hurried():
                self.ledger.add_model_seconds(run_id, work.model_seconds)
            raise
        self.ledger.add_model_seconds(run_id, work.model_seconds)
        if engine.model.notes:
            self.ledger.note(run_id, *engine.model.notes)
        return count

    def check(self, lease: str) -> Checked:
        """Judge every candidate under the lease, but those whose schema can't be used; accepted records are done."""
        judged = accepted = 0
        verdicts: list[Verdict] = []
        schema_named = cache(self.schema)
        for held in self.queue.unjudged(lease):
            try:
                schema = schema_named(held.schema)
            except SchemaError as error:
                log.warning("a candidate waits: %s", error, extra={"action": "schema_unusable"})
                continue
            result = check(held.text, FinishReason(held.finish_reason), schema, partial(self._text_of, held.pk))
            if isinstance(result, Fault):
                verdicts.append(Verdict(held.pk, held.attempt, None, result))
            else:
                verdicts.append(Verdict(held.pk, held.attempt, result.text, None, result.beside))
                accepted += 1
            if len(verdicts) == GROUP:
                self.queue.save_verdicts(lease, verdicts)
                judged += len(verdicts)
                verdicts = []
        self.queue.save_verdicts(lease, verdicts)
        before = self._early.pop(lease, Checked(0, 0))
        return Checked(before.judged + judged + len(verdicts), before.accepted + accepted)

    def _text_of(self, pk: int) -> str:
        # Any id will do for a line without one; an empty one would make the line a fault.
        content = parse_line(self.desk.raw(pk), str(pk))
        return content.text if isinstance(content, Record) else ""

    def route(self, lease: str) -> int:
        """Move what failed on: queued for another attempt, or dead; how many records were moved."""
        limit = self.settings.max_attempts
        settled = []
        for record in self.queue.failing(lease):
            jitter = random.random()  # noqa: S311 - spreads retries, no secret
            decision = decide(record.history, record.history[-1].fault, jitter=jitter, max_attempts=limit)
            settled.append(Settled(record.pk, decision))
        self.queue.settle(lease, settled)
        self.queue.give_back(lease)
        return len(settled)

    def report(self, run_id: str, *, mend: bool = True) -> Report:
        """Write outbox and dead files of every file that the run touched, then the run's report.

        With `mend`, those that a run left unwritten by dying are written as well; one of this process that is still at
        work looks like it between two of its chunks.

        Raises:
            InvariantError: counts that must agree do not.
        """
        files: list[FileReport] = []
        unwritten: list[StorageError] = []
        for file in self.ledger.files_of_run(run_id):
            try:
                files.append(self._file_report(file, run_id))
            except StorageError as error:
                # The others are not made to wait for this one.
                unwritten.append(error)
        for file in self.outputs.behind() if mend else ():
            try:
                self._write_outputs(file)
            except StorageError as error:
                unwritten.append(error)
                continue
            self.ledger.note(
                run_id, f"{file.schema}/{file.output_name}: an earlier run ended before writing it; done now"
            )
        if unwritten:
            raise unwritten[0]
        self.ledger.end_run(run_id)
        run = self.ledger.run(run_id)
        report = collect(run, files, self.figures, self.ledger.unfinished(), self.schema)
        write_report(report, self.reports)
        log.info(
            "run %s ended: %d accepted, %d queued, %d dead",
            run_id,
            report.states[RecordState.ACCEPTED],
            report.states[RecordState.QUEUED],
            report.states[RecordState.DEAD],
            extra={"action": "run_ended"},
        )
        return report

    def rewrite(self, file: FileRow) -> None:
        """Write a file's outbox and dead file anew from the store.

        Raises:
            StorageError: a folder can't be written.
        """
        self._write_outputs(file)

    def _file_report(self, file: FileRow, run_id: str) -> FileReport:
        ends = self._write_outputs(file)
        accepted, dead, _ = output_paths(file, self.outbox, self.dead, compress=self.settings.compress)
        any_dead = bool(ends.states.get(RecordState.DEAD))
        return file_report(file, ends.states, accepted, dead if any_dead else None, known=file.run_id != run_id)

    def requeue(self, **selection: Any) -> int:
        """Make queued and dead records due now (see `Desk.requeue`) and rewrite the dead files they leave."""
        run_id = self.ledger.start_run("requeue", {})
        return self._moved(run_id, self.desk.requeue(run_id, **selection))

    def drop(self, **selection: Any) -> int:
        """Make queued records dead by hand (see `Desk.drop`) and write them to the dead files."""
        run_id = self.ledger.start_run("drop", {})
        return self._moved(run_id, self.desk.drop(run_id, **selection))

    def _moved(self, run_id: str, count: int) -> int:
        for file in self.ledger.files_of_run(run_id):
            self._write_outputs(file)
        self.ledger.end_run(run_id)
        return count

    def _write_outputs(self, file: FileRow) -> Ends:
        compress = self.settings.compress
        return write_outputs(file, self.outputs, self.outbox, self.dead, compress=compress, remote=self._remote)

    def schema(self, name: str) -> Schema:
        """The schema of that name, imported again when its file has changed.

        Raises:
            SchemaError: it can't be used, or no grammar can be made of it.
        """
        files = [self.settings.schemas / f"{name}.{ending}" for ending in ("py", "json")]
        stamp = tuple((path.name, path.stat().st_mtime_ns, path.stat().st_size) for path in files if path.is_file())
        if name not in self._schemas or self._schemas[name][0] != stamp:
            schema = load_schema(name, self.settings.schemas)
            announce(schema)
            self._schemas[name] = (stamp, schema)
        return self._schemas[name][1]

    def run(
        self,
        run_id: str,
        *,
        file_ids: Sequence[int] | None = None,
        ignore_due: bool = False,
        progress: Progress = lambda _: None,
    ) -> Report:
        """All steps after intake, one after the other, for callers without Prefect."""
        self.work_off(run_id, file_ids=file_ids, ignore_due=ignore_due, progress=progress)
        return self.report(run_id)

    def work_off(
        self,
        run_id: str,
        *,
        file_ids: Sequence[int] | None = None,
        ignore_due: bool = False,
        progress: Progress = lambda _: None,
    ) -> int:
        """Chunk after chunk until none is due; how many records that were."""
        return sum(self.chunks(run_id, file_ids=file_ids, ignore_due=ignore_due, progress=progress))

    def chunks(
        self,
        run_id: str,
        *,
        file_ids: Sequence[int] | None = None,
        ignore_due: bool = False,
        limit: Callable[[], int | None] = lambda: None,
        progress: Progress = lambda _: None,
    ) -> Iterator[int]:
        """Work through chunk after chunk until none is due, each of as many records as `limit` says by then.

        Yields the number of a chunk's records when it is done; nothing is leased at that moment.
        """
        while (claim := self.next_chunk(run_id, file_ids=file_ids, ignore_due=ignore_due, limit=limit())).records:
            self.generate(run_id, claim.lease, progress)
            self.check(claim.lease)
            self.route(claim.lease)
            yield claim.records

    def pull(self) -> None:
        """Copy what lies in the inbox of the object storage into the local one, where the settings name such.

        Raises:
            StorageError: the storage can't be reached, or the inbox not be written.
        """
        if self._remote is not None:
            self._remote.pull(self.inbox)

    def _usable_schemas(self, run_id: str) -> list[str]:
        usable = []
        for name in self.ledger.schemas():
            try:
                self.schema(name)
            except SchemaError as error:
                self._note_waiting(run_id, name, error)
            else:
                usable.append(name)
        return usable

    def _note_waiting(self, run_id: str, schema: str, error: SchemaError) -> None:
        if (run_id, schema) in self._said_waiting:
            return
        self._said_waiting.add((run_id, schema))
        count = sum(self.ledger.unfinished().get(schema, {}).values())
        if count:
            self.ledger.note(run_id, f"{count} records of schema {schema!r} wait: {error}")

    def _model_identity(self) -> tuple[str, str]:
        if self._engine is not None:
            return self._engine.model.name, self._engine.model.fingerprint
        directory, quantize = open_model(self.settings.model), self.settings.quantize
        return as_quantized(directory.name, quantize), as_quantized(directory.fingerprint, quantize)

    def _loaded(self) -> Engine:
        if self._engine is not None:
            return self._engine
        s = self.settings
        return engine_for(
            s.model,
            device=s.device,
            dtype=s.dtype,
            seed=s.seed,
            token_budget=s.token_budget,
            way=s.engine,
            quantize=s.quantize,
        )


@lru_cache(maxsize=4)
def pipeline_for(settings: Settings) -> Pipeline:
    """The pipeline for these settings; the same one for the steps of a run."""
    return Pipeline(settings)
