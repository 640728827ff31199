"""Verbatim: strings that must be a run of words of the record's own text, and where in it they stand."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from gristmill.errors import SchemaError

KEYWORD = "x-verbatim"
"""The JSON Schema keyword that ties a string to the text: `true`, or an object with the options of `Verbatim`."""

# Letters and digits of scripts that put spaces between words make a word; any other character stands alone.
_ALONE = (
    "\u2e80-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef\u0e00-\u0eff\u1000-\u109f\U00020000-\U0003ffff"
)
_CLUSTER = "[\u0300-\u036f\u0e31\u0e34-\u0e3a\u0e47-\u0e4e\u20d0-\u20ff\u3099\u309a\ufe0e\ufe0f\U0001f3fb-\U0001f3ff]"
_WORDS = re.compile(
    rf"(?P<space>\s+)|[^\W_{_ALONE}]+(?:{_CLUSTER}+[^\W_{_ALONE}]*)*"
    rf"|[\U0001f1e6-\U0001f1ff]{{2}}|.{_CLUSTER}*(?:\u200d.{_CLUSTER}*)*",
    re.DOTALL,
)
_CHARACTERS = re.compile(rf"(?P<space>\s+)|[\U0001f1e6-\U0001f1ff]{{2}}|.{_CLUSTER}*(?:\u200d.{_CLUSTER}*)*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Verbatim:
    """An annotation for strings, and lists of them: the value is a run of words of the record's text.

    `unit` "characters" lets a value begin and end inside a word. `ignore_case` lets it be spelt all lower, all upper or
    with capital first letters as well; `collapse_whitespace` spells every run of white space as one space.

    >>> city: Annotated[str, Verbatim()]
    """

    unit: Literal["words", "characters"] = "words"
    ignore_case: bool = False
    collapse_whitespace: bool = False

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return handler(source)

    def __get_pydantic_json_schema__(self, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        json_schema = handler(core_schema)
        said = {key: value for key, value in asdict(self).items() if value != getattr(Verbatim(), key)}
        if not tie(handler.resolve_ref_schema(json_schema), said or True):
            raise SchemaError("Verbatim stands on a field that is no string and no list of strings; remove it there")
        return json_schema

    @classmethod
    def from_json(cls, value: Any, path: str) -> "Verbatim":
        """The annotation that a JSON Schema's keyword says.

        Raises:
            SchemaError: the keyword has a value that it can't have.
        """
        options = {} if value is True else value
        known = {"unit": ("words", "characters"), "ignore_case": (True, False), "collapse_whitespace": (True, False)}
        if not isinstance(options, Mapping) or any(options[key] not in known.get(key, ()) for key in options):
            raise SchemaError(
                f"{path}: {KEYWORD} is {value!r}; use true, or an object with unit (words, characters), ignore_case "
                "and collapse_whitespace"
            )
        return cls(**options)


@dataclass(frozen=True, slots=True)
class Words:
    """A text in the units of which verbatim values are made; `starts` and `ends` are character offsets into it."""

    units: tuple[str, ...]
    starts: tuple[int, ...]
    ends: tuple[int, ...]
    spaces: tuple[bool, ...]


def words_of(text: str, verbatim: Verbatim) -> Words:
    """Cut a text into units; white space between them is a unit of its own, at which no value begins or ends."""
    pattern = _WORDS if verbatim.unit == "words" else _CHARACTERS
    found = list(pattern.finditer(text))
    spaces = tuple(match["space"] is not None for match in found)
    collapse = verbatim.collapse_whitespace
    units = tuple(" " if space and collapse else match[0] for match, space in zip(found, spaces, strict=True))
    return Words(units, tuple(m.start() for m in found), tuple(m.end() for m in found), spaces)


def spellings(words: Words, verbatim: Verbatim) -> Iterator[tuple[str, ...]]:
    """The units as they may be written, one sequence for each case that is allowed."""
    yield words.units
    if verbatim.ignore_case:
        seen = {words.units}
        for change in (str.lower, str.upper, str.capitalize):
            changed = tuple(map(change, words.units))
            if changed not in seen:
                seen.add(changed)
                yield changed


def find(value: str, text: str, verbatim: Verbatim) -> list[tuple[int, int]]:
    """Where a value stands in a text: [start, end) in characters, every place, the first one first."""
    words = words_of(text, verbatim)
    fold = str.casefold if verbatim.ignore_case else str
    wanted = fold(re.sub(r"\s+", " ", value) if verbatim.collapse_whitespace else value)
    if not wanted:
        return []
    # Offsets of the units in the text as it is compared.
    pieces = [fold(unit) for unit in words.units]
    begins: dict[int, int] = {}
    ends: dict[int, int] = {}
    at = 0
    for i, piece in enumerate(pieces):
        if not words.spaces[i]:
            begins[at] = i
        at += len(piece)
        if not words.spaces[i]:
            ends[at] = i
    whole = "".join(pieces)
    places, start = [], whole.find(wanted)
    while start >= 0:
        if start in begins and start + len(wanted) in ends:
            places.append((words.starts[begins[start]], words.ends[ends[start + len(wanted)]]))
        start = whole.find(wanted, start + 1)
    return places


def tie(node: dict[str, Any], said: Any) -> bool:
    """Put the keyword on the strings of a part of a JSON Schema; whether there are any."""
    places = list(_strings_in(node))
    for place in places:
        place[KEYWORD] = said
    return bool(places)


def _strings_in(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    kind = node.get("type")
    if kind == "string" or (isinstance(kind, list) and "string" in kind):
        yield node
    for key in ("items", "additionalProperties"):
        if isinstance(node.get(key), dict):
            yield from _strings_in(node[key])
    for option in node.get("anyOf", ()):
        yield from _strings_in(option)
