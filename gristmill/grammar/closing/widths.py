"""Widths: how long a string can get that matches a pattern."""

import re
from re import _constants, _parser  # the parse of a pattern is nowhere else to be had


def width(pattern: str | None) -> int | None:
    """The most characters of a string that matches a pattern; None where there is no end to it, or no pattern.

    A pattern that is not tied to the string's beginning and end lets anything stand around it.
    """
    if pattern is None:
        return None
    try:
        parsed = _parser.parse(pattern)
    except (re.error, OverflowError):
        # Not Python's syntax; the engine's own has more.
        return None
    if len(parsed) == 0 or parsed[0] not in _AT_BEGINNING or parsed[len(parsed) - 1] not in _AT_END:
        return None
    longest = int(parsed.getwidth()[1])
    return longest if longest < _ENDLESS else None


_AT_BEGINNING = [(_constants.AT, _constants.AT_BEGINNING), (_constants.AT, _constants.AT_BEGINNING_STRING)]
_AT_END = [(_constants.AT, _constants.AT_END), (_constants.AT, _constants.AT_END_STRING)]
_ENDLESS = 1_000_000
