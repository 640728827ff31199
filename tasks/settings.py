"""Settings of a flow run: its parameters first, then the environment, `.env`, and the Prefect variable `gristmill`."""

import logging
from typing import Any

from prefect.variables import Variable

from gristmill.errors import SetupError
from gristmill.settings import Settings, load_settings, sources

log = logging.getLogger("gristmill.settings")

VARIABLE = "gristmill"


def settings_for(**given: Any) -> Settings:
    """The settings of this run; those that are not the default are logged with their source, secrets masked.

    Raises:
        SetupError: a value can't be used.
    """
    logging.getLogger("gristmill").setLevel(logging.INFO)
    fallback = Variable.get(VARIABLE, default={})
    if not isinstance(fallback, dict):
        raise SetupError(f"the Prefect variable {VARIABLE!r} is no JSON object; set it to one such as {{}}")
    settings = load_settings(fallback, **given)
    where = "Prefect variable"
    set_by_someone = [row for row in sources(settings, fallback, where) if row.source != "default"]
    if set_by_someone:
        told = ", ".join(f"{row.variable}={row.value} ({row.source})" for row in set_by_someone)
        log.info("settings: %s", told, extra={"action": "settings"})
    return settings
