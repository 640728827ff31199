"""Decimals: their digits are in the grammar, and what is not is named."""

from decimal import Decimal
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, create_model

from gristmill import Options
from gristmill.grammar.constraint import constraint_for
from gristmill.schema import Schema
from tests.unit.xml_values import accepts, matcher_of

CENTS = Annotated[Decimal, Field(max_digits=5, decimal_places=2, ge=0)]


def constraint_of(kind: Any, form: Literal["json", "xml"] = "json") -> Any:
    model: type[BaseModel] = create_model("Price", price=(kind, ...))
    return constraint_for(Schema("price", model, options=Options(format=form)))


@pytest.mark.parametrize(
    ("kind", "spelt", "allowed"),
    [
        (CENTS, '"12.30"', True),
        (CENTS, "12.30", True),
        (CENTS, '"12.345"', False),
        (CENTS, "12.345", False),
        (CENTS, '"-1"', False),
        (CENTS, "-1", False),
        (CENTS, '"1234"', False),
        (CENTS, "1234", False),
        (CENTS, '"A0815"', False),
        (Decimal, '"1E+30"', True),
        (Decimal, '"-0.5"', True),
        (Decimal, '"five"', False),
        (Annotated[Decimal, Field(decimal_places=0)], '"5.5"', False),
        (Annotated[Decimal, Field(max_digits=2, decimal_places=2)], '"0.25"', True),
        (Annotated[Decimal, Field(max_digits=2, decimal_places=2)], "1", False),
    ],
)
def test_decimals_have_their_digits(kind: Any, spelt: str, allowed: bool) -> None:
    grammar = constraint_of(kind).grammar("")
    assert accepts(matcher_of(grammar), f'{{"price": {spelt}}}') is allowed


@pytest.mark.parametrize(("spelt", "allowed"), [("12.30", True), ("12.345", False), ("1234", False), ("-1", False)])
def test_so_they_have_in_xml(spelt: str, allowed: bool) -> None:
    grammar = constraint_of(CENTS, "xml").grammar("")
    assert accepts(matcher_of(grammar), f"<price><price>{spelt}</price></price>") is allowed


@pytest.mark.parametrize(
    ("kind", "left"),
    [
        (Decimal, ()),
        (Annotated[Decimal, Field(decimal_places=2, ge=0)], ()),
        (
            Annotated[Decimal, Field(ge=1, le=9)],
            ("$.price: minimum, maximum of a decimal that is written as a string",),
        ),
        (
            Annotated[Decimal, Field(max_digits=3)],
            ("$.price: max_digits", "$.price: max_digits of a decimal that is written as a string"),
        ),
    ],
)
def test_what_the_grammar_leaves_is_named(kind: Any, left: tuple[str, ...]) -> None:
    assert constraint_of(kind).relaxed == left
