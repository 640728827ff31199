"""What a run did, counted from the store."""

import json
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from gristmill.errors import InvariantError, SchemaError
from gristmill.records import Record, parse_line
from gristmill.report.accuracy import Accuracy
from gristmill.schema import Schema
from gristmill.store import ACCEPTED, FileRow, Ledger, RecordState

EXAMPLES = 20
"""Failures that a report shows; all of them are in the dead folder and the queue."""

_ALIKE = 4
"""Failures of one schema and fault that are shown, so that one kind does not crowd out the others."""

_EXCERPT = 240
_STATES = tuple(RecordState)


@dataclass(frozen=True, slots=True)
class FileReport:
    """One file of the run. The counts are those of the whole file when the run ended."""

    schema: str
    name: str
    lines: int
    states: dict[str, int]
    duplicate_ids: int
    outbox: str
    dead: str | None
    known: bool


@dataclass
class SchemaReport:
    """One schema's part in the run; seconds are those in which at least one of its records was in the model."""

    states: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_STATES, 0))
    attempts: int = 0
    accepted_at_first: int = 0
    model_seconds: float = 0.0
    records_per_second: float = 0.0
    gold_records: int = 0
    exact_match: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Failure:
    """One record that has no accepted output, with the start of its text and of the last candidate."""

    schema: str
    file: str
    line: int
    id: str
    state: str
    code: str
    message: str
    details: list[dict[str, Any]]
    text: str
    candidate: str


@dataclass(frozen=True)
class Report:
    """Everything that a run's report says; `as_json` is the machine's form of it.

    Times are in seconds; tokens are of the model's vocabulary; `states` counts records by `RecordState`.
    """

    run_id: str
    kind: str
    started_at: float
    seconds: float
    model_seconds: float
    model: str
    preset: str
    parameters: dict[str, Any]
    states: dict[str, int]
    attempts: int
    accepted_at_first: int
    records_per_second: float
    prompt_tokens: int
    completion_tokens: int
    schemas: dict[str, SchemaReport]
    faults: dict[str, int]
    field_faults: list[dict[str, Any]]
    completion_histogram: list[tuple[int, int]]
    failures: list[Failure]
    files: list[FileReport]
    unfinished_elsewhere: dict[str, dict[str, int]]
    notes: list[str]

    @property
    def records(self) -> int:
        """Records that the run took in or worked on."""
        return sum(self.states.values())

    def as_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {"records": self.records, **asdict(self)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Report":
        """The report that `as_json` gave."""
        given = {key: item for key, item in value.items() if key != "records"}
        given["schemas"] = {name: SchemaReport(**item) for name, item in given["schemas"].items()}
        given["failures"] = [Failure(**item) for item in given["failures"]]
        given["files"] = [FileReport(**item) for item in given["files"]]
        return cls(**given)


def collect(
    run_id: str,
    ledger: Ledger,
    paths: Mapping[int, tuple[Path, Path | None]],
    schema_named: Callable[[str], Schema],
) -> Report:
    """Count what the run did. `paths` gives outbox and dead file by file id.

    Raises:
        InvariantError: a file's accepted, queued, dead and unfinished records are not all of its lines.
    """
    run = ledger.run(run_id)
    files = [_file_report(f, ledger, paths, run_id) for f in ledger.files_of_run(run_id)]
    schemas: dict[str, SchemaReport] = defaultdict(SchemaReport)
    attempts = list(ledger.attempts_of_run(run_id))
    last = {a["record_pk"]: a["candidate"] or "" for a in attempts}
    faults = Counter(a["verdict"] for a in attempts if a["verdict"] not in (None, ACCEPTED))
    failures = _count_records(ledger.outcomes_of_run(run_id), schemas, faults, last, schema_named)
    _count_attempts(attempts, schemas)
    ended = run.ended_at or time.time()
    states = Counter({state: sum(s.states[state] for s in schemas.values()) for state in _STATES})
    tried = sum(s.attempts for s in schemas.values())
    return Report(
        run_id=run_id,
        kind=run.kind,
        started_at=run.started_at,
        seconds=ended - run.started_at,
        model_seconds=run.model_seconds,
        model=str(run.parameters.get("model", "")),
        preset=str(run.parameters.get("preset", "")),
        parameters=dict(run.parameters),
        states={state: states[state] for state in _STATES},
        attempts=tried,
        accepted_at_first=sum(s.accepted_at_first for s in schemas.values()),
        records_per_second=tried / run.model_seconds if run.model_seconds else 0.0,
        prompt_tokens=sum(a["prompt_tokens"] for a in attempts),
        completion_tokens=sum(a["completion_tokens"] for a in attempts),
        schemas=dict(sorted(schemas.items())),
        faults=dict(faults.most_common()),
        field_faults=_field_faults(attempts),
        completion_histogram=_histogram(a["completion_tokens"] for a in attempts if a["completion_tokens"]),
        failures=failures,
        files=files,
        unfinished_elsewhere={
            schema: {state.value: count for state, count in counts.items()}
            for schema, counts in sorted(ledger.unfinished().items())
        },
        notes=list(run.notes),
    )


def _file_report(
    file: FileRow, ledger: Ledger, paths: Mapping[int, tuple[Path, Path | None]], run_id: str
) -> FileReport:
    states = ledger.states_of_file(file.id)
    if sum(states.values()) != file.lines:
        raise InvariantError(
            f"file {file.output_name!r} of schema {file.schema!r} has {file.lines} lines but {sum(states.values())} "
            "records; the database was changed by hand or is damaged; put a backup in its place"
        )
    outbox, dead = paths[file.id]
    return FileReport(
        schema=file.schema,
        name=file.output_name,
        lines=file.lines,
        states={state: states.get(state, 0) for state in _STATES},
        duplicate_ids=file.duplicate_ids,
        outbox=str(outbox),
        dead=str(dead) if dead else None,
        known=file.run_id != run_id,
    )


def _count_records(
    outcomes: Iterable[Mapping[str, Any]],
    schemas: dict[str, SchemaReport],
    faults: Counter[str],
    candidates: Mapping[int, str],
    schema_named: Callable[[str], Schema],
) -> list[Failure]:
    failures: list[Failure] = []
    accuracies: dict[str, Accuracy | None] = {}
    shown: Counter[tuple[str, str | None]] = Counter()
    for row in outcomes:
        name = row["schema"]
        schemas[name].states[row["state"]] += 1
        if row["fault_code"] and not row["attempts"]:
            # An unreadable line has no attempt that could tell of its fault.
            faults[row["fault_code"]] += 1
        content = parse_line(row["raw"], row["record_id"])
        if name not in accuracies:
            accuracies[name] = _accuracy(name, schema_named)
        accuracy = accuracies[name]
        gold = content.gold if isinstance(content, Record) else None
        reached = row["state"] not in (RecordState.WAITING, RecordState.LEASED)
        if accuracy is not None and gold is not None and reached:
            output = json.loads(row["output"]) if row["state"] == RecordState.ACCEPTED else None
            accuracy.add(output if isinstance(output, Mapping) else None, gold)
        kind = (name, row["fault_code"])
        shown[kind] += bool(row["fault"])
        if row["fault"] and row["state"] != RecordState.ACCEPTED and len(failures) < EXAMPLES and shown[kind] <= _ALIKE:
            failures.append(_failure(row, content, candidates.get(row["id"], "")))
    for name, accuracy in accuracies.items():
        if accuracy is not None and accuracy.records:
            schemas[name].gold_records = accuracy.records
            schemas[name].exact_match = {f: n / accuracy.records for f, n in accuracy.right.items()}
    return failures


def _accuracy(name: str, schema_named: Callable[[str], Schema]) -> Accuracy | None:
    try:
        return Accuracy(schema_named(name))
    except SchemaError:
        # The run's notes say that this schema can't be used; its records are counted all the same.
        return None


def _failure(row: Mapping[str, Any], content: Any, candidate: str) -> Failure:
    fault = json.loads(row["fault"])
    text = content.text if isinstance(content, Record) else row["raw"].decode("utf-8", errors="backslashreplace")
    return Failure(
        schema=row["schema"],
        file=row["output_name"],
        line=row["line"],
        id=row["record_id"],
        state=row["state"],
        code=fault["code"],
        message=fault["message"],
        details=fault["details"],
        text=_excerpt(text),
        candidate=_excerpt(candidate),
    )


def _excerpt(text: str) -> str:
    return text if len(text) <= _EXCERPT else text[:_EXCERPT] + " ..."


def _count_attempts(attempts: Iterable[Mapping[str, Any]], schemas: dict[str, SchemaReport]) -> None:
    spans: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for attempt in attempts:
        schema = schemas[attempt["schema"]]
        schema.attempts += 1
        schema.accepted_at_first += attempt["number"] == 1 and attempt["verdict"] == ACCEPTED
        if attempt["ended_at"]:
            spans[attempt["schema"]].append((attempt["started_at"], attempt["ended_at"]))
    for name, its_spans in spans.items():
        schemas[name].model_seconds = _covered(its_spans)
        if schemas[name].model_seconds:
            schemas[name].records_per_second = schemas[name].attempts / schemas[name].model_seconds


def _covered(spans: list[tuple[float, float]]) -> float:
    total, reached = 0.0, float("-inf")
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total


def _field_faults(attempts: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    counted: Counter[tuple[str, str, str]] = Counter()
    for attempt in attempts:
        if attempt["fault"]:
            for detail in json.loads(attempt["fault"])["details"]:
                # A list's positions would make every item a field of its own.
                loc = ".".join("*" if isinstance(part, int) else str(part) for part in detail["loc"])
                counted[attempt["schema"], loc or "(whole)", detail["type"]] += 1
    return [
        {"schema": schema, "field": loc, "type": kind, "count": count}
        for (schema, loc, kind), count in counted.most_common(30)
    ]


def _histogram(values: Iterable[int], bins: int = 16) -> list[tuple[int, int]]:
    numbers = list(values)
    if not numbers:
        return []
    width = max(1, -(-max(numbers) // bins))
    counts = Counter((number - 1) // width for number in numbers)
    return [((i + 1) * width, counts[i]) for i in range(max(counts) + 1)]
