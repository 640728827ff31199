"""The grammar of a layout's documents, for one record's text."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from gristmill.grammar.rules import MISSING, Fixed, Known, Rules, literal, verbatim_terminal
from gristmill.grammar.tree import Boolean, Choice, Number, Text
from gristmill.grammar.xml.formats import FORMATS
from gristmill.grammar.xml.layout import (
    Content,
    Items,
    Layout,
    Leaf,
    LeafNode,
    Named,
    Part,
    Place,
    Record,
    Slot,
    Variant,
)
from gristmill.grammar.xml.leaf import BOUNDS, may_be_empty, spell_leaf
from gristmill.grammar.xml.names import DECIMAL
from gristmill.grammar.xml.pattern import Unsayable, Written, translate
from gristmill.grammar.xml.text import ATTRIBUTE, CONTENT, ILLEGAL, NIL, speakable
from gristmill.grammar.xml.text import Place as Escapes
from gristmill.grammar.xml.writing import Writer
from gristmill.verbatim import Verbatim, words_of

_INTEGER = r"(?:0|-?[1-9][0-9]*)"
# The exponents that a double can have, with two digits at least.
_LARGE = r"\+(?:[0-9]{2}|[12][0-9]{2}|30[0-8])"
_SMALL = "-(?:[0-9]{2}|[12][0-9]{2}|3[01][0-9]|32[0-4])"
_ANY_KEY = Leaf((Text({}),))


class GrammarBuilder:
    """Builds the grammar of one text.

    A tag is one lexeme wherever its element has no attributes, and otherwise ends before them: the engine's lexer takes
    the longest lexeme that fits, so no two alternatives may cut the same characters differently.
    """

    def __init__(self, layout: Layout, source_text: str) -> None:
        self.rules = Rules()
        self._layout = layout
        self._writer = Writer(layout)
        self._exact = Writer(layout, exact=True)
        self._text = speakable(source_text)
        self._has_words: dict[Verbatim, bool] = {}
        self._runs: dict[tuple[Verbatim, bool], str] = {}

    def element(self, name: str, slot: Slot, known: Known = None, lead: str = "") -> str:
        """An element as a part of a rule's body; `lead` stands for the attributes that come first."""
        if isinstance(known, Fixed):
            return literal(self._writer.element(name, slot, known.value, json.loads(lead) if lead else ""))
        if isinstance(slot.content, Named) and known is None:
            rule = self.rules.reserve(f"{name} {slot.content.name} {slot.nillable} {lead}")
            if not self.rules.defined(rule):
                self.rules.define(rule, '""')
                self.rules.define(rule, self._element(name, slot, None, lead))
            return rule
        return self._element(name, slot, known, lead)

    def _element(self, name: str, slot: Slot, known: Known, lead: str) -> str:
        slot = self._layout.opened(slot)
        begin, end = literal(f"<{name}"), literal(f"</{name}>")
        if slot.content is None:
            return f"{begin} {lead} {literal(NIL)}"
        attributes, inner = self._content(slot.content, known)
        if slot.nillable and known is None:
            return f'({begin} {lead} ({attributes} ">" {inner} {end} | {literal(NIL)}))'
        if lead or attributes or slot.nillable:
            return f'{begin} {lead} {attributes} ">" {inner} {end}'
        return f"{literal(f'<{name}>')} {inner} {end}"

    def _content(self, content: Content, known: Known) -> tuple[str, str]:
        """The attributes of an element, and what stands in it."""
        match content:
            case Leaf():
                return "", self._leaf(content, CONTENT)
            case Record():
                return self._record(content, known if isinstance(known, Mapping) else {})
            case Items():
                return "", self._items(content, known if isinstance(known, tuple) else None)
            case Variant():
                return "", self._variant(content, known)
            case Named():
                opened = self._layout.opened(Slot(content)).content
                return ("", "") if opened is None else self._content(opened, known)

    def _record(self, record: Record, known: Mapping[str, Known]) -> tuple[str, str]:
        attributes: list[str] = []
        inner: list[str] = []
        for part in record.parts:
            body = self._group(part, known) if part.grouped else self._part(part, known.get(part.key))
            (attributes if part.place is Place.ATTRIBUTE else inner).append(body)
        if record.extra is not None:
            taken = [key for key in known if key not in record.keys]
            for key in taken:
                if known[key] != Fixed(MISSING):
                    lead = literal(f' key="{ATTRIBUTE.escape(key)}"')
                    inner.append(self.element("entry", record.extra, known[key], lead))
            if self._can_be(record.extra):
                key = self._leaf(_ANY_KEY, ATTRIBUTE)
                lead = f'" key=\\"" {key} "\\""'
                entry = self.rules.rule(self.element("entry", record.extra, None, lead))
                most = None if record.most is None else max(record.most - len(taken), 0)
                inner.append(_repeated(entry, max(record.least - len(taken), 0), most))
        return " ".join(filter(None, attributes)), " ".join(filter(None, inner))

    def _group(self, part: Part, known: Mapping[str, Known]) -> str:
        content = part.slot.content
        inside = content.keys if isinstance(content, Record) else frozenset()
        there = [key for key in inside if known.get(key) not in (None, Fixed(MISSING))]
        if inside and all(known.get(key) == Fixed(MISSING) for key in inside):
            return ""
        body = self.element(part.name, part.slot, known)
        return body if part.required or there else f"({body})?"

    def _part(self, part: Part, known: Known) -> str:
        if isinstance(known, Fixed):
            missing = known.value is MISSING
            written = "" if missing else self._writer.part(part, known.value, "$")
            return literal(written) if written else ""
        if not part.required and known is None and not self._can_be(part.slot):
            return ""
        match part.place:
            case Place.ATTRIBUTE | Place.TEXT:
                leaf = self._layout.opened(part.slot).content
                if not isinstance(leaf, Leaf):
                    raise TypeError(f"{part.key}: {leaf!r} is no leaf")
                if part.place is Place.TEXT:
                    return self._leaf(leaf, CONTENT)
                body = f'{literal(f" {part.name}=")[:-1]}\\"" {self._leaf(leaf, ATTRIBUTE)} "\\""'
            case Place.ELEMENT:
                body = self.element(part.name, part.slot, known)
            case Place.REPEATED:
                if isinstance(known, tuple):
                    return " ".join(self.element(part.name, part.slot, each) for each in known)
                if not self._can_be(part.slot) and part.least == 0:
                    return ""
                body = _repeated(self.rules.rule(self.element(part.name, part.slot)), part.least, part.most)
                return body if part.required or part.least == 0 else f"({body})?"
        return body if part.required or known is not None else f"({body})?"

    def _items(self, items: Items, known: tuple[Known, ...] | None) -> str:
        slots = list(items.prefix)
        if known is not None:
            slots += [items.item] * (len(known) - len(slots)) if items.item is not None else []
            named = zip(known, slots, strict=False)
            return " ".join(self.element(self._item_name(items, i), slot, each) for i, (each, slot) in enumerate(named))
        rest = ""
        if items.item is not None and (self._can_be(items.item) or items.least > len(slots)):
            most = None if items.most is None else items.most - len(slots)
            element = self.rules.rule(self.element(items.name, items.item))
            rest = _repeated(element, max(items.least - len(slots), 0), most)
        for number in reversed(range(len(slots))):
            rest = f"{self.element(self._item_name(items, number), slots[number])} {rest}"
            if number >= items.least:
                rest = f"({rest})?"
        return rest

    def _item_name(self, items: Items, number: int) -> str:
        return f"item{number + 1}" if number < len(items.prefix) else items.name

    def _variant(self, variant: Variant, known: Known) -> str:
        fitting = [option for option in variant.options if known is None or self._fits(option[1], known)]
        options = [option for option in fitting if self._can_be(option[1])] or fitting or list(variant.options)
        return f"({' | '.join(self.element(name, slot, known) for name, slot in options)})"

    def _fits(self, slot: Slot, known: Known) -> bool:
        """Whether an option of a union has all the fields that are known, with the values that are known."""
        content = self._layout.opened(slot).content
        if isinstance(known, tuple):
            return isinstance(content, Items)
        if not isinstance(known, Mapping) or not isinstance(content, Record):
            return False
        parts = {part.key: part for part in content.parts}
        for key, value in known.items():
            if key not in parts:
                if content.extra is None and value != Fixed(MISSING):
                    return False
            elif isinstance(value, Fixed) and value.value is not MISSING:
                try:
                    self._exact.part(parts[key], value.value, "$")
                except ValueError:
                    return False
        return True

    def _can_be(self, slot: Slot) -> bool:
        """Whether anything can stand here; a verbatim string can't where the text has no word."""
        slot = self._layout.opened(slot)
        if not isinstance(slot.content, Leaf) or slot.nillable:
            return True
        return any(not isinstance(kind, Text) or self._has_word(kind) for kind in slot.content.kinds)

    def _has_word(self, kind: Text) -> bool:
        if kind.verbatim is None:
            return True
        if kind.verbatim not in self._has_words:
            words = words_of(self._text, kind.verbatim)
            units = zip(words.units, words.spaces, strict=True)
            self._has_words[kind.verbatim] = any(not space and not ILLEGAL.search(unit) for unit, space in units)
        return self._has_words[kind.verbatim]

    def _tied(self, verbatim: Verbatim, place: Escapes) -> str:
        """The terminal for the runs of words of the text; a text is cut into them once for all fields of a kind."""
        key = (verbatim, place is ATTRIBUTE)
        if key not in self._runs:
            runs = verbatim_terminal(self.rules, self._text, verbatim, place.escape_known, place.trimmed)
            if runs is None:
                raise ValueError("the text has no word, so no value can be a run of its words")
            self._runs[key] = runs
        return self._runs[key]

    def _leaf(self, leaf: Leaf, place: Escapes) -> str:
        bodies = [body for kind in leaf.kinds if (body := self._kind(kind, place))]
        empty = any(may_be_empty(kind) for kind in leaf.kinds) or len(bodies) < len(leaf.kinds)
        if not bodies:
            return ""
        return f"({' | '.join(bodies)}){'?' if empty else ''}"

    def _kind(self, kind: LeafNode, place: Escapes) -> str:
        """A leaf of one kind, the empty string left out; nothing where there is only that."""
        match kind:
            case Number():
                source: dict[str, Any] = {key: kind.source[key] for key in BOUNDS if key in kind.source}
                if not source:
                    return self.rules.terminal(f"/{_INTEGER if kind.integer else _number(kind)}/")
                source["type"] = "integer" if kind.integer else "number"
                source["x-guidance"] = {"whitespace_flexible": False}
                return self.rules.rule(f"%json {json.dumps(source)}")
            case Boolean():
                return '"true" | "false"'
            case Choice():
                spelt = [place.escape(spell_leaf([kind], value)) for value in kind.values]
                return self._any_of(spelling for spelling in spelt if spelling)
            case Text():
                return self._string(kind, place)

    def _any_of(self, spellings: Iterable[str]) -> str:
        body = " | ".join(map(literal, spellings))
        return self.rules.terminal(body) if body else ""

    def _string(self, kind: Text, place: Escapes) -> str:
        if kind.max_length == 0:
            return ""
        bodies = []
        if kind.verbatim is not None:
            if not self._has_word(kind):
                return ""
            bodies.append(self._tied(kind.verbatim, place))
        pattern = kind.pattern if kind.pattern is not None else FORMATS.get(kind.format or "")
        said = [pattern] if kind.pattern is None or kind.format not in FORMATS else [pattern, FORMATS[kind.format]]
        for each in said:
            if each is not None:
                try:
                    bodies.append(f"/{_slashed(translate(each, Written(place)))}/")
                except Unsayable:
                    continue  # named among what is relaxed
        if not bodies or kind.min_length > 1 or kind.max_length is not None:
            most = "" if kind.max_length is None else str(kind.max_length)
            bodies.append(f"/{_slashed(place.unit)}{{{max(kind.min_length, 1)},{most}}}/")
        elif kind.verbatim is None:
            bodies.append("/(?s:.+)/")
        return self.rules.terminal(" & ".join(bodies))


def _number(kind: Number) -> str:
    """A number as Python writes it; a decimal has no exponent."""
    exponent = "" if kind.source.get(DECIMAL) is True else f"(?:e(?:{_LARGE}|{_SMALL}))?"
    return rf"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?{exponent}"


def _repeated(element: str, least: int, most: int | None) -> str:
    if most == 0:
        return ""
    if most is None:
        return f"{element}*" if least == 0 else f"{element}{{{least},}}"
    return f"{element}{{{least},{most}}}"


def _slashed(expression: str) -> str:
    """A regular expression as it may stand between slashes."""
    return expression.replace("/", r"\/")
