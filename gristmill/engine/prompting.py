"""From a request to prompt tokens: the model's chat template rendered once, length checked before it costs anything."""

import re

from jinja2 import TemplateError

from gristmill.engine.base import Failed, Request
from gristmill.engine.loading import LoadedModel
from gristmill.faults import Fault, FaultCode
from gristmill.prompts import Message, messages_for

LONGEST_TOKEN_BYTES = 128
"""No token of a byte-level vocabulary is longer (the longest are runs of white space), so a text with more bytes than
this times the context can't fit, and need not be tokenized to know it."""


def prompt_tokens(loaded: LoadedModel, request: Request) -> list[int] | Failed:
    """The token ids of the request's prompt, or why it can't be asked."""
    context = loaded.info.context_tokens
    if len(request.record.text.encode("utf-8")) > context * LONGEST_TOKEN_BYTES:
        return _too_long(request, f"the text has more than {context * LONGEST_TOKEN_BYTES} bytes", context)
    turns = messages_for(request.schema, request.record, request.repair)
    if isinstance(turns, Fault):
        return Failed(request.key, turns)
    turns, secrets = _without_special_tokens(loaded, turns)
    try:
        text = loaded.render(turns)
    except TemplateError as error:
        return Failed(request.key, Fault(FaultCode.ENGINE_ERROR, f"the model's chat template refused it: {error}"))
    tokens = _tokenized(loaded, text, secrets)
    if len(tokens) + request.max_new_tokens > context:
        return _too_long(request, f"{len(tokens)} prompt tokens and up to {request.max_new_tokens} new ones", context)
    return tokens


def _without_special_tokens(loaded: LoadedModel, turns: list[Message]) -> tuple[list[Message], dict[str, str]]:
    """The turns with the names of special tokens in their text put aside, and what stands for each.

    A record that holds `<|im_end|>` must not be able to end its turn: its letters are letters.
    """
    special = [token for token in loaded.special_tokens if any(token in turn["content"] for turn in turns)]
    secrets = {f"\ue000{i}\ue001": token for i, token in enumerate(sorted(special, key=len, reverse=True))}
    for secret, token in secrets.items():
        turns = [{**turn, "content": turn["content"].replace(token, secret)} for turn in turns]
    return turns, secrets


def _tokenized(loaded: LoadedModel, text: str, secrets: dict[str, str]) -> list[int]:
    def plain(part: str) -> list[int]:
        tokens: list[int] = loaded.tokenizer(part, add_special_tokens=False, verbose=False)["input_ids"]
        return tokens

    if not secrets:
        return plain(text)
    tokens: list[int] = []
    for part in re.split(f"({'|'.join(map(re.escape, secrets))})", text):
        if part in secrets:
            tokens += loaded.tokenizer(secrets[part], add_special_tokens=False, split_special_tokens=True)["input_ids"]
        elif part:
            tokens += plain(part)
    return tokens


def _too_long(request: Request, what: str, context: int) -> Failed:
    ways_out = "shorten the text, use another model, or let the schema split texts (OPTIONS)"
    message = f"{what} exceed the model's context of {context} tokens; {ways_out}"
    return Failed(request.key, Fault(FaultCode.TOO_LONG, message))
