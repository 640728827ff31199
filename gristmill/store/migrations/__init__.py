"""The way from every earlier form of the tables to the present one, with Alembic."""

from pathlib import Path

from sqlalchemy import Connection, inspect, text

from gristmill.errors import SetupError

HEAD = "0003"
"""The revision that `gristmill.store.tables` describes."""

_FIRST = "0001"
"""The form that a database had before it said which one it has."""


def revision_of(db: Connection) -> str | None:
    """The revision of the tables; None where there are none yet.

    Raises:
        SetupError: there are tables of our names that somebody else made.
    """
    names = inspect(db).get_table_names()
    if "alembic_version" in names:
        return db.execute(text("SELECT version_num FROM alembic_version")).scalar_one_or_none()
    ours = {"runs", "files", "records", "attempts"} & set(names)
    if 0 < len(ours) < 4:
        raise SetupError(
            f"the database holds a table {min(ours)!r} that is not ours; nothing was changed; use a database of its own"
        )
    return _FIRST if ours else None


def upgrade(db: Connection) -> None:
    """Bring the tables to the present form, inside the caller's transaction: all of it or nothing.

    Raises:
        SetupError: the database has a form that this version does not know.
    """
    from alembic import command
    from alembic.config import Config
    from alembic.util import CommandError

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
    config.attributes["connection"] = db
    found = revision_of(db)
    if found == HEAD:
        return
    try:
        if found == _FIRST:
            command.stamp(config, _FIRST)
        command.upgrade(config, HEAD)
    except CommandError as error:
        raise SetupError(
            f"the database has the form {found!r}, this version of gristmill knows forms up to {HEAD}; nothing was "
            "changed; use the version that made it, or a newer one"
        ) from error
