"""From a request to prompt tokens: the model's chat template rendered once, length checked before it costs anything."""

from jinja2 import TemplateError

from gristmill.engine.base import Failed, Request
from gristmill.engine.loading import LoadedModel
from gristmill.faults import Fault, FaultCode
from gristmill.prompts import messages_for

LONGEST_TOKEN_BYTES = 128
"""No token of a byte-level vocabulary is longer (the longest are runs of white space), so a text with more bytes than
this times the context can't fit, and need not be tokenized to know it."""


def prompt_tokens(loaded: LoadedModel, request: Request) -> list[int] | Failed:
    """The token ids of the request's prompt, or why it can't be asked."""
    context = loaded.info.context_tokens
    if len(request.record.text.encode("utf-8")) > context * LONGEST_TOKEN_BYTES:
        return _too_long(request, f"the text has more than {context * LONGEST_TOKEN_BYTES} bytes", context)
    turns = messages_for(request.schema, request.record)
    if isinstance(turns, Fault):
        return Failed(request.key, turns)
    try:
        text = loaded.render(turns)
    except TemplateError as error:
        return Failed(request.key, Fault(FaultCode.ENGINE_ERROR, f"the model's chat template refused it: {error}"))
    tokens: list[int] = loaded.tokenizer(text, add_special_tokens=False)["input_ids"]
    if len(tokens) + request.max_new_tokens > context:
        return _too_long(request, f"{len(tokens)} prompt tokens and up to {request.max_new_tokens} new ones", context)
    return tokens


def _too_long(request: Request, what: str, context: int) -> Failed:
    message = f"{what} exceed the model's context of {context} tokens; shorten the text or use another model"
    return Failed(request.key, Fault(FaultCode.TOO_LONG, message))
