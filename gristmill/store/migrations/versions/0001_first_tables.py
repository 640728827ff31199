"""The first tables."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "runs",
        sa.Column("id", sa.String(40), primary_key=True),
        sa.Column("kind", sa.String(20), nullable=False),
        sa.Column("owner", sa.String(120), nullable=False),
        sa.Column("parameters", sa.Text, nullable=False),
        sa.Column("started_at", sa.Float, nullable=False),
        sa.Column("ended_at", sa.Float),
        sa.Column("model_seconds", sa.Float, nullable=False),
        sa.Column("notes", sa.Text, nullable=False),
        sa.Column("known_files", sa.Text, nullable=False),
    )
    op.create_table(
        "files",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("key", sa.String(64), nullable=False, unique=True),
        sa.Column("content_sha256", sa.String(64), nullable=False),
        sa.Column("schema", sa.String(100), nullable=False),
        sa.Column("preset", sa.String(40), nullable=False),
        sa.Column("model", sa.String(200), nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("output_name", sa.String(255), nullable=False),
        sa.Column("complete", sa.Integer, nullable=False),
        sa.Column("lines", sa.Integer, nullable=False),
        sa.Column("duplicate_ids", sa.Integer, nullable=False),
        sa.Column("run_id", sa.String(40), sa.ForeignKey("runs.id"), nullable=False),
        sa.Column("read_at", sa.Float, nullable=False),
        sa.Column("reader", sa.String(120), nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("written_version", sa.Integer, nullable=False),
        sa.UniqueConstraint("schema", "output_name", name="files_output"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "records",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("file_id", sa.Integer, sa.ForeignKey("files.id"), nullable=False),
        sa.Column("line", sa.Integer, nullable=False),
        sa.Column("record_id", sa.Text, nullable=False),
        sa.Column("raw", sa.LargeBinary, nullable=False),
        sa.Column("state", sa.String(10), nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("attempts_before_requeue", sa.Integer, nullable=False),
        sa.Column("preset", sa.String(40), nullable=False),
        sa.Column("max_new_tokens", sa.Integer, nullable=False),
        sa.Column("due_at", sa.Float, nullable=False),
        sa.Column("lease", sa.String(60)),
        sa.Column("leased_by", sa.String(120)),
        sa.Column("leased_until", sa.Float),
        sa.Column("run_id", sa.String(40), nullable=False),
        sa.Column("fault_code", sa.String(20)),
        sa.Column("fault", sa.Text),
        sa.Column("output", sa.Text),
        sa.Column("ended_at", sa.Float),
        sa.UniqueConstraint("file_id", "line", name="records_line"),
        sqlite_autoincrement=True,
    )
    op.create_index("records_due", "records", ["state", "due_at", "id"])
    op.create_index("records_lease", "records", ["lease"])
    op.create_index("records_run", "records", ["run_id"])
    op.create_table(
        "attempts",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("record_pk", sa.Integer, sa.ForeignKey("records.id"), nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("run_id", sa.String(40), nullable=False),
        sa.Column("preset", sa.String(40), nullable=False),
        sa.Column("max_new_tokens", sa.Integer, nullable=False),
        sa.Column("model", sa.String(200), nullable=False),
        sa.Column("started_at", sa.Float, nullable=False),
        sa.Column("ended_at", sa.Float),
        sa.Column("candidate", sa.Text),
        sa.Column("finish_reason", sa.String(12)),
        sa.Column("prompt_tokens", sa.Integer, nullable=False),
        sa.Column("completion_tokens", sa.Integer, nullable=False),
        sa.Column("verdict", sa.String(20)),
        sa.Column("fault", sa.Text),
        sa.Column("settled", sa.Integer, nullable=False),
        sa.UniqueConstraint("record_pk", "number", name="attempts_number"),
    )
    op.create_index("attempts_run", "attempts", ["run_id"])
