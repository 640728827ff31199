"""The tree: what a JSON Schema says, as one node for each part, ready to be spelt as JSON or as XML."""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gristmill.errors import SchemaError
from gristmill.grammar.verbatim import KEYWORD, Verbatim

Source = Mapping[str, Any]

RELAXED = (
    "uniqueItems",
    "not",
    "if",
    "then",
    "else",
    "contains",
    "minContains",
    "maxContains",
    "propertyNames",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "unevaluatedItems",
    "unevaluatedProperties",
    "contentSchema",
    "contentEncoding",
    "contentMediaType",
)
"""Keywords that the grammar engine refuses or passes over (llguidance 1.9 `docs/json_schema.md`); validation enforces
them."""

_NOTES = ("title", "description", "examples", "default", "deprecated", "discriminator", "readOnly", "writeOnly")
_NOTES_OF_FILES = ("$schema", "$id", "$comment", "$anchor", "$vocabulary", "x-examples", "x-options", "x-prompt")


@dataclass(frozen=True, slots=True)
class Text:
    """A string; lengths are in characters, `verbatim` says how it is tied to the record's text."""

    source: Source
    min_length: int = 0
    max_length: int | None = None
    pattern: str | None = None
    format: str | None = None
    verbatim: Verbatim | None = None


@dataclass(frozen=True, slots=True)
class Number:
    """An integer or a decimal number; its bounds stand in `source`."""

    source: Source
    integer: bool


@dataclass(frozen=True, slots=True)
class Boolean:
    """True or false."""

    source: Source


@dataclass(frozen=True, slots=True)
class Null:
    """Nothing, spelt out."""

    source: Source


@dataclass(frozen=True, slots=True)
class Choice:
    """One of these values (JSON values, of any kind)."""

    source: Source
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Sequence:
    """A list: first one item for each node of `prefix`, then items of `items` (None: no further ones)."""

    source: Source
    items: "Node | None"
    prefix: tuple["Node", ...] = ()
    min_items: int = 0
    max_items: int | None = None


@dataclass(frozen=True, slots=True)
class Field:
    """A property of an object. One that is not required may be left out."""

    name: str
    node: "Node"
    required: bool


@dataclass(frozen=True, slots=True)
class Object:
    """An object: its properties in order, then entries under other keys with values of `extra` (None: none)."""

    source: Source
    fields: tuple[Field, ...] = ()
    extra: "Node | None" = None


@dataclass(frozen=True, slots=True)
class Union:
    """One of several nodes."""

    source: Source
    options: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Reference:
    """The node of that name in the tree's definitions; the way in which a tree can be endless."""

    source: Source
    name: str


@dataclass(frozen=True, slots=True)
class Anything:
    """A part that only the engine's JSON Schema compiler and validation understand, such as `{}` or a real `allOf`."""

    source: Source


Node = Text | Number | Boolean | Null | Choice | Sequence | Object | Union | Reference | Anything


@dataclass(frozen=True)
class Tree:
    """A schema's root node and the nodes that references name.

    `relaxed` lists what the grammar leaves to validation, as `$.path: keyword`.
    """

    root: Node
    definitions: Mapping[str, Node]
    relaxed: tuple[str, ...] = ()
    sources: Mapping[str, Source] = field(default_factory=dict)

    def node(self, source: Any, path: str) -> Node:
        """The node of a further schema that refers to this tree's definitions."""
        return _node(source, path, self.sources)

    def resolved(self, node: Node) -> Node:
        """The node itself, or what a chain of references leads to."""
        seen = set()
        while isinstance(node, Reference):
            if node.name in seen:
                raise SchemaError(f"definition {node.name!r} refers to nothing but itself; give it a type")
            seen.add(node.name)
            node = self.definitions[node.name]
        return node

    def children(self, node: Node) -> Iterator[Node]:
        """The nodes directly below one."""
        match node:
            case Sequence():
                yield from node.prefix
                if node.items is not None:
                    yield node.items
            case Object():
                yield from (each.node for each in node.fields)
                if node.extra is not None:
                    yield node.extra
            case Union():
                yield from node.options
            case Reference():
                yield self.definitions[node.name]

    def ties(self, node: Node) -> bool:
        """Whether a string at or below a node is tied to the record's text."""
        seen: set[str] = set()

        def walk(node: Node) -> bool:
            if isinstance(node, Text):
                return node.verbatim is not None
            if isinstance(node, Reference):
                if node.name in seen:
                    return False
                seen.add(node.name)
            return any(walk(child) for child in self.children(node))

        return walk(node)


def tree_of(
    json_schema: Source, *, absent: str = "omitted", max_string: int | None = None, verbatim: bool = True
) -> Tree:
    """The tree of a JSON Schema (draft 2020-12 or 7) whose references are local.

    Where `absent` is "omitted", a property that is not required is left out rather than null; where it is "null", one
    that may be null is always there. `max_string` is the longest string where the schema gives no length, pattern or
    format. With `verbatim` False no string is tied to the text.

    Raises:
        SchemaError: a reference leads nowhere or out of the schema.
    """
    relaxed: list[str] = []
    source = json_schema if verbatim else _untied(json_schema)
    closed = _closed(source, "$", relaxed, absent, max_string)
    definitions: dict[str, Source] = {**closed.pop("definitions", {}), **closed.pop("$defs", {})}
    nodes: dict[str, Node] = {}
    for name, source in definitions.items():
        nodes[name] = _node(source, f"$defs/{name}", definitions)
    root = _node(closed, "$", definitions)
    # A schema that refers to itself as a whole.
    if "#" in definitions:
        raise SchemaError("a definition is called '#'; give it another name")
    return Tree(root, nodes, tuple(relaxed), definitions)


def _untied(node: Any) -> Any:
    if isinstance(node, list):
        return [_untied(child) for child in node]
    if not isinstance(node, Mapping):
        return node
    return {
        key: {name: _untied(sub) for name, sub in child.items()}
        if key in ("properties", "patternProperties") and isinstance(child, Mapping)
        else _untied(child)
        for key, child in node.items()
        if key != KEYWORD
    }


def _closed(node: Any, path: str, relaxed: list[str], absent: str, cap: int | None) -> Any:
    """A JSON Schema without notes and without what the engine refuses, with objects closed and strings capped."""
    if isinstance(node, list):
        return [_closed(child, f"{path}/{i}", relaxed, absent, cap) for i, child in enumerate(node)]
    if not isinstance(node, Mapping):
        return node
    result: dict[str, Any] = {}
    for key, child in node.items():
        if key in _NOTES or key in _NOTES_OF_FILES:
            continue
        if key in ("properties", "$defs", "definitions", "patternProperties") and isinstance(child, Mapping):
            result[key] = {
                name: _closed(sub, f"{path}.{name}" if key == "properties" else f"{path}/{name}", relaxed, absent, cap)
                for name, sub in child.items()
            }
        elif key in ("enum", "const", "required", KEYWORD):
            result[key] = copy.deepcopy(child)
        elif key in RELAXED:
            relaxed.append(f"{path}: {key}")
        else:
            below = f"{path}[]" if key in ("items", "prefixItems") else path
            result[key] = _closed(child, below, relaxed, absent, cap)
    if isinstance(result.get("properties"), dict):
        result.setdefault("additionalProperties", False)
        _decide_absent(result, absent)
    said = {"maxLength", "pattern", "format", "enum", "const", KEYWORD} & result.keys()
    if cap is not None and result.get("type") == "string" and not said:
        result["maxLength"] = max(cap, result.get("minLength", 0))
    return result


def _decide_absent(source: dict[str, Any], absent: str) -> None:
    required = list(source.get("required", ()))
    for name, child in source["properties"].items():
        if name in required or not isinstance(child, dict):
            continue
        options = child.get("anyOf", ())
        nullable = any(isinstance(option, Mapping) and option.get("type") == "null" for option in options)
        if not nullable:
            continue
        if absent == "null":
            required.append(name)
        else:
            left = [option for option in options if option.get("type") != "null"]
            others = {key: value for key, value in child.items() if key != "anyOf"}
            source["properties"][name] = {**others, **left[0]} if len(left) == 1 else {**others, "anyOf": left}
    if required:
        source["required"] = [name for name in source["properties"] if name in required] + [
            name for name in required if name not in source["properties"]
        ]


def _node(source: Any, path: str, definitions: Mapping[str, Source]) -> Node:
    if source is True or source == {}:
        return Anything({})
    if source is False:
        raise SchemaError(f"{path}: the schema `false` accepts nothing; leave the part out")
    if not isinstance(source, Mapping):
        raise SchemaError(f"{path}: {source!r} is no JSON Schema; give an object")
    if "$ref" in source:
        return _reference(source, path, definitions)
    if "const" in source:
        return Choice(source, (source["const"],))
    if "enum" in source:
        return Choice(source, tuple(source["enum"]))
    for key in ("anyOf", "oneOf"):
        if key in source and not _constrains(source, key):
            options = tuple(_node(option, path, definitions) for option in source[key])
            return options[0] if len(options) == 1 else Union(source, options)
    if "allOf" in source:
        if len(source["allOf"]) == 1 and not _constrains(source, "allOf"):
            return _node(source["allOf"][0], path, definitions)
        return Anything(source)
    if {"anyOf", "oneOf"} & source.keys():
        return Anything(source)
    kind = source.get("type")
    if isinstance(kind, list):
        options = tuple(_node({**source, "type": one}, path, definitions) for one in kind)
        return options[0] if len(options) == 1 else Union(source, options)
    match kind:
        case "string":
            return Text(
                source,
                source.get("minLength", 0),
                source.get("maxLength"),
                source.get("pattern"),
                source.get("format"),
                Verbatim.from_json(source[KEYWORD], path) if source.get(KEYWORD) else None,
            )
        case "integer" | "number":
            return Number(source, kind == "integer")
        case "boolean":
            return Boolean(source)
        case "null":
            return Null(source)
        case "array":
            return _sequence(source, path, definitions)
        case "object":
            return _object(source, path, definitions)
        case None if "properties" in source:
            return _object({**source, "type": "object"}, path, definitions)
        case None:
            return Anything(source)
        case _:
            raise SchemaError(f"{path}: there is no type {kind!r} in JSON Schema; use string, number, object ...")


def _constrains(source: Source, key: str) -> bool:
    """Whether a node says more than its alternatives do."""
    return bool(source.keys() - {key, "type", "x-guidance", "xml"}) or ("type" in source and source["type"] != "object")


def _reference(source: Source, path: str, definitions: Mapping[str, Source]) -> Node:
    target = source["$ref"]
    for start in ("#/$defs/", "#/definitions/"):
        name = target.removeprefix(start) if isinstance(target, str) else target
        if name != target and name in definitions:
            return Reference(source, name)
    raise SchemaError(f"{path}: $ref {target!r} is not under this schema's $defs; move what it means there")


def _sequence(source: Source, path: str, definitions: Mapping[str, Source]) -> Node:
    prefix, items = source.get("prefixItems", ()), source.get("items", True)
    if isinstance(items, list):
        # Draft 7 has the positional items under `items` and the others under `additionalItems`.
        prefix, items = items, source.get("additionalItems", True)
    first = tuple(_node(child, f"{path}[]", definitions) for child in prefix)
    limit = source.get("maxItems")
    closed = items is False or (limit is not None and limit <= len(first))
    rest = None if closed else _node(items, f"{path}[]", definitions)
    return Sequence(source, rest, first, source.get("minItems", 0), limit)


def _object(source: Source, path: str, definitions: Mapping[str, Source]) -> Node:
    if "patternProperties" in source or "minProperties" in source or "maxProperties" in source:
        return Anything(source)
    required = set(source.get("required", ()))
    properties = source.get("properties", {})
    if unknown := required - properties.keys():
        if source.get("additionalProperties", True) is False:
            raise SchemaError(f"{path}: {min(unknown)!r} is required but no property; add it to the properties")
        return Anything(source)
    fields = tuple(
        Field(name, _node(child, f"{path}.{name}", definitions), name in required) for name, child in properties.items()
    )
    extra = source.get("additionalProperties", True)
    return Object(source, fields, None if extra is False else _node(extra, path, definitions))


def fitted(tree: Tree, value: Any) -> Any:
    """A JSON value with its absent fields spelt the way the tree has them: left out, or null."""
    return _fitted(tree, tree.root, value)


def _fitted(tree: Tree, node: Node, value: Any) -> Any:
    node = tree.resolved(node)
    match node:
        case Object() if isinstance(value, Mapping):
            result = {}
            for each in node.fields:
                child, nullable = value.get(each.name), accepts_null(tree, each.node)
                if child is not None:
                    result[each.name] = _fitted(tree, each.node, child)
                elif (each.name in value and nullable) or (each.required and (nullable or each.name in value)):
                    result[each.name] = None
            named = {each.name for each in node.fields}
            extra = {k: v if node.extra is None else _fitted(tree, node.extra, v) for k, v in value.items()}
            return result | {key: child for key, child in extra.items() if key not in named}
        case Sequence() if isinstance(value, list):
            rest = node.items if node.items is not None else Anything({})
            nodes = [*node.prefix, *([rest] * len(value))]
            return [_fitted(tree, one, child) for one, child in zip(nodes, value, strict=False)]
        case Union():
            kinds = (Object,) if isinstance(value, Mapping) else (Sequence,) if isinstance(value, list) else ()
            inner = [option for option in node.options if isinstance(tree.resolved(option), kinds)]
            # Which of several objects it is, only validation could tell.
            return _fitted(tree, inner[0], value) if len(inner) == 1 else value
        case _:
            return value


def accepts_null(tree: Tree, node: Node) -> bool:
    """Whether a part may be null."""
    node = tree.resolved(node)
    match node:
        case Union():
            return any(accepts_null(tree, option) for option in node.options)
        case Choice():
            return None in node.values
        case Anything():
            return node.source == {}
        case _:
            return isinstance(node, Null)
