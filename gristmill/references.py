"""References: what a `$ref` of a JSON Schema (draft 2020-12 or 7) means, as long as it stays inside the document."""

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from gristmill.errors import SchemaError

DRAFT_2020_12 = "https://json-schema.org/draft/2020-12/schema"
DRAFT_7 = "http://json-schema.org/draft-07/schema"

IN_MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies")
IN_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
IN_PLACE = (
    "items",
    "additionalItems",
    "additionalProperties",
    "contains",
    "contentSchema",
    "else",
    "if",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
)
"""Keywords with schemas below them: under names, in a list, or directly."""


def is_draft_7(root: Mapping[str, Any]) -> bool:
    """Whether a schema says that it is of draft 7; one that says nothing is of draft 2020-12."""
    return str(root.get("$schema", "")).rstrip("#") == DRAFT_7


def parts(node: Any, path: str = "$") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Each schema in a schema, itself first, with its path: `$.field`, `$.list[]`, or the keyword it stands under."""
    if not isinstance(node, Mapping):
        return
    yield path, node
    for key, child in node.items():
        if key in IN_MAPS and isinstance(child, Mapping):
            for name, below in child.items():
                yield from parts(below, f"{path}.{name}" if key == "properties" else f"{path}/{key}/{name}")
        elif key in IN_LISTS and isinstance(child, list):
            for i, below in enumerate(child):
                yield from parts(below, f"{path}[]" if key == "prefixItems" else f"{path}/{key}/{i}")
        elif key == "items" and isinstance(child, list):
            for below in child:
                yield from parts(below, f"{path}[]")
        elif key in IN_PLACE:
            yield from parts(child, f"{path}[]" if key in ("items", "additionalItems") else f"{path}/{key}")


class References:
    """Looks up the references of one document."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._id = str(root.get("$id", "")).rstrip("#")
        self._anchors: dict[str, Mapping[str, Any]] = {}
        self._names: dict[str, str] = {}
        for path, node in parts(root):
            own = node.get("$id")
            if isinstance(own, str) and own.startswith("#"):
                self._anchors[own[1:]] = node
            elif own is not None and node is not root:
                raise SchemaError(f"{path}: $id {own!r} makes a schema of its own of this part; leave it out")
            for key in ("$anchor", "$dynamicAnchor"):
                if isinstance(node.get(key), str):
                    self._anchors[node[key]] = node

    def target(self, reference: Any, path: str) -> tuple[str, Any]:
        """A name for what a reference means, the same for the same place, and the schema that stands there.

        Raises:
            SchemaError: it leads out of the document, or to nothing.
        """
        if not isinstance(reference, str):
            raise SchemaError(f"{path}: $ref is {reference!r}; give a string such as '#/$defs/name'")
        fragment = reference.removeprefix(self._id) if self._id else reference
        if fragment and not fragment.startswith("#"):
            raise SchemaError(
                f"{path}: $ref {reference!r} leads out of this schema, and nothing is fetched; "
                "copy what it means into $defs"
            )
        place = unquote(fragment[1:])
        return self._name(place), self._at(place, reference, path)

    def _at(self, place: str, reference: str, path: str) -> Any:
        if place in self._anchors:
            return self._anchors[place]
        found: Any = self._root
        for step in place.split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            if isinstance(found, Mapping) and key in found:
                found = found[key]
            elif isinstance(found, list) and key.isdigit() and int(key) < len(found):
                found = found[int(key)]
            else:
                found = None
        if (place and not place.startswith("/")) or not isinstance(found, Mapping | bool):
            known = ", ".join([*self._root.get("$defs", ()), *self._root.get("definitions", ())][:8])
            raise SchemaError(f"{path}: $ref {reference!r} leads to nothing; there is {known or 'nothing in $defs'}")
        return found

    def _name(self, place: str) -> str:
        if place not in self._names:
            plain = re.sub(r"[^\w.-]", "_", place.rsplit("/", 1)[-1]) or "root"
            name, n = plain, 2
            while name in self._names.values():
                name, n = f"{plain}_{n}", n + 1
            self._names[place] = name
        return self._names[place]


def refuse_circles(root: Mapping[str, Any], references: References) -> None:
    """Refuse a schema that refers to itself for one and the same value: checking it would never end.

    Raises:
        SchemaError: it does; with the path where the circle closes.
    """
    done: set[int] = set()

    def walk(node: Any, path: str, above: frozenset[int]) -> None:
        if not isinstance(node, Mapping) or id(node) in done:
            return
        if id(node) in above:
            raise SchemaError(f"{path}: refers to itself without an end, for the same value; put a field in between")
        for key, child in node.items():
            below = above | {id(node)}
            if key in ("$ref", "$dynamicRef"):
                walk(references.target(child, path)[1], path, below)
            elif key in ("allOf", "anyOf", "oneOf"):
                for one in child:
                    walk(one, path, below)
            elif key in ("not", "if", "then", "else"):
                walk(child, path, below)
            elif key in ("dependentSchemas", "dependencies"):
                for one in child.values():
                    walk(one, path, below)
        done.add(id(node))

    for path, node in parts(root):
        walk(node, path, frozenset())
