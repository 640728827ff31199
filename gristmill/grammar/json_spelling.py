"""The tree spelt as JSON: on one line, keys in the order of the schema, separators as `json.dumps` has them."""

import json
import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from pydantic_core import from_json

from gristmill.grammar.closing.dialect import dialect
from gristmill.grammar.rules import MISSING, Fixed, Known, Rules, literal, verbatim_terminal
from gristmill.grammar.tree import Anything, Field, Node, Object, Reference, Sequence, Source, Text, Tree, Union
from gristmill.verbatim import Verbatim

_spelling = json.JSONEncoder(ensure_ascii=False)
_strict = json.JSONEncoder(ensure_ascii=False, allow_nan=False)

# Half of a surrogate pair, which no JSON text holds.
_MARK = "\udead"
_EXPONENT = re.compile(f'"{_MARK}([^{_MARK}]*){_MARK}"')

_UNIT = r'[^"\\\x00-\x1f\x7f]|\\["\\bfnrt]|\\u[0-9a-f]{4}'
"""One character of a string, as `json.dumps` and the grammar engine escape it."""
_KEY = r'"([^"\\\x00-\x1f]|\\["\\bfnrt]|\\u[0-9a-f]{4})*"'
_TRIMMED = r'([^\s\\]|\\["\\])(([^\\]|\\["\\bfnrt]|\\u[0-9a-f]{4})*([^\s\\]|\\["\\]))?'
"""What does not begin or end with white space, in the escapes of `json.dumps`."""


def _written(value: Any, encoder: json.JSONEncoder) -> str:
    """JSON as the grammar has it: no exponents, since numbers with bounds have none, and no raw U+007F."""
    text = encoder.encode(_without_exponents(value)).replace("\x7f", "\\u007f")
    return _EXPONENT.sub(lambda mark: _plain(mark[1]), text) if _MARK in text else text


def _plain(number: str) -> str:
    """A float without its exponent, still a float."""
    digits = format(Decimal(number), "f")
    return digits if "." in digits else f"{digits}.0"


def _without_exponents(value: Any) -> Any:
    """The value with floats that `repr` gives an exponent marked, to be written out."""
    match value:
        case float() if "e" in repr(value):
            return f"{_MARK}{value!r}{_MARK}"
        case Mapping():
            return {key: _without_exponents(child) for key, child in value.items()}
        case list() | tuple():
            return [_without_exponents(child) for child in value]
        case _:
            return value


def spell(value: Any) -> str:
    """JSON as prompts, grammar and candidates spell it: `", "` and `": "`, no escapes for letters of any script."""
    return _written(value, _spelling)


def spell_strictly(value: Any) -> str:
    """As `spell`.

    Raises:
        ValueError: the value holds an infinity or what is no number, which JSON has not.
    """
    return _written(value, _strict)


class JsonSpelling:
    """How a tree is written as JSON. `separators` are those between items and behind keys."""

    def __init__(self, tree: Tree, separators: tuple[str, str] = (", ", ": ")) -> None:
        self._tree = tree
        self._separators = separators
        self._encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=separators)
        self._guidance = {
            "whitespace_flexible": False,
            "item_separator": separators[0],
            "key_separator": separators[1],
        }
        self.relaxed = (*tree.relaxed, *_beside_verbatim(tree, tree.root, "$", set()))

    def spell(self, value: Any) -> str:
        """A JSON value as the grammar has it.

        Raises:
            ValueError: it holds an infinity or what is no number.
        """
        return _written(value, self._encoder)

    def read(self, text: str) -> Any:
        """The JSON value of a candidate.

        Raises:
            ValueError: it is not JSON.
        """
        return json.loads(text)

    def partial(self, text: str) -> Any:
        """The JSON value of what is there of a text that was cut, or None where there is nothing yet."""
        try:
            return from_json(text, allow_partial="trailing-strings")
        except ValueError:
            return None

    def grammar(self, source_text: str, known: Known = None) -> str:
        """The grammar for one record, as `LLMatcher` takes it: what the tree allows, and of that what is `known`."""
        writer = _Writer(self._tree, self._guidance, self._separators, source_text)
        return writer.rules.grammar(writer.node(self._tree.root, known))


class _Writer:
    """Writes the rules for one record. Parts that are not tied to its text go to the engine's own compiler."""

    def __init__(self, tree: Tree, guidance: Mapping[str, Any], separators: tuple[str, str], text: str) -> None:
        self.rules = Rules()
        self._tree = tree
        self._guidance = guidance
        self._item, self._colon = separators
        self._text = text

    def node(self, node: Node, known: Known = None) -> str:
        if isinstance(known, Fixed):
            encoder = json.JSONEncoder(ensure_ascii=False, separators=(self._item, self._colon))
            return literal(_written(known.value, encoder))
        if known is None and not self._tree.ties(node):
            return self._compiled(node.source)
        match node:
            case Text():
                return self._text_rule(node)
            case Object():
                return self._object(node, known if isinstance(known, Mapping) else {})
            case Sequence():
                return self._sequence(node, known if isinstance(known, tuple) else None)
            case Union():
                return self._union(node, known)
            case Reference():
                return self._reference(node, known)
            case _:
                return self._compiled(node.source)

    def _compiled(self, source: Source) -> str:
        """The part as llguidance compiles JSON Schema, with the definitions that it needs."""
        needed: dict[str, Source] = {}
        open_names = _named_in(source)
        while open_names:
            name = open_names.pop()
            if name not in needed and name in self._tree.sources:
                needed[name] = self._tree.sources[name]
                open_names |= _named_in(needed[name])
        whole = {**dialect(source), "x-guidance": self._guidance}
        if needed:
            whole["$defs"] = {name: dialect(part) for name, part in needed.items()}
        return self.rules.rule("%json " + json.dumps(whole, ensure_ascii=False))

    def _text_rule(self, node: Text) -> str:
        if node.verbatim is None:
            return self._compiled(node.source)
        run = verbatim_terminal(self.rules, self._text, node.verbatim, _escape, _TRIMMED)
        if run is None:
            # A text without a word has no run of them; nothing can be written here.
            return self.rules.rule('"\\"" /[^\\x00-\\x{10FFFF}]/')
        if node.min_length > 1 or node.max_length is not None:
            run = self.rules.terminal(f"{run} & /({_UNIT}){_times(node.min_length, node.max_length)}/")
        return f'"\\"" {run} "\\""'

    def _object(self, node: Object, known: Mapping[str, Known]) -> str:
        """A rule for every place between two fields, so that each may be there or not: one for the first field that
        is there, and one for those after it."""
        begun = after = self._entries(node, first=False)
        begin = self._entries(node, first=True)
        for field in reversed(node.fields):
            entry = self._entry(field, known.get(field.name))
            if entry is None:
                continue
            item = literal(self._item)
            skip_first, skip_after = ("", "") if _must(field, known) else (f" | {begin}", f" | {after}")
            begin, after = (
                self.rules.rule(f"{entry} {begun}{skip_first}"),
                self.rules.rule(f"{item} {entry} {after}{skip_after}"),
            )
            begun = after
        return self.rules.rule(f'"{{" {begin} "}}"')

    def _entry(self, field: Field, known: Known) -> str | None:
        if isinstance(known, Fixed) and known.value is MISSING:
            return None
        key = literal(_written(field.name, _spelling) + self._colon)
        return f"{key} {self.node(field.node, known)}"

    def _entries(self, node: Object, *, first: bool) -> str:
        """The entries behind the named fields: other keys, where the object has such."""
        if node.extra is None:
            return '""'
        key = self.rules.terminal(f"/{_KEY}/")
        entry = f"{key} {literal(self._colon)} {self.node(node.extra)}"
        item = literal(self._item)
        more = f"({item} {entry})*"
        return self.rules.rule(f"({entry} {more})?" if first else more)

    def _sequence(self, node: Sequence, known: tuple[Known, ...] | None) -> str:
        item = literal(self._item)
        if known is not None:
            items = [self.node(self._item_of(node, i), one) for i, one in enumerate(known)]
            return '"[" ' + f" {item} ".join(items) + ' "]"' if items else '"[]"'
        first = [self.node(one) for one in node.prefix]
        if node.items is None:
            whole = f" {item} ".join(first)
            return self.rules.rule(f'"[" {whole} "]"')
        one = self.node(node.items)
        low = max(node.min_items - len(first), 0)
        high = None if node.max_items is None else node.max_items - len(first)
        if first:
            body = f" {item} ".join(first) + f" ({item} {one}){_times(low, high)}"
            return self.rules.rule(f'"[" {body} "]"')
        body = f"{one} ({item} {one}){_times(max(low - 1, 0), None if high is None else high - 1)}"
        return self.rules.rule(f'"[" {body} "]"' + (' | "[]"' if low == 0 else ""))

    def _item_of(self, node: Sequence, i: int) -> Node:
        if i < len(node.prefix):
            return node.prefix[i]
        return node.items if node.items is not None else Anything({})

    def _union(self, node: Union, known: Known) -> str:
        options = [self.node(option, known if self._fits(option, known) else None) for option in node.options]
        return self.rules.rule(" | ".join(options))

    def _fits(self, node: Node, known: Known) -> bool:
        found = self._tree.resolved(node)
        if isinstance(known, Mapping):
            return isinstance(found, Object) and known.keys() <= {field.name for field in found.fields}
        return known is None or isinstance(found, Sequence)

    def _reference(self, node: Reference, known: Known) -> str:
        target = self._tree.definitions[node.name]
        if known is not None:
            return self.node(target, known)
        name = self.rules.reserve(node.name)
        if not self.rules.defined(name):
            self.rules.define(name, '""')
            self.rules.define(name, self.node(target))
        return name


def _beside_verbatim(tree: Tree, node: Node, path: str, seen: set[str]) -> Iterator[str]:
    """Patterns and formats of verbatim strings, which validation alone enforces."""
    match node:
        case Text(verbatim=Verbatim()):
            yield from (f"{path}: {key} of a verbatim field" for key in ("pattern", "format") if key in node.source)
        case Reference() if node.name not in seen:
            # Each definition once, at its first place.
            seen.add(node.name)
            yield from _beside_verbatim(tree, tree.definitions[node.name], path, seen)
        case Object():
            for field in node.fields:
                yield from _beside_verbatim(tree, field.node, f"{path}.{field.name}", seen)
        case Sequence() | Union():
            below = f"{path}[]" if isinstance(node, Sequence) else path
            for child in tree.children(node):
                yield from _beside_verbatim(tree, child, below, seen)


def _must(field: Field, known: Mapping[str, Known]) -> bool:
    value = known.get(field.name)
    return field.required or value is not None


def _escape(unit: str) -> str:
    return _written(unit, _spelling)[1:-1]


def _times(low: int, high: int | None) -> str:
    return f"{{{low},{high}}}" if high is not None else ("*" if low == 0 else f"{{{low},}}")


def _named_in(source: Any) -> set[str]:
    """Names of the definitions that a part refers to."""
    if isinstance(source, list | tuple):
        return {name for child in source for name in _named_in(child)}
    if not isinstance(source, Mapping):
        return set()
    own = source.get("$ref")
    names = {own.rsplit("/", 1)[-1]} if isinstance(own, str) else set()
    return names | {name for child in source.values() for name in _named_in(child)}
