"""Candidates are judged, never mended."""

import pytest
from pydantic import BaseModel

from gristmill.checking import check
from gristmill.faults import Fault


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
    fault = check(text, reason, Point, "source")
    assert isinstance(fault, Fault)
    assert fault.code.value == code


def test_details_have_no_input() -> None:
    """Details are Pydantic's loc, type and msg and nothing else, so that no record text travels with them."""
    fault = check('{"x": "secret"}', "stop", Point, "")
    assert isinstance(fault, Fault)
    assert fault.message == "the answer does not fit the schema: x"
    assert [set(detail) for detail in fault.details] == [{"loc", "type", "msg"}]
    assert "secret" not in str(fault)


def test_accepted_is_an_instance() -> None:
    """What is accepted is a validated instance; a replacement character of the text itself may be copied."""
    assert check('{"x": 1, "name": "\ufffd"}', "stop", Point, "a \ufffd b") == Point(x=1, name="\ufffd")
