"""Prompts: a schema and a record become chat turns, with worked examples as earlier turns of the chat."""

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from gristmill.faults import Fault, FaultCode
from gristmill.records import Record
from gristmill.schema import Schema, dump

Message = dict[str, str]


_strict = json.JSONEncoder(ensure_ascii=False, allow_nan=False)
_spelling = json.JSONEncoder(ensure_ascii=False)


def spell(value: Any) -> str:
    """JSON as prompts, grammar and candidates spell it: `", "` and `": "`, no escapes for letters of any script."""
    return _spelling.encode(value)


def spell_strictly(value: Any) -> str:
    """As `spell`.

    Raises:
        ValueError: the value holds an infinity or what is no number, which JSON has not.
    """
    return _strict.encode(value)


def messages_for(schema: Schema, record: Record) -> list[Message] | Fault:
    """The chat turns for a record: instruction and fields, the examples, the record.

    A record that lacks a field of the schema's template gets a fault. The turns of a batch line stand as they are
    behind the examples, what its system says behind the instruction.
    """
    try:
        asked = schema.template.format_map({**record.fields, "text": record.text}) if not record.messages else ""
    except KeyError as error:
        return Fault(
            FaultCode.MISSING_FIELD,
            f"the prompt of schema {schema.name!r} uses {{{error.args[0]}}}, which this record lacks; add the field",
        )
    system, examples = _head(schema)
    if record.messages:
        own = [turn["content"] for turn in record.messages if turn["role"] == "system"]
        system = "\n\n".join([system, *own])
        turns = [dict(turn) for turn in record.messages if turn["role"] != "system"]
    else:
        turns = [{"role": "user", "content": asked}]
    return [{"role": "system", "content": system}, *examples, *turns]


@lru_cache(maxsize=64)
def _head(schema: Schema) -> tuple[str, list[Message]]:
    """What all prompts of a schema begin with: the system's text and the turns of the examples."""
    turns = []
    for example in schema.examples:
        turns.append({"role": "user", "content": schema.template.format_map({**example.fields, "text": example.text})})
        turns.append({"role": "assistant", "content": spell(dump(example.output))})
    return _system_text(schema), turns


def _system_text(schema: Schema) -> str:
    lines = [schema.instruction, "", "Answer with one JSON object with these fields:"]
    definitions = schema.json_schema.get("$defs", {})
    lines += _field_lines(schema.json_schema, definitions, depth=0)
    return "\n".join(lines)


def _field_lines(node: Mapping[str, Any], definitions: Mapping[str, Any], depth: int) -> list[str]:
    lines = []
    for name, child in node.get("properties", {}).items():
        about = child.get("description", "")
        nested = _object_in(child, definitions)
        choices = _choices_in(child, definitions)
        if choices:
            about = f"{about} ({' | '.join(choices)})".strip()
        lines.append(f"{'  ' * depth}- {name}: {about}".rstrip(": "))
        if nested is not None and depth < 3:
            lines += _field_lines(nested, definitions, depth + 1)
    return lines


def _alternatives(node: Mapping[str, Any], definitions: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    if "$ref" in node:
        node = definitions.get(node["$ref"].rsplit("/", 1)[-1], {})
    return [node, *(a for child in node.get("anyOf", ()) for a in _alternatives(child, definitions))]


def _object_in(node: Mapping[str, Any], definitions: Mapping[str, Any]) -> Mapping[str, Any] | None:
    for alternative in _alternatives(node, definitions):
        for inner in (alternative, *_alternatives(alternative.get("items", {}), definitions)):
            if "properties" in inner:
                return inner
    return None


def _choices_in(node: Mapping[str, Any], definitions: Mapping[str, Any]) -> list[str]:
    return [
        value if isinstance(value, str) else spell(value)
        for alternative in _alternatives(node, definitions)
        for value in alternative.get("enum", ())
    ]
