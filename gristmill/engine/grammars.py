"""Matchers: one for each row, copied from a compiled one where the grammar is the same for all records of a schema."""

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from gristmill.engine.base import Failed, Request
from gristmill.faults import Fault, FaultCode
from gristmill.grammar.constraint import constraint_for

_LIMITS = LLParserLimits(initial_lexer_fuel=20_000_000)
"""Twenty times the engine's default: the words of a long text are many."""

_MOST = 256
"""Compiled grammars that are kept."""


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
            try:
                grammar = constraint.grammar(request.record.text, request.known)
            except ValueError as error:
                return _impossible(request, str(error))
            matcher = LLMatcher(self._tokenizer, grammar, limits=_LIMITS)
        else:
            key = request.schema.fingerprint
            if key not in self._compiled:
                if len(self._compiled) == _MOST:
                    del self._compiled[next(iter(self._compiled))]
                self._compiled[key] = LLMatcher(self._tokenizer, constraint.grammar(""))
            matcher = self._compiled[key].deep_copy()
        if matcher.is_error():
            return _impossible(request, matcher.get_error().splitlines()[0])
        return matcher


def _impossible(request: Request, reason: str) -> Failed:
    """Another attempt would fail as this one: the text is too long for a grammar of its words, or has none to copy."""
    return Failed(request.key, Fault(FaultCode.TOO_LONG, f"no grammar can be made of this record's words: {reason}"))
