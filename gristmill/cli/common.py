"""Options that several commands have, and the data folder that they need."""

from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal

import typer
from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

from gristmill.errors import SetupError
from gristmill.pipeline import Pipeline
from gristmill.settings import Settings

Data = Annotated[Path | None, typer.Option(help="Data folder.")]
Quantize = Annotated[
    Literal["none", "int8"] | None, typer.Option(help="int8: weights of 8 bits, on CPUs; not everywhere faster.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for a program instead of text.")]


def existing(settings: Settings) -> Pipeline:
    """The pipeline over a data folder that something was run in.

    Raises:
        SetupError: nothing was.
    """
    url = None
    with suppress(ArgumentError, ValueError):
        url = make_url(settings.url)
    if url is not None and url.get_backend_name() == "sqlite" and "uri" not in url.query:
        file = Path(str(url.database))
        if not file.is_file():
            way_out = "give --data, or set GRISTMILL_DATA or GRISTMILL_DATABASE_URL"
            raise SetupError(f"no queue in {file.parent}: {file.name} is not there; {way_out}")
    return Pipeline(settings)
