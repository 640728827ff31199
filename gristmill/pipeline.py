"""The steps of a run: take in, claim, generate, check, route, report. Each works by ids and commits as it goes.

A step can be repeated or continued by another process: what a run has in hand stands in the store, not here.
"""

import logging
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from gristmill import intake
from gristmill.checking import check
from gristmill.engine import Engine, Outcome, Request, engine_for
from gristmill.errors import InputError, InvariantError, SchemaError
from gristmill.faults import Fault
from gristmill.intake import Identity, Taken
from gristmill.models.locate import open_model
from gristmill.outlet import write_outputs
from gristmill.policy import decide
from gristmill.presets import get_preset
from gristmill.prompts import spell
from gristmill.records import Record, parse_line
from gristmill.report import Report, collect, write_report
from gristmill.schema import Schema, dump, load_schema
from gristmill.settings import Settings
from gristmill.store import Claim, FileRow, Ledger, Queue, RecordState, Settled, Verdict, open_database

log = logging.getLogger(__name__)

_GROUP = 32
"""Outcomes that are committed together; a killed process repeats at most these and those in the model."""

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
        self._schemas: dict[str, Schema] = {}
        for folder in (self.inbox, self.outbox, self.dead, self.archive, self.reports):
            intake.writable(folder)
        database = open_database(settings.url)
        self.ledger = Ledger(database)
        self.queue = Queue(database)

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
        name, _ = self._model_identity()
        get_preset(self.settings.preset)
        parameters = self.settings.model_dump(mode="json", exclude={"database_url"})
        run_id = self.ledger.start_run(kind, parameters | {"model": name})
        log.info("run %s begun with model %s", run_id, name, extra={"action": "run_begun"})
        return run_id

    def take_in(self, run_id: str, *, schema: str | None = None, again: bool = False) -> list[Taken]:
        """Take in every file of the inbox that nobody is writing to any more, and archive it.

        Files that can't be taken stay where they are; the run's notes say why.
        """
        found = dict(intake.inbox_files(self.inbox))
        ready, moving = intake.settled(list(found), self.settings.settle_seconds)
        notes = [f"{path.name} is still being written; it is taken by the next run" for path in moving]
        notes += [
            f"{path.relative_to(self.inbox)} stays in the inbox: only .jsonl and .jsonl.gz files directly in it or in "
            "a folder named like a schema are taken"
            for path in intake.strangers(self.inbox)
        ]
        taken: list[Taken] = []
        for path in ready:
            try:
                done = self.take_file(
                    run_id, path, intake.schema_for(found[path], schema, self.settings.schemas), again
                )
            except (SchemaError, InputError) as error:
                notes.append(f"{path.relative_to(self.inbox)} stays in the inbox: {error}")
                continue
            intake.archive(path, self.archive, done.file)
            taken.append(done)
        known = [t for t in taken if t.known]
        if known:
            self.ledger.note_known(run_id, [t.file.id for t in known])
            names = ", ".join(sorted(t.path.name for t in known))
            notes.append(f"already done before, not done again: {names} (use again to repeat)")
        notes += [f"{t.path.name} holds no records" for t in taken if t.file.lines == 0]
        notes += [
            f"{t.path.name} has {t.file.duplicate_ids} lines whose id stood before in it; each keeps its own line"
            for t in taken
            if t.file.duplicate_ids
        ]
        self.ledger.note(run_id, *notes)
        for note in notes:
            log.info(note, extra={"action": "intake_note"})
        return taken

    def take_file(self, run_id: str, path: Path, schema: Schema, again: bool) -> Taken:
        """Take in one file from anywhere; it stays where it is."""
        name, fingerprint = self._model_identity()
        identity = Identity(self.settings.preset, fingerprint, name, run_id if again else "")
        done = intake.take_in(path, schema, ledger=self.ledger, run_id=run_id, identity=identity)
        log.info(
            "%s: %d lines for schema %s%s",
            path.name,
            done.file.lines,
            schema.name,
            ", known from before" if done.known else "",
            extra={"action": "file_taken"},
        )
        return done

    def recover(self, run_id: str) -> Claim:
        """Take over what dead runs had in hand; check and route the returned claim."""
        claim = self.queue.recover(run_id, lease_seconds=self.settings.lease_seconds)
        if claim.records:
            log.warning("%d records of a run that died are taken over", claim.records, extra={"action": "recovered"})
        return claim

    def claim(self, run_id: str, *, file_ids: Sequence[int] | None = None, ignore_due: bool = False) -> Claim:
        """Lease the next chunk: records never tried, or in a retry run the queued ones that were due when it began."""
        run = self.ledger.run(run_id)
        retry = run.kind == "retry"
        far = float("inf") if ignore_due else run.started_at
        return self.queue.claim(
            run_id,
            [RecordState.QUEUED] if retry else [RecordState.WAITING],
            self.settings.chunk_records,
            lease_seconds=self.settings.lease_seconds,
            schemas=self._usable_schemas(run_id),
            file_ids=file_ids,
            due_by=far if retry else None,
        )

    def generate(self, run_id: str, lease: str, progress: Progress = lambda _: None) -> int:
        """Make an attempt for each record under the lease that has none under way; how many were made.

        Whatever ends this early, what the engine returned is kept and the rest given back.
        """
        engine = self._loaded()
        pending: dict[int, Request] = {}
        made: list[tuple[Request, Outcome]] = []
        count, in_store = 0, 0.0

        def requests() -> Iterator[Request]:
            for held in self.queue.to_generate(lease):
                content = parse_line(held.raw, held.record_id)
                if isinstance(content, Fault):
                    raise InvariantError(f"record {held.pk} was readable when it was taken in and is not any more")
                preset, schema = get_preset(held.preset), self.schema(held.schema)
                pending[held.pk] = Request(held.pk, content, schema, preset, held.max_new_tokens, held.attempt)
                yield pending[held.pk]

        def started(batch: Sequence[Request]) -> None:
            nonlocal in_store
            before = time.perf_counter()
            self.queue.start_attempts(run_id, batch, engine.model.name)
            self.queue.renew(lease, self.settings.lease_seconds)
            in_store += time.perf_counter() - before

        def save() -> None:
            nonlocal count, in_store
            before = time.perf_counter()
            if made:
                self.queue.save_outcomes(run_id, made, engine.model.name)
                count += len(made)
                progress(len(made))
                made.clear()
            in_store += time.perf_counter() - before

        began = time.perf_counter()
        try:
            for outcome in engine.generate(requests(), started):
                made.append((pending.pop(outcome.key), outcome))
                if len(made) >= _GROUP:
                    save()
        finally:
            save()
            self.queue.give_back(lease)
            self.ledger.add_model_seconds(run_id, time.perf_counter() - began - in_store)
        if engine.model.notes:
            self.ledger.note(run_id, *engine.model.notes)
        return count

    def check(self, lease: str) -> Checked:
        """Judge every candidate under the lease."""
        verdicts = []
        for held in self.queue.unjudged(lease):
            content = parse_line(held.raw, held.record_id)
            text = content.text if isinstance(content, Record) else ""
            result = check(held.text, held.finish_reason, self.schema(held.schema).model, text)
            if isinstance(result, Fault):
                verdicts.append(Verdict(held.pk, held.attempt, None, result))
            else:
                verdicts.append(Verdict(held.pk, held.attempt, spell(dump(result)), None))
        self.queue.save_verdicts(verdicts)
        return Checked(len(verdicts), sum(v.fault is None for v in verdicts))

    def route(self, lease: str) -> int:
        """Move judged records on: accepted, queued for another attempt, or dead; how many were moved."""
        settled = []
        for record in self.queue.judged(lease):
            decision = None
            if not record.accepted:
                last = record.history[-1].fault
                limit = self.settings.max_attempts
                decision = decide(record.history, last, jitter=random.random(), max_attempts=limit)  # noqa: S311 - spreads retries, no secret
            settled.append(Settled(record.pk, decision))
        self.queue.settle(settled)
        self.queue.give_back(lease)
        return len(settled)

    def report(self, run_id: str) -> Report:
        """Write outbox and dead files of every file that the run touched, then the run's report.

        Raises:
            InvariantError: counts that must agree do not.
        """
        files = self.ledger.files_of_run(run_id)
        paths = {file.id: self._write_outputs(file) for file in files}
        for file in self.ledger.files_to_write():
            self._write_outputs(file)
            self.ledger.note(
                run_id, f"{file.schema}/{file.output_name}: an earlier run ended before writing it; done now"
            )
        self.ledger.end_run(run_id)
        report = collect(run_id, self.ledger, paths, self.schema)
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

    def requeue(self, **selection: Any) -> int:
        """Make queued and dead records due now (see `Queue.requeue`) and rewrite the dead files they leave."""
        run_id = self.ledger.start_run("requeue", {})
        return self._moved(run_id, self.queue.requeue(run_id, **selection))

    def drop(self, **selection: Any) -> int:
        """Make queued records dead by hand (see `Queue.drop`) and write them to the dead files."""
        run_id = self.ledger.start_run("drop", {})
        return self._moved(run_id, self.queue.drop(run_id, **selection))

    def _moved(self, run_id: str, count: int) -> int:
        for file in self.ledger.files_of_run(run_id):
            self._write_outputs(file)
        self.ledger.end_run(run_id)
        return count

    def _write_outputs(self, file: FileRow) -> tuple[Path, Path | None]:
        version = self.ledger.version_of(file.id)
        paths = write_outputs(file, self.ledger, self.outbox, self.dead)
        self.ledger.outputs_written(file.id, version)
        return paths

    def schema(self, name: str) -> Schema:
        """The schema of that name, imported once.

        Raises:
            SchemaError: it can't be used.
        """
        if name not in self._schemas:
            self._schemas[name] = load_schema(name, self.settings.schemas)
        return self._schemas[name]

    def run(
        self,
        run_id: str,
        *,
        file_ids: Sequence[int] | None = None,
        ignore_due: bool = False,
        progress: Progress = lambda _: None,
    ) -> Report:
        """All steps after intake, one after the other, for callers without Prefect."""
        orphans = self.recover(run_id)
        self.check(orphans.lease)
        self.route(orphans.lease)
        while (claim := self.claim(run_id, file_ids=file_ids, ignore_due=ignore_due)).records:
            self.generate(run_id, claim.lease, progress)
            self.check(claim.lease)
            self.route(claim.lease)
        return self.report(run_id)

    def _usable_schemas(self, run_id: str) -> list[str]:
        usable = []
        for name, counts in self.ledger.unfinished().items():
            try:
                self.schema(name)
            except SchemaError as error:
                self.ledger.note(run_id, f"{sum(counts.values())} records of schema {name!r} wait: {error}")
            else:
                usable.append(name)
        return usable

    def _model_identity(self) -> tuple[str, str]:
        if self._engine is not None:
            return self._engine.model.name, self._engine.model.fingerprint
        directory = open_model(self.settings.model)
        return directory.name, directory.fingerprint

    def _loaded(self) -> Engine:
        if self._engine is not None:
            return self._engine
        s = self.settings
        return engine_for(s.model, device=s.device, dtype=s.dtype, seed=s.seed, token_budget=s.token_budget)


@lru_cache(maxsize=4)
def pipeline_for(settings: Settings) -> Pipeline:
    """The pipeline for these settings; the same one for the steps of a run."""
    return Pipeline(settings)
