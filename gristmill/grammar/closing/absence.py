"""Absence: whether a field without a value is left out or spelt null."""

from collections.abc import Mapping
from typing import Any


def decide(source: dict[str, Any], absent: str) -> None:
    """Change an object schema's properties that may both be absent and be null, so that there is one way only.

    Where `absent` is "omitted" they can't be null; where it is "null" they are required.
    """
    required = list(source.get("required", ()))
    for name, child in source["properties"].items():
        if name in required or not isinstance(child, Mapping):
            continue
        without = _not_null(child)
        if without is None:
            continue
        if absent == "null":
            required.append(name)
        else:
            source["properties"][name] = without
    if required:
        source["required"] = [name for name in source["properties"] if name in required] + [
            name for name in required if name not in source["properties"]
        ]


def _not_null(child: Mapping[str, Any]) -> dict[str, Any] | None:
    """A schema without null among what it accepts; None where null is not, or is all that it accepts."""
    if "anyOf" in child:
        left = [option for option in child["anyOf"] if option.get("type") != "null"]
        if not left or len(left) == len(child["anyOf"]):
            return None
        others = {key: value for key, value in child.items() if key != "anyOf"}
        return {**others, **left[0]} if len(left) == 1 else {**others, "anyOf": left}
    result = dict(child)
    if isinstance(child.get("type"), list) and "null" in child["type"] and len(child["type"]) > 1:
        kinds = [kind for kind in child["type"] if kind != "null"]
        result["type"] = kinds[0] if len(kinds) == 1 else kinds
        if "enum" in child:
            result["enum"] = [value for value in child["enum"] if value is not None]
        return result
    if "type" not in child and None in child.get("enum", ()) and len(child["enum"]) > 1:
        result["enum"] = [value for value in child["enum"] if value is not None]
        return result
    return None
