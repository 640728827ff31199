"""Rows that the database checks itself; what archiving, pruning and batch lines need; fewer index entries."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_AT_WORK = "state IN ('waiting', 'queued')"
_HELD = "lease IS NOT NULL"


def upgrade() -> None:
    """Change the tables; rows stay."""
    with op.batch_alter_table("files", table_kwargs={"sqlite_autoincrement": True}) as files:
        files.add_column(sa.Column("changed_at", sa.Float, nullable=False, server_default="0"))
        files.add_column(sa.Column("archived", sa.Text, nullable=False, server_default="[]"))
        files.add_column(sa.Column("pruned_at", sa.Float))
    # Outputs are written once more, now with a mark of completeness.
    op.execute("UPDATE files SET changed_at = read_at, version = version + 1")

    op.drop_index("records_due", "records")
    op.drop_index("records_lease", "records")
    op.add_column("records", sa.Column("settled", sa.Integer, nullable=False, server_default="0"))
    op.execute(
        "UPDATE records SET settled = attempts - (SELECT count(*) FROM attempts WHERE attempts.record_pk = records.id "
        "AND attempts.number = records.attempts AND attempts.settled = 0)"
    )
    # Accepting is one step now: what was judged and not yet moved on is judged again.
    op.execute("UPDATE attempts SET verdict = NULL WHERE settled = 0 AND verdict = 'accepted'")
    op.create_table(
        "leases",
        sa.Column("id", sa.String(60), primary_key=True),
        sa.Column("run_id", sa.String(40), nullable=False),
        sa.Column("owner", sa.String(120), nullable=False),
        sa.Column("until", sa.Float, nullable=False),
    )
    op.execute(
        "INSERT INTO leases SELECT lease, max(run_id), max(leased_by), max(leased_until) FROM records "
        "WHERE lease IS NOT NULL GROUP BY lease"
    )
    with op.batch_alter_table("records", table_kwargs={"sqlite_autoincrement": True}) as records:
        records.drop_column("leased_by")
        records.drop_column("leased_until")
        records.add_column(sa.Column("form", sa.String(10), nullable=False, server_default="record"))
        records.create_check_constraint("records_state", "state IN ('waiting', 'leased', 'accepted', 'queued', 'dead')")
        records.create_check_constraint("records_leased", "(state = 'leased') = (lease IS NOT NULL)")
        records.create_check_constraint("records_accepted", "state <> 'accepted' OR output IS NOT NULL")
        records.create_check_constraint("records_dead", "state <> 'dead' OR fault IS NOT NULL")
        records.create_check_constraint(
            "records_settled", "settled = attempts OR settled = attempts - 1 AND state = 'leased'"
        )
    for name, columns, condition in (
        ("records_due", ["state", "due_at", "id"], _AT_WORK),
        ("records_lease", ["lease"], _HELD),
    ):
        where = sa.text(condition)
        op.create_index(name, "records", columns, sqlite_where=where, postgresql_where=where)

    with op.batch_alter_table("attempts") as attempts:
        attempts.drop_column("settled")
