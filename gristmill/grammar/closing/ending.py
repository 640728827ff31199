"""Ending: whether the recursion of a schema can end."""

from collections.abc import Mapping
from typing import Any

from gristmill.errors import SchemaError


def must_end(root: Mapping[str, Any], definitions: Mapping[str, Mapping[str, Any]], paths: Mapping[str, str]) -> None:
    """Refuse recursion that no value can end.

    Raises:
        SchemaError: a definition always holds another of its kind; with its path.
    """
    ends: set[str] = set()

    def finite(node: Any) -> bool:
        if not isinstance(node, Mapping):
            return True
        if "$ref" in node:
            return node["$ref"].rsplit("/", 1)[-1] in ends
        if "const" in node or "enum" in node:
            return True
        if not all(finite(child) for child in node.get("allOf", ())):
            return False
        if "anyOf" in node and not any(finite(child) for child in node["anyOf"]):
            return False
        kind = node.get("type")
        if isinstance(kind, list):
            return any(finite({**node, "type": one}) for one in kind)
        if kind == "object" or "properties" in node:
            return all(finite(node.get("properties", {}).get(name, True)) for name in node.get("required", ()))
        if kind == "array" and node.get("minItems", 0):
            first = node.get("prefixItems", [])[: node["minItems"]]
            rest = node.get("items", True) if node["minItems"] > len(first) else True
            return all(map(finite, first)) and finite(rest)
        return True

    while more := [name for name, node in definitions.items() if name not in ends and finite(node)]:
        ends.update(more)
    if not finite(root):
        name = next(name for name in definitions if name not in ends)
        raise SchemaError(
            f"{paths[name]}: {name!r} always holds another of its kind, so no value ever ends; "
            "make a field on the way optional, or a list that may be empty"
        )
