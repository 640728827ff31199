"""An evaluation as a table for terminals and as one HTML page that needs nothing but itself."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

_COLUMNS = ("examples", "valid", "precision", "recall", "F1", "offsets", "records/s")


def as_table(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """One line for each configuration; values are those of `Evaluation.as_json`."""
    width = max(len("configuration"), *map(len, rows)) + 2
    lines = [f"{'configuration':<{width}}" + "".join(f"{column:>11}" for column in _COLUMNS)]
    for name, row in rows.items():
        cells = (
            str(row["examples"]),
            _percent(row["valid"]),
            *(_share(row[key]) for key in ("precision", "recall", "f1")),
            _percent(row["offsets"]),
            "-" if row["records_per_second"] is None else f"{row['records_per_second']:.2f}",
        )
        lines.append(f"{name:<{width}}" + "".join(f"{cell:>11}" for cell in cells))
    return "\n".join(lines)


def fields_table(row: Mapping[str, Any]) -> str:
    """One line for each field of one configuration."""
    width = max(len("field"), *map(len, row["fields"]), 5) + 2
    lines = [f"{'field':<{width}}" + "".join(f"{c:>10}" for c in ("exact", "F1", "right", "wrong", "missed"))]
    for name, counts in row["fields"].items():
        cells = (_percent(counts["exact"]), _share(counts["f1"]), counts["right"], counts["wrong"], counts["missed"])
        lines.append(f"{name:<{width}}" + "".join(f"{cell:>10}" for cell in cells))
    return "\n".join(lines)


def how(row: Mapping[str, Any]) -> str:
    """What a configuration was measured with, in a line."""
    parts = [f"{row['records']} records", row["model"], f"preset {row['preset']}"]
    if row["folds"]:
        parts.append(f"{row['folds']} folds, the others' records as examples")
    parts.append(f"{row['examples']} worked examples to choose from")
    parts.append("1 attempt" if row["attempts"] == 1 else f"up to {row['attempts']} attempts")
    parts += [f"{name}={value}" for name, value in row["options"].items()]
    return "; ".join(parts)


def doubts(row: Mapping[str, Any]) -> list[str]:
    """What there is to be said against the figures of a configuration."""
    said = []
    if row["seen"]:
        said.append(
            f"the texts of {row['seen']} of the {row['records']} records are among the worked examples, so that the "
            "figures say too much about texts that are new"
        )
    if row["unfit"]:
        said.append(
            f"the gold of {row['unfit']} of the {row['records']} records does not fit the schema, so that no answer to "
            "them can be wholly right; mend it or the schema"
        )
    return said


def as_page(title: str, rows: Mapping[str, Mapping[str, Any]]) -> str:
    """The page; field names and titles stand in it escaped."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"percent": _percent, "share": _share, "how": how, "doubts": doubts}
    return environment.get_template("page.html.j2").render(title=title, rows=rows)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def _share(value: float) -> str:
    return f"{value:.3f}"
