"""Prompts: a schema and a record become chat turns, with worked examples as earlier turns of the chat."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from gristmill.faults import Fault, FaultCode
from gristmill.grammar.constraint import constraint_for
from gristmill.grammar.json_spelling import spell
from gristmill.records import Record
from gristmill.repair import Repair
from gristmill.schema import Example, Schema, written
from gristmill.similarity import Nearest

Message = dict[str, str]

MOST_EXAMPLES = 16
"""So many worked examples go into every prompt unless the schema says otherwise; of more, `_CHOSEN` are chosen."""

_CHOSEN = 8


def messages_for(schema: Schema, record: Record, repair: Repair | None = None) -> list[Message] | Fault:
    """The chat turns for a record: instruction and fields, the examples, the record, and what is to be repaired.

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
    system = _system_text(schema)
    if record.messages:
        own = [turn["content"] for turn in record.messages if turn["role"] == "system"]
        system = "\n\n".join([system, *own])
        turns = [dict(turn) for turn in record.messages if turn["role"] != "system"]
    else:
        turns = [{"role": "user", "content": asked}]
    if repair is not None and repair.complaint:
        turns += [
            {"role": "assistant", "content": repair.previous},
            {"role": "user", "content": repair.complaint},
        ]
    shown = [turn for number in _examples(schema, record.text) for turn in _turns(schema)[number]]
    return [{"role": "system", "content": system}, *shown, *turns]


def chooses(schema: Schema) -> bool:
    """Whether the examples in a prompt depend on the record."""
    wanted = schema.options.examples_per_prompt
    return len(schema.examples) > (MOST_EXAMPLES if wanted is None else wanted)


def _examples(schema: Schema, text: str) -> Sequence[int]:
    if not chooses(schema):
        return range(len(schema.examples))
    wanted = schema.options.examples_per_prompt
    return _nearest(schema).to(text, _CHOSEN if wanted is None else wanted)


@lru_cache(maxsize=64)
def _nearest(schema: Schema) -> Nearest:
    return Nearest([example.text for example in schema.examples])


@lru_cache(maxsize=64)
def _turns(schema: Schema) -> list[list[Message]]:
    """The two turns of each worked example."""
    return [
        [
            {"role": "user", "content": _asked(schema, example)},
            {"role": "assistant", "content": constraint_for(schema).spell(written(example.output))},
        ]
        for example in schema.examples
    ]


def _asked(schema: Schema, example: Example) -> str:
    return schema.template.format_map({**example.fields, "text": example.text})


@lru_cache(maxsize=64)
def _system_text(schema: Schema) -> str:
    as_xml = constraint_for(schema).format == "xml"
    form = "XML document with these elements" if as_xml else "JSON object with these fields"
    lines = [schema.instruction, "", f"Answer with one {form}:"]
    definitions = {**schema.json_schema.get("definitions", {}), **schema.json_schema.get("$defs", {})}
    # A recursive class is itself among the definitions.
    lines += _field_lines(_object_in(schema.json_schema, definitions) or {}, definitions, depth=0)
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
