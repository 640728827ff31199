"""What can be wrong with one record: a closed list of codes, each permanent or worth another attempt."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class FaultCode(StrEnum):
    """Why a record has no accepted output. The value is what reports and dead files show."""

    NOT_UTF8 = "not_utf8"
    NOT_JSON = "not_json"
    NOT_OBJECT = "not_object"
    DUPLICATE_KEY = "duplicate_key"
    BAD_ID = "bad_id"
    MISSING_TEXT = "missing_text"
    EMPTY_TEXT = "empty_text"
    MISSING_FIELD = "missing_field"
    LINE_TOO_LONG = "line_too_long"
    UNSUPPORTED = "unsupported"
    TOO_LONG = "too_long"

    TRUNCATED = "truncated"
    DEGENERATE = "degenerate"
    MOJIBAKE = "mojibake"
    INVALID_JSON = "invalid_json"
    INVALID_XML = "invalid_xml"
    INVALID = "invalid"

    OUT_OF_MEMORY = "out_of_memory"
    ENGINE_ERROR = "engine_error"
    INTERRUPTED = "interrupted"
    DROPPED = "dropped"

    @property
    def permanent(self) -> bool:
        """Whether no further attempt can help, because the fault lies in the input itself."""
        return self in _PERMANENT


_PERMANENT = frozenset(
    {
        FaultCode.NOT_UTF8,
        FaultCode.NOT_JSON,
        FaultCode.NOT_OBJECT,
        FaultCode.DUPLICATE_KEY,
        FaultCode.BAD_ID,
        FaultCode.MISSING_TEXT,
        FaultCode.EMPTY_TEXT,
        FaultCode.MISSING_FIELD,
        FaultCode.LINE_TOO_LONG,
        FaultCode.UNSUPPORTED,
        FaultCode.TOO_LONG,
        FaultCode.DROPPED,
    }
)


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of one record.

    `details` holds one mapping per failing field with Pydantic's `loc` (a list), `type` and `msg`; it is empty
    for faults that are not about fields. `closed` is a cut answer with its open ends closed.
    """

    code: FaultCode
    message: str
    details: tuple[Mapping[str, Any], ...] = ()
    closed: str | None = None

    def as_json(self) -> dict[str, Any]:
        """The `error` object of dead files and results."""
        told = {"code": self.code.value, "message": self.message, "details": [dict(d) for d in self.details]}
        return told if self.closed is None else told | {"truncated": self.closed}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Fault":
        """The fault that `as_json` wrote."""
        return cls(FaultCode(value["code"]), value["message"], tuple(value["details"]), value.get("truncated"))
