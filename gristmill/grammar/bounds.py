"""Bounds: what in a schema has no end of its own."""

from collections.abc import Iterator, Mapping
from typing import Any


def unbounded(root: Mapping[str, Any]) -> Iterator[str]:
    """Parts of a JSON Schema that could run on for ever, as `$.path: what`."""
    definitions = root.get("$defs", {})
    seen: set[str] = set()

    def walk(node: Any, path: str) -> Iterator[str]:
        if not isinstance(node, Mapping):
            return
        reference = node.get("$ref")
        if isinstance(reference, str):
            if reference in seen:
                yield f"{path}: recursion into {reference.rsplit('/', 1)[-1]}"
                return
            seen.add(reference)
            yield from walk(definitions.get(reference.rsplit("/", 1)[-1]), path)
            seen.discard(reference)
        match node.get("type"):
            case "string" if not {"maxLength", "pattern", "format", "enum", "const"} & node.keys():
                yield f"{path}: string without max_length"
            case "array" if "maxItems" not in node:
                yield f"{path}: list without max_length"
            case "integer" | "number" if not {"enum", "const"} & node.keys() and not (
                {"maximum", "exclusiveMaximum"} & node.keys() and {"minimum", "exclusiveMinimum"} & node.keys()
            ):
                yield f"{path}: number without lower and upper bound"
            case "object" if isinstance(node.get("additionalProperties"), Mapping) and "maxProperties" not in node:
                yield f"{path}: dictionary without max_length"
        for name, child in node.get("properties", {}).items():
            yield from walk(child, f"{path}.{name}")
        yield from walk(node.get("items"), f"{path}[]")
        for child in (*node.get("anyOf", ()), *node.get("oneOf", ()), *node.get("allOf", ())):
            yield from walk(child, path)

    return walk(root, "$")
