"""Settings: environment (`GRISTMILL_...`), then `.env`, then defaults; options and flow parameters come before."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, DotEnvSettingsSource, EnvSettingsSource, SettingsConfigDict
from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from gristmill.errors import SetupError
from gristmill.presets import get_preset, nearest

log = logging.getLogger(__name__)

PREFIX = "GRISTMILL_"
OTHERS = {"CACHE": "where the embedded model lies", "SERVE_PORT": "port of the server that `make serve` starts"}
"""Variables with the prefix that are read before there are settings, or outside of runs, with what they mean."""
SERVE_PORT = "4200"
"""Where `make serve` listens unless it is told otherwise; Prefect's own choice."""


@dataclass(frozen=True, slots=True)
class Sourced:
    """One setting as it can be shown: secrets are masked."""

    variable: str
    value: str
    source: str
    description: str


class Settings(BaseSettings):
    """Where things lie and how much may be used."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_file=".env", extra="ignore", frozen=True, protected_namespaces=()
    )

    data: Path = Field(Path("data"), description="the data folder: inbox, outbox, dead, archive, reports")
    schemas: Path = Field(Path("schemas"), description="the folder of schema files")
    model: str = Field("embedded", min_length=1, description="a model directory, or 'embedded'")
    database_url: SecretStr = Field(
        SecretStr(""), description="sqlite:///FILE or postgresql://...; empty: SQLite in the data folder"
    )
    device: str = Field("auto", description="auto, cpu, cuda:0 ...")
    dtype: str = Field("auto", description="auto, float32, bfloat16, float16 (not on a CPU)")
    quantize: Literal["none", "int8"] = Field("none", description="int8: weights of 8 bits, on CPUs")
    preset: str = Field("extract", description="the preset of first attempts")
    seed: int = Field(0, description="with record id and attempt, all that randomness depends on")
    engine: Literal["auto", "fast", "reference"] = Field("auto", description="how the model is run")
    token_budget: int | None = Field(None, ge=256, description="positions held at once; unset: what fits in memory")
    chunk_records: int = Field(1000, ge=1, le=100_000, description="records claimed at once")
    max_attempts: int = Field(4, ge=1, le=20, description="attempts before a record is dead")
    settle_seconds: float = Field(2.0, ge=0, le=3600, description="how long a file must have been still")
    cluster: str = Field("", description="Dask scheduler's address, or local:N; runs of flows spread over it")
    remote: str = Field("", description="object storage with inbox/, outbox/ and dead/, such as s3://bucket/prefix")
    max_line_bytes: int = Field(16_000_000, ge=1000, description="a longer line of an input file is dead")
    compress: bool = Field(False, description="write outbox and dead files as .jsonl.gz")
    keep_days: float = Field(90.0, ge=0, description="`gristmill prune` removes what ended longer ago")
    timezone: str = Field("UTC", description="time zone of the schedules; taken when they are deployed")
    lease_seconds: float = Field(900.0, ge=10, description="after this a claim of another machine has lapsed")

    @property
    def url(self) -> str | URL:
        """The database's URL."""
        own = URL.create("sqlite", database=str(self.data.resolve() / "gristmill.sqlite3"))
        return self.database_url.get_secret_value() or own


def load_settings(fallback: Mapping[str, Any] | None = None, /, **given: Any) -> Settings:
    """Settings with the values that are not None put first, and those of `fallback` last before the defaults.

    A variable that looks like a setting and is none is logged as a warning.

    Raises:
        SetupError: a value is out of range or of the wrong type; the message names the variable.
    """
    try:
        values = _outranking(fallback or {}) | {key: value for key, value in given.items() if value is not None}
        settings = Settings(**values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = "_".join(str(part) for part in first["loc"]).upper()
        value = "" if name == "DATABASE_URL" else f"={first['input']!r}"
        raise SetupError(f"{PREFIX}{name}{value}: {first['msg']}; nothing was run") from error
    except UnicodeDecodeError as error:
        raise SetupError(f".env is not UTF-8 at byte {error.start}; save it as UTF-8; nothing was run") from error
    get_preset(settings.preset)
    for warning in misspelt():
        log.warning(warning, extra={"action": "unknown_variable"})
    return settings


def misspelt() -> list[str]:
    """A sentence for each variable of the environment and of `.env` that has the prefix and that nothing reads."""
    known = [name.upper() for name in Settings.model_fields] + list(OTHERS)
    found = []
    for place, source in (("", EnvSettingsSource(Settings)), (" in .env", DotEnvSettingsSource(Settings))):
        names = [name.upper().removeprefix(PREFIX) for name in source.env_vars if name.upper().startswith(PREFIX)]
        for name in sorted(set(names) - set(known)):
            close = get_close_matches(name, known, n=1)
            hint = f"did you mean {PREFIX}{close[0]}?" if close else "`gristmill config` lists those that there are"
            found.append(f"{PREFIX}{name}{place} is no setting and has no effect; {hint}")
    return found


def for_schedules(fallback: Any = None) -> dict[str, str]:
    """What schedules take from the settings when they are deployed; `prefect.yaml` calls this.

    Whether there is such a time zone is for the one to say who keeps the schedule. A fallback that is no mapping counts
    as none.

    Raises:
        SetupError: a setting can't be used.
    """
    return {"timezone": load_settings(fallback if isinstance(fallback, Mapping) else {}).timezone}


def sources(settings: Settings, fallback: Mapping[str, Any] | None = None, fallback_name: str = "") -> list[Sourced]:
    """Every setting with its value as it can be shown and where it comes from, in the order of declaration.

    What is set nowhere and is not the default was given as an option or parameter.
    """
    found = []
    environment, file = EnvSettingsSource(Settings)(), DotEnvSettingsSource(Settings)()
    for name, field in Settings.model_fields.items():
        value = getattr(settings, name)
        given = {"environment": environment, ".env": file, fallback_name: fallback or {}}
        source = next((source for source, values in given.items() if name in values), "default")
        if source == "default" and value != field.default:
            source = "option"
        found.append(Sourced(f"{PREFIX}{name.upper()}", _shown(value), source, field.description or ""))
    return found


def _outranking(fallback: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the values that neither the environment nor `.env` gives.

    Raises:
        SetupError: a name is no setting's.
    """
    unknown = sorted(fallback.keys() - Settings.model_fields.keys())
    if unknown:
        raise SetupError(f"no setting {unknown[0]!r}; {nearest(unknown[0], list(Settings.model_fields))}")
    if not fallback:
        return {}
    set_elsewhere = EnvSettingsSource(Settings)().keys() | DotEnvSettingsSource(Settings)().keys()
    return {key: value for key, value in fallback.items() if key not in set_elsewhere}


def _shown(value: Any) -> str:
    if not isinstance(value, SecretStr):
        return "" if value is None else str(value)
    if not value.get_secret_value():
        return ""
    try:
        url = make_url(value.get_secret_value())
    except (ArgumentError, ValueError):
        return "(set, but no database URL)"
    # A password may stand in several places of a URL, and what is not shown can't be one.
    return f"{url.get_backend_name()}://.../{url.database or ''}"
