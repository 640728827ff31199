"""Leaves: values without parts, as text and back."""

import json
import math
import re
from collections.abc import Iterable, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

from gristmill.grammar.tree import Boolean, Choice, Number, Text
from gristmill.grammar.xml.formats import FORMATS
from gristmill.grammar.xml.layout import LeafNode
from gristmill.grammar.xml.names import DECIMAL
from gristmill.grammar.xml.pattern import Unsayable, check_pattern

_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")


def spell_leaf(kinds: Iterable[LeafNode], value: Any, *, exact: bool = False) -> str:
    """A value as text, not escaped.

    Raises:
        ValueError: it is of none of these kinds, or, where it is to be `exact`, none allows it.
    """
    reasons = []
    for kind, exactly in [(kind, True) for kind in kinds] + [(kind, False) for kind in kinds if not exact]:
        try:
            return _spelt(kind, value, exactly)
        except ValueError as error:
            reasons.append(str(error))
    raise ValueError("; ".join(dict.fromkeys(reasons)))


def read_leaf(kinds: Iterable[LeafNode], text: str) -> Any:
    """The JSON value that a text means; bounds, lengths and patterns are left to validation.

    Raises:
        ValueError: it means none of these kinds.
    """
    reasons = []
    for kind in kinds:
        try:
            return _read(kind, text)
        except ValueError as error:
            reasons.append(str(error))
    raise ValueError("; ".join(reasons))


def may_be_mistaken(kinds: Sequence[LeafNode]) -> bool:
    """Whether a string of one kind could read as a value of another kind that is no string."""
    others = [kind for kind in kinds if not _holds_strings(kind)]
    for kind in kinds:
        if not others or not _holds_strings(kind):
            continue
        if isinstance(kind, Text) and kind.format not in FORMATS:
            return True
        for value in kind.values if isinstance(kind, Choice) else ():
            if any(_reads(other, value) for other in others):
                return True
    # A decimal is read as a string, so nothing but decimals may stand beside it.
    decimals = [kind for kind in others if isinstance(kind, Number) and kind.source.get(DECIMAL) is True]
    return bool(decimals) and any(isinstance(kind, Number) and kind not in decimals for kind in others)


def leaf_relaxed(kind: LeafNode) -> list[str]:
    """What the grammar can't say of a leaf and leaves to validation."""
    if not isinstance(kind, Text) or kind.verbatim is not None:
        return []
    relaxed = []
    if kind.pattern is not None:
        try:
            check_pattern(kind.pattern)
        except Unsayable as reason:
            relaxed.append(f"pattern ({reason})")
    if kind.format is not None and kind.format not in FORMATS:
        relaxed.append(f"format {kind.format!r}")
    return relaxed


def may_be_empty(kind: LeafNode) -> bool:
    """Whether the empty string is one of the values."""
    if isinstance(kind, Choice):
        return "" in [value for value in kind.values if isinstance(value, str)]
    if not isinstance(kind, Text) or kind.min_length > 0 or kind.format in FORMATS or kind.verbatim is not None:
        return False
    return kind.pattern is None or _matches(kind.pattern, "")


def _holds_strings(kind: LeafNode) -> bool:
    return isinstance(kind, Text) or (isinstance(kind, Choice) and isinstance(kind.values[0], str))


def _reads(kind: LeafNode, text: str) -> bool:
    try:
        _read(kind, text)
    except ValueError:
        return False
    return True


def _spelt(kind: LeafNode, value: Any, exact: bool) -> str:
    match kind:
        case Text():
            return _string(kind, value, exact)
        case Number():
            return _number(kind, value, exact)
        case Boolean():
            if isinstance(value, bool):
                return json.dumps(value)
            raise ValueError(f"{value!r} is no boolean")
        case Choice():
            if any(type(value) is type(one) and value == one for one in kind.values):
                return value if isinstance(value, str) else json.dumps(value)
            raise ValueError(f"{value!r} is none of {', '.join(map(repr, kind.values))}")


def _read(kind: LeafNode, text: str) -> Any:
    match kind:
        case Text():
            return text
        case Number():
            if not _NUMBER.fullmatch(text):
                raise ValueError(f"{text!r} is no {'whole ' if kind.integer else ''}number")
            if kind.source.get(DECIMAL) is True:
                return text
            value = json.loads(text)
            if isinstance(value, float) and not math.isfinite(value):
                raise ValueError(f"{text!r} is larger than any number that can be stored")
            return value
        case Boolean():
            if text in ("true", "false"):
                return text == "true"
            raise ValueError(f"{text!r} is neither true nor false")
        case Choice():
            for value in kind.values:
                if text == (value if isinstance(value, str) else json.dumps(value)):
                    return value
            raise ValueError(f"{text!r} is none of {', '.join(map(repr, kind.values))}")


def _string(kind: Text, value: Any, exact: bool) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is no string")
    if exact and (len(value) < kind.min_length or (kind.max_length is not None and len(value) > kind.max_length)):
        raise ValueError(f"{value!r} is too short or too long")
    if exact and kind.pattern is not None and not _matches(kind.pattern, value):
        raise ValueError(f"{value!r} does not fit the pattern {kind.pattern}")
    return value


def _matches(pattern: str, value: str) -> bool:
    """Whether a string fits a pattern, as far as Python's dialect can tell."""
    try:
        # Elsewhere than in Python, `$` stands for the end alone.
        return re.search(re.sub(r"(?<!\\)\$$", r"\\Z", pattern), value) is not None
    except re.error:
        return True


def _number(kind: Number, value: Any, exact: bool) -> str:
    decimal = kind.source.get(DECIMAL) is True
    if isinstance(value, bool) or not isinstance(value, int | float | (str if decimal else int)):
        raise ValueError(f"{value!r} is no number")
    try:
        number = Decimal(str(value))
    except InvalidOperation as error:
        raise ValueError(f"{value!r} is no number") from error
    whole = number.is_finite() and number == number.to_integral_value() and not (exact and isinstance(value, float))
    if not number.is_finite() or (kind.integer and not whole):
        raise ValueError(f"{value!r} is no {'whole' if kind.integer else 'finite'} number")
    if exact and not _within(kind, value if isinstance(value, int | float) else number):
        raise ValueError(f"{value!r} is out of bounds")
    if kind.integer:
        return str(int(number))
    if isinstance(value, float) and not any(key in kind.source for key in BOUNDS):
        return repr(value)
    # The engine takes bounded numbers without an exponent only, and no negative zero.
    plain = format(abs(number) if number == 0 else number, "f")
    return plain if "." in plain or not isinstance(value, float) else f"{plain}.0"


def _within(kind: Number, value: int | float | Decimal) -> bool:
    source = kind.source
    return not (
        ("minimum" in source and value < source["minimum"])
        or ("maximum" in source and value > source["maximum"])
        or ("exclusiveMinimum" in source and value <= source["exclusiveMinimum"])
        or ("exclusiveMaximum" in source and value >= source["exclusiveMaximum"])
    )
