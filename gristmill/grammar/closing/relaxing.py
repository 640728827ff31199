"""Relaxing: what the grammar engine refuses is dropped from the grammar, one keyword at a time, and named."""

import json
from collections.abc import Callable, Mapping
from itertools import combinations
from typing import Any

from gristmill.errors import SchemaError


class ImpossibleError(SchemaError):
    """No value can fit a part of a schema."""


Refuses = Callable[[Mapping[str, Any]], str | None]
"""Says what the grammar engine has against a schema (in its own words), or None where it takes it."""

_DROPPED = (
    *("pattern", "format", "multipleOf", "minProperties", "maxProperties", "patternProperties", "allOf", "anyOf"),
    *("minLength", "maxLength", "minItems", "maxItems", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
)
"""What can be left to validation, in the order in which it is tried."""

_RISKY = {*_DROPPED, "const"}
_STUBBED = ("properties", "items", "prefixItems", "additionalProperties")


def relaxed(
    node: dict[str, Any], path: str, refuses: Refuses, leave: Callable[[str], None], capped: bool = False
) -> dict[str, Any]:
    """A part that the engine takes, the parts below it not looked at. `leave` is told each keyword that was dropped;
    `capped` says that the part's `maxLength` is no own of it.

    Raises:
        ImpossibleError: no value can fit the part.
        SchemaError: nothing that is dropped makes the engine take it.
    """
    if not _RISKY & node.keys():
        return node
    reason = refuses(_stub(node))
    if reason is None:
        return node
    if capped:
        uncapped = {key: value for key, value in node.items() if key != "maxLength"}
        if refuses(_stub(uncapped)) is None:
            return uncapped
    if "nsatisfiable" in reason:
        said = reason.split("nsatisfiable schema:", 1)[-1].strip()
        said = "its parts exclude each other" if said.startswith("Regex") else said
        keywords = ", ".join(
            f"{key} {json.dumps(node[key], ensure_ascii=False)}"[:80] for key in _DROPPED if key in node
        )
        raise ImpossibleError(f"{path}: no value is possible here: {said} ({keywords}); correct one of them")
    there = [key for key in _DROPPED if key in node]
    for count in (1, 2, len(there)):
        for keys in combinations(there, count):
            less = {key: value for key, value in node.items() if key not in keys}
            if "patternProperties" in keys and less.get("additionalProperties") is False:
                less["additionalProperties"] = {}
            if refuses(_stub(less)) is None:
                for key in keys:
                    leave(key)
                return less
    raise SchemaError(f"{path}: the grammar engine refuses this part: {reason}; change the field's type")


def _stub(node: Mapping[str, Any]) -> dict[str, Any]:
    """The part with anything in the places below it."""
    result: dict[str, Any] = _plain(node)
    for key in _STUBBED:
        value = result.get(key)
        if key == "properties" and value is not None:
            result[key] = {name: {} for name in value}
        elif isinstance(value, Mapping):
            result[key] = {}
        elif isinstance(value, list):
            result[key] = [{} for _ in value]
    return result


def _plain(node: Any) -> Any:
    """The part with anything in the place of references."""
    if isinstance(node, list):
        return [_plain(child) for child in node]
    if not isinstance(node, Mapping):
        return node
    return (
        {}
        if "$ref" in node
        else {key: child if key in ("enum", "const") else _plain(child) for key, child in node.items()}
    )
