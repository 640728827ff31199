"""From the tree to the layout: which names, which lists get a wrapper, which alternatives an element of their own."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from gristmill.errors import SchemaError
from gristmill.grammar.tree import (
    Anything,
    Boolean,
    Choice,
    Field,
    Node,
    Null,
    Number,
    Object,
    Reference,
    Sequence,
    Source,
    Text,
    Tree,
    Union,
)
from gristmill.grammar.xml.layout import Items, Layout, Leaf, LeafNode, Named, Part, Place, Record, Slot, Variant
from gristmill.grammar.xml.leaf import leaf_relaxed, may_be_mistaken
from gristmill.grammar.xml.names import KEYWORD
from gristmill.grammar.xml.text import check_name

ANY = "\x00any"
"""The name of the definition for a part of which the schema says nothing."""

_OF_OBJECTS = ("patternProperties", "minProperties", "maxProperties")


def plan(tree: Tree) -> Layout:
    """The layout of a tree.

    Raises:
        SchemaError: something can't be said in XML; the message has its path.
    """
    return Planner(tree).plan()


class Planner:
    """Makes slots of nodes; `relaxed` collects what the grammar leaves to validation."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.relaxed: list[str] = []
        self.definitions: dict[str, Slot] = {}
        self.pending: list[str] = []

    def plan(self) -> Layout:
        """The layout of the whole tree."""
        root = self.slot(self.tree.root, "$")
        while self.pending:
            name = self.pending.pop()
            if name not in self.definitions:
                self.definitions[name] = self.slot(self.tree.definitions[name], f"$defs/{name}")
        relaxed = dict.fromkeys((*self.tree.relaxed, *self.relaxed))
        return Layout(root, self.definitions, tuple(relaxed))

    def slot(self, node: Node, path: str) -> Slot:
        """What an element for a node holds."""
        match node:
            case Null():
                return Slot(None, nillable=True)
            case Text() | Number() | Boolean() | Choice() | Union():
                return self.union(list(self.options(node, path)), path)
            case Reference():
                self.tree.resolved(node)
                self.pending.append(node.name)
                return Slot(Named(node.name))
            case Sequence():
                return Slot(self.items(node, path))
            case Object():
                return Slot(self.record(node, path))
            case Anything():
                return self.anything(node.source, path)

    def options(self, node: Node, path: str) -> Iterable[Node]:
        """A union's options, those of unions in it included; a choice of several kinds as several choices."""
        if isinstance(node, Union):
            for option in node.options:
                target = self.tree.resolved(option)
                yield from self.options(target if not isinstance(target, Object) else option, path)
        elif isinstance(node, Choice):
            if any(isinstance(value, dict | list) for value in node.values):
                raise SchemaError(
                    f"{path}: a list or an object as one of the values can't be spelt in XML; give a type"
                )
            strings = tuple(value for value in node.values if isinstance(value, str))
            others = tuple(value for value in node.values if not isinstance(value, str) and value is not None)
            yield from (Choice(node.source, values) for values in (others, strings) if values)
            if None in node.values:
                yield Null({})
        else:
            yield node

    def union(self, options: list[Node], path: str) -> Slot:
        """Alternatives: as text if they can be told apart, otherwise each in an element of its own."""
        nillable = any(isinstance(option, Null) for option in options)
        left = [option for option in options if not isinstance(option, Null)]
        leaves: list[LeafNode] = [o for o in left if isinstance(o, Text | Number | Boolean | Choice)]
        if len(leaves) == len(left) and not may_be_mistaken(leaves):
            for leaf in leaves:
                self.relaxed += [f"{path}: {what}" for what in leaf_relaxed(leaf)]
            ordered = sorted(leaves, key=lambda leaf: isinstance(leaf, Text) or _of_strings(leaf))
            return Slot(Leaf(tuple(ordered)) if ordered else None, nillable)
        if len(left) == 1:
            slot = self.slot(left[0], path)
            return Slot(slot.content, nillable or slot.nillable)
        named: list[tuple[str, Slot]] = []
        for option in left:
            kind = _kind_of(option)
            taken = [name for name, _ in named]
            name = next(n for n in (kind, *(f"{kind}{i}" for i in range(2, len(left) + 2))) if n not in taken)
            one = self.union([option], path) if isinstance(option, LeafNode) else self.slot(option, path)
            named.append((check_name(name, path), one))
        return Slot(Variant(tuple(named)), nillable)

    def items(self, node: Sequence, path: str) -> Items:
        """A list's items inside an element."""
        items = self.slot(node.items, f"{path}[]") if node.items is not None else None
        prefix = tuple(self.slot(child, f"{path}[{i}]") for i, child in enumerate(node.prefix))
        name = _said(node.items.source if node.items is not None else {}).get("name", "item")
        most = node.max_items if items is not None or node.max_items is None else min(node.max_items, len(prefix))
        return Items(check_name(name, f"{path}[]"), items, prefix, node.min_items, most)

    def record(self, node: Object, path: str) -> Record:
        """An object's fields inside an element."""
        parts = [self.part(field, f"{path}.{field.name}") for field in node.fields]
        for part, field in zip(parts, node.fields, strict=True):
            same = [p for p in parts if p.name == part.name and _kind_of_place(p) == _kind_of_place(part)]
            if len(same) > 1:
                raise SchemaError(
                    f"{path}.{field.name}: {same[0].key!r} and {same[1].key!r} are both called {part.name!r} in XML; "
                    "give one another name by Xml(name=...)"
                )
        ordered = tuple(sorted(parts, key=lambda part: part.place is not Place.ATTRIBUTE))
        if node.extra is None:
            return Record(ordered)
        if any(part.name == "entry" and part.place is not Place.ATTRIBUTE for part in parts):
            raise SchemaError(f"{path}: a field is called 'entry' like the elements of other keys; use Xml(name=...)")
        extra = self.slot(node.extra, f"{path}.*")
        return Record(ordered, extra, node.source.get("minProperties", 0), node.source.get("maxProperties"))

    def part(self, field: Field, path: str) -> Part:
        """A field as an attribute, an element, or several of one name."""
        node = field.node
        target = self.tree.resolved(node)
        said = {**_said(target.source), **_said(node.source)}
        name = said.get("name", field.name)
        lists = [o for o in self.options(target, path) if not isinstance(o, Null)]
        nullable = len(lists) < len(list(self.options(target, path)))
        if said.get("attribute"):
            slot = self.slot(node, path)
            content = self.opened(slot).content
            if not isinstance(content, Leaf) or self.opened(slot).nillable:
                raise SchemaError(
                    f"{path}: only text, numbers, booleans and enumerations that can't be null fit into an "
                    "attribute; let null be absent, or leave Xml(attribute=True) out"
                )
            return Part(field.name, check_name(name, path), Place.ATTRIBUTE, slot, field.required)
        only = self.tree.resolved(lists[0]) if len(lists) == 1 else None
        if isinstance(only, Sequence) and only.items is not None and not only.prefix and not nullable:
            may_confuse = not field.required and only.min_items == 0
            if not said.get("wrapped", may_confuse):
                item = self.slot(only.items, f"{path}[]")
                name = check_name(_said(only.items.source).get("name", name), path)
                return Part(field.name, name, Place.REPEATED, item, field.required, only.min_items, only.max_items)
        elif said.get("wrapped") is False and isinstance(only, Sequence):
            raise SchemaError(f"{path}: null, or items of several types, need a wrapper; leave out wrapper=False")
        return Part(field.name, check_name(name, path), Place.ELEMENT, self.slot(node, path), field.required)

    def opened(self, slot: Slot) -> Slot:
        """A slot with a name of a definition replaced by what it means."""
        while isinstance(slot.content, Named):
            name = slot.content.name
            meant = self.slot(self.tree.definitions[name], f"$defs/{name}")
            slot = Slot(meant.content, slot.nillable or meant.nillable)
        return slot

    def anything(self, source: Source, path: str) -> Slot:
        """A part that the tree leaves open: a dictionary if it is one, otherwise any JSON value, each with its kind."""
        if source.get("type") == "object" and not {"anyOf", "oneOf", "allOf"} & source.keys():
            properties = source.get("properties", {})
            plain: dict[str, Any] = {key: value for key, value in source.items() if key not in _OF_OBJECTS}
            plain["required"] = [name for name in source.get("required", ()) if name in properties]
            patterns = list(source.get("patternProperties", {}).values())
            if patterns:
                rest = source.get("additionalProperties", False)
                choices = patterns + ([] if rest is False else [rest])
                plain["additionalProperties"] = choices[0] if len(choices) == 1 else {"anyOf": choices}
                self.relaxed.append(f"{path}: patternProperties")
            node = self.tree.node(plain, path)
            assert isinstance(node, Object)  # noqa: S101 - by the type that was just looked at
            record = self.record(node, path)
            counted = [key for key in ("minProperties", "maxProperties") if key in source]
            if not record.parts:
                return Slot(Record((), record.extra, source.get("minProperties", 0), source.get("maxProperties")))
            self.relaxed += [f"{path}: {key}" for key in counted]
            return Slot(record)
        if source:
            self.relaxed.append(f"{path}: {', '.join(sorted(source.keys() - {KEYWORD}))}")
        if ANY not in self.definitions:
            one = Slot(Named(ANY))
            string = Slot(Leaf((Text({}),)))
            options = (
                ("string", string),
                ("integer", Slot(Leaf((Number({}, True),)))),
                ("number", Slot(Leaf((Number({}, False),)))),
                ("boolean", Slot(Leaf((Boolean({}),)))),
                ("list", Slot(Items("item", one))),
                ("object", Slot(Record((), one))),
            )
            self.definitions[ANY] = Slot(Variant(options), nillable=True)
        return Slot(Named(ANY))


def _said(source: Source) -> Mapping[str, Any]:
    """What a schema says about XML."""
    said = source.get(KEYWORD, {})
    return said if isinstance(said, Mapping) else {}


def _of_strings(leaf: LeafNode) -> bool:
    return isinstance(leaf, Choice) and isinstance(leaf.values[0], str)


def _kind_of_place(part: Part) -> bool:
    return part.place is Place.ATTRIBUTE


def _kind_of(node: Node) -> str:
    """A name for an option of a union: that of its class, or of its type."""
    match node:
        case Reference():
            name = re.sub(r"[^\w.-]", "_", node.name).strip("_.-") or "object"
            return name if not name[0].isdigit() and not name.lower().startswith("xml") else f"_{name}"
        case Text() | Choice():
            return "string" if isinstance(node, Text) or isinstance(node.values[0], str) else "value"
        case Number():
            return "integer" if node.integer else "number"
        case Boolean():
            return "boolean"
        case Sequence():
            return "list"
        case Object():
            return "object"
        case _:
            return "value"
