"""OpenAI's batch lines: requests for chat completions as input, responses and errors as output.

Format: https://platform.openai.com/docs/guides/batch (input, output and error files).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gristmill.faults import Fault, FaultCode

URL = "/v1/chat/completions"
_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}


@dataclass(frozen=True, slots=True)
class Asked:
    """What a batch line asks: the chat turns, the last of them the user's, and the most tokens of an answer."""

    custom_id: str
    messages: tuple[Mapping[str, str], ...]
    max_tokens: int | None


def is_batch_line(value: Mapping[str, Any]) -> bool:
    """Whether a line's object is a batch line and not a record."""
    return "body" in value and "custom_id" in value and "text" not in value


def read(value: Mapping[str, Any]) -> Asked | Fault:
    """Read a batch line, or say why it can't be answered."""
    custom_id, body = value["custom_id"], value["body"]
    if not isinstance(custom_id, str) or not custom_id:
        return Fault(FaultCode.BAD_ID, '"custom_id" is not a non-empty string')
    if value.get("method", "POST") != "POST" or value.get("url", URL) != URL:
        return _unsupported(f'"method" and "url" have to be POST and {URL}')
    if not isinstance(body, dict):
        return _unsupported('"body" is not an object')
    for key, plain in (("n", 1), ("stream", False), ("tools", []), ("functions", [])):
        if body.get(key) not in (None, plain):
            return _unsupported(f'"{key}" is asked for, and one answer of the schema is what there is; leave it out')
    limit = body.get("max_completion_tokens", body.get("max_tokens"))
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 1):
        return _unsupported('"max_tokens" is not a whole number from 1')
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        return Fault(FaultCode.MISSING_TEXT, '"body" has no "messages"')
    turns = []
    for message in messages:
        role = _ROLES.get(str(message.get("role"))) if isinstance(message, dict) else None
        content = _text(message.get("content")) if role else None
        if role is None or content is None:
            return _unsupported("a message is none of a system, a user or an assistant, or is not text")
        turns.append({"role": role, "content": content})
    if turns[-1]["role"] != "user":
        return _unsupported("the last message is not the user's")
    if not turns[-1]["content"].strip():
        return Fault(FaultCode.EMPTY_TEXT, "the last message is empty; there is nothing to read")
    return Asked(custom_id, tuple(turns), limit)


def answer_line(row: Mapping[str, Any], file_key: str) -> str:
    """The output line of an accepted record; `row` is one of `gristmill.store.Outputs`."""
    asked, written = row["prompt_tokens"], row["completion_tokens"]
    is_json = json.loads(row["beside"]).get("format", "json") == "json"
    content = row["output"] if is_json else json.loads(row["output"])
    body = {
        "id": f"chatcmpl-{file_key[:12]}-{row['line']}",
        "object": "chat.completion",
        "created": int(row["ended_at"]),
        "model": row["model"],
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": content, "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": asked, "completion_tokens": written, "total_tokens": asked + written},
    }
    names = _names(file_key, row["line"], row["record_id"])
    response = {"status_code": 200, "request_id": body["id"], "body": body}
    return json.dumps({**names, "response": response, "error": None}, ensure_ascii=False)


def error_line(value: Mapping[str, Any], line: int, fault: Fault, file_key: str) -> str:
    """The error line of a dead record whose input line held `value`."""
    names = _names(file_key, line, value["custom_id"])
    return json.dumps({**names, "response": None, "error": fault.as_json()}, ensure_ascii=False)


def _names(file_key: str, line: int, custom_id: Any) -> dict[str, Any]:
    return {"id": f"batch_req_{file_key[:12]}_{line}", "custom_id": custom_id}


def _text(content: Any) -> str | None:
    """The text of a message: a string, or a list of parts that are all text."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return None
    texts = [part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str)]
    return "\n".join(texts) if texts and len(texts) == len(content) else None


def _unsupported(why: str) -> Fault:
    return Fault(FaultCode.UNSUPPORTED, f"the batch line can't be answered: {why}")
