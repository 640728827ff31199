"""Schemas: loading a file, finding the class, and errors that name the way out."""

from pathlib import Path

import pytest
from pydantic import BaseModel

from gristmill.errors import SchemaError
from gristmill.faults import Fault
from gristmill.grammar.bounds import bounds_of
from gristmill.grammar.constraint import bad_examples, constraint_for
from gristmill.prompts import messages_for
from gristmill.records import Record
from gristmill.schema import Example, Schema, load_schema, schema_names, schema_of

HEAD = "from pydantic import BaseModel\nfrom gristmill import Example\n"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("nte", None, r"no schema 'nte' in .*schemas; did you mean 'note'\?"),
        (
            "bad",
            "import nothing_of_this_name\n",
            "schema file bad.py fails to import at line 1: ModuleNotFoundError: No module named "
            "'nothing_of_this_name'; mend the file, nothing was run with it",
        ),
        ("bad", "x = (\n", r"schema file bad.py fails to import at line 1: SyntaxError: '\(' was never closed"),
        (
            "bad",
            HEAD + "class A(BaseModel): ...\nclass B(BaseModel): ...\n",
            "schema file bad.py defines 2 models and none is named like the file; name the output class Bad",
        ),
        (
            "bad",
            HEAD + "class A(BaseModel):\n    x: int\nEXAMPLES = [A(x=1)]\n",
            r"schema 'bad': EXAMPLES must be a list of gristmill.Example\(text=..., output=...\)",
        ),
        (
            "bad",
            HEAD + "class A(BaseModel):\n    x: int\nPROMPT = 'read this'\n",
            r"schema 'bad': PROMPT has no \{text\}, so no record would reach the model",
        ),
        (
            "bad",
            HEAD + "class A(BaseModel):\n    x: int\nPROMPT = '{text} {'\n",
            "schema 'bad': PROMPT is not a template",
        ),
    ],
)
def test_bad_schemas(schemas: Path, name: str, content: str | None, message: str) -> None:
    """A schema that can't be used says why, where, and what to do."""
    if content is not None:
        (schemas / f"{name}.py").write_text(content)
    with pytest.raises(SchemaError, match=message):
        load_schema(name, schemas)


def test_a_schema_added_at_run_time(schemas: Path) -> None:
    """Adding a schema is adding a file."""
    assert schema_names(schemas) == ["note"]
    (schemas / "purchase_order.py").write_text(
        HEAD
        + "class Line(BaseModel):\n    n: int\nclass PurchaseOrder(BaseModel):\n    'Read it.'\n    lines: list[Line]\n"
    )
    assert schema_names(schemas) == ["note", "purchase_order"]
    schema = load_schema("purchase_order", schemas)
    assert (schema.model.__name__, schema.instruction) == ("PurchaseOrder", "Read it.")


def test_our_own_schemas_are_sound() -> None:
    """Every shipped schema compiles, its examples can be written under its grammar, and nothing in it is unbounded."""
    folder = Path(__file__).parents[2] / "schemas"
    for name in ("ticket", "invoice", "contact"):
        schema = load_schema(name, folder)
        constraint = constraint_for(schema)
        assert schema.examples
        assert bad_examples(schema, constraint) == []
        assert constraint.relaxed == constraint.tree.capped == bounds_of(constraint.tree).endless == ()


class Found(BaseModel):
    """Look."""

    where: str


EXAMPLES = [Example("x", Found(where="here"))]


def test_examples_beside_a_class_are_found() -> None:
    """A class given as such brings the examples that stand beside it."""
    assert schema_of(Found).examples == tuple(EXAMPLES)
    assert schema_of(Found, examples=[]).examples == ()
    assert schema_of(Found).name == "found"


def test_an_example_of_another_class_is_refused() -> None:
    """A worked example whose output is of another class can't teach this one."""

    class Other(BaseModel):
        n: int

    with pytest.raises(SchemaError, match="the output of example 1 is a Other, not a Found"):
        Schema("found", Found, (Example("x", Other(n=1)),))


def test_prompt_turns(schemas: Path) -> None:
    """Instruction and fields are the system turn, examples are earlier turns, the record is the last."""
    turns = messages_for(load_schema("note", schemas), Record("a", "soup, three stars"))
    assert turns == [
        {
            "role": "system",
            "content": "Read the note.\n\nAnswer with one JSON object with these fields:\n"
            "- title: what it is about\n- stars: how good it was",
        },
        {"role": "user", "content": "great pizza, five stars"},
        {"role": "assistant", "content": '{"title": "pizza", "stars": 5}'},
        {"role": "user", "content": "soup, three stars"},
    ]


def test_a_template_uses_other_fields() -> None:
    """A template may use any field of the record; a record that lacks it gets a fault that names it."""
    schema = Schema("found", Found, (), "{shop}: {text}")
    turns = messages_for(schema, Record("a", "t", {"shop": "s"}))
    assert isinstance(turns, list)
    assert turns[-1]["content"] == "s: t"
    fault = messages_for(schema, Record("a", "t"))
    assert isinstance(fault, Fault)
    assert fault.message == "the prompt of schema 'found' uses {shop}, which this record lacks; add the field"


def test_the_fingerprint_changes_with_the_question(schemas: Path) -> None:
    """Another instruction, example or field is another question; the same file is the same one."""
    before = load_schema("note", schemas).fingerprint
    assert load_schema("note", schemas).fingerprint == before
    path = schemas / "note.py"
    path.write_text(path.read_text().replace("Read the note.", "Read it."))
    assert load_schema("note", schemas).fingerprint != before


def test_what_the_grammar_leaves_open_is_listed() -> None:
    """Unbounded parts are named by path, keywords that the grammar engine refuses are left to validation."""
    from typing import Annotated

    from pydantic import Field

    class Open(BaseModel):
        names: Annotated[list[str], Field(json_schema_extra={"uniqueItems": True})]
        count: int
        notes: dict[str, str]

    constraint = constraint_for(Schema("open", Open))
    assert constraint.relaxed == ("$.names: uniqueItems",)
    assert bounds_of(constraint.tree).endless == (
        "$.names: list without max_length",
        "$.count: number without lower and upper bound",
        "$.notes: dictionary without max_length",
    )
    assert constraint.tree.capped == ("$.names[]", "$.notes.*")
