"""The queue's part at many rows: what claiming, counting, saving and accepting a chunk cost beside ten million others.

Rows are made by the database itself, half of them done and half waiting, with short lines; then chunks go through every
statement that a run sends, without engine and validation. Prints a table and, as its last line, JSON. With
`--database-url` on PostgreSQL, else on SQLite in a temporary folder.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from sqlalchemy import Engine, TextClause, insert, text

from gristmill.engine import Candidate, FinishReason, Request
from gristmill.presets import get_preset
from gristmill.records import Record
from gristmill.schema import Schema
from gristmill.store import Ledger, Queue, RecordState, Verdict, open_database
from gristmill.store.tables import metadata

CHUNK = 1000
PRESET = get_preset("extract")
TERMS: dict[str, Any] = {"lease_seconds": 900.0, "schemas": ["note"], "due_by": float("inf")}
NUMBERS = {
    "sqlite": "WITH RECURSIVE n(i) AS (SELECT :a UNION ALL SELECT i + 1 FROM n WHERE i < :b) SELECT {} FROM n",
    "postgresql": "SELECT {} FROM generate_series(CAST(:a AS integer), CAST(:b AS integer)) AS n(i)",
}
LINE = r"""'{"text"\: "' || i || '"}'"""
RAW = {"sqlite": f"CAST({LINE} AS BLOB)", "postgresql": f"convert_to({LINE}, 'UTF8')"}
RECORDS = {
    "id": "i",
    "file_id": "1",
    "line": "i",
    "record_id": "'r' || i",
    "state": "CASE WHEN i <= :half THEN 'accepted' ELSE 'waiting' END",
    "attempts": "CASE WHEN i <= :half THEN 1 ELSE 0 END",
    "settled": "CASE WHEN i <= :half THEN 1 ELSE 0 END",
    "attempts_before_requeue": "0",
    "preset": "'extract'",
    "max_new_tokens": "256",
    "due_at": "1.0",
    "run_id": "'seed'",
    "output": "CASE WHEN i <= :half THEN '{}' END",
}
ATTEMPTS = {
    "record_pk": "i",
    "number": "1",
    "run_id": "'seed'",
    "preset": "'extract'",
    "max_new_tokens": "256",
    "model": "'model'",
    "started_at": "1.0",
    "ended_at": "2.0",
    "candidate": "'{}'",
    "finish_reason": "'stop'",
    "prompt_tokens": "300",
    "completion_tokens": "60",
    "verdict": "'accepted'",
}
HELD = {
    "sqlite": "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size",
    "postgresql": "SELECT pg_database_size(current_database())",
}


class _Empty(BaseModel):
    """Nothing."""


def main() -> None:
    """Measure at a thousandth of the rows and at all of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--chunks", type=int, default=20)
    parser.add_argument("--database-url", default="")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for size in (options.rows // 100, options.rows):
        with tempfile.TemporaryDirectory() as folder:
            engine = open_database(options.database_url or f"sqlite:///{Path(folder) / 'queue.sqlite3'}")
            began = time.perf_counter()
            _fill(engine, size)
            filled = time.perf_counter() - began
            seconds = _work(engine, options.chunks)
            with engine.begin() as db:
                held = db.execute(text(HELD[engine.dialect.name])).scalar_one()
                if engine.dialect.name == "postgresql":
                    db.execute(text("TRUNCATE attempts, records, leases, files, runs"))
            engine.dispose()
        each = {step: round(1e3 * took / options.chunks / CHUNK, 4) for step, took in seconds.items()}
        rows.append({"rows": size, "bytes_per_record": round(held / size), "fill_seconds": round(filled, 1), **each})
        told = ", ".join(f"{step} {took}" for step, took in each.items())
        print(f"{size:>11,} records, {held / size:.0f} bytes each; ms a record: {told}")
    total = [sum(row[step] for step in seconds) for row in rows]
    print(json.dumps({"database": engine.dialect.name, "slowdown": round(total[1] / total[0], 2), "measured": rows}))


def _fill(engine: Engine, rows: int) -> None:
    """One file of so many records, half of them accepted."""
    kind = engine.dialect.name
    with engine.begin() as db:
        run = {"id": "seed", "kind": "extract", "owner": "o:1:1", "parameters": "{}", "started_at": 1.0}
        db.execute(insert(metadata.tables["runs"]).values(**run, model_seconds=0.0))
        file = {"id": 1, "key": "k", "content_sha256": "c", "schema": "note", "preset": "extract", "model": "m"}
        file |= {"name": "a", "output_name": "a", "complete": 1, "lines": rows, "run_id": "seed", "read_at": 1.0}
        db.execute(insert(metadata.tables["files"]).values(**file, reader="o:1:1", written_version=1))
    half, page = rows // 2, 1_000_000
    for start in range(1, rows + 1, page):
        end = min(rows, start + page - 1)
        with engine.begin() as db:
            db.execute(_made("records", RECORDS | {"raw": RAW[kind]}, kind), {"a": start, "b": end, "half": half})
            if start <= half:
                db.execute(_made("attempts", ATTEMPTS, kind), {"a": start, "b": min(end, half)})
    with engine.begin() as db:
        db.execute(text("ANALYZE"))


def _made(table: str, columns: dict[str, str], kind: str) -> TextClause:
    """A statement by which the database makes rows itself; every word of it stands above."""
    values = NUMBERS[kind].replace("{}", ", ".join(columns.values()))
    return text(f"INSERT INTO {table} ({', '.join(columns)}) {values}")


def _work(engine: Engine, chunks: int) -> dict[str, float]:
    """Take chunks through; seconds by statement."""
    queue, ledger = Queue(engine), Ledger(engine)
    run_id = ledger.start_run("extract", {})
    seconds = dict.fromkeys(("claim", "start", "save", "accept"), 0.0)
    schema = Schema("note", _Empty)

    def timed(step: str, call: Any, *given: Any, **named: Any) -> Any:
        began = time.perf_counter()
        found = call(*given, **named)
        seconds[step] += time.perf_counter() - began
        return found

    for _ in range(chunks):
        claim = timed("claim", queue.claim, run_id, [RecordState.WAITING], CHUNK, **TERMS)
        held = timed("claim", list, queue.to_generate(claim.lease, suspect=False))
        asked = [Request(h.pk, Record(h.record_id, "t"), schema, PRESET, 256, h.attempt) for h in held]
        for start in range(0, len(asked), 64):
            timed("start", queue.start_attempts, claim.lease, run_id, asked[start : start + 64], "model")
        made = [(r, Candidate(r.key, "{}", FinishReason.STOP, 300, 60), 1.0) for r in asked]
        for start in range(0, len(made), 256):
            timed("save", queue.save_outcomes, claim.lease, run_id, made[start : start + 256], "model")
        unjudged = timed("accept", list, queue.unjudged(claim.lease))
        verdicts = [Verdict(u.pk, u.attempt, "{}", None) for u in unjudged]
        for start in range(0, len(verdicts), 256):
            timed("accept", queue.save_verdicts, claim.lease, verdicts[start : start + 256])
        timed("accept", queue.give_back, claim.lease)
    return seconds


if __name__ == "__main__":
    main()
