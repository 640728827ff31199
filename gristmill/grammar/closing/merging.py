"""Merging: one JSON Schema that says what two say together, where one can be written."""

from collections.abc import Mapping
from typing import Any

Source = Mapping[str, Any]

_HIGHER = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties", "minContains")
_LOWER = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties", "maxContains")
_OPEN = ("additionalProperties", "patternProperties", "unevaluatedProperties")
KINDS = ("string", "number", "boolean", "null", "array", "object")


def merged(one: Source, other: Source) -> dict[str, Any] | None:
    """What two schemas say together; None where that takes an `allOf`. Types that exclude each other become `[]`."""
    if _closes(one, other) or _closes(other, one):
        return None
    result = dict(one)
    for key, value in other.items():
        if key not in result or result[key] == value:
            result[key] = value
        elif key in _HIGHER:
            result[key] = max(result[key], value)
        elif key in _LOWER:
            result[key] = min(result[key], value)
        elif key == "required":
            result[key] = list(dict.fromkeys([*result[key], *value]))
        elif key == "properties":
            both = dict(result[key])
            for name, child in value.items():
                both[name] = {"allOf": [both[name], child]} if name in both and both[name] != child else child
            result[key] = both
        elif key == "type":
            result[key] = _types(result[key], value)
        elif key == "enum":
            result[key] = [one for one in result[key] if any(same(one, two) for two in value)]
        elif key == "items" and isinstance(value, Mapping) and isinstance(result[key], Mapping):
            result[key] = {"allOf": [result[key], value]}
        elif key == "uniqueItems":
            result[key] = True
        elif key in ("x-verbatim", "xml"):
            # Of two notes the later one counts, which stands nearer to the field.
            result[key] = value
        else:
            return None
    return result


def same(one: Any, other: Any) -> bool:
    """Whether two values are the same in JSON, which has true apart from 1 but not 1.0 from 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def kind_of(value: Any) -> str:
    """JSON's name for the type of a value."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "string"
        case Mapping():
            return "object"
        case _:
            return "array"


def kinds(source: Any) -> set[str]:
    """The types of JSON that a schema without references may accept; integers are numbers."""
    if source is False:
        return set()
    if not isinstance(source, Mapping):
        return set(KINDS)
    said = source.get("type", KINDS)
    found = {"number" if one == "integer" else one for one in ([said] if isinstance(said, str) else said)}
    if "const" in source:
        found &= {kind_of(source["const"])}
    if "enum" in source:
        found &= {kind_of(value) for value in source["enum"]}
    for key in ("anyOf", "oneOf"):
        if key in source:
            found &= {kind for option in source[key] for kind in kinds(option)}
    return found


def disjoint(one: Source, other: Source) -> bool:
    """Whether it is plain to see that no value fits both: by its type, or by a required property that tells them
    apart."""
    shared = kinds(one) & kinds(other)
    if not shared:
        return True
    values, others = _values(one), _values(other)
    if values is not None and others is not None:
        return not any(same(a, b) for a in values for b in others)
    if shared != {"object"}:
        return False
    for name in set(one.get("required", ())) & set(other.get("required", ())):
        tag, other_tag = (_values(each.get("properties", {}).get(name)) for each in (one, other))
        if tag is not None and other_tag is not None and not any(same(a, b) for a in tag for b in other_tag):
            return True
    return False


def _values(source: Any) -> list[Any] | None:
    if not isinstance(source, Mapping):
        return None
    if "const" in source:
        return [source["const"]]
    return source.get("enum")


def _closes(one: Source, other: Source) -> bool:
    """Whether one says something of all properties that it does not name, among which are some of the other's."""
    if not any(key in one for key in _OPEN) or all(one.get(key, True) in (True, {}) for key in _OPEN):
        return False
    return bool(other.get("properties", {}).keys() - one.get("properties", {}).keys()) or any(k in other for k in _OPEN)


def _types(one: Any, other: Any) -> list[str]:
    first = [one] if isinstance(one, str) else list(one)
    second = [other] if isinstance(other, str) else list(other)
    both = [kind for kind in first if kind in second]
    for mine, theirs in ((first, second), (second, first)):
        if "integer" in mine and "number" in theirs and "integer" not in both:
            both.append("integer")
    return both
