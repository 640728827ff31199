"""Rules: a grammar in llguidance's dialect of Lark, collected rule by rule, and the parts both spellings share."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from gristmill.verbatim import Verbatim, spellings, words_of


class Missing(Enum):
    """The value of a field that is left out."""

    MISSING = "missing"


MISSING = Missing.MISSING


@dataclass(frozen=True, slots=True)
class Fixed:
    """A part of the answer that is known already: a JSON value, or `MISSING` for a field that is to be left out."""

    value: Any


Known = Fixed | Mapping[str, "Known"] | tuple["Known", ...] | None
"""What is known of an answer before it is written: all of a part, some of an object's fields or of a list's items (the
list has just these then), or nothing (None). What is known is forced: it costs no step of its own."""


class Rules:
    """Rules and terminals under names of their own; equal ones are kept once.

    Syntax: https://github.com/guidance-ai/llguidance/blob/main/docs/syntax.md
    """

    def __init__(self) -> None:
        self._bodies: dict[str, str] = {}
        self._names: dict[str, str] = {}

    def rule(self, body: str) -> str:
        """The name of a rule with this body."""
        return self._named(body, "r")

    def terminal(self, body: str) -> str:
        """The name of a terminal (a regular language, matched as one lexeme) with this body."""
        return self._named(body, "T")

    def reserve(self, key: str) -> str:
        """A name for a rule whose body comes later (`define`), so that it can refer to itself; the same key, the same
        name."""
        return self._names.setdefault(f"\x00{key}", f"d{len(self._names)}")

    def define(self, name: str, body: str) -> None:
        """Give a reserved rule its body."""
        self._bodies[name] = body

    def defined(self, name: str) -> bool:
        """Whether a reserved rule has its body already."""
        return name in self._bodies

    def grammar(self, start: str) -> str:
        """The whole grammar, as `LLMatcher` takes it."""
        rules = [f"start: {start}", *(f"{name}: {body}" for name, body in self._bodies.items())]
        return json.dumps({"grammars": [{"lark_grammar": "\n".join(rules) + "\n"}]}, ensure_ascii=False)

    def _named(self, body: str, letter: str) -> str:
        key = f"{letter}:{body}"
        if key not in self._names:
            self._names[key] = f"{letter}{len(self._names)}"
            self._bodies[self._names[key]] = body
        return self._names[key]


def literal(text: str) -> str:
    """A text as a Lark string; the empty text as an empty string, which matches nothing at all."""
    return json.dumps(text, ensure_ascii=False)


def verbatim_terminal(
    rules: Rules, text: str, verbatim: Verbatim, escape: Callable[[str], str], trimmed: str
) -> str | None:
    """The name of a terminal for the runs of words of a text, each unit spelt by `escape`; None where it has no word.

    `trimmed` is a regular expression for what neither is empty nor begins or ends with white space as `escape` spells
    it.
    """
    words = words_of(text, verbatim)
    if all(words.spaces):
        return None
    runs = [
        rules.terminal("%regex " + json.dumps({"substring_chunks": [escape(u) for u in units]}, ensure_ascii=False))
        for units in spellings(words, verbatim)
    ]
    return rules.terminal(f"({' | '.join(runs)}) & /{trimmed}/")
