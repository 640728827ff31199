"""Candidates are judged, never mended."""

import pytest
from pydantic import BaseModel, field_validator

from gristmill.checking import Accepted, check
from gristmill.engine import FinishReason
from gristmill.faults import Fault
from gristmill.schema import schema_of


class Point(BaseModel):
    """A point."""

    x: int
    name: str = ""


@pytest.mark.parametrize(
    ("text", "reason", "code"),
    [
        ('{"x": 1', "length", "truncated"),
        ('{"x": 1}', "length", "truncated"),
        ('{"x": 11111', "degenerate", "degenerate"),
        ('{"x": 1', "stop", "invalid_json"),
        ('{"x": "one"}', "stop", "invalid"),
        ('{"x": 1, "name": "\ufffd"}', "stop", "mojibake"),
        ("", "stop", "invalid_json"),
    ],
)
def test_faults(text: str, reason: str, code: str) -> None:
    """Cut, running in place, broken and invalid candidates are different faults; a cut one that parses is cut."""
    fault = check(text, FinishReason(reason), schema_of(Point), lambda: "source")
    assert isinstance(fault, Fault)
    assert fault.code.value == code


def test_details_have_no_input() -> None:
    """Details are Pydantic's loc, type and msg and nothing else, so that no record text travels with them."""
    fault = check('{"x": "secret"}', FinishReason.STOP, schema_of(Point), str)
    assert isinstance(fault, Fault)
    assert fault.message == "the answer does not fit the schema: x"
    assert [set(detail) for detail in fault.details] == [{"loc", "type", "msg"}]
    assert "secret" not in str(fault)


def test_accepted_is_an_instance() -> None:
    """What is accepted is a validated instance; a replacement character of the text itself may be copied."""
    accepted = check('{"x": 1, "name": "\ufffd"}', FinishReason.STOP, schema_of(Point), lambda: "a \ufffd b")
    assert accepted == Accepted(Point(x=1, name="\ufffd"), '{"x": 1, "name": "\ufffd"}')


class Odd(BaseModel):
    """A model whose validator raises what it likes, and whose number may be infinite."""

    kind: str
    share: float = 0.0

    @field_validator("kind")
    @classmethod
    def known(cls, value: str) -> str:
        return {"a": "b"}[value]


def test_a_schema_can_not_end_a_run() -> None:
    """A validator that raises a KeyError, and a number that JSON does not have, are faults of the candidate."""
    raised = check('{"kind": "z"}', FinishReason.STOP, schema_of(Odd), str)
    infinite = check('{"kind": "a", "share": 1e999}', FinishReason.STOP, schema_of(Odd), str)
    assert isinstance(raised, Fault)
    assert isinstance(infinite, Fault)
    assert raised.message == "the answer does not fit the schema: a validator raised KeyError"
    assert infinite.message == "the answer does not fit the schema: writing the answer as JSON raised ValueError"
