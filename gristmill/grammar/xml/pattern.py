"""A pattern over a value as a pattern over what XML writes for it."""

import re
import re._constants as kinds  # type: ignore[import-not-found] # there is no public parser of regular expressions
import re._parser as parser  # type: ignore[import-not-found]
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Protocol

from gristmill.grammar.xml.text import CONTENT, Place

_CLASSES = {
    kinds.CATEGORY_DIGIT: ("0-9", r"\p{Nd}"),
    kinds.CATEGORY_SPACE: (r"\s", " \\t\\n\\r\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"),
    kinds.CATEGORY_WORD: (r"\w", r"\p{L}\p{M}\p{N}\p{Pc}"),
}
"""Classes as the engine names them, and as XML Schema does, whose own `\\s` and `\\w` mean something else."""
_OPPOSITES = {
    kinds.CATEGORY_NOT_DIGIT: kinds.CATEGORY_DIGIT,
    kinds.CATEGORY_NOT_SPACE: kinds.CATEGORY_SPACE,
    kinds.CATEGORY_NOT_WORD: kinds.CATEGORY_WORD,
}
_STARTS, _ENDS = (kinds.AT_BEGINNING, kinds.AT_BEGINNING_STRING), (kinds.AT_END, kinds.AT_END_STRING)


class Unsayable(Exception):  # noqa: N818 - an answer, not an error
    """A pattern has a part that can't be carried over, such as a look-ahead; the message names it."""


class Dialect(Protocol):
    """How a pattern is written out."""

    group: str
    anything: str

    def character(self, code: int) -> str:
        """A character inside a class."""

    def category(self, kind: Any) -> str:
        """A named class inside a class. Raises Unsayable where it has no name."""

    def one(self, members: str, negated: bool) -> str:
        """Any character of a class."""


class Written:
    """The engine's dialect, over values as `place` writes them."""

    group = "(?:"

    def __init__(self, place: Place) -> None:
        self._place = place
        self.anything = f"{place.unit}*"

    def character(self, code: int) -> str:
        """A character inside a class."""
        return f"\\x{{{code:x}}}"

    def category(self, kind: Any) -> str:
        """A named class inside a class."""
        # Digits are those that every dialect has; what is no digit, what is none in any.
        names = {kinds.CATEGORY_NOT_DIGIT: r"\D", kinds.CATEGORY_NOT_SPACE: r"\S", kinds.CATEGORY_NOT_WORD: r"\W"}
        return names[kind] if kind in names else _CLASSES[kind][0]

    def one(self, members: str, negated: bool) -> str:
        """Any character of a class, or the escape of one."""
        sign = "^" if negated else ""
        inside = re.compile(f"[{sign}{re.sub(r'x{([0-9a-f]+)}', _python, members)}]")
        escapes = [written for character, written in self._place.escapes.items() if inside.match(character)]
        plain = f"[[{sign}{members}]&&[^{self._place.kept_out}]]"
        return f"(?:{'|'.join([plain, *escapes])})"


class Schema:
    """XML Schema's dialect, over the values themselves."""

    group = "("
    anything = r"[\s\S]*"

    def character(self, code: int) -> str:
        """A character inside a class."""
        character = chr(code)
        names = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}
        return names.get(character, f"\\{character}" if character in r"\|.-^?*+{}()[]" else character)

    def category(self, kind: Any) -> str:
        """A named class inside a class; the opposite of one has no name, unless it stands alone."""
        if kind in _OPPOSITES:
            raise Unsayable(str(kind).lower())
        return _CLASSES[kind][1]

    def one(self, members: str, negated: bool) -> str:
        """Any character of a class."""
        return f"[{'^' if negated else ''}{members}]"


def translate(pattern: str, dialect: Dialect) -> str:
    """The pattern, which in JSON Schema may match anywhere in a value, as one that matches the whole of it.

    Raises:
        Unsayable: it has parts that can't be carried over.
    """
    return _searched(_parsed(pattern), dialect)


@lru_cache(maxsize=256)
def check_pattern(pattern: str) -> None:
    """Find out whether a pattern can be carried over.

    Raises:
        Unsayable: it can't.
    """
    translate(pattern, Written(CONTENT))


def _parsed(pattern: str) -> list[Any]:
    try:
        parsed = parser.parse(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise Unsayable(str(error)) from error
    if parsed.state.flags & ~re.UNICODE:
        raise Unsayable("flags")
    return list(parsed)


def _searched(sequence: list[Any], dialect: Dialect) -> str:
    """A sequence that may match anywhere, with what may stand before and behind it."""
    if len(sequence) == 1 and sequence[0][0] is kinds.BRANCH:
        return _alternatives((_searched(list(branch), dialect) for branch in sequence[0][1][1]), dialect)
    if len(sequence) == 1 and sequence[0][0] is kinds.SUBPATTERN and not any(sequence[0][1][1:3]):
        return _searched(list(sequence[0][1][3]), dialect)
    starts = bool(sequence) and sequence[0] in [(kinds.AT, at) for at in _STARTS]
    sequence = sequence[starts:]
    ends = bool(sequence) and sequence[-1] in [(kinds.AT, at) for at in _ENDS]
    if ends:
        sequence = sequence[:-1]
    body = "".join(_part(part, dialect) for part in sequence)
    return f"{'' if starts else dialect.anything}{dialect.group}{body}){'' if ends else dialect.anything}"


def _part(part: tuple[Any, Any], dialect: Dialect) -> str:
    kind, value = part
    if kind is kinds.LITERAL:
        return dialect.one(dialect.character(value), negated=False)
    if kind is kinds.NOT_LITERAL:
        return dialect.one(dialect.character(value), negated=True)
    if kind is kinds.ANY:
        return dialect.one(dialect.character(10), negated=True)
    if kind is kinds.IN:
        negated = value[0][0] is kinds.NEGATE
        if len(value) == 1 and value[0][1] in _OPPOSITES and isinstance(dialect, Schema):
            return dialect.one(dialect.category(_OPPOSITES[value[0][1]]), negated=True)
        return dialect.one("".join(_member(member, dialect) for member in value[negated:]), negated)
    if kind is kinds.BRANCH:
        return _alternatives(("".join(_part(p, dialect) for p in branch) for branch in value[1]), dialect)
    if kind is kinds.SUBPATTERN and not any(value[1:3]):
        return f"{dialect.group}{''.join(_part(p, dialect) for p in value[3])})"
    if kind in (kinds.MAX_REPEAT, kinds.MIN_REPEAT):
        low, high, inner = value
        most = "" if high == kinds.MAXREPEAT else str(high)
        return f"{dialect.group}{''.join(_part(p, dialect) for p in inner)}){{{low},{most}}}"
    raise Unsayable(str(kind).lower())


def _member(member: tuple[Any, Any], dialect: Dialect) -> str:
    kind, value = member
    if kind is kinds.LITERAL:
        return dialect.character(value)
    if kind is kinds.RANGE:
        return f"{dialect.character(value[0])}-{dialect.character(value[1])}"
    return dialect.category(value)


def _alternatives(bodies: Iterable[str], dialect: Dialect) -> str:
    return f"{dialect.group}{'|'.join(bodies)})"


def _python(match: re.Match[str]) -> str:
    return f"U{int(match[1], 16):08x}"
