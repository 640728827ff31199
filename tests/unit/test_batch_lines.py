"""OpenAI batch lines: asked in that form, answered in that form."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gristmill.engine import Request
from gristmill.faults import Fault
from gristmill.pipeline import Pipeline
from gristmill.prompts import messages_for
from gristmill.records import Record, read_lines
from gristmill.settings import Settings
from gristmill.testing import FakeEngine, first_example

Drop = Callable[[str, bytes], Path]


def batch_line(**changes: Any) -> dict[str, Any]:
    """A good batch line, with changes to its body."""
    body = {"model": "gpt-4o", "messages": [{"role": "user", "content": "great pizza"}], "max_tokens": 100}
    return {"custom_id": "c1", "method": "POST", "url": "/v1/chat/completions", "body": body | changes}


def read(value: dict[str, Any]) -> Record | Fault:
    """What is read from a line."""
    (line,) = read_lines([json.dumps(value).encode()], "n")
    return line.content


def test_a_batch_line_is_a_conversation(pipeline: Pipeline) -> None:
    """Its turns stand behind the schema's examples, its system's words behind the schema's instruction."""
    parts = [{"type": "text", "text": "was"}, {"type": "text", "text": "good"}]
    messages = [
        {"role": "developer", "content": "Be strict."},
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": "yes?"},
        {"role": "user", "content": parts},
    ]
    record = read(batch_line(messages=messages))
    assert isinstance(record, Record)
    assert (record.id, record.text, record.max_tokens) == ("c1", "was\ngood", 100)
    turns = messages_for(pipeline.schema("note"), record)
    assert isinstance(turns, list)
    assert [turn["role"] for turn in turns] == ["system", "user", "assistant", "user", "assistant", "user"]
    assert turns[0]["content"].startswith("Read the note.")
    assert turns[0]["content"].endswith("\n\nBe strict.")
    assert [turn["content"] for turn in turns[3:]] == ["hello", "yes?", "was\ngood"]


def test_answers_and_errors(drop: Drop, settings: Settings) -> None:
    """Accepted lines are responses, dead ones errors, both with the custom id; plain records beside them stay plain."""
    asked: list[Request] = []

    def answer(request: Request) -> str:
        asked.append(request)
        return first_example(request)

    lines = [batch_line(), batch_line(n=2) | {"custom_id": "c2"}, {"id": "plain", "text": "t"}]
    drop("note/a.jsonl", b"".join(json.dumps(line).encode() + b"\n" for line in lines))
    pipeline = Pipeline(settings, FakeEngine(answer))
    run_id = pipeline.begin("extract")
    pipeline.take_in(run_id)
    report = pipeline.run(run_id)
    assert report.states["accepted"] == 2
    assert {request.record.id: request.max_new_tokens for request in asked} == {"c1": 100, "plain": 256}
    first, second = (settings.data / "outbox" / "note" / "a.jsonl").read_text().splitlines()
    response = json.loads(first)
    body = response["response"]["body"]
    assert (response["custom_id"], response["error"], response["response"]["status_code"]) == ("c1", None, 200)
    assert response["id"].startswith("batch_req_")
    assert (body["object"], body["model"], body["choices"][0]["finish_reason"]) == ("chat.completion", "fake", "stop")
    assert json.loads(body["choices"][0]["message"]["content"]) == {"title": "pizza", "stars": 5}
    assert body["usage"]["total_tokens"] == body["usage"]["prompt_tokens"] + body["usage"]["completion_tokens"] > 0
    assert json.loads(second)["id"] == "plain"
    error = json.loads((settings.data / "dead" / "note" / "a.jsonl").read_text())
    assert (error["custom_id"], error["response"], error["error"]["code"]) == ("c2", None, "unsupported")


@pytest.mark.parametrize(
    ("changes", "code", "message"),
    [
        ({"messages": []}, "missing_text", '"body" has no "messages"'),
        ({"messages": [{"role": "tool", "content": "x"}]}, "unsupported", "a message is none of a system, a user"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "unsupported", "or is not text"),
        ({"messages": ["hello"]}, "unsupported", "or is not text"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, "unsupported", "the last message is not the user's"),
        ({"messages": [{"role": "user", "content": " "}]}, "empty_text", "the last message is empty"),
        ({"stream": True}, "unsupported", '"stream" is asked for'),
        ({"tools": [{}]}, "unsupported", '"tools" is asked for'),
        ({"max_tokens": 0}, "unsupported", '"max_tokens" is not a whole number from 1'),
    ],
)
def test_what_can_not_be_answered(changes: dict[str, Any], code: str, message: str) -> None:
    """A request for what there is not is dead at once, and says what."""
    fault = read(batch_line(**changes))
    assert isinstance(fault, Fault)
    assert fault.code.value == code
    assert fault.code.permanent
    assert message in fault.message


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (batch_line() | {"custom_id": 7}, "bad_id"),
        (batch_line() | {"url": "/v1/embeddings"}, "unsupported"),
        (batch_line() | {"method": "GET"}, "unsupported"),
        (batch_line() | {"body": []}, "unsupported"),
    ],
)
def test_lines_around_the_body(line: dict[str, Any], code: str) -> None:
    """Other kinds of requests are refused."""
    fault = read(line)
    assert isinstance(fault, Fault)
    assert fault.code.value == code
