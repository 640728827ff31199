"""Records: one line of an input file, read strictly, so that nothing is guessed."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import jsonlines

from gristmill import openai_batch
from gristmill.faults import Fault, FaultCode

_KEPT_OF_LONG_LINES = 1000


@dataclass(frozen=True, slots=True)
class Record:
    """One input: its `id`, its `text`, and every other field of the line (`gold` among them) in `fields`.

    A record from an OpenAI batch line has that line's chat turns in `messages`, the last of which is `text`, and may
    ask for answers of at most `max_tokens` tokens.
    """

    id: str
    text: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    messages: tuple[Mapping[str, str], ...] = ()
    max_tokens: int | None = None

    @property
    def gold(self) -> Mapping[str, Any] | None:
        """The right answer, where the line carries one as an object."""
        gold = self.fields.get("gold")
        return gold if isinstance(gold, Mapping) else None


@dataclass(frozen=True, slots=True)
class Line:
    """One line that is not blank: its number from 1, its bytes without the line end, and what was read from it."""

    number: int
    raw: bytes
    content: Record | Fault


class Cut(bytes):
    """The start of a line that is too long to be held; `length` is that of the whole in bytes."""

    length: int
    limit: int


class ReadsLines(Protocol):
    """A binary file, as far as it is needed to read lines of bounded length."""

    def readline(self, limit: int, /) -> bytes:
        """At most `limit` bytes, up to the line's end."""


def bounded_lines(file: ReadsLines, limit: int) -> Iterator[bytes]:
    """The lines of a binary file, of which never more than `limit` bytes are held; a longer one is a `Cut`."""
    while line := file.readline(limit + 1):
        if len(line) <= limit or line.endswith(b"\n"):
            yield line
            continue
        cut = Cut(line[:_KEPT_OF_LONG_LINES])
        cut.limit, cut.length = limit, len(line)
        while not line.endswith(b"\n") and (line := file.readline(limit + 1)):
            cut.length += len(line)
        cut.length -= line.endswith(b"\n")
        yield cut


class _RejectedError(ValueError):
    """Raised while a line is being decoded; carries the fault."""

    def __init__(self, code: FaultCode, message: str) -> None:
        super().__init__(message)
        self.fault = Fault(code, message)


def read_lines(source: Iterable[bytes], name: str) -> Iterator[Line]:
    """Read JSONL from an iterable of lines (an open binary file), splitting on `\\n` only.

    A byte order mark at the start is dropped; blank lines are skipped but counted in the numbers; a line that
    can't be read becomes a `Line` with a `Fault` and its neighbours go on. Ids missing in the input are
    `name:number`.
    """
    number, held = 0, b""

    def lines_with_content() -> Iterator[bytes]:
        nonlocal number, held
        for number, held in enumerate(source, start=1):
            if isinstance(held, Cut):
                yield _UNREADABLE
                continue
            held = held.rstrip(b"\r\n")
            if number == 1:
                held = held.removeprefix(b"\xef\xbb\xbf")
            if held.strip():
                yield held

    reader = jsonlines.Reader(lines_with_content(), loads=_loads)
    while True:
        try:
            value = reader.read(allow_none=True)
        except EOFError:
            return
        except jsonlines.InvalidLineError as error:
            yield Line(number, bytes(held), _fault_of(error, held))
        else:
            yield Line(number, held, _record_of(value, f"{name}:{number}", escaped=b"\\u" in held))


_UNREADABLE = b"{"


def parse_line(raw: bytes, default_id: str) -> Record | Fault:
    """Read one stored line again, as `read_lines` did."""
    try:
        return _record_of(_loads(raw), default_id, escaped=b"\\u" in raw)
    except ValueError:
        # What is wrong with it is said in one place.
        pass
    line = next(read_lines([raw], ""), None)
    if line is None:
        return Fault(FaultCode.NOT_JSON, "the line is blank")
    if isinstance(line.content, Record) and line.content.id == ":1":
        return replace(line.content, id=default_id)
    return line.content


def record_from(value: Mapping[str, Any], default_id: str) -> Record | Fault:
    """Make a record of an object that did not come from a file (the Python API)."""
    return _record_of(dict(value), default_id)


def _unique_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise _RejectedError(FaultCode.DUPLICATE_KEY, f"key {twice!r} stands twice in one object; keep one of them")
    return found


def _no_constant(name: str) -> None:
    raise _RejectedError(FaultCode.NOT_JSON, f"{name} is not JSON; write null or a string")


_TOO_DEEP = "nested too deeply to be read; flatten the object"

_decoder = json.JSONDecoder(object_pairs_hook=_unique_pairs, parse_constant=_no_constant)


def _loads(text: str | bytes) -> Any:
    try:
        return _decoder.decode(text if isinstance(text, str) else text.decode())
    except RecursionError:
        raise _RejectedError(FaultCode.NOT_JSON, _TOO_DEEP) from None


def _fault_of(error: jsonlines.InvalidLineError, raw: bytes) -> Fault:
    if isinstance(raw, Cut):
        return Fault(
            FaultCode.LINE_TOO_LONG,
            f"the line has {raw.length:,} bytes, over the {raw.limit:,} of GRISTMILL_MAX_LINE_BYTES; its start is kept "
            "here, the whole stands in the archived file; shorten it, or raise the setting and take the file in again "
            "(--again)",
        )
    cause: BaseException | None = error
    while cause is not None:
        match cause:
            case _RejectedError():
                return cause.fault
            case UnicodeDecodeError():
                return Fault(
                    FaultCode.NOT_UTF8,
                    f"byte 0x{raw[cause.start]:02x} at position {cause.start} is not UTF-8; save the file as UTF-8"
                    if cause.start < len(raw)
                    else "not UTF-8; save the file as UTF-8",
                )
            case json.JSONDecodeError():
                return Fault(FaultCode.NOT_JSON, f"not JSON: {cause.msg} at column {cause.colno}")
        cause = cause.__cause__ or cause.__context__
    return Fault(FaultCode.NOT_JSON, "not JSON: a number has too many digits to be read; write it as a string")


_NAMES = {list: "an array", str: "a string", int: "a number", float: "a number", bool: "a boolean", type(None): "null"}


def _record_of(value: Any, default_id: str, *, escaped: bool = True) -> Record | Fault:
    if not isinstance(value, dict):
        return Fault(
            FaultCode.NOT_OBJECT, f'the line is {_NAMES[type(value)]}, not an object; write {{"id": ..., "text": ...}}'
        )
    if unusable := _unusable(value, escaped=escaped):
        return unusable
    if openai_batch.is_batch_line(value):
        return _batch_record(value)
    if "text" not in value:
        return Fault(FaultCode.MISSING_TEXT, f'no "text" among the keys {_listed(value)}; name the text "text"')
    text = value["text"]
    if not isinstance(text, str):
        return Fault(FaultCode.MISSING_TEXT, f'"text" is {_NAMES.get(type(text), "an object")}, not a string')
    if not text.strip():
        return Fault(FaultCode.EMPTY_TEXT, '"text" is empty; there is nothing to read')
    record_id = value.get("id", default_id)
    if isinstance(record_id, int) and not isinstance(record_id, bool):
        record_id = str(record_id)
    if not isinstance(record_id, str) or not record_id:
        what = "empty" if record_id == "" else _NAMES.get(type(record_id), "an object")
        return Fault(FaultCode.BAD_ID, f'"id" is {what}; use a non-empty string')
    if "\x00" in record_id:
        return Fault(FaultCode.BAD_ID, '"id" holds a NUL character; remove it')
    return Record(record_id, text, {key: v for key, v in value.items() if key not in ("id", "text")})


def _batch_record(value: Mapping[str, Any]) -> Record | Fault:
    asked = openai_batch.read(value)
    if isinstance(asked, Fault):
        return asked
    if "\x00" in asked.custom_id:
        return Fault(FaultCode.BAD_ID, '"custom_id" holds a NUL character; remove it')
    return Record(asked.custom_id, asked.messages[-1]["content"], {}, asked.messages, asked.max_tokens)


_DEEPEST = 100
"""How deep objects and arrays may be nested: far more than data is, and little enough for every stack."""


def _unusable(value: Any, *, escaped: bool) -> Fault | None:
    """What makes a decoded value unusable anywhere: nested too deeply, or halves of surrogate pairs in its strings.

    Without an escape in the line, what was decoded can be encoded.
    """
    waiting = [(value, 1)]
    while waiting:
        each, depth = waiting.pop()
        if depth > _DEEPEST:
            return Fault(FaultCode.NOT_JSON, _TOO_DEEP)
        inner = (*each.keys(), *each.values()) if isinstance(each, dict) else each
        for item in inner:
            if isinstance(item, dict | list):
                waiting.append((item, depth + 1))
            elif escaped and isinstance(item, str) and not _has_utf8(item):
                half = "the line holds half of a surrogate pair, which is no character; remove it"
                return Fault(FaultCode.NOT_UTF8, half)
    return None


def _has_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def readable(text: str) -> str:
    """A name or id as it can be shown anywhere: control characters and what is no UTF-8 as backslash escapes."""
    try:
        text = text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:
        text = text.encode("utf-8", "backslashreplace").decode()
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _listed(value: dict[str, Any]) -> str:
    keys = [json.dumps(key, ensure_ascii=False) for key in value]
    return ", ".join(keys[:8]) + (", ..." if len(keys) > 8 else "") if keys else "(none)"
