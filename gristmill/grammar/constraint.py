"""The constraint of a schema: its tree in one of the two spellings, compiled once before anything is run with it."""

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol, cast

from llguidance import LLMatcher, LLTokenizer

from gristmill.errors import SchemaError
from gristmill.grammar.json_spelling import JsonSpelling
from gristmill.grammar.rules import Known
from gristmill.grammar.tree import Tree, fitted, tree_of
from gristmill.grammar.xml_names import brings_mapping, xml_json_schema
from gristmill.grammar.xml_spelling import XmlSpelling
from gristmill.schema import Schema, dump

if TYPE_CHECKING:
    from pydantic_xml import BaseXmlModel


class Spelling(Protocol):
    """One way to write a tree."""

    @property
    def relaxed(self) -> tuple[str, ...]:
        """What its grammar leaves to validation, by path."""

    def spell(self, value: Any) -> str:
        """A JSON value as the grammar has it. Raises ValueError where it can't be written."""

    def read(self, text: str) -> Any:
        """The JSON value of a text. Raises ValueError where it is malformed."""

    def partial(self, text: str) -> Any:
        """The JSON value of what is there of a text that was cut, or None where there is nothing yet."""

    def grammar(self, source_text: str, known: Known = None) -> str:
        """The grammar for one record, as `LLMatcher` takes it."""


@dataclass(frozen=True)
class Constraint:
    """What answers of a schema may look like.

    `format` is "json" or "xml". `per_record`: the grammar depends on the record's text. `relaxed` names, by path, what
    validation has to enforce.
    """

    tree: Tree
    spelling: Spelling
    per_record: bool
    relaxed: tuple[str, ...]
    format: str

    def grammar(self, source_text: str, known: Known = None) -> str:
        """The grammar for one record, as `LLMatcher` takes it."""
        return self.spelling.grammar(source_text, known)

    def spell(self, value: Any) -> str:
        """A JSON value as the grammar has it, absent fields as the schema's options want them."""
        return self.spelling.spell(fitted(self.tree, value))


@lru_cache(maxsize=256)
def constraint_for(schema: Schema) -> Constraint:
    """Build the constraint of a schema and compile it once.

    Raises:
        SchemaError: the grammar engine refuses it; the message says what it refuses.
    """
    try:
        tree, spelling = _spelt(schema)
    except SchemaError as error:
        raise SchemaError(f"schema {schema.name!r}: {error}") from error
    refused, notes = LLMatcher.validate_grammar_with_warnings(spelling.grammar("a", None))
    if refused:
        raise SchemaError(
            f"schema {schema.name!r} can't be made a grammar: {notes[0].splitlines()[0]}; change the field's type"
        )
    relaxed = (*spelling.relaxed, *(f"$: {note}" for note in notes))
    return Constraint(tree, spelling, tree.ties(tree.root), relaxed, _format(schema))


def _format(schema: Schema) -> str:
    return schema.options.format or ("xml" if brings_mapping(schema.model) else "json")


def _spelt(schema: Schema) -> tuple[Tree, Spelling]:
    options, as_xml = schema.options, _format(schema) == "xml"
    tree = tree_of(
        xml_json_schema(schema.model) if as_xml else schema.json_schema,
        absent=options.absent,
        max_string=options.max_string,
        verbatim=options.verbatim,
    )
    if not as_xml:
        return tree, JsonSpelling(tree, options.separators)
    if brings_mapping(schema.model):
        # pydantic-xml is an extra: who has such a class has it installed.
        from gristmill.grammar.xml_model_spelling import ModelSpelling

        return tree, ModelSpelling(cast("type[BaseXmlModel]", schema.model), tree)
    return tree, XmlSpelling(tree, schema.name)


def examples_refused(schema: Schema, constraint: Constraint) -> list[int]:
    """Numbers (from 1) of the worked examples whose output the grammar would not let the model write."""
    tokenizer = LLTokenizer("byte")
    refused = []
    matcher = LLMatcher(tokenizer, constraint.grammar(""))
    for number, example in enumerate(schema.examples, start=1):
        fresh = LLMatcher(tokenizer, constraint.grammar(example.text)) if constraint.per_record else matcher.deep_copy()
        tokens = tokenizer.tokenize_str(constraint.spell(dump(example.output)))
        if fresh.try_consume_tokens(tokens) != len(tokens) or not fresh.is_accepting():
            refused.append(number)
    return refused
