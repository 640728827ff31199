"""Dialect: a part of a JSON Schema as the grammar engine's compiler takes it, and which formats that knows."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from gristmill.printing import LEFT
from gristmill.references import IN_LISTS, IN_MAPS, IN_PLACE

FORMATS = ("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri")
"""Formats that llguidance has a regular expression for."""

LONGEST = {"date": 10, "uuid": 36, "ipv4": 15, "ipv6": 39}
"""Formats that end by themselves, with the characters of their longest value."""

LOOSE = "x-loose"
"""The mark of a format that means what Pydantic reads and writes, which is more than the standard has: times without an
offset, durations with fractions and signs."""

_DAY = r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])"
_TIME = r"([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,6})?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)?"
LOOSE_FORMATS = {
    "date-time": (rf"^{_DAY}T{_TIME}$", 32),
    "time": (rf"^{_TIME}$", 21),
    "duration": (
        r"^[+-]?P(\d{1,9}Y)?(\d{1,9}M)?(\d{1,9}W)?(\d{1,9}D)?(T(\d{1,9}H)?(\d{1,9}M)?(\d{1,9}(\.\d{1,6})?S)?)?$",
        76,
    ),
}
"""Pattern and longest value of the formats that `LOOSE` marks."""

_OURS = ("x-verbatim", "xml", LOOSE, LEFT)


def dialect(node: Any) -> Any:
    """A schema as the engine takes it, without what only we or validation know, on every level."""
    if not isinstance(node, Mapping):
        return node
    result = _level(node)
    for key, value in result.items():
        if key in IN_MAPS and isinstance(value, Mapping):
            result[key] = {name: dialect(child) for name, child in value.items()}
        elif key in IN_LISTS and isinstance(value, list):
            result[key] = [dialect(child) for child in value]
        elif key in IN_PLACE:
            result[key] = dialect(value)
    return result


def _level(node: Mapping[str, Any]) -> dict[str, Any]:
    result = {key: value for key, value in node.items() if key not in _OURS}
    named = result.get("format")
    if named is not None and node.get(LOOSE):
        del result["format"]
        result.setdefault("pattern", LOOSE_FORMATS[named][0])
        result.pop("maxLength", None)
    elif named is not None and named not in FORMATS:
        del result["format"]
    if "multipleOf" in result:
        step = steps(result)
        del result["multipleOf"]
        if step is not None:
            result["multipleOf"] = step
    return result


def steps(node: Mapping[str, Any]) -> float | None:
    """The `multipleOf` that the engine is given for a number: its own is about digits, so that of 0.25 it would want
    "1.50" for 1.5. It gets the decimal places, at least one, since a float may be spelt "3.0"."""
    said, kind = node["multipleOf"], node.get("type")
    if kind == "integer" and said == int(said):
        return int(said)
    if kind != "number":
        return None
    exponent = Decimal(repr(said)).normalize().as_tuple().exponent
    places = max(1, -int(exponent))
    return float(Decimal(1).scaleb(-places)) if places <= 12 else None
