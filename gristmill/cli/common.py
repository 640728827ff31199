"""Options that several commands have, and the data folder that they need."""

from pathlib import Path
from typing import Annotated

import typer

from gristmill.errors import SetupError
from gristmill.pipeline import Pipeline
from gristmill.settings import Settings

Data = Annotated[Path | None, typer.Option(help="Data folder.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for a program instead of text.")]


def existing(settings: Settings) -> Pipeline:
    """The pipeline over a data folder that something was run in.

    Raises:
        SetupError: nothing was.
    """
    file = settings.data / "gristmill.sqlite3"
    if not settings.database_url.get_secret_value() and not file.is_file():
        raise SetupError(f"no queue in {settings.data}: {file.name} is not there; give --data or set GRISTMILL_DATA")
    return Pipeline(settings)
