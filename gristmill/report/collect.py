"""What a run did, counted from the store."""

import json
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from gristmill.errors import SchemaError
from gristmill.records import Record, parse_line
from gristmill.report.accuracy import Accuracy
from gristmill.schema import Schema
from gristmill.store import ACCEPTED, Figures, FileRow, RecordState, RunRow

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
    """One schema's part in the run; seconds are those in which at least one of its records was in the model.

    `repairs` are attempts that kept the valid fields of the one before; `repaired` those that were accepted.
    """

    states: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_STATES, 0))
    attempts: int = 0
    accepted_at_first: int = 0
    model_seconds: float = 0.0
    records_per_second: float = 0.0
    gold_records: int = 0
    exact_match: dict[str, float] = field(default_factory=dict)
    repairs: int = 0
    repaired: int = 0


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
    repairs: int = 0
    repaired: int = 0

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
    run: RunRow,
    files: Sequence[FileReport],
    figures: Figures,
    unfinished: Mapping[str, Mapping[RecordState, int]],
    schema_named: Callable[[str], Schema],
) -> Report:
    """Count what the run did with `files`."""
    schemas: dict[str, SchemaReport] = defaultdict(SchemaReport)
    for name, state, count in figures.states(run.id):
        schemas[name].states[state] += count
    faults = Counter(figures.unreadable(run.id))
    prompt_tokens = completion_tokens = 0
    for row in figures.attempts(run.id):
        schema = schemas[row["schema"]]
        schema.attempts += row["count"]
        schema.accepted_at_first += row["first"] if row["verdict"] == ACCEPTED else 0
        schema.repairs += row["repairs"]
        schema.repaired += row["repairs"] if row["verdict"] == ACCEPTED else 0
        faults[row["verdict"]] += row["count"] if row["verdict"] not in (None, ACCEPTED) else 0
        prompt_tokens += row["prompt_tokens"]
        completion_tokens += row["completion_tokens"]
    _time_in_model(figures.spans(run.id), schemas)
    _compare_with_gold(figures.with_gold(run.id), schemas, schema_named)
    ended = run.ended_at or time.time()
    states = {state: sum(s.states[state] for s in schemas.values()) for state in _STATES}
    tried = sum(s.attempts for s in schemas.values())
    return Report(
        run_id=run.id,
        kind=run.kind,
        started_at=run.started_at,
        seconds=ended - run.started_at,
        model_seconds=run.model_seconds,
        model=str(run.parameters.get("model", "")),
        preset=str(run.parameters.get("preset", "")),
        parameters=dict(run.parameters),
        states={state.value: states[state] for state in _STATES},
        attempts=tried,
        accepted_at_first=sum(s.accepted_at_first for s in schemas.values()),
        records_per_second=tried / run.model_seconds if run.model_seconds else 0.0,
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
        schemas=dict(sorted(schemas.items())),
        faults={code: count for code, count in faults.most_common() if count},
        field_faults=_field_faults(figures.faults(run.id)),
        completion_histogram=_histogram(figures.answer_lengths(run.id)),
        failures=[_failure(row) for row in figures.failures(run.id, _ALIKE, EXAMPLES)],
        files=list(files),
        unfinished_elsewhere={
            schema: {state.value: count for state, count in counts.items()}
            for schema, counts in sorted(unfinished.items())
        },
        notes=list(run.notes),
        repairs=sum(s.repairs for s in schemas.values()),
        repaired=sum(s.repaired for s in schemas.values()),
    )


def file_report(
    file: FileRow, states: Mapping[RecordState, int], outbox: Path, dead: Path | None, *, known: bool
) -> FileReport:
    """One file with the counts of its records."""
    return FileReport(
        schema=file.schema,
        name=file.output_name,
        lines=file.lines,
        states={state.value: states.get(state, 0) for state in _STATES},
        duplicate_ids=file.duplicate_ids,
        outbox=str(outbox),
        dead=str(dead) if dead else None,
        known=known,
    )


def _compare_with_gold(
    maybe: Iterable[Mapping[str, Any]], schemas: dict[str, SchemaReport], schema_named: Callable[[str], Schema]
) -> None:
    accuracies: dict[str, Accuracy | None] = {}
    for row in maybe:
        name = row["schema"]
        content = parse_line(bytes(row["raw"]), row["record_id"])
        gold = content.gold if isinstance(content, Record) else None
        if gold is None:
            continue
        if name not in accuracies:
            accuracies[name] = _accuracy(name, schema_named)
        accuracy = accuracies[name]
        if accuracy is not None:
            output = json.loads(row["output"]) if row["state"] == RecordState.ACCEPTED else None
            accuracy.add(output, gold)
    for name, accuracy in accuracies.items():
        if accuracy is not None:
            schemas[name].gold_records = accuracy.records
            schemas[name].exact_match = {f: n / accuracy.records for f, n in accuracy.right.items()}


def _accuracy(name: str, schema_named: Callable[[str], Schema]) -> Accuracy | None:
    try:
        return Accuracy(schema_named(name))
    except SchemaError:
        # The run's notes say that this schema can't be used; its records are counted all the same.
        return None


def _failure(row: Mapping[str, Any]) -> Failure:
    raw = bytes(row["raw"])
    content = parse_line(raw, row["record_id"])
    fault = json.loads(row["fault"])
    text = content.text if isinstance(content, Record) else raw.decode("utf-8", errors="backslashreplace")
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
        candidate=_excerpt(row["candidate"] or ""),
    )


def _excerpt(text: str) -> str:
    return text if len(text) <= _EXCERPT else text[:_EXCERPT] + " ..."


def _time_in_model(spans: Iterable[tuple[str, float, float]], schemas: dict[str, SchemaReport]) -> None:
    reached: dict[str, float] = {}
    for name, start, end in spans:
        schemas[name].model_seconds += max(0.0, end - max(start, reached.get(name, start)))
        reached[name] = max(end, reached.get(name, end))
    for schema in schemas.values():
        if schema.model_seconds:
            schema.records_per_second = schema.attempts / schema.model_seconds


def _field_faults(faults: Iterable[tuple[str, str]]) -> list[dict[str, Any]]:
    counted: Counter[tuple[str, str, str]] = Counter()
    for schema, fault in faults:
        for detail in json.loads(fault)["details"]:
            # A list's positions would make every item a field of its own.
            loc = ".".join("*" if isinstance(part, int) else str(part) for part in detail["loc"])
            counted[schema, loc or "(whole)", detail["type"]] += 1
    return [
        {"schema": schema, "field": loc, "type": kind, "count": count}
        for (schema, loc, kind), count in counted.most_common(30)
    ]


def _histogram(lengths: Mapping[int, int], bins: int = 16) -> list[tuple[int, int]]:
    if not lengths:
        return []
    width = max(1, -(-max(lengths) // bins))
    counts: Counter[int] = Counter()
    for length, count in lengths.items():
        counts[(length - 1) // width] += count
    return [((i + 1) * width, counts[i]) for i in range(max(counts) + 1)]
