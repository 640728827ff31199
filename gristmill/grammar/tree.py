"""The tree: what a JSON Schema says, as one node for each part, ready to be spelt as JSON or as XML."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gristmill.errors import SchemaError
from gristmill.grammar.closing.closer import closed
from gristmill.grammar.closing.merging import same
from gristmill.grammar.closing.relaxing import Refuses
from gristmill.references import parts
from gristmill.verbatim import KEYWORD, Verbatim

Source = Mapping[str, Any]


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

    `relaxed` lists what the grammar leaves to validation, as `$.path: keyword`; `sources` has the JSON Schema of each
    definition, `paths` where it stands first, `capped` the paths of the strings that only the cap ends.
    """

    root: Node
    definitions: Mapping[str, Node]
    relaxed: tuple[str, ...] = ()
    sources: Mapping[str, Source] = field(default_factory=dict)
    paths: Mapping[str, str] = field(default_factory=dict)
    capped: tuple[str, ...] = ()

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
    json_schema: Source,
    *,
    absent: str = "omitted",
    max_string: int | None = None,
    verbatim: bool = True,
    refuses: Refuses | None = None,
) -> Tree:
    """The tree of a JSON Schema (draft 2020-12 or 7) whose references are local.

    Where `absent` is "omitted", a property that is not required is left out rather than null; where it is "null", one
    that may be null is always there. `max_string` is the longest string where the schema gives no length. With
    `verbatim` False no string is tied to the text. What `refuses` has something against (see `closing.closed`) is
    relaxed.

    Raises:
        SchemaError: a reference leads nowhere or out of the schema, or a part accepts nothing; with its path.
    """
    source = json_schema if verbatim else _untied(json_schema)
    ready = closed(source, absent=absent, max_string=max_string, refuses=refuses)
    nodes = {name: _node(source, ready.paths[name], ready.definitions) for name, source in ready.definitions.items()}
    return Tree(
        _node(ready.root, "$", ready.definitions), nodes, ready.relaxed, ready.definitions, ready.paths, ready.capped
    )


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
        return _anything(source, path)
    if {"anyOf", "oneOf"} & source.keys():
        return _anything(source, path)
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
                Verbatim.from_json(source[KEYWORD], path) if source.get(KEYWORD, False) is not False else None,
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
            return _anything(source, path)
        case _:
            raise SchemaError(f"{path}: there is no type {kind!r} in JSON Schema; use string, number, object ...")


def _anything(source: Source, path: str) -> Anything:
    for below, part in parts(source, path):
        if part.get(KEYWORD):
            raise SchemaError(
                f"{below}: {KEYWORD} stands in a part that can't be taken apart ({', '.join(sorted(source))}); "
                "write that part without allOf, patternProperties, minProperties or anyOf beside other keywords"
            )
    return Anything(source)


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
        return _anything(source, path)
    required = set(source.get("required", ()))
    properties = source.get("properties", {})
    if unknown := required - properties.keys():
        if source.get("additionalProperties", True) is False:
            raise SchemaError(f"{path}: {min(unknown)!r} is required but no property; add it to the properties")
        return _anything(source, path)
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
            if not kinds:
                inner = [option for option in node.options if isinstance(tree.resolved(option), Choice)]
            # Which of several objects it is, only validation could tell.
            return _fitted(tree, inner[0], value) if len(inner) == 1 else value
        case Choice():
            # 1.0 is written as the schema has it, which may be 1.
            return next((one for one in node.values if same(one, value)), value)
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
