"""JSON by Pydantic's JSON Schema: closed objects, one spelling of white space, and what can't be said left out."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from llguidance import LLMatcher, LLTokenizer

from gristmill.errors import SchemaError
from gristmill.prompts import spell
from gristmill.schema import Schema, dump

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
    "dependentRequired",
    "dependentSchemas",
    "unevaluatedItems",
    "unevaluatedProperties",
)
"""Keywords that the grammar engine refuses (llguidance 1.9 `docs/json_schema.md`); validation enforces them."""

_NOTES = ("title", "description", "examples", "default", "deprecated", "discriminator", "readOnly", "writeOnly")


@dataclass(frozen=True, slots=True)
class Constraint:
    """A schema as the grammar engine takes it.

    `relaxed` names, by path, what the grammar leaves to validation; `unbounded` what could run on for ever.
    """

    json_schema: str
    relaxed: tuple[str, ...]
    unbounded: tuple[str, ...]


def constraint_for(schema: Schema) -> Constraint:
    """Build the constraint of a schema and compile it once.

    Raises:
        SchemaError: the grammar engine refuses it; the message says what it refuses.
    """
    relaxed: list[str] = []
    closed = _closed(schema.json_schema, "$", relaxed)
    closed["x-guidance"] = {
        "whitespace_flexible": False,
        "item_separator": ", ",
        "key_separator": ": ",
        # Alternatives of a discriminated union overlap for the engine; validation tells them apart.
        "coerce_one_of": True,
    }
    text = json.dumps(closed)
    refusal = LLMatcher.validate_grammar(LLMatcher.grammar_from_json_schema(text))
    if refusal:
        raise SchemaError(
            f"schema {schema.name!r} can't be made a grammar: {refusal.splitlines()[0]}; change the field's type"
        )
    return Constraint(text, tuple(relaxed), tuple(_unbounded(schema.json_schema)))


def examples_refused(schema: Schema, constraint: Constraint) -> list[int]:
    """Numbers (from 1) of the worked examples whose output the grammar would not let the model write."""
    grammar = LLMatcher.grammar_from_json_schema(constraint.json_schema)
    tokenizer = LLTokenizer("byte")
    matcher = LLMatcher(tokenizer, grammar)
    refused = []
    for number, example in enumerate(schema.examples, start=1):
        fresh = matcher.deep_copy()
        tokens = tokenizer.tokenize_str(spell(dump(example.output)))
        if fresh.try_consume_tokens(tokens) != len(tokens) or not fresh.is_accepting():
            refused.append(number)
    return refused


def _closed(node: Any, path: str, relaxed: list[str]) -> Any:
    if isinstance(node, list):
        return [_closed(child, f"{path}/{i}", relaxed) for i, child in enumerate(node)]
    if not isinstance(node, Mapping):
        return node
    result: dict[str, Any] = {}
    for key, child in node.items():
        if key in _NOTES and not isinstance(child, Mapping):
            continue
        if key in ("default", "examples", "discriminator"):
            continue
        if key in ("properties", "$defs", "definitions", "patternProperties") and isinstance(child, Mapping):
            result[key] = {name: _closed(sub, f"{path}/{name}", relaxed) for name, sub in child.items()}
        elif key in ("enum", "const", "required"):
            result[key] = child
        elif key in RELAXED:
            relaxed.append(f"{path}: {key}")
        else:
            result[key] = _closed(child, f"{path}/{key}" if isinstance(child, Mapping) else path, relaxed)
    if "properties" in result and "additionalProperties" not in result:
        result["additionalProperties"] = False
    return result


def _unbounded(root: Mapping[str, Any]) -> Iterator[str]:
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
