"""Matchers: one for each row, copied from a compiled one where the grammar is the same for all records of a schema."""

from llguidance import LLMatcher, LLTokenizer

from gristmill.engine.base import Failed, Request
from gristmill.faults import Fault, FaultCode
from gristmill.grammar.constraint import constraint_for


class Matchers:
    """Makes matchers over one tokenizer."""

    def __init__(self, tokenizer: LLTokenizer) -> None:
        self._tokenizer = tokenizer
        self._compiled: dict[str, LLMatcher] = {}

    def matcher(self, request: Request) -> LLMatcher | Failed:
        """A fresh matcher for an attempt, or why there is none.

        Raises:
            SchemaError: no grammar can be made of the schema, whatever the record.
        """
        constraint = constraint_for(request.schema)
        if constraint.per_record or request.known is not None:
            matcher = LLMatcher(self._tokenizer, constraint.grammar(request.record.text, request.known))
        else:
            key = request.schema.fingerprint
            if key not in self._compiled:
                self._compiled[key] = LLMatcher(self._tokenizer, constraint.grammar(""))
            matcher = self._compiled[key].deep_copy()
        if matcher.is_error():
            reason = matcher.get_error().splitlines()[0]
            message = f"no grammar can be made for this record: {reason}"
            return Failed(request.key, Fault(FaultCode.ENGINE_ERROR, message))
        return matcher
