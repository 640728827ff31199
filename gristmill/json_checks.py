"""Checks of JSON Schema files beyond the standard's vocabulary for validation: formats and contents are asserted."""

import base64
import binascii
import ipaddress
import json
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from typing import Any

from jsonschema import Draft7Validator, Draft202012Validator, FormatChecker, ValidationError, validators

_SECONDS = r"([01]\d|2[0-3]):[0-5]\d:([0-5]\d|60)(\.\d+)?"
_OFFSET = r"([Zz]|[+-]([01]\d|2[0-3]):[0-5]\d)"
_LABEL = r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_POINTER = r"(/([^/~]|~[01])*)*"
_OF_URI = r"[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=]|%[0-9A-Fa-f]{2}"
_OF_IRI = r'[^\s<>"{}|\\^`\x00-\x20]'
_SPAN = r"(\d+Y(\d+M(\d+D)?)?|\d+M(\d+D)?|\d+D)"
_HOURS = r"(T(\d+H(\d+M(\d+S)?)?|\d+M(\d+S)?|\d+S))"

_PATTERNS = {
    "date-time": rf"\d{{4}}-\d\d-\d\d[Tt]{_SECONDS}{_OFFSET}",
    "time": _SECONDS + _OFFSET,
    "date": r"\d{4}-\d\d-\d\d",
    "duration": rf"P({_SPAN}{_HOURS}?|{_HOURS}|\d+W)",
    "email": rf"[A-Za-z0-9!#$%&'*+\-/=?^_`{{|}}~]+(\.[A-Za-z0-9!#$%&'*+\-/=?^_`{{|}}~]+)*@{_LABEL}(\.{_LABEL})*",
    "idn-email": r"[^@\s]+@[^@\s]+",
    "hostname": rf"(?=.{{1,253}}\Z){_LABEL}(\.{_LABEL})*",
    "uuid": r"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}",
    "uri": rf"[A-Za-z][A-Za-z0-9+.-]*:({_OF_URI})*",
    "uri-reference": rf"({_OF_URI})*",
    "iri": rf"[A-Za-z][A-Za-z0-9+.-]*:{_OF_IRI}*",
    "iri-reference": rf"{_OF_IRI}*",
    "json-pointer": _POINTER,
    "relative-json-pointer": rf"(0|[1-9]\d*)(#|{_POINTER})",
}


def _is_date(value: str) -> bool:
    date.fromisoformat(value[:10])
    return True


_FURTHER: dict[str, Callable[[str], object]] = {
    "date": _is_date,
    "date-time": _is_date,
    "ipv4": ipaddress.IPv4Address,
    "ipv6": lambda value: "%" not in value and ipaddress.IPv6Address(value),
    "regex": re.compile,
}

FORMATS = tuple(sorted({*_PATTERNS, *_FURTHER}))
"""The formats that are asserted. Of others nothing is known, and nothing is checked."""


def _formats() -> FormatChecker:
    checker = FormatChecker(formats=())
    for name in FORMATS:
        pattern = re.compile(_PATTERNS.get(name, ".*"), re.ASCII if name not in ("iri", "iri-reference") else 0)

        def fits(value: object, name: str = name, pattern: re.Pattern[str] = pattern) -> bool:
            if not isinstance(value, str):
                return True
            whole = name not in _PATTERNS or pattern.fullmatch(value) is not None
            return whole and (name not in _FURTHER or _FURTHER[name](value) is not False)

        checker.checks(name, raises=(ValueError, re.error))(fits)
    return checker


_DECODERS: dict[str, Callable[[str], bytes]] = {
    "base64": lambda value: base64.b64decode(value, validate=True),
    "base32": base64.b32decode,
    "base16": lambda value: base64.b16decode(value, casefold=True),
}


def _content(validator: Any, _: Any, instance: Any, schema: Mapping[str, Any]) -> Iterator[ValidationError]:
    """Assert what a string is said to hold: its encoding, JSON as its medium, and that content's schema."""
    if not isinstance(instance, str):
        return
    encoding, medium = schema.get("contentEncoding"), schema.get("contentMediaType")
    content: str | bytes = instance
    if encoding in _DECODERS:
        try:
            content = _DECODERS[encoding](instance)
        except (binascii.Error, ValueError):
            yield ValidationError(f"is not {encoding}")
            return
    if medium != "application/json" or (encoding is not None and encoding not in _DECODERS):
        return
    try:
        value = json.loads(content)
    except ValueError:
        yield ValidationError("does not hold JSON")
        return
    if "contentSchema" in schema:
        for error in validator.descend(value, schema["contentSchema"]):
            # Where inside the string it is wrong, no path of the answer says.
            yield ValidationError(f"holds JSON in which {error.validator} is not satisfied")


def _once(keyword: str) -> Callable[[Any, Any, Any, Mapping[str, Any]], Iterator[ValidationError]]:
    """The check of contents under the first of its keywords that is there."""

    def check(validator: Any, value: Any, instance: Any, schema: Mapping[str, Any]) -> Iterator[ValidationError]:
        if keyword == next(key for key in ("contentEncoding", "contentMediaType") if key in schema):
            yield from _content(validator, value, instance, schema)

    return check


_CONTENTS = {key: _once(key) for key in ("contentEncoding", "contentMediaType")}

VALIDATOR_2020_12: Any = validators.extend(Draft202012Validator, _CONTENTS, format_checker=_formats())
VALIDATOR_7: Any = validators.extend(Draft7Validator, _CONTENTS, format_checker=_formats())
"""Validators that assert formats and contents too; `cls.FORMAT_CHECKER` is the one to give them."""
