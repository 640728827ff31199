"""Repair: what of a refused answer is kept, and what an attempt after it may write."""

from typing import Annotated, Self

import pytest
from llguidance import LLMatcher, LLTokenizer
from pydantic import BaseModel, Field, RootModel, model_validator

from gristmill.checking import check
from gristmill.engine import FinishReason, Request
from gristmill.faults import Fault, FaultCode
from gristmill.grammar.constraint import constraint_for
from gristmill.grammar.rules import MISSING, Fixed
from gristmill.presets import PRESETS
from gristmill.prompts import messages_for
from gristmill.records import Record
from gristmill.repair import Repair, repair_of
from gristmill.schema import schema_of


class Item(BaseModel):
    """An item."""

    name: str = Field(max_length=9)
    count: int


class Order(BaseModel):
    """An order."""

    number: str = Field(max_length=9)
    note: str | None = None
    items: list[Item] = Field(max_length=3)
    total: int

    @model_validator(mode="after")
    def total_is_the_sum(self) -> Self:
        """The total is the sum."""
        if self.total != sum(item.count for item in self.items):
            raise ValueError("total is not the sum of the counts")
        if self.number == "0":
            raise ValueError("something is off")
        return self


class Late(BaseModel):
    """Cut in the middle."""

    first: str = Field(max_length=9)
    second: Annotated[str, Field(max_length=9)] | None = None
    third: str = Field(max_length=90)


CONSTRAINT = constraint_for(schema_of(Order))
TOKENIZER = LLTokenizer("byte")


def repaired(text: str) -> Repair | None:
    """The repair of a candidate that is refused."""
    fault = check(text, FinishReason.STOP, schema_of(Order), str)
    assert isinstance(fault, Fault)
    return repair_of(CONSTRAINT, text, fault)


def test_a_validator_that_names_a_field_frees_that_field() -> None:
    """All else is kept, and the grammar forces it: after the opening everything up to the free value is given."""
    repair = repaired('{"number": "7", "items": [{"name": "a", "count": 2}], "total": 3}')
    assert repair is not None
    assert repair.known == {
        "number": Fixed("7"),
        "note": Fixed(MISSING),
        "items": Fixed([{"name": "a", "count": 2}]),
        "total": None,
    }
    matcher = LLMatcher(TOKENIZER, CONSTRAINT.grammar("", repair.known))
    assert matcher.compute_ff_bytes() == b'{"number": "7", "items": [{"name": "a", "count": 2}], "total": '


def test_a_validator_that_names_none_frees_all() -> None:
    """Then nothing is known, but the model is told what was wrong."""
    repair = repaired('{"number": "0", "items": [], "total": 0}')
    assert repair is not None
    assert repair.known is None
    assert "something is off" in repair.complaint


def test_the_failing_field_of_an_item_is_freed_alone() -> None:
    """Paths reach into lists and objects."""
    repair = repaired(
        '{"number": "7", "items": [{"name": "a", "count": 2}, {"name": "much too long", "count": 1}], "total": 3}'
    )
    assert repair is not None
    assert isinstance(repair.known, dict)
    assert repair.known["items"] == (Fixed({"name": "a", "count": 2}), {"name": None, "count": Fixed(1)})
    assert repair.known["total"] == Fixed(3)


def test_the_prompt_shows_the_answer_and_the_complaint() -> None:
    """The refused answer stands as the model's turn, what the validator said as the next one."""
    repair = repaired('{"number": "7", "items": [], "total": 3}')
    turns = messages_for(schema_of(Order), Record("a", "text"), repair)
    assert isinstance(turns, list)
    assert [turn["role"] for turn in turns[-3:]] == ["user", "assistant", "user"]
    assert turns[-2]["content"] == '{"number": "7", "items": [], "total": 3}'
    assert "total is not the sum of the counts" in turns[-1]["content"]


def test_a_cut_answer_is_closed_and_its_complete_fields_are_kept() -> None:
    """The candidate in the fault is complete JSON, marked truncated; the field at the cut is written anew."""
    text = '{"first": "one", "third": "two thr'
    fault = check(text, FinishReason.LENGTH, schema_of(Late), str)
    assert isinstance(fault, Fault)
    assert fault.code is FaultCode.TRUNCATED
    assert fault.closed == '{"first": "one", "third": "two thr"}'
    assert fault.as_json()["truncated"] == fault.closed
    assert Fault.from_json(fault.as_json()) == fault
    repair = repair_of(constraint_for(schema_of(Late)), text, fault)
    assert repair is not None
    assert repair.known == {"first": Fixed("one"), "second": Fixed(MISSING), "third": None}
    assert repair.complaint == ""


def test_what_can_not_be_read_is_not_repaired() -> None:
    """Neither a fault of the machine nor an answer that is no JSON leaves anything to keep."""
    assert repair_of(CONSTRAINT, "{", Fault(FaultCode.OUT_OF_MEMORY, "")) is None
    assert repair_of(CONSTRAINT, "{", Fault(FaultCode.INVALID, "", ())) is None
    assert repair_of(CONSTRAINT, "{", Fault(FaultCode.TRUNCATED, "")) is None


class Glossary(RootModel[dict[str, str]]):
    """A glossary."""


class Log(BaseModel):
    """From when to when."""

    start: int
    end: int
    error: str | None = None

    @model_validator(mode="after")
    def in_order(self) -> Self:
        """It does not stop before it begins."""
        if self.end < self.start:
            raise ValueError("it stops before it begins")
        return self


@pytest.mark.parametrize("reason", [FinishReason.LENGTH, FinishReason.DEGENERATE])
def test_a_cut_answer_without_fields_is_written_anew(reason: FinishReason) -> None:
    """Where nothing says which part was the last one, nothing is kept: half of a value must not become an answer."""
    text = '{"one": "1", "two": "2 is the sec'
    fault = check(text, reason, schema_of(Glossary), str)
    assert isinstance(fault, Fault)
    assert repair_of(constraint_for(schema_of(Glossary)), text, fault) is None


def test_a_broken_character_in_a_key_is_written_anew() -> None:
    """Only values have paths."""
    fault = Fault(FaultCode.MOJIBAKE, "")
    assert repair_of(constraint_for(schema_of(Glossary)), '{"caf\ufffd": "1"}', fault) is None


def test_words_of_pydantic_name_no_field() -> None:
    """ "Value error, ..." is no mention of the field `error`."""
    text = '{"start": 5, "end": 3}'
    fault = check(text, FinishReason.STOP, schema_of(Log), str)
    assert isinstance(fault, Fault)
    repair = repair_of(constraint_for(schema_of(Log)), text, fault)
    assert repair is not None
    assert repair.known is None


def test_a_repair_that_failed_is_not_repaired() -> None:
    """What it kept may be what is wrong, so the attempt after it is a fresh one."""
    request = Request(0, Record("a", "text"), schema_of(Log), PRESETS["extract"], 9)
    fault = check('{"start": 5, "end": 3}', FinishReason.STOP, schema_of(Log), str)
    assert isinstance(fault, Fault)
    assert request.mending('{"start": 5, "end": 3}', fault).repair is not None
    assert request.mending('{"start": 5, "end": 3}', fault, repaired=True).repair is None
