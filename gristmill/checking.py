"""Checking: a candidate is judged, never mended."""

from typing import TypeVar

from pydantic import BaseModel, ValidationError

from gristmill.faults import Fault, FaultCode

REPLACEMENT = "\ufffd"

M = TypeVar("M", bound=BaseModel)


def check(text: str, finish_reason: str, model: type[M], source: str) -> M | Fault:
    """Judge a candidate: the validated instance, or what is wrong with it.

    `finish_reason` is the engine's word on how the row ended ("stop", "length" or "degenerate"); a candidate that
    did not end by itself is a fault whatever its text looks like. `source` is the record's text: a replacement
    character that does not stand there is half a character that the model wrote.
    """
    if finish_reason == "length":
        return Fault(FaultCode.TRUNCATED, "the answer was cut at its token budget before it was complete")
    if finish_reason == "degenerate":
        return Fault(FaultCode.DEGENERATE, "the answer ran in place, repeating itself, and was stopped")
    if REPLACEMENT in text and REPLACEMENT not in source:
        return Fault(FaultCode.MOJIBAKE, "the answer holds a broken character (U+FFFD) that the text does not have")
    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        details = tuple(
            {"loc": list(e["loc"]), "type": e["type"], "msg": e["msg"]}
            for e in error.errors(include_url=False, include_context=False, include_input=False)
        )
        if any(detail["type"] == "json_invalid" for detail in details):
            return Fault(FaultCode.INVALID_JSON, "the answer is not JSON", details)
        where = ", ".join(".".join(map(str, d["loc"])) or "the whole" for d in details[:3])
        more = f" and {len(details) - 3} more" if len(details) > 3 else ""
        return Fault(FaultCode.INVALID, f"the answer does not fit the schema: {where}{more}", details)
