"""What stands beside an output (format, spans), and whether an attempt was a repair of the one before it."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Change the tables; rows stay."""
    op.add_column("records", sa.Column("beside", sa.Text, nullable=False, server_default="{}"))
    op.add_column("attempts", sa.Column("repair", sa.Integer, nullable=False, server_default="0"))
