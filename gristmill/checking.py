"""Checking: a candidate is judged, never mended."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ValidationError

from gristmill.engine.base import FinishReason
from gristmill.faults import Fault, FaultCode
from gristmill.grammar.constraint import Constraint, constraint_for
from gristmill.grammar.json_spelling import spell, spell_strictly
from gristmill.schema import Schema, dump, written
from gristmill.spans import Spans, spans_of

REPLACEMENT = "\ufffd"


@dataclass(frozen=True, slots=True)
class Accepted:
    """A candidate that fits: the validated instance, what the outbox shows as its `output` (JSON text; of an XML answer
    the text of a string), and what stands beside it there."""

    output: BaseModel
    text: str
    beside: Mapping[str, Any] = field(default_factory=dict)
    spans: Spans = field(default_factory=Spans)


def check(text: str, finish_reason: FinishReason, schema: Schema, source: Callable[[], str]) -> Accepted | Fault:
    """Judge a candidate.

    One that did not end by itself is a fault whatever its text looks like; what was there of it is kept, closed, in the
    fault. `source` gives the record's text. A replacement character that it does not have is a broken character that
    the model wrote. A validator or serializer of the schema that raises something of its own makes the candidate
    invalid; it can't end a run.
    """
    constraint = constraint_for(schema)
    if finish_reason is FinishReason.LENGTH:
        closed = _closed(constraint, text)
        return Fault(FaultCode.TRUNCATED, "the answer was cut at its token budget before it was complete", (), closed)
    if finish_reason is FinishReason.DEGENERATE:
        closed = _closed(constraint, text)
        return Fault(FaultCode.DEGENERATE, "the answer ran in place, repeating itself, and was stopped", (), closed)
    if REPLACEMENT in text and REPLACEMENT not in source():
        return Fault(FaultCode.MOJIBAKE, "the answer holds a broken character (U+FFFD) that the text does not have")
    try:
        as_json = text if constraint.format == "json" else spell(constraint.spelling.read(text))
    except ValidationError as error:
        return _invalid(error)
    except ValueError as error:
        return Fault(FaultCode.INVALID_XML, f"the answer is not the XML of the schema: {error}")
    try:
        output = schema.model.model_validate_json(as_json)
    except ValidationError as error:
        return _invalid(error)
    except Exception as error:  # noqa: BLE001 - a validator is a user's code and may raise anything
        return _raised("a validator", error)
    try:
        value = dump(output)
        spelt = spell_strictly(value)
        # A validator may have put half of a surrogate pair in.
        spelt.encode()
        beside: dict[str, Any] = {}
        if constraint.format != "json":
            beside["format"], spelt = constraint.format, spell(constraint.spell(written(output)))
        spans = Spans()
        if constraint.per_record:
            spans = spans_of(constraint.tree, json.loads(as_json), source())
            beside |= spans.as_json()
        return Accepted(output, spelt, beside, spans)
    except Exception as error:  # noqa: BLE001 - so may a serializer; and JSON has no infinity
        return _raised(f"writing the answer as {constraint.format.upper()}", error)


def _closed(constraint: Constraint, text: str) -> str | None:
    """What is there of a cut answer as a complete one, where anything is."""
    value = constraint.spelling.partial(text)
    if value is None:
        return None
    try:
        return constraint.spelling.spell(value)
    except ValueError:
        return None


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
