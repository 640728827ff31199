"""Options: what a schema file may say about how its answers are written and read, as `OPTIONS = Options(...)`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from gristmill.errors import SchemaError

MergeRule = Literal["first", "longest", "most_frequent", "union"] | Callable[[list[Any]], Any]
"""How the values that several parts of a long text gave for one field become one."""

_RULES = ("first", "longest", "most_frequent", "union")


@dataclass(frozen=True, slots=True)
class Split:
    """Texts that do not fit are cut at ends of paragraphs or sentences, answered part by part, and merged.

    `overlap` is how many characters of a part stand in the next one too; `merge` gives the rule of a top-level field,
    `otherwise` that of all others: the first value that was found, the longest, the most frequent, the union of lists,
    or a function of the list of values that were found. Without a rule it is the union for lists, else the first.

    Raises:
        SchemaError: a rule or an overlap that there is not.
    """

    overlap: int = 200
    merge: Mapping[str, MergeRule] = field(default_factory=dict)
    otherwise: MergeRule | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.overlap, int) or self.overlap < 0:
            raise SchemaError(f"Split: overlap={self.overlap!r} is not possible; use a whole number from 0")
        for name, rule in {**self.merge, "otherwise": self.otherwise}.items():
            if rule is not None and not callable(rule) and rule not in _RULES:
                raise SchemaError(f"Split: {name}={rule!r} is no rule; use {', '.join(_RULES)} or a function")


@dataclass(frozen=True, slots=True)
class Options:
    """How answers of a schema are written and read.

    `format` is what comes out; None is XML for classes of pydantic-xml and JSON for all others. `absent`: an optional
    field without a value is left out, or spelt null. `reading`: strings tied to the text are read off it by what the
    worked examples teach about the model's own states, instead of being written; "auto" does so from eight examples on.
    `examples_per_prompt`: None puts all worked examples into each prompt (of more than 16, the eight most like the
    record); a number, so many of those most like it. With `verbatim` False, fields are not tied to the text, whatever
    they say (to see what that brings). `max_string` is the longest string, in characters, where the field says nothing.
    `separators` are those between items and behind keys of JSON. `split` allows texts that are too long for the model.

    Raises:
        SchemaError: a value that an option can't have.
    """

    format: Literal["json", "xml"] | None = None
    absent: Literal["omitted", "null"] = "omitted"
    reading: Literal["auto", "on", "off"] = "auto"
    examples_per_prompt: int | None = None
    verbatim: bool = True
    max_string: int = 500
    separators: tuple[str, str] = (", ", ": ")
    split: Split | None = None

    def __post_init__(self) -> None:
        checks: tuple[tuple[str, bool, str], ...] = (
            ("format", self.format in (None, "json", "xml"), '"json" or "xml"'),
            ("absent", self.absent in ("omitted", "null"), '"omitted" or "null"'),
            ("reading", self.reading in ("auto", "on", "off"), '"auto", "on" or "off"'),
            ("examples_per_prompt", _natural(self.examples_per_prompt, 0), "None or a whole number from 0"),
            ("verbatim", isinstance(self.verbatim, bool), "True or False"),
            ("max_string", self.max_string is not None and _natural(self.max_string, 1), "a whole number from 1"),
            ("separators", self.separators in _SEPARATORS, "one of " + ", ".join(map(repr, _SEPARATORS))),
            ("split", self.split is None or isinstance(self.split, Split), "None or gristmill.Split(...)"),
        )
        for name, holds, allowed in checks:
            if not holds:
                raise SchemaError(f"OPTIONS: {name}={getattr(self, name)!r} is not possible; use {allowed}")

    def changed(self) -> dict[str, str]:
        """The options that are not the default, as text."""
        return {f.name: repr(getattr(self, f.name)) for f in fields(self) if getattr(self, f.name) != f.default}


_SEPARATORS = ((", ", ": "), (",", ":"), (", ", ":"), (",", ": "))


def _natural(value: Any, least: int) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= least)
