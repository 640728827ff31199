"""JSON Schema files take the place of a class: instruction, examples, template, options, verbatim fields, repair."""

import json
from pathlib import Path
from typing import Any

import pytest

from gristmill.checking import Accepted, check
from gristmill.engine import FinishReason
from gristmill.errors import SchemaError
from gristmill.faults import Fault
from gristmill.grammar.constraint import bad_examples, constraint_for
from gristmill.grammar.rules import Fixed
from gristmill.pipeline import Pipeline
from gristmill.prompts import messages_for
from gristmill.records import Record
from gristmill.repair import repair_of
from gristmill.schema import dump, load_schema, schema_names
from gristmill.spans import values_of
from tests.unit.test_pipeline import extract, lines

ORDER: dict[str, Any] = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "description": "Read the order.",
    "type": "object",
    "required": ["number", "items"],
    "properties": {
        "number": {"type": "string", "x-verbatim": True, "description": "its number"},
        "when": {"type": ["string", "null"], "format": "date-time"},
        "items": {"type": "array", "items": {"$ref": "#/definitions/item"}, "maxItems": 3, "uniqueItems": True},
    },
    "definitions": {
        "item": {
            "type": "object",
            "properties": {
                "sku": {"type": "string", "maxLength": 10, "description": "what is ordered"},
                "n": {"type": "integer", "minimum": 1, "maximum": 99},
            },
            "required": ["sku"],
        }
    },
    "x-prompt": "{shop}: {text}",
    "x-examples": [
        {
            "text": "order 12 for 2 pens",
            "output": {"number": "12", "items": [{"sku": "pens", "n": 2}]},
            "fields": {"shop": "s"},
        }
    ],
    "x-options": {"max_string": 80, "absent": "omitted"},
}
TEXT = "order 5: 1 x cup"


@pytest.fixture
def order(schemas: Path) -> Path:
    path = schemas / "order.json"
    path.write_text(json.dumps(ORDER))
    return path


def test_a_file_is_a_schema(order: Path) -> None:
    """The description is the instruction; examples, template, options and draft 7's definitions are the file's."""
    schema = load_schema("order", order.parent)
    assert schema_names(order.parent) == ["note", "order"]
    assert (schema.model.__name__, schema.instruction, schema.options.max_string) == ("Order", "Read the order.", 80)
    assert dump(schema.examples[0].output) == ORDER["x-examples"][0]["output"]
    turns = messages_for(schema, Record("a", TEXT, {"shop": "here"}))
    assert isinstance(turns, list)
    assert "- items\n  - sku: what is ordered\n  - n" in turns[0]["content"]
    assert [turn["content"] for turn in turns[1:]] == [
        "s: order 12 for 2 pens",
        '{"number": "12", "items": [{"sku": "pens", "n": 2}]}',
        f"here: {TEXT}",
    ]
    assert bad_examples(schema, constraint_for(schema)) == []
    assert constraint_for(schema).relaxed == ("$.items: uniqueItems",)


def test_answers_are_judged_by_the_file(order: Path) -> None:
    """What fits is accepted as it is, with its spans; faults have path, keyword and a message, and nothing of the
    answer; repair keeps the rest."""
    schema = load_schema("order", order.parent)
    right = check('{"number": "5", "items": [{"sku": "cup"}]}', FinishReason.STOP, schema, lambda: TEXT)
    assert isinstance(right, Accepted)
    assert (right.text, right.beside["spans"]) == ('{"number": "5", "items": [{"sku": "cup"}]}', {"number": [6, 7]})
    wrong = '{"number": "5", "items": [{"sku": "secretsecret", "n": 1}, {"n": 100, "more": 1}]}'
    fault = check(wrong, FinishReason.STOP, schema, lambda: TEXT)
    assert isinstance(fault, Fault)
    assert "secret" not in str(fault)
    assert [(d["loc"], d["type"], d["msg"]) for d in fault.details] == [
        (["items", 0, "sku"], "maxLength", "Must satisfy maxLength 10"),
        (["items", 1, "n"], "maximum", "Must satisfy maximum 99"),
        (["items", 1, "sku"], "missing", "Field required"),
    ]
    repair = repair_of(constraint_for(schema), wrong.replace(', "more": 1', ""), fault)
    assert repair is not None
    assert isinstance(repair.known, dict)
    assert repair.known["number"] == Fixed("5")
    assert repair.known["items"][0] == {"sku": None, "n": Fixed(1)}
    cut = check('{"number": ', FinishReason.STOP, schema, lambda: TEXT)
    assert isinstance(cut, Fault)
    assert cut.code == "invalid_json"


def test_outputs_are_values(order: Path) -> None:
    """An output is compared by its value and has the plain value as `root`."""
    model = load_schema("order", order.parent).model
    value = {"number": "5", "items": []}
    assert model.model_validate(value) == model.model_validate_json(json.dumps(value))
    assert model.model_validate(value) != model.model_validate({**value, "number": "6"})
    assert dump(model.model_validate(value)) == value


def test_a_file_is_run_like_a_class(order: Path, pipeline: Pipeline, drop: Any) -> None:
    """Files dropped for a JSON Schema are done, compared with gold by value, and a changed file is read again."""
    gold = ORDER["x-examples"][0]["output"]
    drop("order/a.jsonl", lines({"id": "x", "text": "order 12 for 2 pens", "shop": "s", "gold": gold}))
    report = extract(pipeline)
    assert report.states["accepted"] == 1
    line = json.loads((pipeline.settings.data / "outbox" / "order" / "a.jsonl").read_text())
    assert line["output"] == gold
    before = pipeline.schema("order")
    assert pipeline.schema("order") is before
    order.write_text(json.dumps({**ORDER, "description": "Read it again, please."}))
    assert pipeline.schema("order").instruction == "Read it again, please."


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "schema file bad.json is no JSON: line 1, column 2: .*; correct it"),
        ("[]", "schema file bad.json holds list as a whole; give an object"),
        ('{"type": "string", "type": "object"}', "schema file bad.json: an object has 'type' twice; remove one"),
        (
            '{"properties": {"a": {"type": "strin"}}}',
            r"schema file bad.json: \$.properties.a.type: 'strin' is not valid",
        ),
        (
            '{"$schema": "http://json-schema.org/draft-04/schema#"}',
            r"bad.json: \$schema is .*draft-04.*; use 'https://",
        ),
        ('{"type": "string", "pattern": "["}', r"bad.json: \$.pattern: '\[' is not a 'regex'; correct it there"),
        (
            '{"properties": {"a": {"$ref": "http://x/y"}}}',
            r"bad.json: \$.a: \$ref 'http://x/y' leads out of this schema",
        ),
        (
            '{"properties": {"a": {"$ref": "#/$defs/q"}}, "$defs": {"p": {}}}',
            r"\$.a: \$ref .* leads to nothing; there is p",
        ),
        ('{"properties": {"a": {"$id": "x", "type": "string"}}}', r"\$.a: \$id 'x' makes a schema of its own"),
        ('{"x-options": {"formt": "xml"}}', "x-options has no 'formt'; did you mean 'format'?"),
        ('{"x-options": {"format": "yaml"}}', 'x-options: format=\'yaml\' is not possible; use "json" or "xml"'),
        ('{"x-prompt": "no"}', r"PROMPT has no \{text\}"),
        ('{"x-examples": [{"text": "x", "out": 1}]}', r"x-examples\[0\] has not the right keys; give a list of"),
        (
            '{"type": "array", "items": {"type": "string"}, "x-examples": [{"text": "x", "output": ["a", 1]}]}',
            r'x-examples\[0\].output\[1\]: Must satisfy type "string"; correct the example or the schema',
        ),
        ('{"$ref": "#"}', r"bad.json: \$: refers to itself without an end, for the same value; put a field in between"),
        ('{"properties": {"a": {"not": {"$ref": "#/properties/a"}}}}', r"\$.a: refers to itself without an end"),
        (
            '{"type": "object", "properties": {"x": {"$ref": "#"}}, "required": ["x"]}',
            r"\$.x: 'root' always holds another of its kind",
        ),
        ('{"type": "string", "x-verbatim": "yes"}', r"\$: x-verbatim is 'yes'; use true, or an object"),
        ('{"properties": {"a": {"type": "integer", "x-verbatim": true}}}', r"\$\.a: x-verbatim stands on what is no"),
        ('{"properties": {"a": {"type": "string", "x-verbatm": true}}}', r"\$\.a: 'x-verbatm' means nothing; use 'x-v"),
        ('{"x-example": []}', r"\$: 'x-example' means nothing; use 'x-examples'"),
        (
            '{"type": "object", "patternProperties": {"^a": {"type": "string", "x-verbatim": true}}}',
            "x-verbatim stands in a part that can't be taken apart",
        ),
        (
            '{"type": "object", "properties": {"a": {"anyOf": [{"type": "string", "minLength": 3, "maxLength": 2}]}}}',
            r"\$.a: no value is possible here: minLength \(3\) is greater than maxLength \(2\)",
        ),
    ],
)
def test_bad_files(schemas: Path, content: str, message: str) -> None:
    """A file that can't be used says which, where in it, and what to do."""
    (schemas / "bad.json").write_text(content)
    with pytest.raises(SchemaError, match=message):
        constraint_for(load_schema("bad", schemas))


def test_a_list_is_tied_through_its_strings(schemas: Path) -> None:
    """On a list, and on a string that may be null, the keyword means the strings."""
    array = {"type": "array", "items": {"type": "string"}, "x-verbatim": True}
    nullable = {"type": ["string", "null"], "x-verbatim": True}
    (schemas / "tied.json").write_text(json.dumps({"properties": {"all": array, "one": nullable}}))
    tree = constraint_for(load_schema("tied", schemas)).tree
    said = [("all[0]", "a b"), ("one", "c")]
    assert [(path, value) for path, value, _ in values_of(tree, {"all": ["a b"], "one": "c"})] == said


def test_a_schema_that_is_there_twice(order: Path) -> None:
    """`order.py` beside `order.json` leaves open which is meant, and is refused."""
    order.with_suffix(".py").write_text("")
    with pytest.raises(SchemaError, match=r"schema 'order' is there twice, as order.json and order.py; remove one"):
        load_schema("order", order.parent)
    assert schema_names(order.parent) == ["note", "order"]


def test_what_nothing_checks_is_named(schemas: Path) -> None:
    """A format that neither grammar nor validation knows accepts any string, and is named by path."""
    (schemas / "odd.json").write_text('{"properties": {"a": {"type": "string", "format": "colour"}}}')
    model: Any = load_schema("odd", schemas).model
    assert model.unchecked == ("$.a: format colour",)
    assert dump(model.model_validate({"a": "?"})) == {"a": "?"}


def test_files_that_overstrain_a_reader_are_named(tmp_path: Path) -> None:
    """Thousands of digits, half of a surrogate pair, hundreds of levels: one line with the file's name each."""
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(400):
        deep = {"type": "array", "items": deep}
    for name, text in (
        ("digits", '{"maximum": ' + "9" * 5000 + "}"),
        ("half", '{"type": "object", "description": "\\ud800"}'),
        ("deep", json.dumps(deep)),
    ):
        (tmp_path / f"{name}.json").write_text(text)
        with pytest.raises(SchemaError, match=name):
            constraint_for(load_schema(name, tmp_path))


def test_definitions_used_many_times_are_looked_at_once(tmp_path: Path) -> None:
    """Forty levels, each with two references to the next, are no 2 to the 40 paths."""
    defs: dict[str, Any] = {"d40": {"type": "null"}}
    for i in range(40):
        defs[f"d{i}"] = {"type": "object", "properties": {side: {"$ref": f"#/$defs/d{i + 1}"} for side in "lr"}}
    document = {"type": "object", "properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": defs}
    (tmp_path / "wide.json").write_text(json.dumps(document))
    assert constraint_for(load_schema("wide", tmp_path)).relaxed == ()
