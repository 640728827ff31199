"""Settings: environment (`GRISTMILL_...`), then `.env`, then defaults; options and flow parameters come before."""

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict
from sqlalchemy import URL

from gristmill.errors import SetupError
from gristmill.presets import get_preset


class Settings(BaseSettings):
    """Where things lie and how much may be used."""

    model_config = SettingsConfigDict(
        env_prefix="GRISTMILL_", env_file=".env", extra="ignore", frozen=True, protected_namespaces=()
    )

    data: Path = Field(Path("data"), description="the data folder: inbox, outbox, dead, archive, reports")
    schemas: Path = Field(Path("schemas"), description="the folder of schema files")
    model: str = Field("embedded", min_length=1, description="a model directory, or 'embedded'")
    database_url: SecretStr = Field(
        SecretStr(""), description="sqlite:///FILE or postgresql://...; empty: SQLite in the data folder"
    )
    device: str = Field("auto", description="auto, cpu, cuda:0 ...")
    dtype: str = Field("auto", description="auto, float32, bfloat16, float16 (not on a CPU)")
    preset: str = Field("extract", description="the preset of first attempts")
    seed: int = Field(0, description="with record id and attempt, all that randomness depends on")
    engine: Literal["auto", "fast", "reference"] = Field("auto", description="how the model is run")
    token_budget: int | None = Field(None, ge=256, description="positions held at once; unset: what fits in memory")
    chunk_records: int = Field(1000, ge=1, le=100_000, description="records claimed at once")
    max_attempts: int = Field(4, ge=1, le=20, description="attempts before a record is dead")
    settle_seconds: float = Field(2.0, ge=0, le=3600, description="how long a file must have been still")
    max_line_bytes: int = Field(16_000_000, ge=1000, description="a longer line of an input file is dead")
    compress: bool = Field(False, description="write outbox and dead files as .jsonl.gz")
    keep_days: float = Field(90.0, ge=0, description="`gristmill prune` removes what ended longer ago")
    lease_seconds: float = Field(900.0, ge=10, description="after this a claim of another machine has lapsed")

    @property
    def url(self) -> str | URL:
        """The database's URL."""
        own = URL.create("sqlite", database=str(self.data.resolve() / "gristmill.sqlite3"))
        return self.database_url.get_secret_value() or own


def load_settings(**given: Any) -> Settings:
    """Settings with the values that are not None put first.

    Raises:
        SetupError: a value is out of range or of the wrong type; the message names the variable.
    """
    try:
        settings = Settings(**{key: value for key, value in given.items() if value is not None})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = "_".join(str(part) for part in first["loc"]).upper()
        value = "" if name == "DATABASE_URL" else f"={first['input']!r}"
        raise SetupError(f"GRISTMILL_{name}{value}: {first['msg']}; nothing was run") from error
    except UnicodeDecodeError as error:
        raise SetupError(f".env is not UTF-8 at byte {error.start}; save it as UTF-8; nothing was run") from error
    get_preset(settings.preset)
    return settings
