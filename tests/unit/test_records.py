"""Reading lines: every byte-level case gets its right answer, and neighbours go on."""

import json
from pathlib import Path

import pytest

from gristmill.faults import Fault, FaultCode
from gristmill.records import Record, parse_line, read_lines

GOOD = b'{"id": "a", "text": "hello"}'


def contents(data: bytes) -> list[Record | Fault]:
    """What a file of these bytes holds, read as a file is."""
    return [line.content for line in read_lines([part + b"\n" for part in data.split(b"\n")], "n")]


@pytest.mark.parametrize(
    "data",
    [
        GOOD + b"\n" + GOOD,
        b"\xef\xbb\xbf" + GOOD + b"\n" + GOOD + b"\n",
        GOOD + b"\r\n" + GOOD + b"\r\n",
        b"\n\n" + GOOD + b"\n   \t\n" + GOOD + b"\n\n",
    ],
    ids=["no final newline", "byte order mark", "CRLF", "blank lines"],
)
def test_line_ends_and_marks_change_nothing(data: bytes) -> None:
    """Two good lines are two records, whatever stands around them."""
    assert contents(data) == [Record("a", "hello")] * 2


def test_numbers_count_blank_lines() -> None:
    """A line's number is the one that an editor shows."""
    lines = list(read_lines([b"\n", b"\n", GOOD + b"\n", b" \n", b"{\n"], "n"))
    assert [(line.number, line.raw) for line in lines] == [(3, GOOD), (5, b"{")]


def test_only_newline_splits(tmp_path: Path) -> None:
    """Unicode line separators and form feeds inside a string are part of the text."""
    text = "one\u2028two\u2029three\x0c\x85\u0085four"
    path = tmp_path / "f.jsonl"
    path.write_bytes(json.dumps({"text": text}, ensure_ascii=False).encode() + b"\n")
    with path.open("rb") as file:
        (line,) = read_lines(file, "f")
    assert line.content == Record("f:1", text)


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        (b'{"text": "caf\xe9"}', "not_utf8", "byte 0xe9 at position 13 is not UTF-8; save the file as UTF-8"),
        (b'{"text": "a"', "not_json", "not JSON: Expecting ',' delimiter at column 13"),
        (b"hello", "not_json", "not JSON: Expecting value at column 1"),
        (b'{"text": NaN}', "not_json", "NaN is not JSON; write null or a string"),
        (b'{"text": "a", "x": -Infinity}', "not_json", "-Infinity is not JSON; write null or a string"),
        (
            b'{"text": "a", "n": ' + b"9" * 5000 + b"}",
            "not_json",
            "not JSON: a number has too many digits to be read; write it as a string",
        ),
        (b"[" * 10_000 + b"]" * 10_000, "not_json", "nested too deeply to be read; flatten the object"),
        (b'["a"]', "not_object", 'the line is an array, not an object; write {"id": ..., "text": ...}'),
        (b"42", "not_object", 'the line is a number, not an object; write {"id": ..., "text": ...}'),
        (b"null", "not_object", 'the line is null, not an object; write {"id": ..., "text": ...}'),
        (b'"x"', "not_object", 'the line is a string, not an object; write {"id": ..., "text": ...}'),
        (b"true", "not_object", 'the line is a boolean, not an object; write {"id": ..., "text": ...}'),
        (
            b'{"id": "a", "body": "b"}',
            "missing_text",
            'no "text" among the keys "id", "body"; name the text "text"',
        ),
        (b"{}", "missing_text", 'no "text" among the keys (none); name the text "text"'),
        (b'{"text": 7}', "missing_text", '"text" is a number, not a string'),
        (b'{"text": {}}', "missing_text", '"text" is an object, not a string'),
        (b'{"text": " \\n "}', "empty_text", '"text" is empty; there is nothing to read'),
        (
            b'{"text": "a", "text": "b"}',
            "duplicate_key",
            "key 'text' stands twice in one object; keep one of them",
        ),
        (b'{"id": [], "text": "a"}', "bad_id", '"id" is an array; use a non-empty string'),
        (b'{"id": "", "text": "a"}', "bad_id", '"id" is empty; use a non-empty string'),
        (
            b'{"id": "\\udfff", "text": "a"}',
            "not_utf8",
            "the line holds half of a surrogate pair, which is no character; remove it",
        ),
        (
            b'{"text": "a", "x": [{"\\ud800": 1}]}',
            "not_utf8",
            "the line holds half of a surrogate pair, which is no character; remove it",
        ),
        (
            b'{"text": "\\ud800"}',
            "not_utf8",
            "the line holds half of a surrogate pair, which is no character; remove it",
        ),
    ],
    ids=lambda value: value[:24].decode("latin-1") if isinstance(value, bytes) else "",
)
def test_bad_lines_say_what_is_wrong(line: bytes, code: str, message: str) -> None:
    """Each kind of bad line has its code and its exact message, and the good lines around it are read."""
    before, bad, after = read_lines([GOOD + b"\n", line + b"\n", GOOD], "n")
    assert isinstance(bad.content, Fault)
    assert (bad.content.code.value, bad.content.message) == (code, message)
    assert bad.content.code.permanent
    assert bad.raw == line
    assert before.content == after.content == Record("a", "hello")


def test_missing_ids_come_from_name_and_line() -> None:
    """A record without an id is named after its file and line, also when its line is read again."""
    (line,) = read_lines([b'{"text": "x", "k": 1}'], "day")
    assert line.content == Record("day:1", "x", {"k": 1})
    assert parse_line(line.raw, "day:1") == line.content


def test_numeric_ids_become_strings() -> None:
    """An id that is a number is taken as its digits."""
    assert contents(b'{"id": 7, "text": "x"}') == [Record("7", "x")]


def test_gold_is_an_object_or_nothing() -> None:
    """Only an object counts as the right answer."""
    assert Record("a", "x", {"gold": {"k": 1}}).gold == {"k": 1}
    assert Record("a", "x", {"gold": "k"}).gold is None


def test_every_fault_code_is_permanent_or_has_a_limit() -> None:
    """No fault is left without an answer by the policy."""
    from gristmill.policy import LIMITS

    assert {code for code in FaultCode if not code.permanent} == set(LIMITS)
