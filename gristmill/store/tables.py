"""The durable tables as they are now; `migrations` leads there from every earlier form.

Times are seconds since 1970 (UTC); JSON is kept as text. What must hold within one row, the database holds itself.
"""

from typing import Any

from sqlalchemy import (
    CheckConstraint,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)

metadata = MetaData()

_WAITS = "state IN ('waiting', 'queued')"
AT_WORK = text(f"records.{_WAITS}")
"""As the partial index `records_due` says it; SQLite uses that only for a query with the same words."""


def _where(condition: str) -> dict[str, Any]:
    """An index of the rows that fulfil a condition only: those at work are few beside those that are done."""
    return {"sqlite_where": text(condition), "postgresql_where": text(condition)}


runs = Table(
    "runs",
    metadata,
    Column("id", String(40), primary_key=True),
    Column("kind", String(20), nullable=False),
    Column("owner", String(120), nullable=False),
    Column("parameters", Text, nullable=False),
    Column("started_at", Float, nullable=False),
    Column("ended_at", Float),
    Column("model_seconds", Float, nullable=False, default=0.0),
    Column("notes", Text, nullable=False, default="[]"),
    Column("known_files", Text, nullable=False, default="[]"),
)

files = Table(
    "files",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("key", String(64), nullable=False, unique=True),
    Column("content_sha256", String(64), nullable=False),
    Column("schema", String(100), nullable=False),
    Column("preset", String(40), nullable=False),
    Column("model", String(200), nullable=False),
    Column("name", String(255), nullable=False),
    Column("output_name", String(255), nullable=False),
    Column("complete", Integer, nullable=False, default=0),
    Column("lines", Integer, nullable=False, default=0),
    Column("duplicate_ids", Integer, nullable=False, default=0),
    Column("run_id", String(40), ForeignKey("runs.id"), nullable=False),
    Column("read_at", Float, nullable=False),
    Column("reader", String(120), nullable=False),
    Column("version", Integer, nullable=False, default=1),
    Column("written_version", Integer, nullable=False, default=0),
    # When one of its records ended last or was moved by hand.
    Column("changed_at", Float, nullable=False, server_default="0"),
    # Where its copies lie, relative to the archive: a JSON list.
    Column("archived", Text, nullable=False, server_default="[]"),
    # When its records were removed; the row stays, so that its content is known and its name is taken.
    Column("pruned_at", Float),
    UniqueConstraint("schema", "output_name", name="files_output"),
    # Ids are never used twice: a row of a dead reader must not come to stand for another file.
    sqlite_autoincrement=True,
)

# A run's right to some records: while its row is there, nobody else touches them. A run that takes over what another
# one let go of deletes the row.
leases = Table(
    "leases",
    metadata,
    Column("id", String(60), primary_key=True),
    Column("run_id", String(40), nullable=False),
    Column("owner", String(120), nullable=False),
    Column("until", Float, nullable=False),
)

records = Table(
    "records",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("file_id", Integer, ForeignKey("files.id"), nullable=False),
    Column("line", Integer, nullable=False),
    Column("record_id", Text, nullable=False),
    Column("raw", LargeBinary, nullable=False),
    # Whether the line is a record of our own form or an OpenAI batch line.
    Column("form", String(10), nullable=False, server_default="record"),
    Column("state", String(10), nullable=False),
    # Attempts begun, and how many of them have been judged and acted upon; one more begun means one under way.
    Column("attempts", Integer, nullable=False, default=0),
    Column("settled", Integer, nullable=False, server_default="0"),
    Column("attempts_before_requeue", Integer, nullable=False, default=0),
    Column("preset", String(40), nullable=False),
    Column("max_new_tokens", Integer, nullable=False),
    Column("due_at", Float, nullable=False),
    Column("lease", String(60)),
    Column("run_id", String(40), nullable=False),
    Column("fault_code", String(20)),
    Column("fault", Text),
    Column("output", Text),
    # What the outbox shows beside the output: a JSON object.
    Column("beside", Text, nullable=False, server_default="{}"),
    Column("ended_at", Float),
    UniqueConstraint("file_id", "line", name="records_line"),
    CheckConstraint("state IN ('waiting', 'leased', 'accepted', 'queued', 'dead')", name="records_state"),
    CheckConstraint("(state = 'leased') = (lease IS NOT NULL)", name="records_leased"),
    CheckConstraint("state <> 'accepted' OR output IS NOT NULL", name="records_accepted"),
    CheckConstraint("state <> 'dead' OR fault IS NOT NULL", name="records_dead"),
    CheckConstraint("settled = attempts OR settled = attempts - 1 AND state = 'leased'", name="records_settled"),
    Index("records_due", "state", "due_at", "id", **_where(_WAITS)),
    Index("records_lease", "lease", **_where("lease IS NOT NULL")),
    Index("records_run", "run_id"),
    sqlite_autoincrement=True,
)

attempts = Table(
    "attempts",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("record_pk", Integer, ForeignKey("records.id"), nullable=False),
    Column("number", Integer, nullable=False),
    Column("run_id", String(40), nullable=False),
    Column("preset", String(40), nullable=False),
    Column("max_new_tokens", Integer, nullable=False),
    Column("model", String(200), nullable=False),
    Column("started_at", Float, nullable=False),
    Column("ended_at", Float),
    Column("candidate", Text),
    Column("finish_reason", String(12)),
    Column("prompt_tokens", Integer, nullable=False, default=0),
    Column("completion_tokens", Integer, nullable=False, default=0),
    Column("verdict", String(20)),
    # Whether it kept fields of the attempt before it.
    Column("repair", Integer, nullable=False, server_default="0"),
    Column("fault", Text),
    UniqueConstraint("record_pk", "number", name="attempts_number"),
    Index("attempts_run", "run_id"),
)
