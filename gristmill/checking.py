"""Checking: a candidate is judged, never mended."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from pydantic import BaseModel, ValidationError

from gristmill.engine.base import FinishReason
from gristmill.faults import Fault, FaultCode
from gristmill.prompts import spell_strictly
from gristmill.schema import dump

REPLACEMENT = "\ufffd"

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Accepted(Generic[M]):
    """A candidate that fits: the validated instance, and its JSON as the outbox shows it."""

    output: M
    text: str


def check(text: str, finish_reason: FinishReason, model: type[M], source: Callable[[], str]) -> Accepted[M] | Fault:
    """Judge a candidate.

    One that did not end by itself is a fault whatever its text looks like. `source` gives the record's
    text: a replacement character that does not stand there is half a character that the model wrote. A validator or
    serializer of the schema that raises something of its own makes the candidate invalid; it can't end a run.
    """
    if finish_reason is FinishReason.LENGTH:
        return Fault(FaultCode.TRUNCATED, "the answer was cut at its token budget before it was complete")
    if finish_reason is FinishReason.DEGENERATE:
        return Fault(FaultCode.DEGENERATE, "the answer ran in place, repeating itself, and was stopped")
    if REPLACEMENT in text and REPLACEMENT not in source():
        return Fault(FaultCode.MOJIBAKE, "the answer holds a broken character (U+FFFD) that the text does not have")
    try:
        output = model.model_validate_json(text)
    except ValidationError as error:
        return _invalid(error)
    except Exception as error:  # noqa: BLE001 - a validator is a user's code and may raise anything
        return _raised("a validator", error)
    try:
        spelt = spell_strictly(dump(output))
        # A validator may have put half of a surrogate pair in.
        spelt.encode()
        return Accepted(output, spelt)
    except Exception as error:  # noqa: BLE001 - so may a serializer; and JSON has no infinity
        return _raised("writing the answer as JSON", error)


def _invalid(error: ValidationError) -> Fault:
    details = tuple(
        {"loc": list(e["loc"]), "type": e["type"], "msg": e["msg"]}
        for e in error.errors(include_url=False, include_context=False, include_input=False)
    )
    if any(detail["type"] == "json_invalid" for detail in details):
        return Fault(FaultCode.INVALID_JSON, "the answer is not JSON", details)
    where = ", ".join(".".join(map(str, d["loc"])) or "the whole" for d in details[:3])
    more = f" and {len(details) - 3} more" if len(details) > 3 else ""
    return Fault(FaultCode.INVALID, f"the answer does not fit the schema: {where}{more}", details)


def _raised(what: str, error: Exception) -> Fault:
    kind = type(error).__name__
    detail = {"loc": [], "type": kind, "msg": f"{what} raised {kind}"}
    return Fault(FaultCode.INVALID, f"the answer does not fit the schema: {what} raised {kind}", (detail,))
