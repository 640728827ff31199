"""A schema for each keyword of JSON Schema with values that fit it and values that don't, and the docs' table of who
refuses the latter. `python -m tests.unit.json_schema_cases` prints the table anew."""

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llguidance import LLMatcher, LLTokenizer
from pydantic import ValidationError

from gristmill.grammar.constraint import constraint_for
from gristmill.schema import Schema, load_schema, written

DRAFTS = {"2020-12": "https://json-schema.org/draft/2020-12/schema", "7": "http://json-schema.org/draft-07/schema#"}
BOTH, NEW, OLD = ("2020-12", "7"), ("2020-12",), ("7",)
TEXT, WHOLE = {"type": "string"}, {"type": "integer"}
TEXTS = {"a": TEXT, "b": TEXT}


@dataclass(frozen=True)
class Case:
    """A keyword (or a keyword and a value of it) at work."""

    keyword: str
    drafts: tuple[str, ...]
    schema: Any
    fits: list[Any]
    fails: list[Any]


def obj(**said: Any) -> dict[str, Any]:
    return {"type": "object", "properties": TEXTS, **said}


def arr(**said: Any) -> dict[str, Any]:
    return {"type": "array", **said}


def fmt(name: str, fits: list[str], fails: list[str], drafts: tuple[str, ...] = BOTH) -> Case:
    return Case(f"format: {name}", drafts, {"type": "string", "format": name}, fits, fails)


CASES = [
    Case("type", BOTH, {"type": ["string", "integer"]}, ["a", 3], [1.5, None, True, [], {}]),
    Case("enum", BOTH, {"enum": ["é", 1, None, [1]]}, ["é", 1, None, [1]], ["e", 2, True, [2]]),
    Case("const", BOTH, {"const": {"a": 1}}, [{"a": 1}], [{"a": 2}, 1]),
    Case("multipleOf (integer)", BOTH, {"type": "integer", "multipleOf": 3}, [0, 6, -3], [1, 7]),
    Case("multipleOf (number)", BOTH, {"type": "number", "multipleOf": 0.25}, [0.5, 1, 1.25], [0.3, 0.125]),
    Case("maximum", BOTH, {"type": "number", "maximum": 3}, [3, -9, 2.99], [3.01, 4]),
    Case("exclusiveMaximum", BOTH, {"type": "number", "exclusiveMaximum": 3}, [2.9], [3, 4]),
    Case("minimum", BOTH, {"type": "integer", "minimum": -2}, [-2, 10], [-3]),
    Case("exclusiveMinimum", BOTH, {"type": "integer", "exclusiveMinimum": 2}, [3], [2]),
    Case("maxLength", BOTH, {"type": "string", "maxLength": 2}, ["", "é😀"], ["abc"]),
    Case("minLength", BOTH, {"type": "string", "minLength": 2}, ["ab"], ["a", "😀"]),
    Case("pattern", BOTH, {"type": "string", "pattern": "^[a-z]+[0-9]$"}, ["ab1"], ["1", "ab"]),
    Case("pattern (look-around)", BOTH, {"type": "string", "pattern": "^(?!x)[a-z]+$"}, ["ab"], ["xa"]),
    Case("maxItems", BOTH, arr(items=WHOLE, maxItems=2), [[], [1, 2]], [[1, 2, 3]]),
    Case("minItems", BOTH, arr(items=WHOLE, minItems=2), [[1, 2]], [[], [1]]),
    Case("uniqueItems", BOTH, arr(items=WHOLE, uniqueItems=True), [[1, 2]], [[1, 1]]),
    Case("items", BOTH, arr(items=WHOLE), [[1]], [["a"], 1]),
    Case("items (list)", OLD, arr(items=[WHOLE, TEXT]), [[1, "a"]], [["a", 1]]),
    Case("additionalItems", OLD, arr(items=[WHOLE], additionalItems=TEXT), [[1, "a"]], [[1, 2]]),
    Case("prefixItems", NEW, arr(prefixItems=[WHOLE, TEXT], items=False), [[1, "a"]], [["a", 1], [1, "a", 2]]),
    Case("contains", BOTH, arr(items=WHOLE, contains={"minimum": 5}), [[1, 6]], [[1], []]),
    Case("minContains", NEW, arr(items=WHOLE, contains={"minimum": 5}, minContains=2), [[5, 6]], [[5, 1]]),
    Case("maxContains", NEW, arr(items=WHOLE, contains={"minimum": 5}, maxContains=1), [[5, 1]], [[5, 6]]),
    Case("unevaluatedItems", NEW, arr(prefixItems=[WHOLE], unevaluatedItems=False), [[1]], [[1, 2]]),
    Case("properties", BOTH, obj(), [{"a": "x"}, {}, {"a": "x", "b": "y"}], [{"a": 1}]),
    Case("required", BOTH, obj(required=["a"]), [{"a": "x"}], [{"b": "x"}, {}]),
    Case("additionalProperties", BOTH, obj(additionalProperties=WHOLE), [{"a": "x", "z": 1}], [{"z": "x"}]),
    Case("additionalProperties: false", BOTH, obj(additionalProperties=False), [{"a": "x"}], [{"z": "x"}]),
    Case(
        "patternProperties",
        BOTH,
        {"type": "object", "patternProperties": {"^n_": WHOLE}, "additionalProperties": False},
        [{"n_a": 1}, {}],
        [{"n_a": "x"}, {"m": 1}],
    ),
    Case(
        "patternProperties (overlapping)",
        BOTH,
        {"type": "object", "patternProperties": {"^a": WHOLE, "z$": {"type": "integer", "minimum": 5}}},
        [{"az": 7}],
        [{"az": 1}, {"a": "x"}],
    ),
    Case(
        "maxProperties",
        BOTH,
        {"type": "object", "additionalProperties": WHOLE, "maxProperties": 1},
        [{}, {"a": 1}],
        [{"a": 1, "b": 2}],
    ),
    Case(
        "minProperties",
        BOTH,
        {"type": "object", "additionalProperties": WHOLE, "minProperties": 2},
        [{"a": 1, "b": 2}],
        [{}, {"a": 1}],
    ),
    Case("minProperties (named)", BOTH, obj(minProperties=2), [{"a": "x", "b": "y"}], [{"a": "x"}]),
    Case(
        "propertyNames",
        BOTH,
        {"type": "object", "additionalProperties": WHOLE, "propertyNames": {"maxLength": 2}},
        [{"ab": 1}],
        [{"abc": 1}],
    ),
    Case("dependencies (list)", OLD, obj(dependencies={"a": ["b"]}), [{"b": "x"}], [{"a": "x"}]),
    Case("dependencies (schema)", OLD, obj(dependencies={"a": {"required": ["b"]}}), [{"b": "x"}], [{"a": "x"}]),
    Case("dependentRequired", NEW, obj(dependentRequired={"a": ["b"]}), [{"b": "x"}], [{"a": "x"}]),
    Case(
        "dependentSchemas",
        NEW,
        obj(dependentSchemas={"a": {"properties": {"c": WHOLE}, "required": ["c"]}}),
        [{"b": "x"}, {"a": "x", "c": 1}],
        [{"a": "x"}],
    ),
    Case("unevaluatedProperties", NEW, obj(unevaluatedProperties=False), [{"a": "x"}], [{"z": 1}]),
    Case(
        "allOf",
        BOTH,
        {"allOf": [obj(required=["a"]), {"properties": {"c": WHOLE}, "required": ["c"]}]},
        [{"a": "x", "c": 1}],
        [{"a": "x"}, {"c": 1}],
    ),
    Case(
        "allOf (strings)",
        BOTH,
        {"type": "string", "allOf": [{"maxLength": 2}, {"pattern": "^a"}]},
        ["ab"],
        ["b", "abc"],
    ),
    Case("anyOf", BOTH, {"anyOf": [WHOLE, {"type": "string", "maxLength": 1}]}, [1, "a"], ["ab", None]),
    Case(
        "anyOf (beside properties)",
        BOTH,
        obj(anyOf=[{"required": ["a"]}, {"required": ["b"]}]),
        [{"a": "x"}, {"b": "x"}],
        [{}],
    ),
    Case(
        "anyOf (options that others exclude)",
        BOTH,
        {"allOf": [TEXT, {"anyOf": [{"minLength": 2}, {"type": "array"}, {"enum": [1, "a"]}]}]},
        ["ab", "a"],
        ["", "b", 1, []],
    ),
    Case("oneOf (apart)", BOTH, {"oneOf": [WHOLE, TEXT]}, [1, "a"], [None]),
    Case("oneOf (overlapping)", BOTH, {"oneOf": [WHOLE, {"type": "number", "minimum": 5}]}, [1, 5.5], [6, 1.5]),
    Case("not", BOTH, {"type": "integer", "not": {"multipleOf": 2}}, [1], [2]),
    Case(
        "if, then, else",
        BOTH,
        obj(**{"if": {"required": ["a"]}, "then": {"required": ["b"]}, "else": {"maxProperties": 0}}),
        [{"a": "x", "b": "y"}, {}],
        [{"a": "x"}, {"b": "x"}],
    ),
    Case("$ref, $defs", NEW, {"$ref": "#/$defs/n", "$defs": {"n": WHOLE}}, [1], ["a"]),
    Case("$ref, definitions", OLD, {"$ref": "#/definitions/n", "definitions": {"n": WHOLE}}, [1], ["a"]),
    Case("$ref beside others", NEW, {"$ref": "#/$defs/n", "maximum": 5, "$defs": {"n": WHOLE}}, [1], ["a", 6]),
    Case(
        "$ref alone, whatever stands beside it",
        OLD,
        {"$ref": "#/definitions/n", "maximum": 5, "definitions": {"n": WHOLE}},
        [1, 6],
        ["a"],
    ),
    Case(
        "$ref (recursive)",
        BOTH,
        {"type": "object", "properties": {"v": WHOLE, "kids": arr(items={"$ref": "#"})}, "required": ["v"]},
        [{"v": 1, "kids": [{"v": 2, "kids": [{"v": 3}]}]}],
        [{"v": 1, "kids": [{"v": "x"}]}, {"v": 1, "kids": [{"v": 2, "kids": [{}]}]}],
    ),
    Case(
        "$anchor",
        NEW,
        obj(properties={"a": {"$ref": "#n"}}, **{"$defs": {"x": {"$anchor": "n", **WHOLE}}}),
        [{"a": 1}],
        [{"a": "x"}],
    ),
    Case(
        "$dynamicRef, $dynamicAnchor",
        NEW,
        {"$dynamicAnchor": "n", **obj(properties={"v": WHOLE, "n": {"$dynamicRef": "#n"}}, required=["v"])},
        [{"v": 1, "n": {"v": 2}}],
        [{"v": 1, "n": {}}],
    ),
    Case(
        "$id",
        OLD,
        obj(properties={"a": {"$ref": "#n"}}, definitions={"x": {"$id": "#n", **WHOLE}}),
        [{"a": 1}],
        [{"a": "x"}],
    ),
    Case("true, false", BOTH, obj(properties={"a": True, "b": False}), [{"a": [1]}], [{"b": 1}]),
    Case("contentEncoding", BOTH, {"type": "string", "contentEncoding": "base64"}, ["YWI="], ["a b"]),
    Case("contentMediaType", BOTH, {"type": "string", "contentMediaType": "application/json"}, ["[1]"], ["["]),
    Case(
        "contentSchema",
        NEW,
        {"type": "string", "contentMediaType": "application/json", "contentSchema": arr(items=WHOLE)},
        ["[1]"],
        ['["a"]'],
    ),
    fmt("date-time", ["2024-02-29T01:02:03Z", "2024-01-01T00:00:00.5+01:00"], ["2024-01-01", "2024-01-01T00:00:00"]),
    fmt("date", ["2024-02-29"], ["2024-13-01", "29.2.2024"]),
    fmt("time", ["01:02:03Z"], ["25:00:00Z", "01:02:03"]),
    fmt("duration", ["P1DT2H", "PT5M", "P3W"], ["1 day", "P"], NEW),
    fmt("email", ["a.b@example.com"], ["a", "a@"]),
    fmt("idn-email", ["é@例.jp"], ["a"]),
    fmt("hostname", ["a-b.example"], ["-a", "a_b"]),
    fmt("ipv4", ["192.0.2.1"], ["192.0.2.256", "a"]),
    fmt("ipv6", ["2001:db8::1", "::"], ["1::2::3", "a"]),
    fmt("uri", ["https://example.com/a?b#c", "urn:a:b"], ["/a", "a b"]),
    fmt("uri-reference", ["/a?b", "#c"], ["a b"]),
    fmt("iri", ["https://例.jp/é"], ["/a"]),
    fmt("iri-reference", ["/é"], ["a b"]),
    fmt("uuid", ["12345678-9abc-def0-1234-56789ABCDEF0"], ["1234", "x"], NEW),
    fmt("json-pointer", ["/a/~0b", ""], ["a", "/~2"]),
    fmt("relative-json-pointer", ["0/a", "1#"], ["/a"]),
    fmt("regex", ["^a+$"], ["("]),
]

NOT_CHECKED = ("idn-hostname", "uri-template")
"""Formats that nothing checks; `gristmill schema check` names them."""

TOKENIZER = LLTokenizer("byte")


def schema_of_case(case: Case, draft: str, folder: Path) -> Schema:
    """The case's schema as a file's."""
    path = folder / "case.json"
    path.write_text(json.dumps({"$schema": DRAFTS[draft], **case.schema}))
    return load_schema("case", folder)


def by_grammar(schema: Schema, value: Any) -> bool:
    """Whether a value can be written under the grammar."""
    constraint = constraint_for(schema)
    tokens = TOKENIZER.tokenize_str(constraint.spell(value))
    matcher = LLMatcher(TOKENIZER, constraint.grammar(""))
    return bool(matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting())


def by_validation(schema: Schema, value: Any) -> bool:
    """Whether validation accepts a value, and gives it back as it was."""
    try:
        output = schema.model.model_validate_json(json.dumps(value))
    except ValidationError:
        return False
    return bool(written(output) == value)


def who_refuses(case: Case, draft: str, folder: Path) -> str:
    """`grammar` where it refuses all that does not fit, `validation` where it refuses none of it, else both."""
    schema = schema_of_case(case, draft, folder)
    refused = [not by_grammar(schema, value) for value in case.fails]
    return "grammar" if all(refused) else "grammar in part, validation" if any(refused) else "validation"


def table(folder: Path) -> str:
    """The table of the docs."""
    lines = ["| keyword | draft 2020-12 | draft 7 |", "|---|---|---|"]
    for case in CASES:
        cells = [who_refuses(case, draft, folder) if draft in case.drafts else "" for draft in BOTH]
        lines.append(f"| `{case.keyword}` | {cells[0]} | {cells[1]} |")
    lines += [f"| `format: {name}` | nothing | nothing |" for name in NOT_CHECKED]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        print(table(Path(name)), end="")
