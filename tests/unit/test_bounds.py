"""Bounds: how long answers can get, what has no end, what a cap ends, and examples that their own schema refuses."""

import json
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal

import pytest
from llguidance import LLMatcher, LLTokenizer
from pydantic import BaseModel, Field

from gristmill import Example, Options, Verbatim
from gristmill.cli.schema_report import checked, lines_of
from gristmill.grammar.bounds import bounds_of
from gristmill.grammar.closing.widths import width
from gristmill.grammar.constraint import announce, bad_examples, constraint_for
from gristmill.presets import get_preset
from gristmill.schema import Schema


class Part(BaseModel):
    """What holds its own kind."""

    code: str
    weight: Annotated[float, Field(ge=0, le=10)]
    parts: list["Part"] = []


class Open(BaseModel):
    """Everything that has no end, and some that has."""

    name: Annotated[str, Verbatim()]
    word: Annotated[str, Field(pattern="^[a-z]+$")]
    code: Annotated[str, Field(pattern="^[A-Z]{3}$")]
    when: datetime
    notes: dict[str, str] = {}
    few: Annotated[dict[str, int], Field(max_length=2)] = {}
    part: Part
    any_of_it: object = None


def test_what_has_no_end_is_named() -> None:
    """Lists, numbers, dictionaries, recursion and values of any kind are named by path; strings only the cap ends
    are named apart, as are those that the text ends."""
    bounds = bounds_of(constraint_for(Schema("open", Open)).tree)
    assert bounds.endless == (
        "$.notes: dictionary without max_length",
        "$.few: dictionary whose keys have no max_length",
        "$.part.weight: number whose decimal places have no end (multiple_of ends them)",
        "$.part.parts: list without max_length",
        "$.part.parts[]: recursion into Part",
        "$.any_of_it: value of any kind, which the grammar engine alone measures",
    )
    assert bounds.capped == ("$.word", "$.notes.*", "$.part.code")
    assert bounds.copied == ("$.name",)
    assert bounds.whole.endless
    ends = [each.name for each in bounds.fields if not each.size.endless]
    assert ends == ["name", "word", "code", "when"]


class Small(BaseModel):
    """All ends."""

    kind: Literal["a", "bcd"]
    count: Annotated[int, Field(ge=-5, le=100)]
    price: Annotated[float, Field(ge=0, le=99, multiple_of=0.01)]
    sure: bool
    tags: Annotated[list[Annotated[str, Field(max_length=4)]], Field(max_length=2)]
    code: Annotated[str, Field(pattern="^[A-Z]{2}(-[0-9]{1,3})?$")] | None = None


LONGEST = {"kind": "bcd", "count": 100, "price": 98.99, "sure": False, "tags": ["abcd", "abcd"], "code": "AB-123"}


def test_the_longest_answer_is_as_long_as_reckoned() -> None:
    """Nothing that the grammar allows is longer than the reckoned length, and the longest comes close to it."""
    constraint = constraint_for(Schema("small", Small))
    bounds = bounds_of(constraint.tree)
    text = constraint.spell(LONGEST)
    tokenizer = LLTokenizer("byte")
    matcher = LLMatcher(tokenizer, constraint.grammar(""))
    assert matcher.try_consume_tokens(tokenizer.tokenize_str(text)) == len(text)
    assert not bounds.whole.endless
    assert len(text) <= bounds.whole.characters <= len(text) + 4
    assert sum(each.size.characters for each in bounds.fields) < bounds.whole.characters
    assert bounds_of(constraint.tree, xml=True).whole.characters > bounds.whole.characters


def test_a_cap_is_the_options() -> None:
    """An unbounded string ends where `max_string` says, in the grammar as in the reckoning."""

    class Free(BaseModel):
        text: str

    tokenizer = LLTokenizer("byte")
    for most in (5, 50):
        constraint = constraint_for(Schema("free", Free, options=Options(max_string=most)))
        assert bounds_of(constraint.tree).whole.characters == len('{"text": ""}') + most
        for length, fits in ((most, True), (most + 1, False)):
            text = json.dumps({"text": "x" * length})
            taken = LLMatcher(tokenizer, constraint.grammar("")).try_consume_tokens(tokenizer.tokenize_str(text))
            assert (taken == len(text)) is fits


@pytest.mark.parametrize(
    ("pattern", "longest"),
    [
        ("^[A-Z]{3}$", 3),
        (r"\A(?:x){2,4}\Z", 4),
        ("^(a|bb)$", 2),
        ("[A-Z]", None),
        ("^a|b$", None),
        ("^a*$", None),
        (r"^\p{L}$", None),
        (None, None),
    ],
)
def test_widths_of_patterns(pattern: str | None, longest: int | None) -> None:
    """A pattern that is tied to both ends and repeats nothing without end has a longest match; others have none."""
    assert width(pattern) == longest


def test_bad_examples_say_who_refuses_them_and_where() -> None:
    """An example may break its schema by its grammar (a value that is not in the text) or by validation."""

    class Named(BaseModel):
        name: Annotated[str, Verbatim()]
        n: Annotated[int, Field(le=9)] = 1

    examples = (
        Example("abc def", Named(name="abc")),
        Example("abc def", Named(name="xyz")),
        Example("abc def", Named.model_construct(name="def", n=10)),
    )
    schema = Schema("named", Named, examples)
    found = bad_examples(schema, constraint_for(schema))
    assert [(bad.number, bad.by) for bad in found] == [(2, "grammar"), (3, "grammar"), (3, "validation")]
    assert found[0].where == "after '{\"name\": \"' it does not allow 'xyz\"}'"
    assert found[2].where == "n: Input should be less than or equal to 9"


@pytest.mark.parametrize(
    ("items", "verdict"),
    [
        (5, "preset extract: its 256 tokens suffice"),
        (300, "the first attempt has 256 tokens; an answer that is cut gets twice as many, and the 512 of attempt 2"),
        (900, "tokens would suffice, but the last attempt has 1,024; an answer as long as that ends dead"),
        (
            None,
            "preset extract: 256 tokens. Longer answers are cut and tried again with up to 1,024; a part without an",
        ),
    ],
)
def test_the_verdict_on_the_budget(schemas: Path, items: int | None, verdict: str) -> None:
    """The worst case is set against the preset's tokens and those of the attempts after a cut."""
    most = {} if items is None else {"maxItems": items}
    listed = {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 9}, **most}
    (schemas / "long.json").write_text(json.dumps({"type": "object", "properties": {"a": listed}}))
    text = " ".join(line.strip() for line in lines_of(checked("long", schemas, get_preset("extract"))))
    assert verdict in text


def test_a_run_says_which_examples_mislead(caplog: pytest.LogCaptureFixture) -> None:
    """What the schema refuses of its own examples, and what validation alone enforces, is in the log once."""

    class Strict(BaseModel):
        """Read."""

        parts: Annotated[list[str], Field(max_length=3, json_schema_extra={"uniqueItems": True})]
        code: str = Field(max_length=2)

    examples = (
        Example("a", Strict(parts=["a"], code="a")),
        Example("b", Strict.model_construct(parts=["a"], code="abc")),
    )
    schema = Schema("strict", Strict, examples)
    with caplog.at_level("INFO", logger="gristmill"):
        announce(schema)
        announce(schema)
    said = [record.getMessage() for record in caplog.records]
    assert said == [
        "schema strict: left to validation: $.parts: uniqueItems",
        "schema strict: worked examples 2 show answers that the schema itself refuses, so they mislead the model; "
        "gristmill schema check says what is wrong with them",
    ]
