"""Bounds: what in a schema has no end of its own, and how long the longest answer is."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from math import ceil
from typing import Any

from gristmill.grammar.closing.dialect import LONGEST, LOOSE, LOOSE_FORMATS
from gristmill.grammar.closing.widths import width
from gristmill.grammar.tree import (
    Anything,
    Boolean,
    Choice,
    Node,
    Null,
    Number,
    Object,
    Reference,
    Sequence,
    Text,
    Tree,
    Union,
)

CHARACTERS_PER_TOKEN = 2.4
"""Characters that a token of an answer has where no tokenizer says, brackets and quotes included: that of the embedded
model has 2.4 to 3.1 over the examples of the schemas that come with us."""

ENDLESS_CHARACTERS = 20
"""Characters that a number or a value of any kind is reckoned with where it has no end."""


@dataclass(frozen=True, slots=True)
class Size:
    """The most characters of a part; where it is `endless`, with one of each thing that has no end."""

    characters: int
    endless: bool = False

    def __add__(self, other: "Size") -> "Size":
        return Size(self.characters + other.characters, self.endless or other.endless)

    def times(self, count: int) -> "Size":
        """So many of them."""
        return Size(self.characters * count, self.endless and count > 0)

    def tokens(self, characters_per_token: float) -> int:
        """In tokens, rounded up."""
        return ceil(self.characters / characters_per_token)


@dataclass(frozen=True, slots=True)
class FieldSize:
    """A field at the top of an answer (the whole, where it is no object), with its key."""

    name: str
    size: Size


@dataclass(frozen=True)
class Bounds:
    """What limits answers of a schema.

    `endless`: parts that could run on for ever, as `$.path: what`. `capped`: strings that only the option `max_string`
    ends, by path. `copied`: strings that the record's text ends, since they are a run of its words; they are reckoned
    with `copied_characters`. `fields` and `whole` are the longest there is, escapes not counted.
    """

    endless: tuple[str, ...]
    capped: tuple[str, ...]
    copied: tuple[str, ...]
    copied_characters: int
    fields: tuple[FieldSize, ...]
    whole: Size


def bounds_of(tree: Tree, *, xml: bool = False, copied_characters: int = 500) -> Bounds:
    """Measure a tree in the spelling of JSON or XML."""
    measure = _Measure(tree, xml, copied_characters)
    root = tree.resolved(tree.root)
    fields: list[FieldSize] = []
    if isinstance(root, Object) and not _holds_itself(tree):
        fields = [FieldSize(each.name, measure.entry(each.name, each.node, f"$.{each.name}")) for each in root.fields]
        whole = measure.frame(len(fields))
        for each in fields:
            whole += each.size
        if root.extra is not None:
            whole += measure.others(root, root.extra, "$")
    else:
        whole = measure.size(tree.root, "$")
    return Bounds(
        tuple(dict.fromkeys(measure.endless)),
        tree.capped,
        tuple(dict.fromkeys(measure.copied)),
        copied_characters,
        tuple(fields),
        whole,
    )


def _holds_itself(tree: Tree) -> bool:
    return isinstance(tree.root, Reference)


@dataclass
class _Measure:
    tree: Tree
    xml: bool
    copied_characters: int
    endless: list[str] = field(default_factory=list)
    copied: list[str] = field(default_factory=list)
    known: dict[str, Size] = field(default_factory=dict)
    open: set[str] = field(default_factory=set)

    def size(self, node: Node, path: str) -> Size:
        match node:
            case Text():
                return self._text(node, path)
            case Number():
                return self._number(node, path)
            case Boolean():
                return Size(5)
            case Null():
                return Size(4)
            case Choice():
                return Size(max(len(json.dumps(value, ensure_ascii=False)) for value in node.values))
            case Sequence():
                return self._sequence(node, path)
            case Object():
                whole = self.frame(len(node.fields))
                for each in node.fields:
                    whole += self.entry(each.name, each.node, f"{path}.{each.name}")
                return whole if node.extra is None else whole + self.others(node, node.extra, path)
            case Union():
                sizes = [self.size(option, path) for option in node.options]
                return Size(max(each.characters for each in sizes), any(each.endless for each in sizes))
            case Reference():
                return self._reference(node, path)
            case Anything():
                return self._anything(node, path)

    def frame(self, fields: int) -> Size:
        """The brackets of an object and what stands between its fields."""
        return Size(0 if self.xml else 2 + 2 * max(fields - 1, 0))

    def entry(self, name: str, node: Node, path: str) -> Size:
        """A field with its key, or its tags."""
        key = 2 * len(name) + 5 if self.xml else len(json.dumps(name, ensure_ascii=False)) + 2
        return Size(key) + self.size(node, path)

    def others(self, node: Object, extra: Node, path: str) -> Size:
        """The entries under keys that the schema does not name."""
        most = node.source.get("maxProperties")
        what = "dictionary without max_length" if most is None else "dictionary whose keys have no max_length"
        self.endless.append(f"{path}: {what}")
        one = Size(ENDLESS_CHARACTERS + 6) + self.size(extra, f"{path}.*")
        return Size(one.times(most or 1).characters, True)

    def _text(self, node: Text, path: str) -> Size:
        if node.verbatim is not None:
            if node.max_length is None:
                self.copied.append(path)
            most = [self.copied_characters] if node.max_length is None else [self.copied_characters, node.max_length]
            return Size(min(most) + 2)
        if node.source.get(LOOSE) and node.pattern is None:
            return Size(LOOSE_FORMATS[str(node.format)][1] + 2)
        limits = [node.max_length, width(node.pattern), LONGEST.get(node.format or "")]
        known = [limit for limit in limits if limit is not None]
        if known:
            return Size(min(known) + 2)
        self.endless.append(f"{path}: string without max_length")
        return Size(ENDLESS_CHARACTERS, True)

    def _number(self, node: Number, path: str) -> Size:
        low, high = (_limit(node.source, key) for key in ("inimum", "aximum"))
        if low is None or high is None:
            self.endless.append(f"{path}: number without lower and upper bound")
            return Size(ENDLESS_CHARACTERS, True)
        whole = max(len(str(int(low))), len(str(int(high)))) + (1 if -1 < low < 0 else 0)
        if node.integer:
            return Size(whole)
        if "multipleOf" in node.source:
            exponent = Decimal(repr(node.source["multipleOf"])).normalize().as_tuple().exponent
            return Size(whole + 1 + max(1, -int(exponent)))
        self.endless.append(f"{path}: number whose decimal places have no end (multiple_of ends them)")
        return Size(ENDLESS_CHARACTERS, True)

    def _sequence(self, node: Sequence, path: str) -> Size:
        total = Size(0 if self.xml else 2)
        between = Size(0 if self.xml else 2)
        for one in node.prefix:
            total += self.size(one, f"{path}[]") + between
        if node.items is None:
            return total
        if node.max_items is None:
            self.endless.append(f"{path}: list without max_length")
        item = self.size(node.items, f"{path}[]") + between
        count = 1 if node.max_items is None else max(node.max_items - len(node.prefix), 0)
        total += item.times(count)
        return Size(total.characters, total.endless or node.max_items is None)

    def _reference(self, node: Reference, path: str) -> Size:
        if node.name in self.open:
            self.endless.append(f"{path}: recursion into {node.name}")
            return Size(0, True)
        if node.name not in self.known:
            self.open.add(node.name)
            self.known[node.name] = self.size(self.tree.definitions[node.name], path)
            self.open.discard(node.name)
        return self.known[node.name]

    def _anything(self, node: Anything, path: str) -> Size:
        said = sorted(key for key in node.source if key not in ("type", "additionalProperties"))
        what = f" with {', '.join(said)}" if said else ""
        kind = node.source.get("type") or "value of any kind"
        if kind == "object":
            # Keys are strings, and the engine lets them be as long as they like.
            few = "maxProperties" in node.source
            whose = "whose keys have no max_length" if few else "without max_length"
            self.endless.append(f"{path}: dictionary {whose}")
            return Size(2 * ENDLESS_CHARACTERS, True)
        self.endless.append(f"{path}: {kind}{what}, which the grammar engine alone measures")
        return Size(ENDLESS_CHARACTERS, True)


def _limit(source: Mapping[str, Any], name: str) -> float | None:
    found = [source[key] for key in (f"m{name}", f"exclusiveM{name}") if isinstance(source.get(key), int | float)]
    return found[0] if found else None
